"""Dask's threaded scheduler: a graph of ``delayed`` calls, handed to ``dask.threaded.get`` as it is.

So neither its optimizer nor the building of the graph is measured, only the scheduler. A thread that is not the main
one gets a pool of its own from it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import dask.threaded
from dask import delayed

from benchmarks.peers import Kind, Shape, UnsupportedError, beside_each_other, expect
from benchmarks.storage import Store

name = "Dask"
package = "dask"
store = "none"
keeps_outputs = False
comes_otherwise = False


def _one(x: int) -> int:
    return x + 1


def _graph(shape: Shape) -> Any:
    step = delayed(_one, pure=False)
    if shape.kind is Kind.FAN_OUT:
        source = step(-1)
        return delayed(sum, pure=False)([step(source) for _ in range(shape.size)])
    last = step(0)
    for _ in range(shape.size - 1):
        last = step(last)
    return last


@contextmanager
def prepare(shape: Shape, store: Store | None) -> Iterator[Callable[[], None]]:
    """See ``benchmarks.peers``."""
    if store is not None:
        raise UnsupportedError("it keeps nothing")
    if shape.keeps_outputs:
        raise UnsupportedError("it lets go of an output as soon as the last step that takes it has run")
    last = _graph(shape)
    graph = dict(last.__dask_graph__())

    def one() -> None:
        expect(dask.threaded.get(graph, last.key), shape.size)

    yield one if shape.threads == 1 else lambda: beside_each_other([one] * shape.threads)
