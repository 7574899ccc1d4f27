"""Every library of the comparison: one module each, imported only when it is asked for.

A peer's module has ``name``, ``package`` (as it is installed), ``store`` (what is there to be said of its SQLite file),
``keeps_outputs`` (whether a later step can have the output of any earlier one without more ado), ``comes_otherwise``
(whether its own connections differ from what all are compared at), and ``prepare``: everything that a program does
once, up to where ``run`` is measured. What runs differ in (an id, a state object) is made within ``run``, and ``run``
checks what came out.
"""

import importlib
import importlib.metadata
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from enum import StrEnum
from typing import Protocol

import attrs

from benchmarks.storage import Store

#: The peers, in the order of the table. ares itself is a module like the others.
NAMES = ("langgraph", "dbos", "burr", "dask")

#: How many steps run at once where a library does not choose for itself: what a thread pool of Python's own would have.
WORKERS = 6


class Kind(StrEnum):
    """What is done."""

    CHAIN = "chain"
    FAN_OUT = "fan-out"
    THREADS = "threads"


@attrs.frozen
class Shape:
    """What is done, and how much of it.

    ``size``: steps in a row, or beside each other between a source and a join. ``threads``: how many threads do it at
    the same time, each an execution of its own. ``keeps_outputs``: in a library whose steps share one state, each
    writes a field of its own, so that every output is still there at the end, as it is in ares.
    """

    kind: Kind
    size: int
    threads: int = 1
    keeps_outputs: bool = False

    @property
    def steps(self) -> int:
        """How many steps that are in all."""
        return self.size * self.threads + (2 if self.kind is Kind.FAN_OUT else 0)

    def __str__(self) -> str:
        match self.kind:
            case Kind.THREADS:
                return f"{self.threads} threads, each a chain of {self.size}"
            case _:
                return f"{self.kind} of {self.size}"


class UnsupportedError(Exception):
    """A peer cannot do this; says why."""


class Peer(Protocol):
    """A module of this package."""

    name: str
    package: str
    store: str
    keeps_outputs: bool
    comes_otherwise: bool

    def prepare(self, shape: Shape, store: Store | None) -> AbstractContextManager[Callable[[], None]]:
        """Everything that is done once; ends what it started. Raises UnsupportedError where the peer cannot do it."""


def load(module: str) -> Peer:
    """A peer by the name of its module. Raises ImportError where it is not installed."""
    found: Peer = importlib.import_module(f"benchmarks.peers.{module}")  # type: ignore[assignment]  # a module is one
    return found


def version(peer: Peer) -> str:
    """The version that is installed."""
    return importlib.metadata.version(peer.package)


def expect(result: object, wanted: object) -> None:
    """Refuse a figure of something that did not do its work."""
    if result != wanted:
        raise RuntimeError(f"the result is {result!r}, not {wanted!r}")


def beside_each_other(runs: list[Callable[[], None]]) -> None:
    """Run each on a thread of its own and wait for all; raises what the first of them raised."""
    failed: list[BaseException] = []

    def guarded(run: Callable[[], None]) -> None:
        try:
            run()
        except BaseException as error:  # told by the thread that waits
            failed.append(error)

    threads = [threading.Thread(target=guarded, args=(run,), name=f"bench-{i}") for i, run in enumerate(runs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
