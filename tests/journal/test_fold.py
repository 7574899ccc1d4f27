"""The fold: what a journal adds up to, held against the state of the walk that wrote it."""

from collections import Counter
from datetime import UTC, datetime
from typing import Any

import attrs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ares.errors import RecordedError, WalkError
from ares.journal.fold import Fold
from ares.journal.notes import Emitted, Recorded, Remembered, ToolCalled
from ares.questions import AnswerAction, Cause
from ares.records import (
    ErrorEntry,
    ErrorInfo,
    ExecutionStatus,
    ExperienceCheckpoint,
    InterruptEntry,
    LoopEntry,
    MemoryEntry,
    RouteEntry,
    ScoringSignal,
    StepState,
    StepStatus,
    ToolEntry,
)
from ares.walk import facts as f
from ares.walk.judge import describe
from ares.walk.parts import DONE
from ares.walk.state import Instance, State
from ares.walk.table import STATUS, Phase
from ares.workflow import Graph, ItemFailure
from tests.walk.driver import Driver, Weather
from tests.walk.snapshot import variables_before
from tests.walk.strategies import Case, cases

BOOM = ErrorInfo("ValueError", "boom", "Traceback ...")
SECOND = 1_000_000_000

P, R, C, F, S = StepStatus.PENDING, StepStatus.RUNNING, StepStatus.COMPLETED, StepStatus.FAILED, StepStatus.SKIPPED


def created(*steps: str, after: dict[str, tuple[str, ...]] | None = None, **more: Any) -> f.Created:
    nodes = tuple((step, "mark", (after or {}).get(step, ())) for step in steps)
    return f.Created(
        "audit", "1", "digest", "{}", nodes, more.get("inputs", {}), more.get("variables", {}), more.get("reducers", {})
    )


def fold(*entries: Any, **options: Any) -> ExperienceCheckpoint:
    folding = Fold("audit-1", **options)
    for seq, entry in enumerate(entries, 1):
        folding.add(seq, seq * SECOND, entry)
    return folding.checkpoint()


def statuses(checkpoint: ExperienceCheckpoint) -> dict[str, StepStatus]:
    return {path: step.status for path, step in checkpoint.step_states.items()}


def started(path: str, attempt: int = 1, epoch: int = 0) -> f.Started:
    return f.Started(path, 1, epoch, attempt)


def succeeded(path: str, output: Any = None, writes: tuple[tuple[str, Any], ...] = (), **more: Any) -> f.Succeeded:
    return f.Succeeded(path, 1, more.get("epoch", 0), 1, output, writes, more.get("targets"), more.get("duration", 0.0))


def failed(path: str, attempt: int = 1, after: f.After = f.After.FINAL) -> f.Failed:
    return f.Failed(path, 1, 0, attempt, BOOM, after)


# --- the execution -----------------------------------------------------------------------------------------------


def test_an_execution_that_was_created_is_pending_and_so_are_its_steps() -> None:
    checkpoint = fold(created("a", "b", after={"b": ("a",)}, variables={"n": 0}))

    assert checkpoint == ExperienceCheckpoint(
        schema_version=1,
        execution_id="audit-1",
        workflow_id="audit",
        workflow_version="1",
        state_version=1,
        status=ExecutionStatus.PENDING,
        round=1,
        error=None,
        step_states={"a": StepState("a", 1, P), "b": StepState("b", 1, P)},
        variables={"n": 0},
        outputs={},
        dag_nodes=("a", "b"),
        dag_edges=(("a", "b"),),
        route_history=(),
        tool_history=(),
        memory_hits=(),
        interrupt_history=(),
        loop_history=(),
        error_history=(),
        scoring_signals=(),
        created_at=datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC),
        updated_at=datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC),
    )


def test_an_execution_runs_once_a_step_of_it_has_begun() -> None:
    assert fold(created("a"), started("a")).status is ExecutionStatus.RUNNING


def test_an_execution_that_ended_has_the_status_and_error_it_ended_with() -> None:
    checkpoint = fold(created("a"), started("a"), failed("a"), f.Ended(ExecutionStatus.FAILED, BOOM))

    assert (checkpoint.status, checkpoint.error) == (ExecutionStatus.FAILED, BOOM)


