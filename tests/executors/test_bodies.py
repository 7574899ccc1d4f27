"""A body on an executor: what it is given, what it gives back, and how it fails. The walk is the same as ever."""

import threading
from pathlib import Path
from typing import Any

import pytest

from ares import RetryPolicy, Runtime, StepsOn, StepSpec, Workflow
from ares.errors import RemoteError, RouteError, SerializationError, UsageError, WriteError
from tests.engine.helpers import types_of
from tests.executors import bodies
from tests.executors.conftest import away, forks, run

# Python 3.12 and newer warn of forks beside threads.
pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


def output(rt: Runtime, body: Any, inputs: dict[str, Any] | None = None, **options: Any) -> Any:
    return run(rt, body, inputs, **options).raise_for_status().outputs["body"]


# --- what it is given, and gives ---------------------------------------------------------------------------


def test_a_body_runs_in_a_process_of_the_pool(shared: Runtime) -> None:
    import os

    assert output(shared, bodies.pid) != os.getpid()


def test_arguments_get_there_by_name_and_by_position(shared: Runtime) -> None:
    assert output(shared, bodies.by_position, {"a": 1, "b": 2}) == (1, 2, 3)


def test_values_of_other_steps_get_there(shared: Runtime) -> None:
    wf = Workflow("w")
    wf.step(bodies.one, id="a")
    wf.step(bodies.add, id="body", executor="cpu")

    assert shared.run(wf).raise_for_status().outputs["body"] == 6


def test_a_map_over_an_executor_keeps_the_order_of_its_elements(shared: Runtime) -> None:
    wf = Workflow("w")
    wf.step(lambda: list(range(50)), id="source")
    wf.step(bodies.double, id="twice", map_over="source", executor="cpu")

    assert shared.run(wf).raise_for_status().outputs["twice"] == [2 * i for i in range(50)]


def test_an_empty_map_sends_nothing(shared: Runtime) -> None:
    wf = Workflow("w")
    wf.step(list, id="source")
    wf.step(bodies.die, id="none", map_over="source", params={}, executor="cpu")

    assert shared.run(wf).raise_for_status().outputs["none"] == []


def test_a_step_of_a_sub_workflow_may_have_one(shared: Runtime) -> None:
    child = Workflow("child")
    child.step(bodies.one, id="one", executor="cpu")
    wf = Workflow("w")
    wf.add(StepSpec("child", workflow=child))

    assert shared.run(wf).raise_for_status().outputs["child"] == {"one": 1}


def test_the_context_there_says_what_the_one_at_home_would(shared: Runtime) -> None:
    options = {"timeout": 30.0, "metadata": {"owner": "me"}, "writes": ["total"]}
    wf = away(bodies.look_around, {"n": 3}, **options)
    found = shared.run(wf, {"n": 3}, metadata={"tenant": "a"}, execution_id="looked").outputs["body"]
    at_home = Workflow("away", inputs={"n": object}, variables={"total": 0})
    at_home.add(StepSpec("body", bodies.look_around, **options))  # type: ignore[arg-type]  # as above
    with Runtime() as rt:
        said = rt.run(at_home, {"n": 3}, metadata={"tenant": "a"}, execution_id="looked").outputs["body"]

    assert 0 < found.pop("left") <= 30
    assert found.pop("pid") != said.pop("pid")
    said.pop("left")
    assert found == said


def test_without_a_timeout_there_is_no_deadline(shared: Runtime) -> None:
    assert output(shared, bodies.look_around, {"n": 1})["left"] is None


def test_the_idempotency_key_is_the_same_here_and_there(shared: Runtime) -> None:
    wf = Workflow("w")
    wf.step(bodies.key, id="body", executor="cpu")
    same = Workflow("w")
    same.step(bodies.key, id="body")
    with Runtime() as rt:
        at_home = rt.run(same, execution_id="x").outputs["body"]

    assert shared.run(wf, execution_id="x").outputs["body"] == at_home


def test_what_is_set_there_is_written(shared: Runtime) -> None:
    result = run(shared, bodies.write, writes=["total"])

    assert result.raise_for_status().variables["total"] == 3


def test_what_is_set_there_must_be_declared(shared: Runtime) -> None:
    result = run(shared, bodies.write_what_is_not_its, writes=["total"])

    assert isinstance(result.error, WriteError)
    assert str(result.error) == "step 'body' sets variable 'stranger', which is not in its writes"


def test_nothing_is_written_by_a_body_that_fails(shared: Runtime) -> None:
    result = run(shared, bodies.write_what_is_not_its, writes=["total"])

    assert result.variables["total"] == 0


@pytest.mark.parametrize("what", ["once", "tool", "interrupt", "emit", "progress", "upstream"])
def test_what_needs_the_home_is_refused_with_the_reason(shared: Runtime, what: str) -> None:
    error = run(shared, bodies.ask_for, {"what": what}).error

    assert isinstance(error, UsageError)
    assert f"ctx.{what}" in str(error)
    assert "in step 'body', which runs on executor 'cpu': " in str(error)


