"""What is kept, for how long, and what it costs as it grows."""

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from ares import ExecutionStatus, Runtime, Workflow
from tests.durability.flows import gated
from tests.durability.nursery import DEADLINE, Nursery

New = Callable[..., Runtime]


def simple(name: str = "simple") -> Workflow:
    wf = Workflow(name)
    wf.step(lambda: "x" * 2_000, id="step")
    return wf


def size(db: str) -> int:
    """Bytes on the disk, the write-ahead log included."""
    return sum(path.stat().st_size for path in Path(db).parent.glob(Path(db).name + "*"))


# --- prune -----------------------------------------------------------------------------------------------------------


@pytest.mark.case("C037")
def test_prune_takes_what_has_ended_and_nothing_that_can_go_on(
    nursery: Nursery, db: str, tmp_path: Path, again: New
) -> None:
    crashed = []
    for number in range(3):
        child = nursery.start(
            "run", workflow="gated", db=db, execution_id=f"crashed {number}", inputs={"effects": str(tmp_path / "x")}
        )
        assert child.hear() == "at the gate"
        crashed.append(child)
    for child in crashed:
        child.kill()
        child.wait()
    live = nursery.start(
        "run", workflow="gated", db=db, execution_id="live", inputs={"effects": str(tmp_path / "live")}
    )
    assert live.hear() == "at the gate"
    rt = again(durability="async", max_workers=4)
    wf = simple()
    handles = [rt.submit(wf, execution_id=f"done {number}") for number in range(500)]
    assert all(handle.result(DEADLINE).status is ExecutionStatus.COMPLETED for handle in handles)
    before = size(db)

    stop, failures, active = threading.Event(), [], []

    def keep_running() -> None:
        while not stop.is_set():
            result = rt.run(wf)
            active.append(result.execution_id)
            if result.warnings or result.status is not ExecutionStatus.COMPLETED:
                failures.append(result)

    runner = threading.Thread(target=keep_running)
    runner.start()
    removed = rt.prune(timedelta(seconds=0))
    stop.set()
    runner.join(DEADLINE)
    removed += rt.prune(timedelta(seconds=0), compact=True)
    left = {summary.execution_id for summary in rt.executions()}
    live.say("go")

    assert removed == 500 + len(active)
    assert left == {"crashed 0", "crashed 1", "crashed 2", "live"}
    assert failures == []
    assert size(db) < before / 4
    assert live.result()["status"] == "COMPLETED"
    resumable = gated().replace(s2=lambda effects: 2)
    for number in range(3):
        assert rt.resume(f"crashed {number}", resumable).status is ExecutionStatus.COMPLETED


@pytest.fixture
def zone(request: pytest.FixtureRequest) -> Iterator[str]:
    """The time zone of this process."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = request.param
    time.tzset()
    yield request.param
    if before is None:
        del os.environ["TZ"]
    else:
        os.environ["TZ"] = before
    time.tzset()


@pytest.mark.case("C046")
@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Kathmandu"], indirect=True)
@pytest.mark.parametrize("day", ["2024-03-10", "2024-11-03"], ids=["spring", "autumn"])
@pytest.mark.parametrize("hour", [0, 1, 3, 12])
def test_a_day_has_twenty_four_hours_in_every_zone_on_every_day(
    db: str, again: New, monkeypatch: pytest.MonkeyPatch, zone: str, day: str, hour: int
) -> None:
    now = datetime.fromisoformat(f"{day}T{hour:02}:30:00").replace(tzinfo=ZoneInfo(zone)).astimezone(UTC)
    rt = again()
    for name in ("younger", "older"):
        rt.run(simple(), execution_id=name)
    ends = {"younger": now - timedelta(hours=23, minutes=59), "older": now - timedelta(hours=24, minutes=1)}
    with sqlite3.connect(db) as connection:
        for name, end in ends.items():
            at = int(end.timestamp()) * 1_000_000_000
            connection.execute("UPDATE executions SET ended_at = ?, created_at = ? WHERE id = ?", (at, at - 7, name))
    connection.close()
    monkeypatch.setattr(time, "time_ns", lambda: int(now.timestamp()) * 1_000_000_000)

    removed = rt.prune(timedelta(days=1))

    assert removed == 1
    (left,) = rt.executions()
    assert left.execution_id == "younger"
    assert left.ended_at == ends["younger"]
    assert left.ended_at - left.created_at == timedelta(0)


# --- growth ----------------------------------------------------------------------------------------------------------


def chain(length: int) -> Workflow:
    wf = Workflow("chain")
    wf.step(lambda: 0, id="s0")
    for number in range(1, length):
        wf.step(lambda before: before + 1, id=f"s{number}", params={"before": f"s{number - 1}"})
    return wf


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_the_bytes_of_a_step_do_not_grow_with_the_run(tmp_path: Path) -> None:
    bytes_per_step = {}
    for length in (1_000, 10_000):
        db = str(tmp_path / f"{length}.db")
        with Runtime(db, durability="async") as rt:
            rt.run(chain(length), execution_id="e")
        bytes_per_step[length] = size(db) / length

    assert bytes_per_step[10_000] < bytes_per_step[1_000] * 1.1
    assert bytes_per_step[10_000] < 500


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_the_log_beside_the_file_stays_small(tmp_path: Path) -> None:
    db = str(tmp_path / "ares.db")
    largest = 0
    with Runtime(db, durability="async") as rt:
        wf = Workflow("wide")
        wf.step(lambda: list(range(5_000)), id="source")
        wf.step(lambda item: "x" * 10_000, id="each", map_over="source", max_concurrency=4)
        handle = rt.submit(wf)
        while not handle.wait(0.05):
            rt.executions()
            largest = max(largest, Path(db + "-wal").stat().st_size)
    after = Path(db + "-wal")

    assert handle.result().status is ExecutionStatus.COMPLETED
    assert largest < 16_000_000
    assert not after.exists() or after.stat().st_size == 0


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_hundreds_of_resumes_after_each_other_add_the_same(db: str) -> None:
    wf = Workflow("again")
    wf.step(lambda: 1, id="first")
    wf.step(lambda ctx, first: ctx.idempotency_key, id="second")
    with Runtime(db) as rt:
        rt.run(wf, execution_id="e")
        keys = {rt.resume("e", rerun=["second"]).outputs["second"] for _ in range(300)}
        checkpoint = rt.checkpoint("e")

    assert len(keys) == 300
    assert checkpoint.status is ExecutionStatus.COMPLETED
    assert checkpoint.state_version == 6 + 300 * 4
