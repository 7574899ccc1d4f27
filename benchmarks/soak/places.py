"""Where the executions of a soak are kept, and how it is taken away and given back."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Protocol

from ares.errors import UsageError
from ares.testing import Nursery
from benchmarks.soak.disk import mount_small_disk, unmount
from benchmarks.soak.faults import Fault, FileLock, FullDisk, Outage

#: Megabytes of the disk that can be full: room for ten times what is asked for by default.
_DISK = 256


class Place(Protocol):
    """A store, as far as a soak needs to know it."""

    #: As a Runtime takes it.
    store: str

    def outage(self, nursery: Nursery) -> Fault:
        """The store is away."""

    def full(self) -> Fault:
        """Its disk is full.

        Raises:
            UsageError: it cannot be.
        """

    def damage(self) -> list[str]:
        """What is wrong with what it left on the disk, in words. Nobody uses it any more."""


class FilePlace:
    """An SQLite file, in a folder of its own."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder, "store")
        self._folder.mkdir()
        self._is_mounted = False
        self.store = str(self._folder / "soak.db")

    def outage(self, nursery: Nursery) -> Fault:
        """See ``Place``: somebody else holds the write lock."""
        return FileLock(nursery, self.store)

    def full(self) -> Fault:
        """See ``Place``. Before the process starts a thread, and before anything is in the file."""
        try:
            mount_small_disk(self._folder, _DISK)
        except OSError as error:
            raise UsageError(f"the disk cannot be full here: {error}") from error
        self._is_mounted = True
        return FullDisk(self._folder)

    def damage(self) -> list[str]:
        """See ``Place``."""
        with closing(sqlite3.connect(self.store)) as connection:
            found = [row[0] for row in connection.execute("PRAGMA integrity_check")]
        return [] if found == ["ok"] else [f"the file is damaged: {each}" for each in found]

    def close(self) -> None:
        """Let go of what it needed. Idempotent."""
        if self._is_mounted:
            unmount(self._folder)
            self._is_mounted = False


class Server(Protocol):
    """A database server that can be killed."""

    def kill(self) -> None:
        """End every process of it at once."""

    def start(self) -> None:
        """Start it again, and wait until it answers."""


class ServerPlace:
    """A database on a PostgreSQL server that nobody else uses."""

    def __init__(self, server: Server, url: str) -> None:
        self._server = server
        self.store = url

    def outage(self, nursery: Nursery) -> Fault:  # noqa: ARG002 - it needs no process of ours
        """See ``Place``: the server is killed."""
        return Outage(self._server.kill, self._server.start)

    def full(self) -> Fault:
        """See ``Place``."""
        raise UsageError("the disk of a server cannot be full here: only that of a file can")

    def damage(self) -> list[str]:
        """See ``Place``: the server finds out by itself, when it starts."""
        return []
