"""What a step sees of its attempt, and what it may tell through its context; context variables; ``around_step``."""

import contextvars
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from ares import Delivery, ExecutionStatus, RetryPolicy, Runtime, StepContext, StepSpec, StepStatus, Workflow
from ares.errors import RuntimeClosedError, SerializationError, UsageError, WriteError
from tests.engine.helpers import Barrier, Gate, Task, events_of, eventually, fan, single

Make = Callable[..., Runtime]


# --- what it shows -----------------------------------------------------------------------------------


def test_a_context_shows_what_runs(runtime: Make, store: str | None) -> None:
    seen: list[StepContext] = []

    def body(ctx: StepContext, a: int, n: int) -> int:
        seen.append(ctx)
        assert ctx.inputs == {"a": 1, "n": 2}
        return a + n

    wf = Workflow("w", inputs={"n": int})
    wf.step(lambda: 1, id="a")
    wf.step(body, name="The body", metadata={"team": "blue"}, agent_type="label")
    result = runtime(store).run(wf, {"n": 2}, metadata={"who": "me"})

    (ctx,) = seen
    assert ctx.execution_id == result.execution_id
    assert (ctx.attempt, ctx.round) == (1, 1)
    assert ctx.metadata == {"who": "me"}
    step = ctx.step
    assert (step.step_id, step.path, step.base_id, step.index) == ("body", "body", "body", None)
    assert (step.name, step.agent_type, step.metadata) == ("The body", "label", {"team": "blue"})
    assert step.status is StepStatus.RUNNING
    assert step.started_at is not None
    assert step.started_at.tzinfo is not None


def test_an_element_and_a_child_step_know_their_paths(runtime: Make) -> None:
    seen: dict[str, tuple[str, str, int | None]] = {}

    def note(ctx: StepContext) -> None:
        seen[ctx.step.path] = (ctx.step.step_id, ctx.step.base_id, ctx.step.index)

    inner = single(note, name="inner")
    wf = Workflow("w")
    wf.step(lambda: ["x", "y"], id="source")
    wf.step(lambda ctx, item: note(ctx), id="each", map_over="source")
    wf.add(StepSpec("child", workflow=inner))
    runtime().run(wf).raise_for_status()

    assert seen == {
        "each[0]": ("each[0]", "each", 0),
        "each[1]": ("each[1]", "each", 1),
        "child/body": ("body", "body", None),
    }


def test_upstream_shows_how_the_dependencies_ended(runtime: Make, store: str | None) -> None:
    def after(ctx: StepContext) -> dict[str, tuple[str, str]]:
        return {name: (str(result.status), result.reason) for name, result in ctx.upstream.items()}

    wf = Workflow("w")
    wf.step(lambda: 1, id="done")
    wf.step(lambda: 1 / 0, id="failed")
    wf.step(lambda: 1, id="skipped", condition=lambda: False)
    wf.step(after, depends_on=["done", "failed", "skipped"], trigger="always")
    result = runtime(store).run(wf)

    assert result.outputs["after"] == {
        "done": ("COMPLETED", ""),
        "failed": ("FAILED", ""),
        "skipped": ("SKIPPED", "condition"),
    }


def test_variables_are_a_snapshot_from_when_the_step_became_ready(runtime: Make, store: str | None) -> None:
    wf = Workflow("w", variables={"v": 0})

    def write(ctx: StepContext) -> int:
        ctx.set("v", 1)
        return int(ctx.variables["v"])

    wf.step(write, writes=["v"])
    wf.step(lambda ctx: ctx.variables["v"], id="read", depends_on=["write"])
    wf.step(lambda v: v, id="as_parameter", depends_on=["write"])
    result = runtime(store).run(wf)

    assert result.outputs == {"write": 0, "read": 1, "as_parameter": 1}
    assert result.variables == {"v": 1}


def test_variables_cannot_be_written_through_the_snapshot(runtime: Make) -> None:
    def body(ctx: StepContext) -> None:
        ctx.variables["v"] = 2  # type: ignore[index]  # that is the point

    result = runtime().run(_with_variable(body))

    assert isinstance(result.error, TypeError)


def _with_variable(body: Callable[..., Any], **options: Any) -> Workflow:
    wf = Workflow("w", variables={"v": 0})
    wf.step(body, id="body", **options)
    return wf


def test_the_write_of_an_attempt_that_failed_is_lost(runtime: Make, store: str | None) -> None:
    def body(ctx: StepContext) -> None:
        ctx.set("v", ctx.attempt)
        if ctx.attempt == 1:
            raise ValueError("again")

    wf = _with_variable(body, writes=["v"], retry=RetryPolicy(max_attempts=2, initial_delay=0))

    assert runtime(store).run(wf).variables == {"v": 2}
    assert runtime(store and store + "2").run(_with_variable(body, writes=["v"])).variables == {"v": 0}


