"""Whatever a step raises is its failure, and the caller gets to see it."""

import gc
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from ares import ExecutionStatus, Goto, ItemFailure, RetryPolicy, Runtime, StepContext, StepSpec, StepStatus, Workflow
from ares.errors import (
    DefinitionError,
    PartFailedError,
    RecordedError,
    RouteError,
    SerializationError,
    WorkflowFailedError,
)
from tests.engine.helpers import Barrier, Task, events_of, eventually, fan, seconds_since, single, statuses

Make = Callable[..., Runtime]


class OnlyKeywordsError(Exception):
    """Cannot be rebuilt from its message, and holds what cannot be stored."""

    def __init__(self, *, code: int, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.socket = socket.socket()


class OfItsOwn(BaseException):
    pass


def raising(error: BaseException) -> Callable[[], None]:
    def body() -> None:
        raise error

    return body


@pytest.fixture(params=["auto", "workers"])
def rt(request: pytest.FixtureRequest, runtime: Make, store: str | None) -> Runtime:
    """On either store, with steps inline and on workers."""
    return runtime(store, steps_on=request.param)


# --- what the caller sees ------------------------------------------------------------------------


@pytest.mark.case("C018")
def test_the_caller_sees_the_very_exception_that_the_step_raised(rt: Runtime) -> None:
    error = OnlyKeywordsError(code=7, detail="seven")

    result = rt.run(single(raising(error)))
    error.socket.close()

    assert result.status is ExecutionStatus.FAILED
    assert result.error is error
    assert result.steps["body"].error is error
    with pytest.raises(WorkflowFailedError) as raised:
        result.raise_for_status()
    assert raised.value.__cause__ is error
    assert raised.value.execution_id == result.execution_id


@pytest.mark.case("C018")
def test_another_process_sees_its_type_its_message_and_its_traceback(tmp_path: Path) -> None:
    file = tmp_path / "ares.db"
    error = OnlyKeywordsError(code=7, detail="seven")
    wf = single(raising(error))
    with Runtime(file) as first:
        run_id = first.run(wf).execution_id
    error.socket.close()

    with Runtime(file, workflows=[wf]) as second:
        checkpoint = second.checkpoint(run_id)

    assert checkpoint.error is not None
    assert checkpoint.error.type_name.endswith("test_exceptions.OnlyKeywordsError")
    assert checkpoint.error.message == "7: seven"
    assert "raise error" in checkpoint.error.traceback


def test_an_earlier_failure_is_a_recorded_error_once_its_process_is_gone(tmp_path: Path) -> None:
    file = tmp_path / "ares.db"
    wf = Workflow("w")
    wf.step(lambda: [1, 2], id="source")
    wf.step(raising(ValueError("x")), id="bad", map_over="source", on_item_failure="collect")
    with Runtime(file) as first:
        run_id = first.run(wf).execution_id

    with Runtime(file) as second:
        output = second.resume(run_id, wf).outputs["bad"]

    assert [type(each) for each in output] == [ItemFailure, ItemFailure]
    assert isinstance(output[0].error, RecordedError)
    assert (output[0].error.type_name, output[0].error.message) == ("ValueError", "x")


def test_a_traceback_begins_where_the_users_code_does(rt: Runtime) -> None:
    result = rt.run(single(raising(ValueError("here"))))

    assert result.error is not None
    assert result.error.__traceback__ is not None
    assert result.error.__traceback__.tb_frame.f_code.co_name == "body"


def test_what_its_frames_hold_can_be_looked_at_by_around_step(runtime: Make, store: str | None) -> None:
    seen: list[int] = []

    @contextmanager
    def look(ctx: StepContext) -> Iterator[None]:
        try:
            yield
        except ValueError as error:
            trace = error.__traceback__
            while trace is not None:
                seen.extend(v for k, v in trace.tb_frame.f_locals.items() if k == "secret")
                trace = trace.tb_next
            raise

    def body() -> None:
        secret = 42
        raise ValueError(f"with a local {secret}")

    runtime(store, around_step=look).run(single(body))

    assert seen == [42]


def test_what_its_frames_held_is_let_go(rt: Runtime) -> None:
    held: list[weakref.ref[Sentinel]] = []

    def inner(sentinel: Sentinel) -> None:
        raise ValueError("inside")

    def body(ctx: StepContext) -> None:
        sentinel = Sentinel()
        held.append(weakref.ref(sentinel))
        try:
            inner(sentinel)
        except ValueError as error:
            raise KeyError("wrapped") from error

    result = rt.run(single(body))

    assert isinstance(result.error, KeyError)
    assert held[0]() is None


def test_a_generator_that_an_exception_came_through_goes_on(rt: Runtime) -> None:
    def survivor() -> Iterator[object]:
        try:
            raise ValueError("kept")
        except ValueError as error:
            yield error
        yield "still here"

    generator = survivor()

    def body() -> None:
        raise next(generator)  # type: ignore[misc]  # it is one

    rt.run(single(body))

    assert next(generator) == "still here"


def test_causes_and_notes_stay(rt: Runtime) -> None:
    def body() -> None:
        try:
            {}["missing"]
        except KeyError as error:
            raise ValueError("wrapped") from error

    result = rt.run(single(body))

    assert isinstance(result.error, ValueError)
    assert isinstance(result.error.__cause__, KeyError)
    assert result.error.__cause__.__traceback__ is not None


def test_the_first_failure_is_the_executions(rt: Runtime) -> None:
    wf = Workflow("w")
    wf.step(raising(ValueError("first")), id="first")
    wf.step(raising(KeyError("second")), id="second", depends_on=["first"], trigger="always")

    result = rt.run(wf)

    assert isinstance(result.error, ValueError)
    assert isinstance(result.steps["second"].error, KeyError)


def test_a_failed_element_fails_its_map_by_the_lowest_index(runtime: Make) -> None:
    rt = runtime(max_workers=1)

    def each(item: int) -> int:
        if item in (1, 3):
            raise ValueError(item)
        return item

    wf = Workflow("w")
    wf.step(lambda: [0, 1, 2, 3], id="source")
    wf.step(each, map_over="source")
    result = rt.run(wf)

    error = result.steps["each"].error
    assert isinstance(error, PartFailedError)
    assert error.part == "each[1]"
    assert isinstance(error.__cause__, ValueError)
    assert result.steps["each[0]"].output == 0


def test_a_collected_failure_stands_in_its_place_with_its_item(rt: Runtime) -> None:
    def each(item: int) -> int:
        if item == 1:
            raise ValueError("one")
        return item * 10

    wf = Workflow("w")
    wf.step(lambda: [0, 1, 2], id="source")
    wf.step(each, map_over="source", on_item_failure="collect")
    result = rt.run(wf).raise_for_status()

    zero, failure, two = result.outputs["each"]
    assert (zero, two) == (0, 20)
    assert (failure.index, failure.item, str(failure.error)) == (1, 1, "one")


def test_a_failure_in_a_sub_workflow_is_found_at_the_bottom(rt: Runtime) -> None:
    inner = Workflow("inner")
    inner.step(lambda: 1, id="s1")
    inner.step(raising(ValueError("x")), id="s2", depends_on=["s1"])
    wf = Workflow("w")
    wf.add(StepSpec("c", workflow=inner))
    wf.step(lambda c: c, id="d")

    result = rt.run(wf)

    assert isinstance(result.error, ValueError)
    assert result.steps["d"].status is StepStatus.SKIPPED
    error = result.steps["c"].error
    assert isinstance(error, PartFailedError)
    assert error.part == "c/s2"
    assert error.__cause__ is result.error


def test_what_a_router_raises_is_a_route_error_with_that_cause(rt: Runtime) -> None:
    wf = Workflow("w")
    wf.step(lambda: 1, id="point", router=raising(ValueError("lost")), branches=["a"])
    wf.step(lambda: 2, id="a", depends_on=["point"])

    result = rt.run(wf)

    assert isinstance(result.error, RouteError)
    assert isinstance(result.error.__cause__, ValueError)
    assert statuses(result)["point"] == "COMPLETED"


def test_what_a_condition_raises_fails_its_step(rt: Runtime) -> None:
    result = rt.run(single(lambda: 1, condition=raising(ValueError("unsure"))))

    assert isinstance(result.steps["body"].error, ValueError)


def test_a_goto_to_a_stranger_fails_the_step_and_is_not_retried(rt: Runtime) -> None:
    calls: list[int] = []

    def point() -> Goto:
        calls.append(1)
        return Goto("nowhere")

    wf = Workflow("w")
    wf.step(point, branches=["a"], retry=RetryPolicy(max_attempts=3, initial_delay=0))
    wf.step(lambda: 2, id="a", depends_on=["point"])
    result = rt.run(wf)

    assert calls == [1]
    assert isinstance(result.steps["point"].error, RouteError)


def test_an_output_that_cannot_be_stored_fails_its_step_and_is_not_retried(runtime: Make, tmp_path: Path) -> None:
    calls: list[int] = []

    def body() -> object:
        calls.append(1)
        return {"deep": [object()]}

    result = runtime(tmp_path / "ares.db").run(single(body, retry=RetryPolicy(max_attempts=3, initial_delay=0)))

    assert calls == [1]
    error = result.steps["body"].error
    assert isinstance(error, SerializationError)
    assert "body" in str(error)
    assert "object" in error.type_name


def test_check_values_finds_without_a_file_what_a_file_could_not_keep(runtime: Make) -> None:
    result = runtime(check_values=True).run(single(object))

    assert isinstance(result.error, SerializationError)


def test_an_input_that_cannot_be_stored_is_refused_before_anything_runs(runtime: Make, tmp_path: Path) -> None:
    wf = Workflow("w", inputs={"x": object})
    wf.step(lambda x: x, id="body")
    rt = runtime(tmp_path / "ares.db")

    with pytest.raises(SerializationError):
        rt.run(wf, {"x": object()}, execution_id="refused")

    assert rt.executions() == []


def test_a_workflow_that_cannot_run_is_refused_before_anything_runs(runtime: Make, store: str | None) -> None:
    rt = runtime(store)
    called: list[int] = []
    wf = single(lambda: called.append(1))
    wf.step(lambda nowhere: nowhere, id="bad")

    for start in (rt.run, rt.submit):
        with pytest.raises(DefinitionError):
            start(wf)

    assert called == []
    assert rt.executions() == []


# --- not only exceptions ---------------------------------------------------------------------------


@pytest.mark.case("C019")
@pytest.mark.parametrize(
    "error",
    [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), OfItsOwn("own")],
    ids=lambda error: type(error).__name__,
)
def test_a_base_exception_is_a_failure_like_any_other(runtime: Make, store: str | None, error: BaseException) -> None:
    rt = runtime(store, max_workers=4, steps_on="workers")
    together = Barrier(4)

    begun = time.monotonic()
    bad = rt.run(single(raising(error)))
    took = seconds_since(begun)
    good = rt.run(fan(4, lambda _: together.wait()))

    assert took < 1
    assert bad.status is ExecutionStatus.FAILED
    assert bad.error is error
    told = [e.payload["error_type"] for e in events_of(rt, bad.execution_id) if e.type == "step.failed"]
    assert told[0].endswith(type(error).__name__)
    assert good.status is ExecutionStatus.COMPLETED


