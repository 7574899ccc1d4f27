"""Random workflows whose process dies at random boundaries: what another process makes of the file is what would have
been. The process is not killed for each, which would cost too much: its file is copied as it is at that moment, and the
copy's owner is one that is gone.
"""

import itertools
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ares import ExecutionStatus, RetryPolicy, Runtime, StepContext, StepSpec, Workflow, WorkflowResult
from ares.journal.protocol import Append
from ares.stores.sqlite import SqliteStore
from tests.durability.stores import StoreWrapper
from tests.walk.human import Human
from tests.walk.reference import Interpreter, NotDetermined
from tests.walk.script import show
from tests.walk.strategies import Case, Features, cases

#: Beyond the largest pid that Linux gives out.
NOBODY = 2**22 + 1


class Photographer(StoreWrapper):
    """Commits entry by entry, and keeps the file as it is after each of them."""

    def __init__(self, db: str) -> None:
        super().__init__(SqliteStore(db))
        self._db = db
        self.pictures: list[bytes] = []

    def append(self, appends: Sequence[Append], *, sync: bool) -> Sequence[Exception | None]:
        results = []
        for append in appends:
            for entry in append.entries:
                is_last = entry is append.entries[-1]
                part = Append(append.claim, [entry], append.status if is_last else None, append.error)
                results += self._inner.append([part], sync=False)
                self._take()
            del results[len(results) - len(append.entries) + 1 :]
        return results

    def _take(self) -> None:
        connection = sqlite3.connect(f"file:{self._db}?mode=ro", uri=True)
        self.pictures.append(connection.serialize())
        connection.close()


def develop(picture: bytes, db: str) -> Counter[str]:
    """Make a file of a picture, whose owner is gone. How many outcomes each path has in it."""
    Path(db).write_bytes(picture)
    connection = sqlite3.connect(db)
    connection.execute("UPDATE leases SET pid = ?", (NOBODY,))
    connection.commit()
    begun, outcomes = set[str](), Counter[str]()
    for kind, path in connection.execute("SELECT kind, path FROM entries ORDER BY seq"):
        if kind == "started":
            begun.add(path)
        elif kind in ("succeeded", "failed") and path in begun:
            begun.discard(path)
            outcomes[path] += 1
    connection.close()
    return outcomes


def outline(case: Case, result: WorkflowResult) -> dict[str, Any]:
    """What must be the same of two runs: all that is no matter of chance."""
    interpreter = Interpreter(case)
    try:
        interpreter.run()
    except NotDetermined:
        return {"is final": result.status.is_final}
    return {
        path: (str(step.status), step.reason.partition(":")[0], step.attempts, show(step.output))
        for path, step in result.steps.items()
        if not path.startswith(tuple(interpreter.open_to_chance)) and step.status != "PENDING"
    } | {"": result.status}


@pytest.mark.timeout(120)
@settings(max_examples=10)
@given(
    # Without writes: in which order those of parallel steps are combined is not promised. A step may crash once.
    cases(Features(fail_fast=False, at_most_once=False, max_crashes=False, writes=False, pools=False)),
    st.integers(1, 4),
    st.sampled_from(["sync", "async"]),
    st.lists(st.floats(0, 1), min_size=5, max_size=5),
)
def test_a_random_workflow_ends_the_same_wherever_its_process_died(
    case: Case, workers: int, durability: str, moments: list[float]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = Photographer(f"{folder}/ares.db")
        options: dict[str, Any] = {"max_workers": workers, "durability": durability, "interrupt_handler": Human(case)}
        with Runtime(store, **options) as rt:
            usual = outline(case, rt.run(case.workflow, case.inputs, execution_id="e"))
        names = itertools.count()
        for moment in moments:
            db = f"{folder}/{next(names)}.db"
            case.script.calls = develop(store.pictures[int(moment * (len(store.pictures) - 1))], db)
            with Runtime(db, workflows=[case.workflow], **options) as rt:
                if rt.execution("e").status is ExecutionStatus.INTERRUPTED:
                    assert outline(case, rt.resume("e")) == usual
                result = rt.execution("e").result()
                assert outline(case, result) == usual
                assert rt.checkpoint("e").status is result.status


class Rare(ConnectionError):
    """Known by its name only, once its process is gone."""


@pytest.mark.parametrize(
    ("retry_on", "retries"), [(Rare, True), (OSError, True), ((KeyError, ConnectionError), True), (KeyError, False)]
)
def test_a_sub_workflow_is_retried_for_what_failed_in_a_process_that_died(
    tmp_path: Path, retry_on: Any, retries: bool
) -> None:
    calls = Counter[str]()

    def body(ctx: StepContext) -> str:
        calls[ctx.step.path] += 1
        if calls[ctx.step.path] == 1 and ctx.step.index in (None, 1):
            raise Rare
        return "done"

    inner = Workflow("inner")
    inner.step(lambda: [0, 1], id="source")
    inner.step(lambda ctx, item: body(ctx), id="each", map_over="source")
    middle = Workflow("middle")
    middle.add(StepSpec("inner", workflow=inner))
    wf = Workflow("outer")
    wf.add(StepSpec("middle", workflow=middle, retry=RetryPolicy(initial_delay=0.0, retry_on=retry_on)))
    store = Photographer(str(tmp_path / "ares.db"))
    with Runtime(store, max_workers=1) as rt:
        usual = rt.run(wf, execution_id="e").status

    ends = []
    for number, picture in enumerate(store.pictures):
        db = str(tmp_path / f"{number}.db")
        calls = develop(picture, db)
        with Runtime(db, max_workers=1) as rt:
            ends.append(rt.resume("e", wf).status)

    assert usual is (ExecutionStatus.COMPLETED if retries else ExecutionStatus.FAILED)
    # The last of a failed one shows its end: to resume that is to run again what failed.
    assert set(ends if retries else ends[:-1]) == {usual}