def test_an_execution_that_is_taken_up_again_runs_and_has_no_error() -> None:
    checkpoint = fold(created("a"), failed("a"), f.Ended(ExecutionStatus.FAILED, BOOM), f.Resumed(1))

    assert (checkpoint.status, checkpoint.error) == (ExecutionStatus.RUNNING, None)


def test_an_execution_that_was_stopped_in_good_order_is_interrupted() -> None:
    checkpoint = fold(created("a"), started("a"), f.Interrupted(("a",)))

    assert checkpoint.status is ExecutionStatus.INTERRUPTED
    assert statuses(checkpoint) == {"a": P}


def test_the_last_entry_gives_version_and_time() -> None:
    checkpoint = fold(created("a"), started("a"), Emitted("a", 1, 1, "x.y", {}))

    assert checkpoint.state_version == 3
    assert checkpoint.created_at == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert checkpoint.updated_at == datetime(1970, 1, 1, 0, 0, 3, tzinfo=UTC)


@pytest.mark.parametrize("seq", [1, 3])
def test_an_entry_that_does_not_follow_the_last_one_is_refused_and_changes_nothing(seq: int) -> None:
    folding = Fold("audit-1")
    folding.add(1, SECOND, created("a"))
    before = folding.checkpoint()

    with pytest.raises(WalkError, match=f"entry {seq} does not follow entry 1"):
        folding.add(seq, 2 * SECOND, started("a"))

    assert folding.checkpoint() == before


def test_a_checkpoint_does_not_change_with_later_entries() -> None:
    folding = Fold("audit-1")
    folding.add(1, SECOND, created("a", variables={"n": 0}))
    before = folding.checkpoint()

    folding.add(2, SECOND, started("a"))
    folding.add(3, SECOND, succeeded("a", 7, (("n", 1),)))

    assert (statuses(before), before.variables, before.outputs) == ({"a": P}, {"n": 0}, {})


# --- steps -------------------------------------------------------------------------------------------------------


def test_a_step_is_kept_with_all_that_its_facts_say() -> None:
    checkpoint = fold(
        created("a"),
        started("a"),
        f.Failed("a", 1, 0, 1, BOOM, f.After.RETRY, 2.0, 0.5),
        started("a", 2),
        f.Succeeded("a", 1, 0, 2, 7, duration=0.25),
    )

    assert checkpoint.step_states["a"] == StepState("a", 1, C, attempts=2, output=7, duration=0.25)
    assert checkpoint.outputs == {"a": 7}


def test_a_step_that_waits_for_its_retry_runs_and_shows_its_last_error() -> None:
    step = fold(created("a"), started("a"), failed("a", after=f.After.RETRY)).step_states["a"]

    assert (step.status, step.error) == (R, BOOM)


def test_a_skipped_step_tells_why_and_because_of_which() -> None:
    checkpoint = fold(created("a"), f.Skipped("a", 1, 0, f.SkipReason.UPSTREAM_FAILED, "fetch"))

    assert checkpoint.step_states["a"].reason == "upstream_failed: fetch"


def test_an_attempt_that_died_with_its_process_counts_as_not_begun() -> None:
    step = fold(created("a"), started("a"), f.Resumed(1, ("a",))).step_states["a"]

    assert (step.status, step.attempts) == (P, 0)


def test_a_branch_point_without_a_route_is_completed_and_shows_the_error() -> None:
    step = fold(created("a"), started("a"), succeeded("a", 7), f.Unrouted("a", 1, 0, BOOM)).step_states["a"]

    assert (step.status, step.output, step.error) == (C, 7, BOOM)


def test_asking_for_a_route_again_takes_back_nothing_else() -> None:
    step = fold(
        created("a"), started("a"), succeeded("a", 7), f.Unrouted("a", 1, 0, BOOM),
        f.Resumed(1, (), (f.SetBack("a", route=True),)),
    ).step_states["a"]  # fmt: skip

    assert (step.status, step.output, step.error) == (C, 7, None)


# --- maps and sub-workflows --------------------------------------------------------------------------------------


def a_map(*elements: Any) -> list[Any]:
    return [created("m"), f.Opened("m", 1, 0, 1, 3), *elements]