def test_a_body_there_may_choose_the_branch(shared: Runtime) -> None:
    wf = Workflow("w")
    wf.step(bodies.go_left, id="fork", branches=["left", "right"], executor="cpu")
    wf.step(lambda fork: fork, id="left")
    wf.step(lambda fork: fork, id="right")

    result = shared.run(wf).raise_for_status()

    assert result.outputs["left"] == 7
    assert "right" not in result.outputs


def test_a_branch_that_there_is_not_fails_the_step(shared: Runtime) -> None:
    wf = Workflow("w")
    wf.step(bodies.go_astray, id="fork", branches=["left"], executor="cpu")
    wf.step(lambda fork: fork, id="left")

    assert isinstance(shared.run(wf).error, RouteError)


def test_condition_and_router_stay_at_home(shared: Runtime) -> None:
    asked = []

    def which() -> str:
        asked.append(threading.get_ident())
        return "left"

    wf = Workflow("w")
    wf.step(bodies.one, id="fork", branches=["left"], router=which, condition=lambda: not asked, executor="cpu")
    wf.step(lambda fork: fork, id="left")

    assert shared.run(wf).raise_for_status().outputs["left"] == 1
    assert asked


def test_around_step_stays_at_home() -> None:
    import contextlib

    entered = []

    @contextlib.contextmanager
    def around(ctx: Any) -> Any:
        entered.append(ctx.step.path)
        yield
        entered.append("left")

    with Runtime(executors={"cpu": forks}, around_step=around) as rt:
        run(rt, bodies.look_around, {"n": 1}).raise_for_status()

    assert entered == ["body", "left"]


def test_its_events_are_those_of_any_step(shared: Runtime) -> None:
    result = run(shared, bodies.one)

    found = types_of(shared.execution(result.execution_id).events())

    assert found == ["workflow.started", "step.started", "step.completed", "workflow.completed"]


# --- how it fails -------------------------------------------------------------------------------------------


def test_an_exception_keeps_its_type_and_what_it_says(shared: Runtime) -> None:
    error = run(shared, bodies.be_unhappy).error

    assert isinstance(error, bodies.Unhappy)
    assert (error.code, error.detail, error.__notes__) == (4, "so it is", ["a note"])


def test_the_frames_it_had_there_are_journaled(tmp_path: Path) -> None:
    with Runtime(tmp_path / "ares.db", executors={"cpu": forks}) as rt:
        result = run(rt, bodies.be_unhappy)
        state = rt.checkpoint(result.execution_id).step_states["body"]

    assert state.error is not None
    assert state.error.type_name == "tests.executors.bodies.Unhappy"
    assert "in _deep_down" in state.error.traceback
    assert "KeyError: 'deep down'" in state.error.traceback


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (bodies.exit_by_exception, SystemExit),
        (bodies.interrupt_oneself, KeyboardInterrupt),
        (bodies.raise_base, bodies.Base),
    ],
)
def test_what_is_no_exception_is_a_failure_all_the_same(shared: Runtime, body: Any, kind: type[BaseException]) -> None:
    assert type(run(shared, body).error) is kind
    assert output(shared, bodies.one) == 1


@pytest.mark.case("C018")
@pytest.mark.parametrize(("body", "name"), [(bodies.be_obstinate, "Obstinate"), (bodies.hold, "Holding")])
def test_an_exception_that_cannot_come_back_is_told_in_words(shared: Runtime, body: Any, name: str) -> None:
    result = run(shared, body)

    error = result.error
    assert isinstance(error, RemoteError)
    assert f"step 'body' raised on executor 'cpu' tests.executors.bodies.{name}: " in str(error)
    assert "cannot be brought back" in str(error)
    assert f"in {body.__name__}" in str(error.__cause__)


def test_a_retry_policy_hears_of_what_was_raised_there(shared: Runtime) -> None:
    result = run(shared, bodies.be_unhappy, retry=RetryPolicy(3, initial_delay=0, retry_on=bodies.Unhappy))
    other = run(shared, bodies.be_unhappy, retry=RetryPolicy(3, initial_delay=0, retry_on=OSError))

    assert (result.steps["body"].attempts, other.steps["body"].attempts) == (3, 1)


def test_a_body_there_may_say_when_to_try_again(shared: Runtime) -> None:
    assert output(shared, bodies.later, retry=RetryPolicy(3)) == 2


def test_an_output_that_cannot_come_back_is_an_error_that_names_the_step(shared: Runtime) -> None:
    error = run(shared, bodies.return_a_lock, retry=RetryPolicy(3, initial_delay=0)).error

    assert isinstance(error, SerializationError)
    assert "step 'body' on executor 'cpu': its output, a _thread.lock, cannot be pickled" in str(error)


def test_an_output_that_does_not_come_out_of_its_pickle_names_the_step(shared: Runtime) -> None:
    error = run(shared, bodies.return_a_bomb).error

    assert isinstance(error, SerializationError)
    assert "step 'body' on executor 'cpu': its output cannot be loaded: RuntimeError: cannot be made" in str(error)


