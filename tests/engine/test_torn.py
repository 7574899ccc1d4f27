"""A Ctrl-C at any moment of what a run hands to other threads: nothing stays locked, asleep, held or half written."""

import contextlib
import inspect
import random
import time
from collections.abc import Callable
from typing import Any

import pytest

from ares import ExecutionStatus, Runtime, StepSpec, Workflow
from ares.engine.driver import Driver
from ares.engine.feed import Feed
from ares.journal.clerk import Clerk
from ares.journal.heartbeat import Heartbeat
from ares.postbox import Postbox, ring
from ares.stores.volatile import _Entries
from tests.engine.helpers import Task, eventually
from tests.engine.torn import Moment, interrupt

#: Where a run hands something over, and where it ends.
PLACES = (
    "engine/driver.py",
    "engine/engine.py",
    "engine/feed.py",
    "engine/ledger.py",
    "engine/pool.py",
    "journal/clerk.py",
    "journal/group_commit.py",
    "journal/heartbeat.py",
    "journal/inline.py",
    "journal/inbox.py",
    "postbox.py",
    "threading.py",
)
#: How many moments are tried, and with which of them it begins.
MOMENTS, SEED = 60, 17


def fan() -> Workflow:
    wf = Workflow("fan")
    for i in range(2):
        wf.add(StepSpec(f"s{i}", lambda: None))
    return wf


def test_whatever_a_ctrl_c_tears_the_run_ends_soon_and_can_go_on(runtime: Callable[..., Runtime], store: Any) -> None:
    rt = runtime(store, max_workers=2)
    wf = fan()
    rt.run(wf)  # the first one starts threads and reads files
    seen = Task(interrupt, lambda: rt.run(wf)).result()
    moments = sorted(m for m in seen if m[0].endswith(PLACES) or _is_in_entries(m))
    engine = rt._life.engine()

    for moment in random.Random(SEED).sample(moments, min(MOMENTS, len(moments))):
        name = str(moment)
        torn = Task(_torn, rt, wf, name, moment, seen[moment])
        took = torn.result()
        assert took < 2.0, moment
        if any(found.execution_id == name for found in rt.executions()):
            assert Task(rt.resume, name, wf).result().status is ExecutionStatus.COMPLETED, moment
        eventually(lambda: not (engine.pool.busy or engine.walked()))
        assert not engine.journal._inbox.is_watched(), moment  # type: ignore[attr-defined]


def test_a_ctrl_c_in_the_middle_of_taking_slots_takes_none_away(runtime: Callable[..., Runtime]) -> None:
    rt = runtime(max_workers=2, pools={"api": 1})
    wf = Workflow("limited")
    for i in range(3):
        wf.add(StepSpec(f"s{i}", lambda: None, pool="api" if i else None))
    rt.run(wf)
    seen = Task(interrupt, lambda: rt.run(wf)).result()
    moments = sorted(m for m in seen if m[0].endswith(("engine/places.py", "engine/pool.py", "engine/slots.py")))
    engine = rt._life.engine()

    for moment in moments:
        for count in {1, seen[moment]}:
            beside = rt.submit(wf)
            took = Task(_torn, rt, wf, f"{moment} {count}", moment, count).result()
            assert took < 2.0, moment
            assert beside.result(20).status is ExecutionStatus.COMPLETED, moment
            eventually(lambda: not (engine.pool.busy or engine.pools["api"].busy or engine.walked()))


def _is_in_entries(moment: Moment) -> bool:
    lines, first = inspect.getsourcelines(_Entries)
    return moment[0] == "stores/volatile.py" and first <= moment[1] < first + len(lines)


def _torn(rt: Runtime, wf: Workflow, name: str, moment: Moment, count: int) -> float:
    begun = time.monotonic()
    with contextlib.suppress(KeyboardInterrupt):
        interrupt(lambda: rt.run(wf, execution_id=name), moment, count)
    return time.monotonic() - begun


@pytest.mark.parametrize("count", ["first", "last"])
@pytest.mark.parametrize("place", [Clerk.wake, Heartbeat.wake, Postbox.put, Feed.add, Driver.tell_over, ring])
def test_a_ctrl_c_right_before_others_are_told_keeps_nobody_waiting(
    runtime: Callable[..., Runtime], store: Any, place: Any, count: str
) -> None:
    rt = runtime(store, max_workers=2)
    wf = fan()
    rt.run(wf)
    seen = Task(interrupt, lambda: rt.run(wf)).result()
    group = rt._life.engine().journal._group  # type: ignore[attr-defined]
    if group is not None:
        eventually(lambda: group._clerk._asleep and group._clerk._long)
    (moment,) = _calls(place)

    took = Task(_torn, rt, wf, "torn", moment, 1 if count == "first" else seen[moment]).result()
    begun = time.monotonic()
    results = [Task(rt.run, wf).result() for _ in range(2)]

    assert took < 2.0
    assert time.monotonic() - begun < 2.0
    assert {result.status for result in results} == {ExecutionStatus.COMPLETED}


def test_nothing_comes_behind_an_end_that_a_ctrl_c_tore_away_from_the_walk(
    runtime: Callable[..., Runtime], store: Any
) -> None:
    """It was given to the journal, which is not undone: so the execution has ended, although nobody says so."""
    rt = runtime(store, max_workers=2)
    wf = fan()
    rt.run(wf)
    seen = Task(interrupt, lambda: rt.run(wf)).result()
    (moment,) = _calls(Feed.add)

    with pytest.raises(KeyboardInterrupt):
        Task(interrupt, lambda: rt.run(wf, execution_id="e"), moment, seen[moment]).result()

    assert rt.execution("e").status is ExecutionStatus.COMPLETED
    assert list(rt.execution("e").events())[-1].type == "workflow.completed"
    assert rt.resume("e", wf).status is ExecutionStatus.COMPLETED


def _calls(place: Any) -> list[Moment]:
    code = place.__code__
    return [(code.co_filename.replace("\\", "/").rpartition("/ares/")[2], code.co_firstlineno, "call")]