def test_the_output_of_a_map_is_in_the_order_of_its_elements_and_shows_collected_failures() -> None:
    checkpoint = fold(*a_map(succeeded("m[2]", "c"), failed("m[1]"), succeeded("m[0]", "a"), f.Completed("m", 1, 0, 1)))

    assert checkpoint.outputs == {"m": ["a", BOOM, "c"]}
    assert statuses(checkpoint) == {"m": C, "m[0]": C, "m[1]": F, "m[2]": C}


def test_a_map_over_nothing_has_an_empty_list() -> None:
    assert fold(created("m"), f.Opened("m", 1, 0, 1, 0), f.Completed("m", 1, 0, 1)).outputs == {"m": []}


def test_elements_that_have_not_begun_are_not_listed() -> None:
    checkpoint = fold(*a_map(started("m[0]"), started("m[1]"), f.Resumed(1, ("m[1]",))))

    assert statuses(checkpoint) == {"m": R, "m[0]": R}


def test_a_map_that_is_set_back_forgets_its_failed_elements_alone() -> None:
    checkpoint = fold(*a_map(succeeded("m[0]", "a"), failed("m[1]"), failed("m")), f.Resumed(1, (), (f.SetBack("m"),)))

    assert statuses(checkpoint) == {"m": P, "m[0]": C}


def test_a_map_that_opens_again_over_as_many_elements_keeps_those_that_completed() -> None:
    checkpoint = fold(*a_map(succeeded("m[0]", "a"), f.Opened("m", 1, 0, 2, 3)))

    assert statuses(checkpoint) == {"m": R, "m[0]": C}


def test_an_at_most_once_step_that_was_cut_short_is_pending_until_its_reconcile_returns() -> None:
    cut = [created("pay"), started("pay"), f.Resumed(1, ("pay",))]

    assert statuses(fold(*cut)) == {"pay": P}
    assert fold(*cut, succeeded("pay", 7, epoch=1)).step_states["pay"] == StepState("pay", 1, C, 1, output=7)


def test_a_map_that_is_done_again_forgets_all_its_elements() -> None:
    checkpoint = fold(
        *a_map(succeeded("m[0]", "a"), failed("m[1]"), failed("m")), f.Resumed(1, (), (f.SetBack("m", redo=True),))
    )

    assert statuses(checkpoint) == {"m": P}


def test_the_output_of_a_sub_workflow_is_that_of_its_sinks() -> None:
    checkpoint = fold(
        created("c", "c/a", "c/b", "c/d", after={"c/b": ("c/a",), "c/d": ("c/a",)}),
        f.Opened("c", 1, 0, 1),
        succeeded("c/a", 1),
        succeeded("c/b", 2),
        f.Skipped("c/d", 1, 0, f.SkipReason.CONDITION),
        f.Completed("c", 1, 0, 1),
    )

    assert checkpoint.outputs == {"c": {"b": 2, "d": None}}


def test_the_output_of_a_sub_workflow_of_unknown_steps_is_that_of_all_it_completed() -> None:
    checkpoint = fold(
        created("c"), f.Opened("c", 1, 0, 1), succeeded("c/a", 1), failed("c/b"), f.Completed("c", 1, 0, 1)
    )

    assert checkpoint.outputs == {"c": {"a": 1}}


def test_the_steps_of_a_sub_workflow_are_there_when_it_opens_and_lie_behind_it() -> None:
    checkpoint = fold(
        created("m", "m/a", "m/b", "z"),
        f.Opened("m", 1, 0, 1, 12),
        f.Opened("m[10]", 1, 0, 1),
        f.Opened("m[9]", 1, 0, 1),
        succeeded("m[10]/b"),
    )

    assert list(checkpoint.step_states) == ["m", "m[9]", "m[9]/a", "m[9]/b", "m[10]", "m[10]/a", "m[10]/b", "z"]


def test_a_sub_workflow_that_is_done_again_forgets_what_lies_in_it_at_any_depth() -> None:
    deep = [f.Opened("c", 1, 0, 1), f.Opened("c/m", 1, 0, 1, 2), f.Opened("c/m[1]", 1, 0, 1), failed("c/m[1]/x")]

    checkpoint = fold(created("c", "cc"), *deep, succeeded("cc", 1), f.Resumed(1, (), (f.SetBack("c", redo=True),)))

    assert statuses(checkpoint) == {"c": P, "cc": C}