@pytest.mark.case("C019")
@pytest.mark.parametrize("error", [SystemExit(3), GeneratorExit(), OfItsOwn("own")])
def test_a_base_exception_of_an_inline_body_stays_inside(runtime: Make, error: BaseException) -> None:
    rt = runtime()

    result = rt.run(single(raising(error)))

    assert result.error is error
    assert rt.run(single(lambda: 1)).status is ExecutionStatus.COMPLETED


def test_a_keyboard_interrupt_of_an_inline_body_on_another_thread_is_a_failure(runtime: Make) -> None:
    result = Task(runtime().run, single(raising(KeyboardInterrupt()))).result()

    assert isinstance(result.error, KeyboardInterrupt)


def test_system_exit_is_not_retried_unless_asked_for(rt: Runtime) -> None:
    calls: list[int] = []

    def body() -> None:
        calls.append(1)
        raise SystemExit(1)

    rt.run(single(body, retry=RetryPolicy(max_attempts=3, initial_delay=0)))

    assert calls == [1]


# --- hostile ones ----------------------------------------------------------------------------------


class HostileText(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class FatalText(Exception):
    def __str__(self) -> str:
        raise SystemExit("not even a text")

    __repr__ = __str__


class NoText(Exception):
    def __str__(self) -> Any:
        return 7  # noqa: PLE0307 - that is the point


class Unequal(Exception):
    def __eq__(self, other: object) -> bool:
        raise RuntimeError("not comparable")

    __hash__ = None  # type: ignore[assignment]  # that is the point


class Surrogates(Exception):
    def __str__(self) -> str:
        return "half \ud800 a pair \x00"


class Sealed(Exception):
    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(name)

    def add_note(self, note: str) -> None:
        raise RuntimeError("no notes")


HOSTILE = [HostileText, FatalText, NoText, Unequal, Surrogates, Sealed]


@pytest.mark.parametrize("kind", HOSTILE)
def test_no_exception_is_too_hostile_to_be_a_failure(rt: Runtime, kind: type[Exception]) -> None:
    error = kind()

    result = rt.run(single(raising(error)))

    assert result.error is error
    with pytest.raises(WorkflowFailedError):
        result.raise_for_status()
    assert events_of(rt, result.execution_id)[-1].type == "workflow.failed"
    assert rt.checkpoint(result.execution_id).error is not None


@pytest.mark.parametrize("kind", HOSTILE)
def test_nor_in_a_router_a_condition_a_tool_or_an_element(rt: Runtime, kind: type[Exception]) -> None:
    wf = Workflow("w")
    wf.step(lambda: 1, id="point", router=raising(kind()), branches=["a"])
    wf.step(lambda: 2, id="a", depends_on=["point"])
    wf.step(lambda: 1, id="conditional", condition=raising(kind()))
    wf.step(lambda ctx: ctx.tool("t", raising(kind())), id="tool")
    wf.step(lambda: [1], id="source")
    wf.step(raising(kind()), id="each", map_over="source", on_item_failure="collect")
    wf.step(raising(kind()), id="retried", retry=RetryPolicy(2, initial_delay=0, retry_on=lambda e: bool(str(e))))

    result = rt.run(wf)

    assert result.status is ExecutionStatus.FAILED
    assert isinstance(result.steps["a"].reason, str)
    for path in ("conditional", "tool", "retried"):
        assert isinstance(result.steps[path].error, kind)
    assert isinstance(result.outputs["each"][0].error, kind)
    events_of(rt, result.execution_id)


def test_an_exception_group_is_kept_as_it_is(rt: Runtime) -> None:
    group = ExceptionGroup("two", [ValueError(1), KeyError(2)])

    result = rt.run(single(raising(group)))

    assert result.error is group


def test_one_exception_object_may_be_raised_by_many_steps(runtime: Make) -> None:
    error = ValueError("shared")
    wf = Workflow("w")
    for i in range(20):
        wf.add(StepSpec(f"s{i}", raising(error)))

    result = runtime(max_workers=4).run(wf)

    assert all(result.steps[f"s{i}"].error is error for i in range(20))


def test_an_exception_that_contains_itself_is_no_loop(rt: Runtime) -> None:
    error = ValueError("self")
    other = KeyError("other")
    error.__cause__, other.__cause__ = other, error

    assert rt.run(single(raising(error))).error is error


# --- memory ------------------------------------------------------------------------------------------


class Sentinel:
    """Something in a frame, to see whether the frame is gone."""


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.case("C049")
@pytest.mark.parametrize(("file", "steps_on"), [(None, "auto"), ("ares.db", "workers")])
def test_what_failed_steps_held_does_not_pile_up(
    runtime: Make, tmp_path: Path, file: str | None, steps_on: str
) -> None:
    rt = runtime(file and tmp_path / file, steps_on=steps_on, max_workers=1)
    alive: list[Any] = []

    def body(ctx: StepContext) -> None:
        held = [0] * 6_000_000
        sentinel = Sentinel()
        alive.append(weakref.ref(sentinel))
        raise ValueError(len(held))

    wf = single(body)
    rt.run(single(lambda: 1)).raise_for_status()
    before = resident_bytes()
    for _ in range(30):
        try:
            rt.run(wf).raise_for_status()
        except WorkflowFailedError:
            continue

    assert resident_bytes() - before < 60e6
    gc.collect()
    assert len(alive) == 30
    assert [ref for ref in alive if ref() is not None] == []


@pytest.mark.parametrize("steps_on", ["auto", "workers"])
@pytest.mark.parametrize("how", ["run", "submit"])
def test_what_a_run_made_is_freed_with_its_result_without_the_garbage_collector(
    runtime: Make, tmp_path: Path, steps_on: str, how: str
) -> None:
    rt = runtime(tmp_path / "ares.db", steps_on=steps_on, max_workers=2)
    alive: list[weakref.ref[set[int]]] = []

    def body(ctx: StepContext) -> set[int]:
        made = {1, 2}
        alive.append(weakref.ref(made))
        return made

    inner = single(body, name="inner")
    wf = Workflow("w", types=[])
    wf.add(StepSpec("child", workflow=inner))
    wf.step(lambda: [1, 2], id="source")
    wf.step(lambda item: item, id="each", map_over="source")
    wf.step(body, id="top")

    def run() -> None:
        result = rt.run(wf) if how == "run" else rt.submit(wf).result(10)
        result.raise_for_status()
        assert result.outputs["top"] is not None
        assert any(ref() is result.outputs["top"] for ref in alive)

    gc.collect()
    gc.disable()
    try:
        for _ in range(3):
            run()
        eventually(lambda: not [ref for ref in alive if ref() is not None], timeout=2)
    finally:
        gc.enable()


def test_an_idle_worker_keeps_nothing_of_its_last_task(runtime: Make) -> None:
    rt = runtime(steps_on="workers", max_workers=1)
    alive: list[Any] = []

    class Output:
        pass

    def body() -> Output:
        made = Output()
        alive.append(weakref.ref(made))
        return made

    gc.collect()
    result = rt.run(single(body))
    execution_id = result.execution_id
    del result
    rt.prune(older_than=timedelta(0))
    gc.collect()

    assert execution_id not in [e.execution_id for e in rt.executions()]
    assert alive[0]() is None
    assert [t for t in threading.enumerate() if t.name.startswith("ares-worker")]
