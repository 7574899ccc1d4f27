"""The proof at the end of a soak finds what it is there to find: each kind of violation, in evidence made up for it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from ares import ExecutionStatus
from benchmarks.soak.evidence import Evidence, Seen, Stop, Told, effects_in
from benchmarks.soak.plan import Plan
from benchmarks.soak.proof import violations
from benchmarks.soak.work import Effect, attempts_of, value_of

# The fifth step has two attempts.
PLAN = Plan("", "", processes=2, executions=2, steps=6, seconds=0.0, lease_timeout=1.0)
STEPS = [f"s{number}" for number in range(PLAN.steps)]


class Story:
    """Two executions that go well, on process 1, but for what a test has happen otherwise."""

    def __init__(self) -> None:
        self.events: dict[str, list[Told]] = {id_: self._events() for id_ in PLAN.ids}
        self.outputs = {
            id_: {step: {"value": value_of(n, i), "token": f"{id_} {step}"} for i, step in enumerate(STEPS)}
            for n, id_ in enumerate(PLAN.ids)
        }
        self.statuses = dict.fromkeys(PLAN.ids, ExecutionStatus.COMPLETED)
        self.owners = dict.fromkeys(PLAN.ids, "")
        self.last_seqs = {id_: len(events) for id_, events in self.events.items()}
        self.lines = [line for id_ in PLAN.ids for line in self._lines(id_)]
        self.stops: list[Stop] = []
        self.executions = list(PLAN.ids)

    def _events(self) -> list[Told]:
        told = [("workflow.started", "", 0)]
        for number, step in enumerate(STEPS):
            for attempt in range(1, attempts_of(number) + 1):
                told.append(("step.started", step, attempt))
                if attempt == 1:
                    told.append(("step.remembered", step, 0))
                is_last = attempt == attempts_of(number)
                told.append(("step.completed" if is_last else "step.retrying", step, attempt))
        told.append(("workflow.completed", "", 0))
        return [Told(seq, *each) for seq, each in enumerate(told, 1)]

    def _lines(self, id_: str) -> list[Effect]:
        lines = []
        for number, step in enumerate(STEPS):
            for attempt in range(1, attempts_of(number) + 1):
                lines.append(self.line(id_, step, "began", number * 10.0 + attempt, attempt=attempt))
                if attempt == 1:
                    lines.append(self.line(id_, step, "did", number * 10.0 + 1.5))
        return lines

    @staticmethod
    def line(id_: str, step: str, kind: str, at: float, *, attempt: int = 1, pid: int = 1, **more: Any) -> Effect:
        fields = {"key": f"key of {id_} {step}", "token": f"{id_} {step}", **more}
        return Effect(kind, id_, step, attempt, fields["key"], pid, fields["token"], at)

    def insert(self, id_: str, after: tuple[str, str], *events: tuple[Any, ...]) -> None:
        """Have something happen behind an event, given by type and path; what follows is numbered anew."""
        told = self.events[id_]
        place = next(i for i, each in enumerate(told) if (each.type, each.path) == after) + 1
        told[place:place] = [Told(0, *event) for event in events]
        self.events[id_] = [attrs.evolve(each, seq=seq) for seq, each in enumerate(told, 1)]
        self.last_seqs[id_] = len(told)

    def remove(self, id_: str, *types: str) -> None:
        """As if events of a type had never been."""
        told = [each for each in self.events[id_] if each.type not in types]
        self.events[id_] = [attrs.evolve(each, seq=seq) for seq, each in enumerate(told, 1)]
        self.last_seqs[id_] = len(told)

    def killed_in(self, id_: str, step: str, at: float) -> None:
        """Process 1 dies once the effect is done, but not recorded; process 2 goes on."""
        self.insert(
            id_,
            ("step.started", step),
            ("workflow.resumed", "", 0, (step,)),
            ("step.started", step, 1),
        )
        self.lines.append(self.line(id_, step, "began", at, pid=1))
        self.lines.append(self.line(id_, step, "did", at + 0.1, pid=1, token="lost with process 1"))

    def evidence(self) -> Evidence:
        executions = [
            Seen(
                id_,
                self.statuses[id_],
                self.owners[id_],
                dict(self.outputs[id_]),
                self.last_seqs[id_],
                tuple(self.events[id_]),
            )
            for id_ in self.executions
        ]
        return Evidence(tuple(executions), tuple(self.lines), tuple(self.stops))


def test_all_is_well_where_all_went_well() -> None:
    assert violations(PLAN, Story().evidence()) == []


def test_an_effect_may_be_done_again_that_was_not_recorded_when_its_process_died() -> None:
    story = Story()
    story.killed_in("e0", "s2", at=20.5)

    assert violations(PLAN, story.evidence()) == []


def test_a_walk_that_was_interrupted_in_good_order_begins_its_steps_again() -> None:
    story = Story()
    story.insert(
        "e0",
        ("step.started", "s2"),
        ("workflow.interrupted", "", 0, ("s2",)),
        ("workflow.resumed", "", 0, ()),
        ("step.started", "s2", 1),
    )

    assert violations(PLAN, story.evidence()) == []


def stopped_in_a_body(story: Story) -> None:
    """Process 3 stands still before its effect in s2, from 20.5 on; it goes on when all is over."""
    story.insert("e0", ("step.started", "s2"), ("workflow.resumed", "", 0, ("s2",)), ("step.started", "s2", 1))
    story.stops.append(Stop(3, since=20.5))
    story.lines.append(story.line("e0", "s2", "began", 20.4, pid=3))
    story.lines.append(story.line("e0", "s2", "did", 99.0, pid=3, token="late"))


def test_who_was_stopped_in_a_body_may_end_that_body() -> None:
    story = Story()
    stopped_in_a_body(story)

    assert violations(PLAN, story.evidence()) == []


@pytest.mark.parametrize(
    "more",
    [
        pytest.param(lambda s: s.line("e0", "s3", "did", 99.5, pid=3, token="too much"), id="another step"),
        pytest.param(lambda s: s.line("e0", "s2", "began", 99.5, pid=3, attempt=2), id="another attempt"),
        pytest.param(lambda s: s.line("e0", "s2", "did", 99.5, pid=4, token="too much"), id="another process"),
    ],
)
def test_who_was_stopped_in_a_body_may_do_nothing_more(more: Callable[[Story], Effect]) -> None:
    story = Story()
    stopped_in_a_body(story)
    story.lines.append(more(story))

    found = violations(PLAN, story.evidence())

    assert found
    assert all("again" in violation for violation in found)


def test_who_was_stopped_only_later_is_not_excused() -> None:
    story = Story()
    stopped_in_a_body(story)
    story.stops[:] = [Stop(3, since=98.0)]

    assert violations(PLAN, story.evidence())


def _with(**changes: Any) -> Callable[[Story], None]:
    def change(story: Story) -> None:
        for name, value in changes.items():
            getattr(story, name)["e0"] = value

    return change


def _calls(method: str, *args: Any) -> Callable[[Story], Any]:
    return lambda story: getattr(story, method)(*args)


def _output(step: str, value: Any) -> Callable[[Story], None]:
    return lambda story: story.outputs["e0"].__setitem__(step, value)


def _line(*args: Any, **more: Any) -> Callable[[Story], None]:
    return lambda story: story.lines.append(story.line(*args, **more))


def _without_lines(**of: str) -> Callable[[Story], None]:
    def remove(story: Story) -> None:
        kept = [each for each in story.lines if any(getattr(each, name) != value for name, value in of.items())]
        story.lines[:] = kept

    return remove


def _numbered(story: Story) -> None:
    story.events["e0"][5] = attrs.evolve(story.events["e0"][5], seq=7)


def _with_the_key_of_another(story: Story) -> None:
    story.lines[:] = [attrs.evolve(each, key="one for all") if each.step == "s1" else each for each in story.lines]


BROKEN: dict[str, tuple[Callable[[Story], Any], str]] = {
    "lost": (lambda story: story.executions.remove("e1"), "e1 is lost"),
    "twice there": (lambda story: story.executions.append("e1"), "e1 is there 2 times"),
    "running": (_with(statuses=ExecutionStatus.RUNNING), "e0: it is RUNNING"),
    "interrupted": (_with(statuses=ExecutionStatus.INTERRUPTED), "e0: it is INTERRUPTED"),
    "failed": (_with(statuses=ExecutionStatus.FAILED), "e0: it is FAILED"),
    "claimed": (_with(owners="pid 7 on host h"), "e0: it is still claimed by pid 7"),
    "wrong output": (_output("s3", {"value": 1, "token": "e0 s3"}), "e0: s3 made 1, not "),
    "no output": (lambda story: story.outputs["e0"].pop("s5"), "e0: s5 made None"),
    "an output too many": (_output("s6", {"value": 1, "token": ""}), "e0: there are outputs of s6"),
    "an output of another": (_output("s1", {"value": value_of(1, 1), "token": "e0 s1"}), "e0: s1 made "),
    "a hole": (lambda story: story.events["e0"].pop(4), "e0: event 5 has the number 6"),
    "a number twice": (_numbered, "e0: event 6 has the number 7"),
    "a tail that is lost": (lambda story: story.last_seqs.update(e0=99), "and a checkpoint of 99"),
    "never ended": (_calls("remove", "e0", "workflow.completed"), "e0: workflow.completed was told 0 times"),
    "never begun": (_calls("remove", "e0", "workflow.started"), "e0: workflow.started was told 0 times"),
    "an end that was not to be": (
        _calls("insert", "e0", ("workflow.completed", ""), ("workflow.failed", "", 0)),
        "e0: workflow.failed '', which nothing should lead to",
    ),
    "a step that was not to be": (
        _calls("insert", "e0", ("step.completed", "s1"), ("step.started", "s6", 1)),
        "e0: step.started 's6', which nothing should lead to",
    ),
    "ended twice": (
        _calls("insert", "e0", ("workflow.completed", ""), ("workflow.completed", "", 0)),
        "e0: workflow.completed was told 2 times",
    ),
    "an attempt left out": (
        _calls("insert", "e0", ("step.remembered", "s1"), ("step.started", "s1", 2)),
        "e0: s1: step.started of attempt 2, where it was at 1",
    ),
    "an attempt too many": (
        _calls("insert", "e0", ("step.remembered", "s1"), ("step.retrying", "s1", 1)),
        "e0: s1: it took 2 attempts, not 1",
    ),
    "an attempt too few": (_calls("remove", "e0", "step.retrying"), "e0: s4: it took 1 attempts, not 2"),
    "begun beside another": (
        _calls("insert", "e0", ("step.started", "s1"), ("step.started", "s1", 1)),
        "e0: s1: attempt 1 started twice, and nobody had taken it over",
    ),
    "begun beside another of which a new owner knew nothing": (
        _calls("insert", "e0", ("step.started", "s1"), ("workflow.resumed", "", 0, ()), ("step.started", "s1", 1)),
        "e0: s1: attempt 1 started twice, and nobody had taken it over",
    ),
    "begun again": (
        _calls(
            "insert", "e0", ("step.completed", "s1"), ("workflow.resumed", "", 0, ("s1",)), ("step.started", "s1", 1)
        ),
        "e0: s1: step.started after it was completed",
    ),
    "completed twice": (
        _calls("insert", "e0", ("step.completed", "s1"), ("step.completed", "s1", 1)),
        "e0: s1: it was completed 2 times",
    ),
    "a step that failed": (
        _calls("insert", "e0", ("step.started", "s1"), ("step.failed", "s1", 1)),
        "e0: s1: step.failed, which nothing should lead to",
    ),
    "recorded twice": (
        _calls("insert", "e0", ("step.remembered", "s1"), ("step.remembered", "s1", 0)),
        "e0: s1: its effect was recorded 2 times",
    ),
    "never recorded": (_calls("remove", "e0", "step.remembered"), "e0: s1: its effect was recorded 0 times"),
    "no effect": (_without_lines(execution_id="e0", step="s1", kind="did"), "e0 s1: its effect was never done"),
    "no line at all": (_without_lines(execution_id="e0", step="s1"), "e0 s1: its effect was never done"),
    "an effect that nobody did": (
        _output("s1", {"value": value_of(0, 1), "token": "made up"}),
        "e0 s1: the effect on record is none of those that were done: 'made up'",
    ),
    "an effect done again": (
        _line("e0", "s1", "did", 11.9, pid=2, token="again"),
        "e0 s1: its effect was done again by 2, recorded by 1",
    ),
    "an effect of the last step done again": (
        _line("e0", "s5", "did", 99.0, pid=2, token="again"),
        "e0 s5: its effect was done again by 2, recorded by 1",
    ),
    "a step run again": (
        _line("e0", "s1", "began", 31.0, pid=2),
        "e0 s1: it began again in 2 after the next step had begun",
    ),
    "another key at another attempt": (
        _line("e0", "s4", "began", 42.5, attempt=2, key="another"),
        "e0 s4: its effect has 2 idempotency keys",
    ),
    "a key of two effects": (_with_the_key_of_another, "e1 s1: its idempotency key is that of e0 s1, too"),
    "lines of a stranger": (_line("e7", "s1", "did", 1.0), "e7 s1: it left lines, and was not to be"),
    "lines of a strange step": (_line("e0", "s6", "did", 99.0), "e0 s6: it left lines, and was not to be"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_is_found_and_named(name: str) -> None:
    breaks, named = BROKEN[name]
    story = Story()
    breaks(story)

    found = violations(PLAN, story.evidence())

    assert [violation for violation in found if named in violation], found


def test_an_execution_that_was_not_to_be_is_found() -> None:
    story = Story()
    stranger = attrs.evolve(story.evidence().executions[0], execution_id="e9")
    evidence = story.evidence()

    found = violations(PLAN, attrs.evolve(evidence, executions=(*evidence.executions, stranger)))

    assert "e9 is nobody's: it was not to be" in found


def test_what_was_seen_meanwhile_is_found() -> None:
    evidence = attrs.evolve(Story().evidence(), troubles=("process 9 ended by itself with 1",))

    assert violations(PLAN, evidence) == ["process 9 ended by itself with 1"]


def test_an_empty_store_is_found() -> None:
    found = violations(PLAN, Evidence((), ()))

    assert found == ["e0 is lost: the store does not know it", "e1 is lost: the store does not know it"]


@pytest.mark.parametrize("damaged", [b'["did", "e0"', b'["did", "e0"]', b"\xff\xfe", b'"did"', b"7"])
def test_a_line_that_is_damaged_is_told(tmp_path: Path, damaged: bytes) -> None:
    whole = Story.line("e0", "s0", "did", 2.0)
    other = Story.line("e0", "s0", "did", 1.0, pid=2)
    line = json.dumps(attrs.astuple(whole)).encode()
    (tmp_path / "effects-1.jsonl").write_bytes(line + b"\n" + damaged + b"\n")
    (tmp_path / "effects-2.jsonl").write_bytes(json.dumps(attrs.astuple(other)).encode() + b"\n")

    effects, troubles = effects_in(tmp_path)

    assert effects == [other, whole]
    assert troubles == [f"effects-1.jsonl, line 2 is damaged: {damaged!r}"]