def test_the_retry_of_a_sub_workflow_sets_back_what_it_names() -> None:
    checkpoint = fold(
        created("c"),
        f.Opened("c", 1, 0, 1),
        succeeded("c/a", 1),
        failed("c/b"),
        failed("c", after=f.After.RETRY),
        f.Opened("c", 1, 0, 2, None, (f.SetBack("c/b"),)),
    )

    assert statuses(checkpoint) == {"c": R, "c/a": C, "c/b": P}
    assert checkpoint.step_states["c"].attempts == 2


def test_sub_workflows_may_lie_in_one_another_as_deep_as_they_like() -> None:
    path = "/".join(["c"] * 5_000)

    checkpoint = fold(created("c"), started(path), f.Resumed(1, (), (f.SetBack("c", redo=True),)))

    assert statuses(checkpoint) == {"c": P}


# --- a changed definition ----------------------------------------------------------------------------------------


def test_an_accepted_change_keeps_the_steps_that_still_exist_and_brings_the_new_ones() -> None:
    nodes = (("b", "mark", ()), ("c", "mark", ()), ("new", "mark", ("b",)), ("c/y", "mark", ()))

    checkpoint = fold(
        created("a", "b", "c", "c/x", variables={"n": 0}),
        succeeded("a", 1, (("n", 1),)),
        succeeded("b", 2),
        f.Opened("c", 1, 0, 1),
        f.Resumed(1, accepted=("b", "c", "new"), nodes=nodes, version="2"),
    )

    assert statuses(checkpoint) == {"b": C, "c": R, "c/y": P, "new": P}
    assert (checkpoint.dag_nodes, checkpoint.dag_edges) == (("b", "c", "new", "c/y"), (("b", "new"),))
    assert (checkpoint.variables, checkpoint.workflow_version) == ({"n": 0}, "2")


# --- variables ---------------------------------------------------------------------------------------------------


def test_a_variable_has_its_initial_value_and_then_what_was_written_last() -> None:
    checkpoint = fold(
        created("a", "b", variables={"x": 0, "y": 1}), succeeded("a", 0, (("x", 1),)), succeeded("b", 0, (("x", 2),))
    )

    assert checkpoint.variables == {"x": 2, "y": 1}


@pytest.mark.parametrize(
    ("name", "initial", "written", "value"),
    [
        ("append", [0], [1, [2]], [0, 1, [2]]),
        ("extend", [0], [[1], (2, 3)], [0, 1, 2, 3]),
        ("add", 1, [2, 3], 6),
        ("merge", {"a": 1}, [{"b": 2}, {"a": 3}], {"a": 3, "b": 2}),
        ("custom", 1, [2, 3], (2, 3)),
        ("append", None, [1, 2], (1, 2)),
        ("extend", [0], [1], (1,)),
    ],
)
def test_writes_are_combined_by_a_reducer_that_is_known_and_works_and_else_all_shown(
    name: str, initial: Any, written: list[Any], value: Any
) -> None:
    facts = [succeeded("a", 0, (("x", each),)) for each in written]

    checkpoint = fold(created("a", variables={"x": initial}, reducers={"x": name}), *facts)

    assert checkpoint.variables == {"x": value}


def test_no_reducer_changes_the_initial_value() -> None:
    initial: dict[str, Any] = {"x": [0], "y": {"a": 1}}
    writes = (("x", 1), ("y", {"a": 2}))

    fold(created("a", variables=initial, reducers={"x": "append", "y": "merge"}), succeeded("a", 0, writes))

    assert initial == {"x": [0], "y": {"a": 1}}


def test_a_reducer_that_is_a_function_is_given_by_the_caller() -> None:
    facts = [created("a", variables={"x": 5}, reducers={"x": "custom"}), succeeded("a", 0, (("x", 3),))]

    assert fold(*facts, reducers={"x": max}).variables == {"x": 5}


def test_the_writes_of_elements_take_effect_when_the_map_completes_and_in_their_order() -> None:
    facts = [created("m", variables={"x": []}, reducers={"x": "append"}), f.Opened("m", 1, 0, 1, 2)]
    facts += [succeeded("m[1]", 0, (("x", "b"),)), succeeded("m[0]", 0, (("x", "a"),))]

    assert fold(*facts).variables == {"x": []}
    assert fold(*facts, f.Completed("m", 1, 0, 1)).variables == {"x": ["a", "b"]}