def test_a_write_that_cannot_come_back_names_the_variable(shared: Runtime) -> None:
    error = run(shared, bodies.write_a_lock, writes=["total"]).error

    assert isinstance(error, SerializationError)
    assert "what it wrote to variable 'total' cannot be pickled" in str(error)


def test_an_output_that_no_journal_keeps_is_refused_as_ever(tmp_path: Path) -> None:
    with Runtime(tmp_path / "ares.db", executors={"cpu": forks}) as rt:
        error = run(rt, bodies.return_an_object).error

    assert isinstance(error, SerializationError)
    assert "the output of step 'body'" in str(error)


# --- what cannot go there ------------------------------------------------------------------------------------


def test_an_argument_that_cannot_be_pickled_is_named_and_not_tried_again(shared: Runtime) -> None:
    result = run(shared, bodies.add, {"a": threading.Lock()}, retry=RetryPolicy(3, initial_delay=0))

    assert isinstance(result.error, SerializationError)
    assert "argument 'a' of step 'body' on its way to executor 'cpu': cannot be pickled" in str(result.error)
    assert result.steps["body"].attempts == 1


def test_a_variable_that_cannot_be_pickled_is_named(shared: Runtime) -> None:
    wf = Workflow("w", variables={"handle": threading.Lock()})
    wf.step(bodies.key, id="body", executor="cpu")

    error = shared.run(wf).error

    assert isinstance(error, SerializationError)
    assert "variable 'handle' of step 'body'" in str(error)


def test_only_what_takes_a_context_is_sent_what_that_shows(shared: Runtime) -> None:
    wf = Workflow("w", variables={"handle": threading.Lock()})
    wf.step(bodies.one, id="body", executor="cpu")

    assert shared.run(wf).raise_for_status().outputs["body"] == 1


def test_a_lambda_goes_there_with_cloudpickle(shared: Runtime) -> None:
    pytest.importorskip("cloudpickle")
    n = 4

    assert output(shared, lambda: n + 1) == 5


def test_without_cloudpickle_a_lambda_is_an_error_that_names_it(
    shared: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ares.remote import errand

    monkeypatch.setattr(errand, "_by_value", lambda: None)

    error = run(shared, lambda: 1).error

    assert isinstance(error, SerializationError)
    assert "the function test_without_cloudpickle" in str(error)
    assert "<lambda> of step 'body' on its way to executor 'cpu': cannot be pickled" in str(error)


def test_a_call_that_the_other_side_cannot_load_names_the_step(shared: Runtime) -> None:
    error = run(shared, bodies.add, {"a": bodies.Bomb()}).error

    assert isinstance(error, SerializationError)
    assert "step 'body' on executor 'cpu': its call cannot be loaded by process" in str(error)
    assert "RuntimeError: cannot be made again" in str(error)


def test_the_runtime_itself_cannot_go_there(shared: Runtime) -> None:
    def nested() -> Any:
        return shared.run(bodies.inner)

    error = run(shared, nested).error

    assert isinstance(error, SerializationError)
    assert "cannot be pickled" in str(error)


@pytest.mark.parametrize("body", [bodies.run_nested, bodies.submit_nested])
def test_a_body_there_cannot_run_the_runtime_of_its_step(body: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with Runtime(executors={"cpu": forks}) as rt:
        monkeypatch.setattr(bodies, "runtime", rt)
        error = run(rt, body, timeout=20).error  # forked after that: it is there

    assert isinstance(error, UsageError)
    assert str(error) == "this body runs on an executor, where the Runtime of its step is not: run it from a step"


def test_a_body_there_may_have_a_runtime_of_its_own(shared: Runtime) -> None:
    assert output(shared, bodies.run_its_own, timeout=20) == "COMPLETED"


# --- on the calling thread ------------------------------------------------------------------------------------


def on_caller(body: Any, inputs: dict[str, Any] | None = None, **options: Any) -> Any:
    with Runtime(steps_on=StepsOn.CALLER, executors={"cpu": forks}) as rt:
        return run(rt, body, inputs, **options)


def test_steps_on_the_caller_run_there_with_the_same_context() -> None:
    import os

    found = on_caller(bodies.look_around, {"n": 1}).raise_for_status().outputs["body"]

    assert found["pid"] == os.getpid()
    assert isinstance(on_caller(bodies.ask_for, {"what": "once"}).error, UsageError)
    assert on_caller(bodies.write, writes=["total"]).variables["total"] == 3


def test_steps_on_the_caller_refuse_what_could_not_go_elsewhere() -> None:
    assert isinstance(on_caller(bodies.add, {"a": threading.Lock()}).error, SerializationError)
    assert isinstance(on_caller(bodies.return_a_lock).error, SerializationError)
    assert isinstance(on_caller(bodies.hold).error, RemoteError)


def test_steps_on_the_caller_cannot_run_the_runtime_of_their_step(monkeypatch: pytest.MonkeyPatch) -> None:
    with Runtime(steps_on=StepsOn.CALLER, executors={"cpu": forks}) as rt:
        monkeypatch.setattr(bodies, "runtime", rt)

        assert isinstance(run(rt, bodies.run_nested).error, UsageError)
