"""``ares_child``: processes that a test starts, talks to, and kills."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ares.errors import UsageError
from ares.testing import ChildProcess, Nursery
from tests.testing import programs

Start = Callable[..., ChildProcess]


def test_a_child_calls_a_function_and_gives_back_what_it_returned(ares_child: Start) -> None:
    assert ares_child(programs.add, 2, other=3).result() == 5


def test_a_path_arrives_as_text(ares_child: Start, tmp_path: Path) -> None:
    assert ares_child(programs.add, tmp_path, other="/x").result() == f"{tmp_path}/x"


def test_both_sides_talk(ares_child: Start) -> None:
    child = ares_child(programs.echo)

    for said in ("one", {"two": [2, None, "ä\u202e"]}, "x" * 300_000, "end"):
        child.say(said)
        assert child.hear() == said

    assert child.result() == "ended"


def test_one_that_is_killed_ends_by_that_signal(ares_child: Start) -> None:
    child = ares_child(programs.hang)
    child.hear()

    child.kill()

    assert child.wait() == -9
    child.kill()
    assert child.wait() == -9


def test_the_code_that_it_exits_with_is_told(ares_child: Start) -> None:
    assert ares_child(programs.leave_with, 7).wait() == 7


def test_one_that_raises_is_told_with_what_it_printed(ares_child: Start) -> None:
    with pytest.raises(AssertionError, match=r"(?s)ended with 1.*about to fail.*ValueError: as it was to be"):
        ares_child(programs.fail).result()


def test_one_that_dies_instead_of_saying_something_is_told(ares_child: Start) -> None:
    with pytest.raises(AssertionError, match="ended with 7 and said nothing more"):
        ares_child(programs.leave_with, 7).hear()


def test_one_that_returns_instead_of_saying_something_is_told(ares_child: Start) -> None:
    with pytest.raises(AssertionError, match="returned 3 and said nothing more"):
        ares_child(programs.add, 1, 2).hear()


def test_what_a_child_says_is_never_taken_for_what_it_returned(ares_child: Start) -> None:
    child = ares_child(programs.echo)
    for said in (["returned", 1], "end"):
        child.say(said)

    assert child.hear() == ["returned", 1]
    assert child.result() == "ended"


def test_what_cannot_be_said_is_the_childs_failure(ares_child: Start) -> None:
    with pytest.raises(AssertionError, match="TypeError"):
        ares_child(programs.say_nonsense).result()


def test_every_wait_is_bounded(ares_child: Start) -> None:
    child = ares_child(programs.hang)
    child.hear()

    with pytest.raises(TimeoutError, match=r"nothing was said within 0\.01 s"):
        child.hear(0.01)
    with pytest.raises(TimeoutError, match=rf"process {child.pid} is still running after 0\.01 s"):
        child.wait(0.01)


def test_children_are_forked_off_a_process_that_has_one_thread_and_is_not_the_tests(ares_child: Start) -> None:
    one, other = (ares_child(programs.who).result() for _ in range(2))

    assert one["imported_by"] == other["imported_by"] not in (one["pid"], other["pid"], os.getpid())
    assert one["pid"] != other["pid"]
    assert one["threads"] == ["MainThread"]
    assert not one["is_test_process"]
    assert one["folder"] == str(Path.cwd())


def test_those_that_still_run_at_the_end_are_killed(ares_nursery: Nursery) -> None:
    pids = [ares_nursery.start(programs.hang).hear() for _ in range(3)]

    ares_nursery.close_children()

    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_one_may_be_let_go_of_before_its_nursery_ends(ares_nursery: Nursery) -> None:
    child = ares_nursery.start(programs.hang)
    child.hear()

    child.close()
    child.close()
    ares_nursery.close_children()

    with pytest.raises(ProcessLookupError):
        os.kill(child.pid, 0)


def test_a_nursery_that_died_is_told_and_costs_no_wait() -> None:
    with Nursery() as nursery:
        child = nursery.start(programs.hang)
        child.hear()
        os.kill(nursery.pid, 9)

        with pytest.raises(AssertionError, match="children are forked off ended with -9"):
            nursery.start(programs.add, 1, 2)

    with pytest.raises(AssertionError, match="children are forked off ended with 1"):
        Nursery(["no_such_module_at_all"])


@pytest.mark.parametrize("function", [lambda line: None, programs.Holder().method, programs.Holder.method, "text", 7])
def test_what_cannot_be_found_by_name_is_refused(ares_child: Start, function: Any) -> None:
    with pytest.raises(UsageError, match="cannot be called in a child process"):
        ares_child(function)


def test_a_function_of_a_test_module_that_pytest_has_ways_of_its_own_to_import(
    ares_child: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import importlib.util
    import sys

    file = tmp_path / "test_elsewhere.py"
    file.write_text("def where(line):\n    return __file__\n")
    spec = importlib.util.spec_from_file_location("odd.test_elsewhere", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "odd.test_elsewhere", module)
    spec.loader.exec_module(module)

    assert ares_child(module.where).result() == str(file)


def test_a_module_that_the_nursery_cannot_import_is_named(
    ares_child: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import importlib

    file = tmp_path / "imported_once.py"
    file.write_text("def body(line):\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("imported_once")
    file.write_text("raise OSError('gone')\n")

    with pytest.raises(AssertionError, match=r"(?s)imported_once.*cannot be imported.*OSError: gone"):
        ares_child(module.body)
    assert ares_child(programs.add, 1, 1).result() == 2
