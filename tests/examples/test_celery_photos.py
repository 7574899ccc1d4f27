"""A Celery worker with its processes, on a broker that is a folder: killed in the middle, stopped, started again."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from ares import Runtime
from tests.examples.partner import Partner
from tests.examples.programs import Program, children_of, eventually

#: They start programs that import much.
pytestmark = pytest.mark.timeout(180)

#: Puts tasks into the queue.
PUBLISH = "import sys; from examples.celery_photos import publish; [publish.delay(name) for name in sys.argv[1:]]"

Start = Callable[..., Program]


@pytest.fixture
def start(tmp_path: Path, partner: Partner) -> Iterator[Start]:
    """Starts Python with some words; killed in the end, with all that it started."""
    with ExitStack() as started:

        def begin(*words: str) -> Program:
            settings = {"PHOTOS_FOLDER": str(tmp_path), "PHOTOS_SERVICE": partner.url}
            return started.enter_context(Program(words, tmp_path, **settings))

        yield begin


def worker(start: Start, processes: int = 1) -> Program:
    words = ("-A", "examples.celery_photos", "worker", "--loglevel", "INFO", "--concurrency", str(processes))
    return start("-m", "celery", *words)


def publish(start: Start, *names: str) -> None:
    asked = start("-c", PUBLISH, *names)
    assert asked.finish() == 0, asked.said


def statuses(folder: Path) -> dict[str, str]:
    with Runtime(folder / "photos.db") as runtime:
        return {each.execution_id: str(each.status) for each in runtime.executions()}


def test_a_task_whose_process_is_killed_is_delivered_again_and_repeats_no_completed_step(
    start: Start, tmp_path: Path, partner: Partner
) -> None:
    publish(start, "cat")
    main = worker(start)

    with partner.holding("show"):
        partner.wait_for("show")
        [process] = children_of(main.pid)
        os.kill(process, signal.SIGKILL)
        partner.wait_for("show", 2)
    main.wait_until_said("succeeded in")

    assert partner.heard("shrink") == ["cat"]
    assert partner.heard("show") == ["cat", "cat"]
    assert len(partner.keys("show")) == 1
    assert statuses(tmp_path) == {"photo-cat": "COMPLETED"}


def test_what_a_killed_worker_was_at_is_gone_on_with_by_the_next_and_a_stop_lets_tasks_end(
    start: Start, tmp_path: Path, partner: Partner
) -> None:
    publish(start, "dog", "dog")  # asked twice
    first = worker(start, 2)
    with partner.holding("show dog"):
        partner.wait_for("show")
        first.kill()  # and the queue, which is but a folder, has lost what the worker was at

    second = worker(start, 2)
    eventually(lambda: statuses(tmp_path) == {"photo-dog": "COMPLETED"})
    publish(start, "cat")
    with partner.holding("show cat"):
        partner.wait_for("show", 3)
        second.signal(signal.SIGTERM)
        second.wait_until_said("Warm shutdown")

    assert second.finish() == 0, second.said
    assert statuses(tmp_path) == {"photo-dog": "COMPLETED", "photo-cat": "COMPLETED"}
    assert partner.heard("shrink") == ["dog", "cat"]
    assert partner.heard("show") == ["dog", "dog", "cat"]
    assert len(partner.keys("show")) == 2