def test_a_variable_that_is_not_declared_cannot_be_written(runtime: Make) -> None:
    calls: list[int] = []

    def body(ctx: StepContext) -> None:
        calls.append(1)
        ctx.set("v", 1)

    result = runtime().run(_with_variable(body, retry=RetryPolicy(max_attempts=3, initial_delay=0)))

    error = result.error
    assert isinstance(error, WriteError)
    assert (error.path, error.variable) == ("body", "v")
    assert calls == [1]


def test_what_is_written_must_be_storable(runtime: Make, tmp_path: Path) -> None:
    result = runtime(tmp_path / "ares.db").run(_with_variable(lambda ctx: ctx.set("v", object()), writes=["v"]))

    assert isinstance(result.error, SerializationError)


# --- identity ----------------------------------------------------------------------------------------


def test_an_idempotency_key_is_the_same_for_every_attempt(runtime: Make, store: str | None) -> None:
    keys: list[tuple[str, str]] = []

    def body(ctx: StepContext) -> None:
        keys.append((ctx.idempotency_key, ctx.idempotency_key_for("mail")))
        if ctx.attempt < 3:
            raise ValueError("again")

    runtime(store).run(single(body, retry=RetryPolicy(max_attempts=3, initial_delay=0))).raise_for_status()

    assert len(keys) == 3
    assert len(set(keys)) == 1
    assert keys[0][0] != keys[0][1]


def test_idempotency_keys_differ_by_execution_step_and_element(runtime: Make) -> None:
    keys: list[str] = []
    wf = Workflow("w")
    wf.step(lambda: [1, 2], id="source")
    wf.step(lambda ctx, item: keys.append(ctx.idempotency_key), id="each", map_over="source")
    wf.step(lambda ctx: keys.append(ctx.idempotency_key), id="a")
    wf.step(lambda ctx: keys.append(ctx.idempotency_key), id="b")
    rt = runtime()

    rt.run(wf).raise_for_status()
    rt.run(wf).raise_for_status()

    assert len(keys) == len(set(keys)) == 8


def test_an_idempotency_key_outlives_its_process(tmp_path: Path) -> None:
    keys: list[str] = []
    hang = Gate()

    def body(ctx: StepContext) -> None:
        keys.append(ctx.idempotency_key)
        if len(keys) == 1:
            hang.wait(60)

    wf = single(body)
    first = Runtime(tmp_path / "ares.db", steps_on="workers")
    run = Task(first.run, wf, execution_id="x")
    eventually(lambda: keys)
    first.close(timeout=0.05)
    with pytest.raises(RuntimeClosedError):
        run.result()
    hang.open()
    with Runtime(tmp_path / "ares.db") as second:
        second.resume("x", wf).raise_for_status()

    assert len(keys) == 2
    assert len(set(keys)) == 1


# --- what it tells -----------------------------------------------------------------------------------


def test_once_calls_its_function_once_for_all_attempts(runtime: Make, store: str | None) -> None:
    calls: list[str] = []

    def body(ctx: StepContext) -> list[str]:
        first = ctx.once("first", lambda: calls.append("first") or "one")
        second = ctx.once("second", lambda: calls.append("second") or "two")
        if ctx.attempt == 1:
            raise ValueError("again")
        return [str(first), str(second)]

    result = runtime(store).run(single(body, retry=RetryPolicy(max_attempts=2, initial_delay=0)))

    assert result.outputs == {"body": ["one", "two"]}
    assert calls == ["first", "second"]


def test_once_that_raises_is_called_again(runtime: Make, store: str | None) -> None:
    calls: list[int] = []

    def effect() -> int:
        calls.append(1)
        if len(calls) == 1:
            raise ValueError("not done")
        return len(calls)

    body = single(lambda ctx: ctx.once("k", effect), retry=RetryPolicy(max_attempts=2, initial_delay=0))

    assert runtime(store).run(body).outputs == {"body": 2}


def test_once_passes_arguments_and_needs_a_key(runtime: Make) -> None:
    result = runtime().run(single(lambda ctx: ctx.once("k", divmod, 7, 2)))
    refused = runtime().run(single(lambda ctx: ctx.once("", lambda: 1)))

    assert result.outputs == {"body": (3, 1)}
    assert isinstance(refused.error, UsageError)