def test_the_writes_of_a_step_that_is_set_back_are_withdrawn() -> None:
    facts = [
        created("a", "b", "m", variables={"x": []}, reducers={"x": "append"}),
        succeeded("a", 0, (("x", "a"),)),
        f.Opened("m", 1, 0, 1, 1),
        succeeded("m[0]", 0, (("x", "m"),)),
        f.Completed("m", 1, 0, 1),
        succeeded("b", 0, (("x", "b"),)),
    ]

    checkpoint = fold(*facts, f.Resumed(1, (), (f.SetBack("a", redo=True), f.SetBack("m"))))

    assert checkpoint.variables == {"x": ["b"]}


def test_what_a_child_step_writes_is_no_variable_of_the_execution() -> None:
    checkpoint = fold(created("c", variables={"x": 0}), f.Opened("c", 1, 0, 1), succeeded("c/a", 0, (("x", 1),)))

    assert checkpoint.variables == {"x": 0}


# --- histories ---------------------------------------------------------------------------------------------------


def test_every_decision_is_in_the_route_history_whoever_made_it() -> None:
    checkpoint = fold(
        created("a", "c"),
        succeeded("a", targets=("x",)),
        f.Opened("c", 1, 0, 1),
        succeeded("c/b"),
        f.Routed("c/b", 1, 0, ("y", "z"), "router", "because"),
    )

    assert checkpoint.route_history == (
        RouteEntry("a", "a", ("x",), "", "step", datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC)),
        RouteEntry("b", "c/b", ("y", "z"), "because", "router", datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC)),
    )


def test_the_error_history_has_an_entry_for_each_failed_attempt_and_each_lost_route() -> None:
    checkpoint = fold(
        created("a", "b"), started("a"), failed("a", after=f.After.RETRY), started("a", 2), failed("a", 2),
        succeeded("b"), f.Unrouted("b", 1, 0, ErrorInfo("RouteError", "nobody")),
    )  # fmt: skip

    assert checkpoint.error_history == (
        ErrorEntry("a", "a", "ValueError: boom"),
        ErrorEntry("a", "a", "ValueError: boom"),
        ErrorEntry("b", "b", "RouteError: nobody"),
    )


def test_calls_of_tools_are_kept_in_order_even_of_steps_that_were_set_back() -> None:
    checkpoint = fold(
        created("c"),
        ToolCalled("c/m[3]", 1, 1, "http", [1], 2, 0.5, success=True),
        ToolCalled("c/m[3]", 1, 1, "http", [2], None, 0.1, success=False, error="boom"),
        f.Resumed(1, (), (f.SetBack("c", redo=True),)),
    )

    assert checkpoint.tool_history == (
        ToolEntry("m[3]", "c/m[3]", "http", [1], 2, 0.5, True, ""),
        ToolEntry("m[3]", "c/m[3]", "http", [2], None, 0.1, False, "boom"),
    )


def test_what_once_remembered_changes_nothing_but_the_version() -> None:
    assert fold(created("a"), Remembered("a", 1, 0, "k", 7)).step_states == fold(created("a")).step_states


# --- questions ---------------------------------------------------------------------------------------------------

W = StepStatus.WAITING
CANNOT = ErrorInfo("ares.errors.OutcomeUnknownError", "who knows")


def asked(path: str, key: str = "k", cause: Cause = Cause.BODY, attempt: int = 1) -> f.Asked:
    return f.Asked(path, 1, 0, attempt, key, f"{key}?", None, cause)


def answered(path: str, action: AnswerAction, key: str = "k", feedback: str = "") -> f.Answered:
    return f.Answered(path, 1, 0, 1, key, action, 7, feedback)


def questions(*entries: Any) -> list[tuple[str, str, int]]:
    folding = Fold("audit-1")
    for seq, entry in enumerate(entries, 1):
        folding.add(seq, seq * SECOND, entry)
    return [(question.path, question.key, at) for question, at in folding.questions()]


def test_a_step_that_asks_waits_and_its_question_is_open_since_then() -> None:
    entries = created("a", "b"), asked("a", "", Cause.BEFORE, 0), started("b"), asked("b")

    assert statuses(fold(*entries)) == {"a": W, "b": W}
    assert questions(*entries) == [("a", "", 2 * SECOND), ("b", "k", 4 * SECOND)]


