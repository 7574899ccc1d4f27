"""Questions outlive processes: each answer reaches the step that asked, whoever dies and whoever answers."""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from ares import ExecutionStatus, ItemFailure, Runtime, WorkflowResult
from tests.cli.command import forked
from tests.durability import asking
from tests.durability.nursery import DEADLINE, Child, Nursery
from tests.durability.stores import ON_BOTH
from tests.durability.traces import counted, traces

New = Callable[..., Runtime]

#: How many children live at once.
AT_ONCE = 4
#: Of how many commits one is died at in each run.
EVERY = 3


def answer(nursery: Nursery, db: str, path: str, value: str, **place: Any) -> None:
    """Answer from a process of its own."""
    assert nursery.call("answer", db=db, step=path, approve=value, **place) == ""


def hear(child: Child, wanted: str) -> None:
    """Wait until a step behind one that was answered has begun; that of no other has."""
    assert child.hear() == wanted


@pytest.mark.case("C034")
def test_three_that_ask_the_same_at_once_are_each_given_their_own_answer_as_soon_as_it_is_in(
    nursery: Nursery, db: str, effects: str
) -> None:
    first = nursery.start("submit_and_rest", workflow="asking_three", db=db, effects=effects, ids=["e"])
    assert first.hear() == {"rests": ["WAITING"]}
    questions = Runtime(db).questions("e")
    assert len({(q.execution_id, q.path, q.round, q.key) for q in questions}) == 3
    assert len({q.message for q in questions}) == 1

    answer(nursery, db, "c", "C")
    hear(first, "c C")
    with Runtime(db) as rt:
        assert list(rt.execution("e").events())[-1].type == "workflow.waiting"  # what followed from it is committed
    first.kill()
    assert first.wait() == -9
    answer(nursery, db, "a", "A")
    second = nursery.start("recover_and_wait", workflow="asking_three", db=db)
    assert second.hear() == {"taken": ["e"], "left": {}}
    hear(second, "a A")
    answer(nursery, db, "b", "B")
    hear(second, "b B")
    second.say("enough")
    result = second.result()["e"]

    assert result["status"] == "COMPLETED"
    assert {step: result["outputs"][step] for step in "abc"} == {"a": "'A'", "b": "'B'", "c": "'C'"}
    lines = counted(effects)
    assert {line: lines[line] for line in lines if "got" in line} == {"a got A": 1, "b got B": 1, "c got C": 1}
    assert lines["first begins"] == 1
    assert {lines[f"{step} begins"] for step in "abc"} == {2}  # one to ask, one with the answer


@ON_BOTH
def test_three_open_questions_survive_a_kill_and_are_answered_out_of_order_from_another_process(
    nursery: Nursery, db: str, effects: str
) -> None:
    inputs = {"effects": effects}
    killed = nursery.start("run", workflow="asking_three_beside", db=db, inputs=inputs, max_workers=4)
    assert killed.hear() == "beside"
    with Runtime(db) as rt:
        asked = [event for _, event in zip(range(3), asked_in(rt), strict=False)]
    killed.kill()
    assert killed.wait() == -9
    assert sorted(asked) == ["a", "b", "c"]
    for path in "cab":
        answer(nursery, db, path, path.upper(), key="name")

    result = nursery.call("resume", workflow="asking_three_beside", db=db, execution_id="e")

    assert result["status"] == "COMPLETED"
    assert {step: result["outputs"][step] for step in "abc"} == {"a": "'A'", "b": "'B'", "c": "'C'"}
    lines = counted(effects)
    assert lines["first begins"] == 1
    assert {line: lines[line] for line in lines if "got" in line} == {"a got A": 1, "b got B": 1, "c got C": 1}


def asked_in(rt: Runtime) -> Iterator[str]:
    """The steps that ask, as another process hears of them."""
    return (event.payload["path"] for event in rt.execution("e").events() if event.type == "interrupt.created")