def test_the_same_once_at_the_same_time_in_two_threads_of_a_step_is_refused(runtime: Make) -> None:
    def body(ctx: StepContext) -> str:
        begun, may_end = Gate(), Gate()
        first = Task(ctx.once, "k", lambda: begun.open() or may_end.wait() or "once")
        begun.wait()
        try:
            with pytest.raises(UsageError, match="k"):
                ctx.once("k", lambda: "twice")
        finally:
            may_end.open()
        return str(first.result())

    assert runtime().run(single(body)).raise_for_status().outputs == {"body": "once"}


def test_a_tool_call_is_recorded_and_its_result_returned(runtime: Make, store: str | None) -> None:
    rt = runtime(store)
    result = rt.run(single(lambda ctx: ctx.tool("adder", lambda a, b: a + b, 1, b=2)))

    assert result.outputs == {"body": 3}
    (call,) = rt.checkpoint(result.execution_id).tool_history
    assert (call.step_id, call.tool_name, call.output, call.success, call.error) == ("body", "adder", 3, True, "")
    assert call.input == {"args": [1], "kwargs": {"b": 2}}
    assert call.duration >= 0


def test_a_tool_that_raises_is_recorded_as_a_failure_and_raises(runtime: Make, store: str | None) -> None:
    rt = runtime(store)

    def body(ctx: StepContext) -> str:
        try:
            ctx.tool("bad", lambda: 1 / 0)
        except ZeroDivisionError:
            return "survived"
        return "not raised"

    result = rt.run(single(body))

    assert result.outputs == {"body": "survived"}
    (call,) = rt.checkpoint(result.execution_id).tool_history
    assert (call.success, call.error) == (False, "ZeroDivisionError: division by zero")


class Unstorable:
    def __repr__(self) -> str:
        return "<unstorable>"


class Unshowable:
    def __repr__(self) -> str:
        raise SystemExit("not even shown")


def test_what_a_tool_was_given_and_gave_never_fails_the_step(runtime: Make, tmp_path: Path) -> None:
    rt = runtime(tmp_path / "ares.db")
    odd: list[Any] = [Unstorable(), Unshowable(), {1, (2,)}, "half \ud800 a pair", float("nan"), 10**5000, lambda: 1]
    loop: list[Any] = []
    loop.append(loop)

    odd.append(loop)

    result = rt.run(single(lambda ctx: [ctx.tool("odd", lambda each: each, each) is each for each in odd]))

    assert result.raise_for_status().outputs == {"body": [True] * len(odd)}
    calls = rt.checkpoint(result.execution_id).tool_history
    assert len(calls) == len(odd)
    assert repr(calls[0].output) == "<unstorable>"
    assert "SystemExit" in repr(calls[1].output)
    assert calls[2].output == {1, (2,)}


def test_emitted_events_stand_in_the_journal_between_the_others(runtime: Make, store: str | None) -> None:
    rt = runtime(store)

    def body(ctx: StepContext) -> None:
        ctx.emit("page.read", url="x", size=3)
        ctx.emit("page.read", url="y", size=4)

    result = rt.run(single(body))

    events = events_of(rt, result.execution_id)
    assert [e.type for e in events] == [
        "workflow.started",
        "step.started",
        "page.read",
        "page.read",
        "step.completed",
        "workflow.completed",
    ]
    assert events[2].payload == {"url": "x", "size": 3}
    assert [e.seq for e in events] == [1, 2, 3, 4, 5, 6]


def test_an_event_that_cannot_be_stored_is_refused_where_it_is_emitted(runtime: Make, tmp_path: Path) -> None:
    result = runtime(tmp_path / "ares.db").run(single(lambda ctx: ctx.emit("x", value=object())))

    assert isinstance(result.error, SerializationError)
    assert "body" in str(result.error)


@pytest.mark.parametrize("event_type", ["", None, 7])
def test_an_event_type_is_a_text(runtime: Make, event_type: Any) -> None:
    assert isinstance(runtime().run(single(lambda ctx: ctx.emit(event_type))).error, UsageError)


def test_redact_hides_what_is_kept_of_tools_and_events_and_nothing_else(runtime: Make, store: str | None) -> None:
    asked: list[str] = []

    def redact(name: str, value: Any) -> Any:
        asked.append(name)
        return "***"

    rt = runtime(store, redact=redact)

    def body(ctx: StepContext, secret: str) -> str:
        ctx.emit("login", password=secret)
        return ctx.tool("upper", str.upper, secret)

    wf = Workflow("w", inputs={"secret": str})
    wf.step(body)
    result = rt.run(wf, {"secret": "key"})

    assert result.outputs == {"body": "KEY"}
    events = events_of(rt, result.execution_id)
    assert [e.payload for e in events if e.type == "login"] == [{"password": "***"}]
    (call,) = rt.checkpoint(result.execution_id).tool_history
    assert (call.input, call.output) == ("***", "***")
    assert events[0].payload["inputs"] == {"secret": "key"}
    assert sorted(asked) == ["login.password", "upper.input", "upper.output"]


