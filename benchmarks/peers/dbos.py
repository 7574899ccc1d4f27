"""DBOS Transact on SQLite: a workflow function that calls a step function in a loop.

Its fan-out is the leanest that it offers to synchronous code: steps whose numbers are reserved first, so that threads
of a pool can run them; a child workflow for each branch was not tried.
"""

import contextvars
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from dbos import DBOS

from benchmarks.peers import WORKERS, Kind, Shape, UnsupportedError, beside_each_other, expect
from benchmarks.storage import Store

name = "DBOS"
package = "dbos"
store = "comes with a rollback journal; connections of its engine can be set; it sets busy_timeout and IMMEDIATE itself"
keeps_outputs = True
comes_otherwise = True


@DBOS.step()
def _one(x: int) -> int:
    return x + 1


@DBOS.step()
def _total(values: list[int]) -> int:
    return sum(values)


@DBOS.workflow()
def _chain(length: int) -> int:
    x = 0
    for _ in range(length):
        x = _one(x)
    return x


@DBOS.workflow()
def _fan_out(width: int) -> int:
    x = _one(-1)
    reserved = [DBOS.reserve_step() for _ in range(width)]
    with ThreadPoolExecutor(WORKERS) as pool:
        futures = [pool.submit(contextvars.copy_context().run, step.run, None, _one, x) for step in reserved]
        return _total([future.result() for future in futures])


@contextmanager
def prepare(shape: Shape, store: Store | None) -> Iterator[Callable[[], None]]:
    """See ``benchmarks.peers``."""
    if store is None:
        raise UnsupportedError("it has no mode without a database: outside of a workflow a step is a plain call")
    DBOS(
        config={
            "name": "bench",
            "system_database_url": f"sqlite:///{store.path}",
            "log_level": "ERROR",
            "db_engine_kwargs": {"connect_args": {"factory": store.connection_class()}},
        }
    )
    workflow = _fan_out if shape.kind is Kind.FAN_OUT else _chain

    def one() -> None:
        expect(workflow(shape.size), shape.size)

    try:
        DBOS.launch()
        yield one if shape.threads == 1 else lambda: beside_each_other([one] * shape.threads)
    finally:
        DBOS.destroy()