@pytest.mark.case("C035")
def test_the_second_question_of_a_sub_workflow_is_asked_anew(nursery: Nursery, db: str, effects: str) -> None:
    first = nursery.call("run", workflow="asking_twice", db=db, inputs={"effects": effects})
    answer(nursery, db, "sub/q1", "one")
    second = nursery.call("resume", workflow="asking_twice", db=db)
    asked = [question.path for question in Runtime(db).questions("e")]
    assert nursery.call("answer", db=db, step="sub/q1", approve="two") == "QuestionAnsweredError"
    answer(nursery, db, "sub/q2", "two")
    last = nursery.call("resume", workflow="asking_twice", db=db)

    assert [first["status"], second["status"], last["status"]] == ["WAITING", "WAITING", "COMPLETED"]
    assert asked == ["sub/q2"]
    assert last["outputs"] == {"sub": "{'both': ['one', 'two']}"}
    assert traces(effects) == [
        "sub/q1 begins",
        "sub/q1 begins",
        "sub/q1 got one",
        "sub/q2 begins",
        "sub/q2 begins",
        "sub/q2 got two",
    ]


@ON_BOTH
def test_one_that_rests_goes_on_when_another_process_answers(nursery: Nursery, db: str, effects: str) -> None:
    owner = nursery.start("submit_and_rest", workflow="asking_three", db=db, effects=effects, ids=["e"])
    owner.hear()
    with Runtime(db) as rt:
        for question in rt.questions("e"):
            rt.answer(question, asking.Approve(question.path.upper()))
        begun = monotonic()
        heard = sorted(owner.hear() for _ in range(3))
        seconds = monotonic() - begun
    owner.say("enough")

    assert heard == ["a A", "b B", "c C"]
    assert owner.result()["status"] == "COMPLETED"
    assert seconds < 3.0  # about half a second, on a machine that has nothing else to do


def test_of_executions_whose_process_died_at_rest_recover_takes_those_that_were_answered(
    nursery: Nursery, db: str, effects: str
) -> None:
    ids = ["answered", "open"]
    killed = nursery.start("submit_and_rest", workflow="asking_three", db=db, effects=effects, ids=ids)
    assert killed.hear() == {"rests": ["WAITING"] * 2}
    killed.kill()
    assert killed.wait() == -9
    answer(nursery, db, "b", "B", execution_id="answered")

    child = nursery.start("recover_and_wait", workflow="asking_three", db=db)

    assert child.hear() == {"taken": ["answered"], "left": {"open": "waits for an answer"}}
    hear(child, "b B")
    child.say("enough")
    assert child.result()["answered"]["status"] == "WAITING"
    assert sorted((q.execution_id, q.path) for q in Runtime(db).questions()) == [
        ("answered", "a"),
        ("answered", "c"),
        ("open", "a"),
        ("open", "b"),
        ("open", "c"),
    ]


def test_each_round_of_a_loop_is_given_its_own_answers_whoever_dies_and_whoever_answers(
    nursery: Nursery, db: str, effects: str
) -> None:
    child = nursery.start("submit_and_rest", workflow="asking_rounds", db=db, effects=effects, ids=["e"])
    assert child.hear() == {"rests": ["WAITING"]}
    waves: list[list[tuple[str, int]]] = []
    status = "WAITING"
    while status == "WAITING":
        child.kill()
        assert child.wait() == -9
        left = sorted((question.path, question.round) for question in Runtime(db).questions("e"))
        waves.append([*left])
        if len(waves) == 2:
            shown = forked("questions", "e", "--store", db, cwd=Path(db).parent).out
            assert all(f" {path} (round 2) " in shown for path, _ in left)
            path, r = left.pop(0)
            data = ["--approve", "--data", f'"{path} {r}"']
            assert forked("answer", "e", path, *data, "--store", db, cwd=Path(db).parent).code == 0
        nursery.call("answer_each", db=db, answers=[(path, f"{path} {r}") for path, r in left])
        child = nursery.start("take_and_rest", workflow="asking_rounds", db=db)
        status = child.hear()

    assert status == "COMPLETED"
    subs = {1: "sub/ask", 2: "sub#2/ask", 3: "sub#3/ask"}
    assert waves == [
        sorted([*((path, r) for path in ("dynamic", "each[0]", "each[1]", "static")), (sub, 2)])
        for r, sub in subs.items()
    ]
    asked = [place for wave in waves for place in wave if place[0] != "static"]
    expected = Counter({f"{step} {r} ran": 1 for step in ("first", "static") for r in subs})
    for path, r in asked:
        expected.update({f"{path} {r} begins": 2, f"{path} {r} once": 1, f"{path} {r} got {path} {r}": 1})
    assert counted(effects) == expected
    with Runtime(db) as rt:
        checkpoint = rt.checkpoint("e")
    assert checkpoint.variables == {"said": ("dynamic 1", "dynamic 2", "dynamic 3")}
    assert checkpoint.outputs["each"] == ["each[0] 3", "each[1] 3"]
    assert checkpoint.outputs["sub"] == {"ask": "sub#3/ask 2"}
    assert [(e.round, e.exit_reason) for e in checkpoint.loop_history] == [(1, ""), (2, ""), (3, "max_rounds")]
    told = Counter((e.path, e.action) for e in checkpoint.interrupt_history)
    often = {"dynamic": 3, "each[0]": 3, "each[1]": 3, "static": 3, **dict.fromkeys(subs.values(), 1)}
    assert told == {(path, action): n for path, n in often.items() for action in ("ask", "approve")}