@pytest.mark.parametrize(
    ("cause", "action", "status"),
    [
        (Cause.BEFORE, AnswerAction.APPROVE, P),
        (Cause.BEFORE, AnswerAction.REJECT, W),
        (Cause.BODY, AnswerAction.APPROVE, W),
        (Cause.BODY, AnswerAction.REJECT, W),
        (Cause.OUTCOME, AnswerAction.APPROVE, R),
        (Cause.OUTCOME, AnswerAction.REJECT, W),
        (Cause.OUTCOME, AnswerAction.RUN_AGAIN, P),
    ],
)
def test_where_an_answer_leads_depends_on_what_was_asked(
    cause: Cause, action: AnswerAction, status: StepStatus
) -> None:
    entries = created("a"), started("a"), asked("a", cause=cause), answered("a", action)

    assert statuses(fold(*entries)) == {"a": status}
    assert questions(*entries) == []


def test_a_body_that_goes_on_is_under_way() -> None:
    entries = created("a"), started("a"), asked("a"), answered("a", AnswerAction.APPROVE), f.Continued("a", 1, 0, 1)

    assert statuses(fold(*entries)) == {"a": R}
    assert fold(*entries, f.Interrupted(("a",))).step_states["a"] == StepState("a", 1, P)


def test_what_is_asked_and_answered_is_kept_in_words() -> None:
    checkpoint = fold(created("a"), started("a"), asked("a"), answered("a", AnswerAction.REJECT, feedback="never"))

    assert checkpoint.interrupt_history == (
        InterruptEntry("a", "a", "k", "ask", "k?"),
        InterruptEntry("a", "a", "k", "reject", "never"),
    )


def test_an_execution_waits_until_something_moves_again() -> None:
    entries = created("a"), started("a"), asked("a"), f.Waiting(("a",))

    assert fold(*entries).status is ExecutionStatus.WAITING
    assert fold(*entries, answered("a", AnswerAction.APPROVE)).status is ExecutionStatus.RUNNING
    assert fold(*entries, f.Resumed(1)).status is ExecutionStatus.RUNNING


def test_a_step_that_is_skipped_has_no_error_of_what_led_there() -> None:
    checkpoint = fold(
        created("a"),
        started("a"),
        f.Failed("a", 1, 0, 1, CANNOT, f.After.RECONCILE, unknown=True),
        asked("a", "outcome", Cause.OUTCOME),
        answered("a", AnswerAction.REJECT, "outcome"),
        f.Skipped("a", 1, 0, f.SkipReason.REJECTED),
    )

    assert (checkpoint.step_states["a"].reason, checkpoint.step_states["a"].error) == ("rejected", None)


@pytest.mark.parametrize(
    "back", [(f.SetBack("c"),), (f.SetBack("c", redo=True),), (f.SetBack("c/x"),), (f.SetBack("c"), f.SetBack("c/x"))]
)
def test_a_question_in_what_is_set_back_is_not_open(back: tuple[f.SetBack, ...]) -> None:
    entries = created("c", "c/x"), f.Opened("c", 1, 0, 1), started("c/x"), asked("c/x"), f.Resumed(1, (), back)

    assert questions(*entries[:-1]) == [("c/x", "k", 4 * SECOND)]
    assert questions(*entries) == []


def test_a_question_in_what_is_set_back_is_open_again_when_that_opens() -> None:
    entries = (
        created("c", "c/x"),
        f.Opened("c", 1, 0, 1),
        started("c/x"),
        asked("c/x"),
        f.Resumed(1, (), (f.SetBack("c"),)),
    )

    assert questions(*entries, f.Opened("c", 1, 1, 1)) == [("c/x", "k", 4 * SECOND)]


# --- rounds ------------------------------------------------------------------------------------------------------


def ended_round(path: str = "", round: int = 1, **more: Any) -> f.RoundEnded:
    return f.RoundEnded(path, round, 0, **more)