def test_a_redact_that_raises_fails_no_step_and_shows_nothing(runtime: Make, store: str | None) -> None:
    def redact(name: str, value: Any) -> Any:
        raise ValueError(f"cannot hide {value}")

    rt = runtime(store, redact=redact)

    def body(ctx: StepContext) -> str:
        ctx.emit("login", password="key")
        return ctx.tool("upper", str.upper, "key")

    result = rt.run(single(body)).raise_for_status()

    told = repr([e.payload for e in events_of(rt, result.execution_id) if e.type in ("login", "tool.called")])
    assert "key" not in told.lower().replace("'output': 'key'", "")
    assert "redact raised" in told


def test_progress_is_shown_while_the_body_runs(runtime: Make) -> None:
    rt = runtime()
    said, may_end = Gate(), Gate()

    def body(ctx: StepContext) -> None:
        ctx.progress(1)
        ctx.progress(2, 8)
        said.open()
        may_end.wait()

    execution = rt.submit(single(body))
    said.wait()
    progress = execution.progress()
    may_end.open()
    execution.wait(10)

    assert progress is not None
    assert progress.details == {"body": (2, 8)}


def test_run_metadata_must_be_texts_and_finds_executions(runtime: Make, store: str | None) -> None:
    rt = runtime(store)
    for who in ("me", "you"):
        rt.run(single(lambda: 1), metadata={"who": who, "where": "here"})

    assert len(rt.executions(metadata={"where": "here"})) == 2
    (found,) = rt.executions(metadata={"who": "you"})
    assert found.metadata == {"who": "you", "where": "here"}
    with pytest.raises(UsageError, match="metadata"):
        rt.run(single(lambda: 1), metadata={"n": 1})  # type: ignore[dict-item]  # that is the point


# --- context variables -------------------------------------------------------------------------------

VARIABLE: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="default")


@pytest.mark.case("C056")
@pytest.mark.parametrize("steps_on", ["auto", "workers"])
@pytest.mark.parametrize("how", ["run", "submit"])
def test_steps_see_the_context_variables_of_whoever_ran_them(
    runtime: Make, store: str | None, steps_on: str, how: str
) -> None:
    token = VARIABLE.set("boot")
    rt = runtime(store, steps_on=steps_on, max_workers=2)
    together = Barrier(2)

    def caller(name: str) -> set[str]:
        VARIABLE.set(name)
        together.wait()
        wf = fan(10, lambda _: VARIABLE.get())
        result = rt.run(wf) if how == "run" else rt.submit(wf).result(10)
        return {result.outputs[f"s{i}"] for i in range(10)}

    tasks = {name: Task(caller, name) for name in ("t1", "t2")}

    assert {name: task.result() for name, task in tasks.items()} == {"t1": {"t1"}, "t2": {"t2"}}
    VARIABLE.reset(token)


@pytest.mark.parametrize("steps_on", ["auto", "workers", "caller"])
def test_each_attempt_has_a_copy_of_its_own(runtime: Make, steps_on: str) -> None:
    seen: list[str] = []

    def body(i: int) -> None:
        seen.append(VARIABLE.get())
        VARIABLE.set(f"changed by {i}")

    runtime(steps_on=steps_on).run(fan(5, body)).raise_for_status()

    assert seen == ["default"] * 5
    assert VARIABLE.get() == "default"


def test_a_nested_run_inherits_from_its_step(runtime: Make) -> None:
    rt = runtime()

    inner = single(lambda: VARIABLE.get())  # noqa: PLW0108 - a builtin has no signature

    def outer() -> str:
        VARIABLE.set("outer")
        return str(rt.run(inner).outputs["body"])

    assert rt.run(single(outer)).outputs == {"body": "outer"}


def test_a_resumed_run_has_those_of_whoever_resumes_it(runtime: Make, store: str | None) -> None:
    rt = runtime(store)
    calls: list[str] = []

    def body() -> str:
        calls.append(VARIABLE.get())
        if len(calls) == 1:
            raise ValueError("once")
        return calls[-1]

    wf = single(body)
    run_id = rt.run(wf).execution_id

    def resume() -> dict[str, str]:
        VARIABLE.set("resumer")
        return dict(rt.resume(run_id, wf).outputs)

    assert Task(resume).result() == {"body": "resumer"}