# --- a kill at every commit -------------------------------------------------------------------------------------------


class Scene:
    """One execution of ``asking_all``, killed and gone on with."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.db = str(folder / "ares.db")
        self.effects = str(folder / "effects")

    def finish(self) -> tuple[WorkflowResult, Counter[str], Counter[str]]:
        """Go on, answering what nobody has answered. What it came to; how often each step was done before, by the
        journal; and the lines before."""
        wf = asking.asking_all()
        before = counted(self.effects)
        with Runtime(self.db, max_workers=3) as rt:
            events = rt.execution("e").events() if rt.executions() else ()
            done = Counter(event.payload["path"] for event in events if event.type == "step.completed")
            result = rt.run(wf, {"effects": self.effects}, execution_id="e", if_exists="resume")
            while result.interrupts:
                for question in rt.questions("e"):
                    rt.answer(question, asking.answer_to(question, "second"))
                result = rt.resume("e", wf)
            self.answers = Counter(
                (event.payload["path"], event.payload["key"], str(event.payload["value"]))
                for event in rt.execution("e").events()
                if event.type == "interrupt.resolved"
            )
        return result, done, before


def check(scene: Scene, usual: Counter[str]) -> str:
    """What is wrong with an execution that was killed; nothing, it is hoped."""
    result, done, before = scene.finish()
    after = counted(scene.effects)
    if result.status is not ExecutionStatus.COMPLETED:
        return f"{result.status}: {result.error}"
    told = {(path, key): value for path, key, value in scene.answers}
    if len(told) != 6 or set(scene.answers.values()) != {1}:
        return f"answered {scene.answers}"
    first, second = result.outputs["each"]
    got = [result.outputs[step] for step in ("static", "dynamic", "pay")] + [first]
    if got != ["ran", told["dynamic", "k"], told["pay", "outcome"], told["each[0]", "k"]]:
        return f"got {got}, was told {told}"
    if not isinstance(second, ItemFailure) or set(result.rejected) != {"each[1]", "refused"}:
        return f"rejected {result.rejected}"
    if after["pay begins"] > 1 or any(line.startswith(("each[1]", "refused")) for line in after):
        return f"ran what it must not: {after}"
    again = [path for path in done if after[f"{path} begins"] != before[f"{path} begins"]]
    too_often = {line: times for line, times in after.items() if times > usual[line] + 1}
    return f"done again: {again}, too often: {too_often}" if again or too_often else ""


@pytest.mark.timeout(120)
def test_a_kill_at_any_commit_loses_no_answer_and_asks_nothing_twice(nursery: Nursery, tmp_path: Path) -> None:
    whole = Scene(tmp_path / "whole")
    assert nursery.call("answer_all", db=whole.db, effects=whole.effects)["status"] == "COMPLETED"
    usual = counted(whole.effects)
    failures: dict[int, str] = {}
    at, is_over = random.randint(1, EVERY), False  # evenly, from a random one on

    while not is_over:
        scenes = {n: Scene(tmp_path / str(n)) for n in range(at, at + EVERY * AT_ONCE, EVERY)}
        children = {
            n: nursery.start("answer_all", db=scene.db, effects=scene.effects, at=n) for n, scene in scenes.items()
        }
        for n, child in children.items():
            code = child.wait(DEADLINE)
            is_over = is_over or code == 0
            assert code in (0, -9), child.errors()
            problem = check(scenes[n], usual)
            if problem:
                failures[n] = problem
        at += EVERY * AT_ONCE

    assert at > 30
    assert "\n".join(f"killed at {n}: {problem}" for n, problem in failures.items()) == ""