def test_another_round_begins_with_nothing_but_what_was_written() -> None:
    checkpoint = fold(
        created("a", "b", variables={"n": 0, "log": []}, reducers={"log": "append"}),
        succeeded("a", 1, (("n", 1), ("log", "x"))),
        failed("b", after=f.After.SKIP),
        ended_round(),
        f.RoundStarted("", 2, 0),
    )

    assert checkpoint.step_states == {"a": StepState("a", 2, P), "b": StepState("b", 2, P)}
    assert (checkpoint.round, checkpoint.outputs, checkpoint.variables) == (2, {}, {"n": 1, "log": ["x"]})


def test_a_set_back_in_a_later_round_withdraws_nothing_of_earlier_ones() -> None:
    checkpoint = fold(
        created("a", variables={"n": 0}),
        succeeded("a", 1, (("n", 1),)),
        ended_round(),
        f.RoundStarted("", 2, 0),
        f.Succeeded("a", 2, 1, 1, 2, (("n", 2),)),
        f.Resumed(2, set_back=(f.SetBack("a"),)),
    )

    assert checkpoint.variables == {"n": 1}


def test_the_loop_history_tells_why_each_round_of_the_execution_was_the_last_or_was_not() -> None:
    checkpoint = fold(
        created("a", "in"),
        ended_round("in", again=False, reason="until"),
        ended_round(),
        f.RoundStarted("", 2, 0),
        ended_round(round=2, again=False, reason="controller", by="loop"),
    )

    assert checkpoint.loop_history == (LoopEntry(1, ""), LoopEntry(2, "controller: loop"))


def test_steps_inside_have_the_round_of_their_owner_in_their_path_and_their_own_beside() -> None:
    nodes = (("in", "mark", ()), ("in/x", "mark", ()), ("in/x/deep", "mark", ()))
    checkpoint = fold(
        attrs.evolve(created(), nodes=nodes),
        f.Opened("in", 1, 0, 1),
        f.RoundStarted("", 2, 0),
        f.Opened("in", 2, 1, 1),
        f.Opened("in#2/x", 1, 1, 1),
        f.RoundStarted("in#2", 2, 1),
        f.Opened("in#2/x", 2, 2, 1),
        f.RoundStarted("in#2/x#2", 2, 2),
    )

    assert {path: step.round for path, step in checkpoint.step_states.items()} == {
        "in": 2, "in#2/x": 2, "in#2/x#2/deep": 2,
    }  # fmt: skip


def test_a_step_that_came_with_another_definition_is_in_the_present_round() -> None:
    nodes = (("in", "mark", ()), ("in/x", "mark", ()))
    more = (*nodes, ("in/y", "mark", ()), ("z", "mark", ()))
    checkpoint = fold(
        attrs.evolve(created(), nodes=nodes),
        f.RoundStarted("", 2, 0),
        f.Opened("in", 2, 1, 1),
        f.RoundStarted("in#2", 2, 1),
        f.RoundStarted("in#2", 3, 2),
        f.Resumed(4, accepted=(), nodes=more),
    )

    rounds = {path: step.round for path, step in checkpoint.step_states.items()}
    assert rounds == {"in": 2, "in#2/x": 3, "in#2/y": 3, "z": 2}


# --- held against the walk ---------------------------------------------------------------------------------------


def nodes_of(graph: Graph, prefix: str = "") -> list[tuple[str, str, tuple[str, ...]]]:
    nodes = []
    for node in graph.nodes:
        path = prefix + node.id
        nodes.append((path, "mark", tuple(prefix + graph.nodes[d].id for d in node.deps)))
        if node.child is not None:
            nodes += nodes_of(node.child, path + "/")
    return nodes


def variables_of(state: State) -> dict[str, Any]:
    workflow = state.graph.workflow
    values = variables_before(state.root)
    for name, value, _ in state.root.writes:
        reducer = workflow.reducer(name)
        values[name] = value if reducer is None else reducer(values[name], value)
    return values


