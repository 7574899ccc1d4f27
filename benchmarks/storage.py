"""The SQLite file of one measured run: where it is, what its connections are set to, and how often it was committed.

Every library makes its own connection, with its own ideas of ``journal_mode`` and ``synchronous``. Here they are set to
the same values and read back from the connection itself: a library that overrides them is found out and not believed.
"""

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import attrs

_LEVELS = {0: "OFF", 1: "NORMAL", 2: "FULL", 3: "EXTRA"}
_SETS_LEVEL = "PRAGMA SYNCHRONOUS ="
_WRITES = ("INSERT", "UPDATE", "DELETE", "REPLACE")


class SettingError(Exception):
    """A library's connection is not set to what it is compared at."""


@attrs.frozen
class Settings:
    """What one connection says of itself."""

    journal_mode: str
    synchronous: str

    def __str__(self) -> str:
        return f"{self.journal_mode}, {self.synchronous}"


#: What every library is compared at.
SAME = Settings("wal", "FULL")


@attrs.define(eq=False)
class _Connection:
    """A connection that a library made, and what was seen of it."""

    connection: sqlite3.Connection
    #: Whether it was set to ``SAME`` and has to stay there.
    is_tuned: bool
    level: str
    has_written: bool = False


class Store:
    """One run's SQLite file.

    Args:
        folder: Where the file is.
        is_tuned: Whether connections are set to ``SAME``; otherwise they stay as the library makes them.
        counts: Whether commits are counted, which slows them.
    """

    def __init__(self, folder: Path, *, is_tuned: bool = True, counts: bool = False) -> None:
        self.path = folder / "run.db"
        self._is_tuned = is_tuned
        self._counts = counts
        self._connections: list[_Connection] = []
        #: Commits that wrote something, by the ``synchronous`` level they were made at.
        self.commits: dict[str, int] = {}

    def settled_bytes(self) -> int:
        """The size of the file once its write-ahead log is emptied into it."""
        with contextlib.closing(sqlite3.connect(self.path, timeout=10)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        return self.path.stat().st_size

    def connection_class(self, *, tune: bool = True) -> type[sqlite3.Connection]:
        """What a library is to make its connections of, where it can be told (``factory=`` of ``sqlite3.connect``).

        Args:
            tune: False where the library makes its own settings, and they are only looked at.
        """
        take = self._take

        class Connection(sqlite3.Connection):
            """A connection that the benchmark knows of."""

            def __init__(self, *args: object, **kwargs: object) -> None:
                super().__init__(*args, **kwargs)  # type: ignore[arg-type]  # passed on as they came
                take(self, tune=tune)

        return Connection

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Know of the connections made meanwhile by a library that cannot be told what to make them of."""
        made = sqlite3.connect

        def connect(*args: object, **kwargs: object) -> sqlite3.Connection:
            return made(*args, factory=self.connection_class(tune=False), **kwargs)  # type: ignore[arg-type]  # the same

        with mock.patch.object(sqlite3, "connect", connect):
            yield

    def settings(self, *, tuned: bool = False) -> set[Settings]:
        """What the connections that are still open say of themselves; those only that were ``tuned``, or all."""
        found = set()
        for each in self._connections:
            if each.is_tuned or not tuned:
                with contextlib.suppress(sqlite3.ProgrammingError):  # it is closed
                    found.add(_read(each.connection))
        return found

    def check(self) -> None:
        """Raise SettingError unless every open connection that was tuned is still set to ``SAME``."""
        wrong = self.settings(tuned=True) - {SAME}
        if wrong:
            raise SettingError(f"its connections are at {', '.join(map(str, wrong))}, not at {SAME}")

    def _take(self, connection: sqlite3.Connection, *, tune: bool) -> None:
        tune = tune and self._is_tuned
        if tune:
            connection.execute(f"PRAGMA journal_mode = {SAME.journal_mode}").fetchall()
            connection.execute(f"PRAGMA synchronous = {SAME.synchronous}")
        known = _Connection(connection, tune, _read(connection).synchronous)
        self._connections.append(known)
        if self._counts:
            connection.set_trace_callback(lambda statement: self._saw(known, statement.lstrip().upper()))

    def _saw(self, known: _Connection, statement: str) -> None:
        if statement.startswith(_SETS_LEVEL):
            known.level = statement.removeprefix(_SETS_LEVEL).strip()
        elif statement.startswith(_WRITES):
            known.has_written = True
        elif statement.startswith("COMMIT") and known.has_written:
            known.has_written = False
            self.commits[known.level] = self.commits.get(known.level, 0) + 1


def _read(connection: sqlite3.Connection) -> Settings:
    ((mode,),) = connection.execute("PRAGMA journal_mode").fetchall()
    ((level,),) = connection.execute("PRAGMA synchronous").fetchall()
    return Settings(mode, _LEVELS[level])
