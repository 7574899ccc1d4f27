"""ares itself, asked for the same as its peers: one Runtime, its defaults, ``durability="sync"``."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

from ares import Runtime
from ares.stores.sqlite import SqliteStore
from benchmarks.peers import Kind, Shape, beside_each_other, expect
from benchmarks.shapes import chain, fan_out
from benchmarks.storage import SAME, Store

name = "ares"
package = "ares-workflow"
store = (
    "always WAL; sets the level itself, commit by commit: FULL for what somebody waits for, NORMAL for what may be lost"
)
keeps_outputs = True
comes_otherwise = False


@contextmanager
def prepare(shape: Shape, store: Store | None) -> Iterator[Callable[[], None]]:
    """See ``benchmarks.peers``."""
    workflow = fan_out(shape.size) if shape.kind is Kind.FAN_OUT else chain(shape.size)
    last, wanted = ("join", 0) if shape.kind is Kind.FAN_OUT else (f"s{shape.size - 1}", shape.size - 1)
    workflow.validate()
    kept = None if store is None else SqliteStore(store.path, synchronous=SAME.synchronous)
    runtime = Runtime(kept)
    with nullcontext() if store is None else store.watching():
        runtime.start()
    with runtime:

        def one() -> None:
            expect(runtime.run(workflow).raise_for_status().outputs[last], wanted)

        yield one if shape.threads == 1 else lambda: beside_each_other([one] * shape.threads)