# --- around_step -------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps_on", ["auto", "workers", "caller"])
def test_around_step_is_entered_on_the_very_thread_of_each_attempt(
    runtime: Make, store: str | None, steps_on: str
) -> None:
    log: list[tuple[str, str, int, int]] = []

    @contextmanager
    def around(ctx: StepContext) -> Iterator[None]:
        log.append(("enter", ctx.step.path, ctx.attempt, threading.get_ident()))
        yield
        log.append(("exit", ctx.step.path, ctx.attempt, threading.get_ident()))

    def body(ctx: StepContext) -> None:
        log.append(("body", ctx.step.path, ctx.attempt, threading.get_ident()))
        if ctx.attempt == 1:
            raise ValueError("again")

    rt = runtime(store, steps_on=steps_on, around_step=around)
    rt.run(single(body, retry=RetryPolicy(max_attempts=2, initial_delay=0))).raise_for_status()

    assert [each[:3] for each in log] == [
        ("enter", "body", 1),
        ("body", "body", 1),
        ("enter", "body", 2),
        ("body", "body", 2),
        ("exit", "body", 2),
    ]
    assert log[0][3] == log[1][3]
    assert log[2][3] == log[3][3] == log[4][3]


def test_around_step_is_around_conditions_routers_and_reconciliations_too(runtime: Make) -> None:
    inside = threading.local()
    seen: dict[str, bool] = {}

    @contextmanager
    def around(ctx: StepContext) -> Iterator[None]:
        inside.now = True
        try:
            yield
        finally:
            inside.now = False

    def note(name: str, value: Any = None) -> Any:
        seen[name] = getattr(inside, "now", False)
        return value

    def fails() -> None:
        raise ValueError("who knows")

    wf = Workflow("w")
    wf.step(
        lambda: note("body"),
        id="point",
        condition=lambda: note("condition", True),
        router=lambda: note("router", "a"),
        branches=["a"],
    )
    wf.step(lambda: note("branch"), id="a", depends_on=["point"])
    wf.step(fails, delivery=Delivery.AT_MOST_ONCE, reconcile=lambda: note("reconcile"))
    runtime(around_step=around).run(wf).raise_for_status()

    assert seen == dict.fromkeys(["condition", "body", "router", "branch", "reconcile"], True)


def test_each_call_has_its_own_context_manager(runtime: Make) -> None:
    made: list[int] = []

    class Once:
        def __init__(self, ctx: StepContext) -> None:
            made.append(id(self))
            self.entered = 0

        def __enter__(self) -> None:
            self.entered += 1
            assert self.entered == 1

        def __exit__(self, *_: object) -> None:
            pass

    runtime(around_step=Once, max_workers=2).run(fan(6)).raise_for_status()

    assert len(made) == 7


class Raising:
    def __init__(self, *, enter: BaseException | None = None, leave: BaseException | None = None) -> None:
        self._enter, self._leave = enter, leave

    def __enter__(self) -> None:
        if self._enter is not None:
            raise self._enter

    def __exit__(self, *_: object) -> None:
        if self._leave is not None:
            raise self._leave


def around_with(**options: BaseException) -> Callable[[StepContext], AbstractContextManager[None]]:
    return lambda ctx: Raising(**options)


def test_what_around_step_raises_on_entry_fails_the_step_and_the_body_does_not_run(runtime: Make) -> None:
    called: list[int] = []
    error = ValueError("no connection")

    result = runtime(around_step=around_with(enter=error)).run(single(lambda: called.append(1)))

    assert result.error is error
    assert called == []


def test_what_around_step_raises_on_exit_fails_the_step(runtime: Make) -> None:
    error = ValueError("no commit")

    result = runtime(around_step=around_with(leave=error)).run(single(lambda: 1))

    assert result.error is error


def test_what_around_step_swallows_is_a_failure_all_the_same(runtime: Make, store: str | None) -> None:
    class Swallowing:
        def __init__(self, ctx: StepContext) -> None:
            pass

        def __enter__(self) -> None:
            pass

        def __exit__(self, *_: object) -> bool:
            return True

    error = ValueError("swallowed")

    def body() -> None:
        raise error

    result = runtime(store, around_step=Swallowing).run(single(body))

    assert result.status is ExecutionStatus.FAILED
    assert result.error is error


def test_an_around_step_that_is_no_context_manager_fails_the_step(runtime: Make) -> None:
    result = runtime(around_step=lambda ctx: None).run(single(lambda: 1))

    assert isinstance(result.error, TypeError)
