"""LangGraph: a ``StateGraph`` of as many nodes as there are steps, with ``SqliteSaver`` and ``durability="sync"``.

One connection serves all threads, as its documentation has it; the saver puts a lock around it. ``invoke`` brings its
own thread pool, of the size that Python gives it.
"""

import itertools
import operator
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Annotated, Any, TypedDict

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph

from benchmarks.peers import Kind, Shape, beside_each_other, expect
from benchmarks.storage import Store

name = "LangGraph"
package = "langgraph"
store = "sets WAL itself; the caller makes the connection and can set everything"
keeps_outputs = False
comes_otherwise = False


class _Line(TypedDict):
    x: int


class _Fan(TypedDict):
    x: int
    values: Annotated[list[int], operator.add]
    total: int


def _chain(length: int) -> StateGraph:
    graph = StateGraph(_Line)
    for i in range(length):
        graph.add_node(f"s{i}", lambda state: {"x": state["x"] + 1})
    return _in_line(graph, length)


def _keeping_chain(length: int) -> StateGraph:
    """Each node writes a channel of its own."""
    names = ["x", *(f"x{i}" for i in range(length))]
    graph = StateGraph(TypedDict("_Kept", dict.fromkeys(names, int)))  # type: ignore[operator]  # made as it is needed
    for i in range(length):
        graph.add_node(f"s{i}", _writer(names[i], names[i + 1]))
    return _in_line(graph, length)


def _writer(read: str, written: str) -> Callable[[dict[str, int]], dict[str, int]]:
    return lambda state: {written: state[read] + 1}


def _in_line(graph: StateGraph, length: int) -> StateGraph:
    names = [START, *(f"s{i}" for i in range(length)), END]
    for each, following in itertools.pairwise(names):
        graph.add_edge(each, following)
    return graph


def _fan_out(width: int) -> StateGraph:
    graph = StateGraph(_Fan)
    branches = [f"b{i}" for i in range(width)]
    graph.add_node("source", lambda _: {"x": 0})
    graph.add_node("join", lambda state: {"total": sum(state["values"])})
    graph.add_edge(START, "source")
    for branch in branches:
        graph.add_node(branch, lambda state: {"values": [state["x"] + 1]})
        graph.add_edge("source", branch)
    graph.add_edge(branches, "join")
    graph.add_edge("join", END)
    return graph


@contextmanager
def prepare(shape: Shape, store: Store | None) -> Iterator[Callable[[], None]]:
    """See ``benchmarks.peers``."""
    size = shape.size
    if shape.kind is Kind.FAN_OUT:
        graph, begin, last = _fan_out(size), {"x": 0, "values": []}, "total"
    elif shape.keeps_outputs:
        graph, begin, last = _keeping_chain(size), {"x": 0}, f"x{size - 1}"
    else:
        graph, begin, last = _chain(size), {"x": 0}, "x"
    if store is None:
        yield _runs(graph.compile(), shape, begin, last, {})
        return
    factory = store.connection_class()
    with closing(sqlite3.connect(store.path, factory=factory, check_same_thread=False)) as connection:
        saver = SqliteSaver(connection)
        saver.setup()
        yield _runs(graph.compile(checkpointer=saver), shape, begin, last, {"durability": "sync"})


def _runs(app: Any, shape: Shape, begin: dict[str, Any], last: str, options: dict[str, Any]) -> Callable[[], None]:
    number = itertools.count()

    def one() -> None:
        config = {"recursion_limit": shape.size + 10, "configurable": {"thread_id": f"run-{next(number)}"}}
        expect(app.invoke(begin, config, **options)[last], shape.size)

    return one if shape.threads == 1 else lambda: beside_each_other([one] * shape.threads)