def same_as_the_walk(folding: Fold, state: State) -> None:
    checkpoint = folding.checkpoint()
    steps = checkpoint.step_states
    expected = {i.path: i for i in state.instances() if i.index is None or i.phase is not Phase.PENDING}
    # That a step may not run twice is not in the journal: one that was cut short is PENDING there until it is asked.
    for path in [p for p, i in expected.items() if i.phase is Phase.RECONCILING and i.index is not None]:
        if path not in steps:
            del expected[path]
    open_ones = {path: i.question for path, i in state.waiting.items()}
    assert {question.path: question for question, _ in folding.questions()} == open_ones
    done = {path: output for instance in state.instances() for path, output in done_elements(instance)}
    assert {path: shown(steps[path], instance) for path, instance in expected.items()} == {
        path: wanted(instance) for path, instance in expected.items()
    }
    assert {path: (steps[path].status, plain(steps[path].output)) for path in done} == {
        path: (C, plain(output)) for path, output in done.items()
    }
    assert steps.keys() == expected.keys() | done.keys()
    assert {path: steps[path].round for path in expected} == {p: i.scope.round for p, i in expected.items()}
    assert checkpoint.round == state.root.round
    assert checkpoint.variables == variables_of(state)
    assert {name: plain(value) for name, value in checkpoint.outputs.items()} == {
        i.path: plain(i.output) for i in state.root.instances if STATUS[i.phase] is C
    }
    if state.ended is not None:
        assert (checkpoint.status, checkpoint.error) == (state.ended.status, state.ended.error)


def done_elements(owner: Instance) -> list[tuple[str, Any]]:
    parts = owner.parts
    if parts is None:
        return []
    return [(f"{owner.path}[{i}]", parts.outputs[i]) for i in range(parts.length) if parts.states[i] == DONE]


def wanted(instance: Instance) -> tuple[Any, ...]:
    reason = "" if instance.reason is None else str(instance.reason)
    if instance.origin:
        reason = f"{reason}: {instance.origin}"
    # Of a failed sub-workflow that may be retried, the walk knows the error before there is a fact of it.
    error = instance.unrouted or (None if instance.phase is Phase.OPEN else instance.error)
    return STATUS[instance.phase], instance.attempt, reason, error, plain(instance.output)


def shown(step: StepState, instance: Instance) -> tuple[Any, ...]:
    error = None if instance.phase is Phase.OPEN else step.error
    status = R if instance.phase is Phase.RECONCILING and step.status is P else step.status
    return status, step.attempts, step.reason, error, plain(step.output)


def plain(value: Any) -> Any:
    """A collected failure as the journal knows it."""
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, ItemFailure):
        error = value.error
        return ErrorInfo(error.type_name, error.message) if isinstance(error, RecordedError) else describe(error)
    return value


weathers = st.builds(
    Weather,
    seed=st.integers(0, 2**32),
    workers=st.integers(1, 4),
    is_sync=st.booleans(),
    crashes=st.integers(0, 3),
    cancels=st.booleans(),
    deadlines=st.booleans(),
    resumes=st.integers(0, 3),
    reruns=st.booleans(),
    has_controllers=st.booleans(),
)


#: Of the histories that nothing but plugins writes to yet.
recorded = st.one_of(
    st.builds(lambda n: Recorded("a", "memory", MemoryEntry("a", "a", "q", n, 0.5, ())), st.integers()),
    st.builds(lambda n: Recorded("", "loop", LoopEntry(n, "enough")), st.integers()),
    st.builds(lambda n: Recorded("", "judge", ScoringSignal("judge", n, "x")), st.floats(0, 1)),
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cases(), weathers, st.lists(st.tuples(st.integers(0, 60), recorded), max_size=6))
def test_the_fold_of_a_journal_is_the_state_of_its_walk_at_every_entry(
    case: Case, weather: Weather, notes: list[tuple[int, Recorded]]
) -> None:
    driver = Driver(case, weather)
    driver.drive()
    first, *rest = driver.facts
    assert isinstance(first, f.Created)
    first = attrs.evolve(first, nodes=tuple(nodes_of(driver.graph)))
    state = State(driver.graph, "x")
    folding = Fold("x")
    journal: list[Any] = [first, *rest]
    for place, note in notes:
        journal.insert(min(1 + place, len(journal)), note)  # wherever plugins record: the walk knows nothing of it

    for seq, entry in enumerate(journal, 1):
        if not isinstance(entry, Recorded):
            state.apply(entry)
        folding.add(seq, SECOND, entry)

        same_as_the_walk(folding, state)

    kept = folding.checkpoint()
    written = [entry.entry for entry in journal if isinstance(entry, Recorded)]
    written += [LoopEntry(e.round, e.reason) for e in journal if isinstance(e, f.RoundEnded) and not e.path]
    assert Counter([*kept.memory_hits, *kept.loop_history, *kept.scoring_signals]) == Counter(written)
