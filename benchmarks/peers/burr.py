"""Burr: an application of as many actions as there are steps, with ``SQLitePersister``; ``MapStates`` for the fan-out.

Each thread has a persister, and so a connection, of its own: on one that threads share its transactions get mixed up
(``cannot start a transaction within a transaction``). An application is an execution, so it is built within the run.
"""

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from burr.core import ApplicationBuilder, Graph, GraphBuilder, State, action
from burr.core.action import Action
from burr.core.parallelism import MapStates
from burr.core.persistence import SQLitePersister

from benchmarks.peers import Kind, Shape, beside_each_other, expect
from benchmarks.storage import Store

name = "Burr"
package = "apache-burr"
store = "comes with a rollback journal; the caller can make the connection and set everything"
keeps_outputs = False
comes_otherwise = True

#: Seconds that one thread's connection waits for another's commit.
_PATIENCE = 120.0


@action(reads=["x"], writes=["x"])
def _one(state: State) -> State:
    return state.update(x=state["x"] + 1)


@action(reads=[], writes=["x"])
def _source(state: State) -> State:
    return state.update(x=0)


class _Fan(MapStates):
    """One action over so many states; the join is its ``reduce``."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self._width = width

    def states(self, state: State, context: Any, inputs: Any) -> Iterator[State]:  # noqa: ARG002 - a contract's words
        for _ in range(self._width):
            yield state

    def action(self, state: State, inputs: Any) -> Any:  # noqa: ARG002 - a contract's words
        return _one

    def reduce(self, state: State, states: Iterator[State]) -> State:
        return state.update(total=sum(each["x"] for each in states))

    @property
    def reads(self) -> list[str]:
        return ["x"]

    @property
    def writes(self) -> list[str]:
        return ["total"]


def _writer(read: str, written: str) -> Any:
    @action(reads=[read], writes=[written])
    def step(state: State) -> State:
        return state.update(**{written: state[read] + 1})

    return step


def _graph(shape: Shape) -> Graph:
    actions: dict[str, Action | Callable[..., Any]]
    if shape.kind is Kind.FAN_OUT:
        actions = {"source": _source, "last": _Fan(shape.size)}
    elif shape.keeps_outputs:
        fields = ["x", *(f"x{i}" for i in range(shape.size))]
        actions = {f"s{i}": _writer(*fields[i : i + 2]) for i in range(shape.size - 1)}
        actions["last"] = _writer(*fields[-2:])
    else:
        actions = dict.fromkeys([*(f"s{i}" for i in range(shape.size - 1)), "last"], _one)
    return GraphBuilder().with_actions(**actions).with_transitions(*itertools.pairwise(actions)).build()


def _result(shape: Shape) -> str:
    if shape.kind is Kind.FAN_OUT:
        return "total"
    return f"x{shape.size - 1}" if shape.keeps_outputs else "x"


@contextmanager
def prepare(shape: Shape, store: Store | None) -> Iterator[Callable[[], None]]:
    """See ``benchmarks.peers``."""
    graph = _graph(shape)
    first = next(iter(graph.actions)).name
    result = _result(shape)
    persisters = [] if store is None else [_persister(store) for _ in range(shape.threads)]

    def one(persister: SQLitePersister | None) -> None:
        builder = ApplicationBuilder().with_graph(graph).with_state(x=0).with_entrypoint(first)
        if persister is not None:
            builder = builder.with_state_persister(persister)
        state = builder.build().run(halt_after=["last"])[2]
        expect(state[result], shape.size)

    each = [_bound(one, persister) for persister in persisters or [None] * shape.threads]
    try:
        yield each[0] if shape.threads == 1 else lambda: beside_each_other(each)
    finally:
        for persister in persisters:
            persister.cleanup()


def _bound(one: Callable[[SQLitePersister | None], None], persister: SQLitePersister | None) -> Callable[[], None]:
    return lambda: one(persister)


def _persister(store: Store) -> SQLitePersister:
    options = {"factory": store.connection_class(), "check_same_thread": False, "timeout": _PATIENCE}
    persister = SQLitePersister(str(store.path), connect_kwargs=options)
    persister.initialize()
    return persister
