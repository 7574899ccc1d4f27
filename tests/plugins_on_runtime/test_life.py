"""The life of plugins with their Runtime: they start with it, stop with it, and may try to end it."""

import contextvars
import gc
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from loguru import logger

from ares import (
    Context,
    Delivery,
    EventFilter,
    ExecutionState,
    ExecutionStatus,
    HookResult,
    Plugin,
    Runtime,
    Step,
    StepContext,
    Workflow,
)
from ares.bus import PluginState
from ares.engine.notices import notices
from ares.errors import (
    PluginDeadlockError,
    PluginError,
    RegistrationError,
    RuntimeClosedError,
    StoreError,
    UsageError,
)
from ares.plugin import Capability, EventBus
from ares.stores.sqlite import SqliteStore
from tests.bus.players import Gate, Listener, Log, Named, Servant
from tests.engine.helpers import Child, Task, Threads, chain, eventually, fan, open_files, seconds_since, single
from tests.engine.helpers import Gate as StoreGate
from tests.plugins_on_runtime.players import Asked, Diary, Everywhere, Signpost, naming, raises

Make = Callable[..., Runtime]

VARIABLE: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="default")


class Clerk(Named):
    """Writes down its start and its stop."""

    def __init__(self, name: str, log: Log, **more: Any) -> None:
        super().__init__(name, **more)
        self.log = log

    def start(self, ctx: Context, bus: EventBus) -> None:
        self.log.add(f"{self.name} starts")

    def stop(self, ctx: Context) -> None:
        self.log.add(f"{self.name} stops")


class Unable(Clerk):
    """Does not start."""

    required = True

    def start(self, ctx: Context, bus: EventBus) -> None:
        self.log.add(f"{self.name} fails")
        raise ValueError("not able")


# --- start and stop --------------------------------------------------------------------------------------


def test_nothing_starts_before_the_first_use(store: str | None) -> None:
    threads, log = Threads(), Log()
    rt = Runtime(store, plugins=[Clerk("a", log)])

    assert threads.are_gone()
    assert log.lines == []
    assert rt.health()["a"].state is PluginState.REGISTERED
    rt.close()
    assert log.lines == []


def test_plugins_start_in_order_and_stop_in_reverse_once(runtime: Make, store: str | None) -> None:
    log = Log()
    rt = runtime(store, plugins=[Clerk(name, log) for name in "abc"])

    rt.run(single(lambda: log.add("work"))).raise_for_status()
    rt.run(single(lambda: log.add("work"))).raise_for_status()
    rt.close()
    rt.close()

    assert log.lines == [
        "a starts", "b starts", "c starts", "work", "work", "c stops", "b stops", "a stops",
    ]  # fmt: skip
    assert {rt.health()[name].state for name in "abc"} == {PluginState.STOPPED}


def test_many_threads_that_run_at_once_start_the_plugins_once(runtime: Make, store: str | None) -> None:
    log = Log()
    rt = runtime(store, plugins=[Clerk("a", log)])
    together = threading.Barrier(8)

    def work() -> ExecutionStatus:
        together.wait(20)
        return rt.run(chain(2)).status

    results = [task.result() for task in [Task(work) for _ in range(8)]]

    assert results == [ExecutionStatus.COMPLETED] * 8
    assert log.lines == ["a starts"]


def test_a_plugin_is_stopped_after_the_walks_and_can_still_write(runtime: Make, tmp_path: Path) -> None:
    seen: list[Any] = []

    class Last(Named):
        def stop(self, ctx: Context) -> None:
            seen.append(ctx.journal.snapshot("e").status)
            ctx.journal.flush()

    with Runtime(tmp_path / "ares.db", plugins=[Last("last")]) as rt:
        rt.run(single(lambda: 1), execution_id="e")

    assert seen == [ExecutionStatus.COMPLETED]


def test_plugins_hear_of_executions_that_the_close_interrupts(runtime: Make, store: str | None, gate: Gate) -> None:
    log = Log()
    rt = runtime(store, plugins=[Diary("diary", log)])
    wf = Workflow("w")
    wf.step(lambda ctx: gate.entered.release() or _until_cancelled(ctx), id="body")
    wf.step(lambda: 1, id="after", depends_on=["body"])
    rt.submit(wf)
    gate.await_entry()

    rt.close()

    assert ("diary", "after_step", "body", "COMPLETED") in log.lines
    assert not [line for line in log.lines if line[2] == "after"]


def _until_cancelled(ctx: StepContext) -> None:
    eventually(lambda: ctx.cancelled)


# --- who does not start ------------------------------------------------------------------------------------


def test_a_runtime_goes_on_without_a_plugin_that_did_not_start_and_every_result_says_so(
    runtime: Make, store: str | None
) -> None:
    log = Log()
    broken = Unable("broken", log, required=False)
    rt = runtime(store, plugins=[Clerk("good", log), broken])

    results = [rt.run(chain(2)), rt.submit(chain(2)).result(20), rt.run(chain(2))]

    assert {result.status for result in results} == {ExecutionStatus.COMPLETED}
    assert all(naming(result, "broken") for result in results)
    assert rt.health()["broken"].state is PluginState.FAILED
    assert "not able" in rt.health()["broken"].last_error
    rt.close()
    assert log.lines == ["good starts", "broken fails", "good stops"]


@pytest.mark.case("C028")
def test_a_required_plugin_that_does_not_start_again_and_again_leaves_nothing_behind(store: str | None) -> None:
    log = Log()
    threads = Threads()
    files = open_files()

    for _ in range(40):
        rt = Runtime(store, plugins=[Clerk("a", log), Clerk("b", log), Unable("c", log), Clerk("d", log)])
        with pytest.raises(ExceptionGroup) as failed:
            rt.start()
        assert [error.plugin for error in failed.value.exceptions] == ["c"]  # type: ignore[attr-defined]

    assert log.lines == ["a starts", "b starts", "c fails", "b stops", "a stops"] * 40
    eventually(threads.are_gone)
    gc.collect()
    assert open_files() <= files + 1


def test_a_start_that_failed_may_be_tried_again(runtime: Make, store: str | None) -> None:
    log = Log()
    sick = [True]

    class Moody(Clerk):
        required = True

        def start(self, ctx: Context, bus: EventBus) -> None:
            if sick:
                raise ValueError("not now")
            super().start(ctx, bus)

    rt = runtime(store, plugins=[Clerk("a", log), Moody("moody", log)])
    with pytest.raises(ExceptionGroup):
        rt.run(single(lambda: 1))
    sick.clear()

    result = rt.run(single(lambda: 1)).raise_for_status()

    assert result.warnings == ()
    assert log.lines == ["a starts", "a stops", "a starts", "moody starts"]
    assert rt.health()["moody"].state is PluginState.RUNNING


@pytest.mark.case("C028")
def test_a_store_that_cannot_be_opened_starts_no_plugin(tmp_path: Path) -> None:
    log = Log()
    (tmp_path / "file").write_text("no folder")
    rt = Runtime(tmp_path / "file" / "ares.db", plugins=[Clerk("a", log)])

    with pytest.raises(StoreError):
        rt.run(single(lambda: 1))

    assert [line for line in log.lines if line == "a starts"] == [line[:1] + " starts" for line in log.lines[1:]]


def test_a_workflow_that_cannot_run_among_the_known_ones_stops_the_plugins(tmp_path: Path) -> None:
    log, threads = Log(), Threads()
    rt = Runtime(tmp_path / "ares.db", workflows=[single(lambda nowhere: nowhere)], plugins=[Clerk("a", log)])

    with pytest.raises(Exception, match="nowhere"):
        rt.start()

    assert log.lines in ([], ["a starts", "a stops"])
    eventually(threads.are_gone)


# --- who is refused ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("plugins", "problem"),
    [
        ([None], "None"),
        ([Named("")], "name"),
        ([Named("twin"), Named("twin")], "twin"),
        ([Named("mute", capabilities=frozenset({Capability.ROUTER}))], "route"),
        ([Named("odd", before_step=lambda: None)], "before_step"),
        ([Listener("deaf", print, subscribes_to=EventFilter(types=["undotted"]))], "undotted"),
    ],
    ids=["none", "nameless", "twins", "capability", "signature", "filter"],
)
def test_what_cannot_be_a_plugin_is_refused_when_the_runtime_is_made(
    store: str | None, plugins: list[Any], problem: str
) -> None:
    with pytest.raises(RegistrationError, match=problem):
        Runtime(store, plugins=plugins)


def test_a_plugin_that_comes_late_is_refused_by_name_and_nothing_is_lost(runtime: Make, store: str | None) -> None:
    log = Log()
    rt = runtime(store, plugins=[Clerk("early", log)])
    rt.start()

    with pytest.raises(RegistrationError, match="late"):
        rt.bus.register(Clerk("late", log))

    assert rt.run(single(lambda: 1)).raise_for_status().warnings == ()
    assert log.lines == ["early starts"]


def test_one_plugin_object_cannot_be_hurt_by_the_runtime_it_lived_in_before(store: str | None) -> None:
    log = Log()
    plugin = Clerk("a", log)

    for _ in range(3):
        with Runtime(store, plugins=[plugin]) as rt:
            rt.run(chain(2)).raise_for_status()

    assert log.lines == ["a starts", "a stops"] * 3


# --- from inside ---------------------------------------------------------------------------------------------


@pytest.mark.case("C026")
@pytest.mark.parametrize("steps_on", ["auto", "workers"])
@pytest.mark.parametrize(
    "place", ["start", "before_execution", "before_step", "on_event", "after_step", "after_execution", "stop"]
)
def test_a_plugin_may_close_its_runtime(store: str | None, place: str, steps_on: str) -> None:
    runtimes: list[Runtime] = []
    took: list[float] = []

    def close(_plugin: Everywhere, _ctx: Context) -> None:
        began = time.monotonic()
        runtimes[0].close()
        took.append(seconds_since(began))

    plugin = Everywhere("closer", place, close, once=True)
    rt = Runtime(store, plugins=[plugin], steps_on=steps_on)
    runtimes.append(rt)
    threads = Threads()
    began = time.monotonic()

    run = Task(rt.run, chain(3), execution_id="e")
    try:
        run.result(5)
    except RuntimeClosedError:
        assert place != "stop"
    assert seconds_since(began) < 2
    began = time.monotonic()
    rt.close()

    assert seconds_since(began) < 2
    if plugin.times:
        eventually(lambda: took)
        assert took[0] < 2
    with pytest.raises(RuntimeClosedError):
        rt.run(chain(1))
    eventually(threads.are_gone)


@pytest.mark.case("C026")
def test_a_subscriber_may_close_the_runtime(store: str | None) -> None:
    rt = Runtime(store)
    subscription = rt.bus.subscribe(EventFilter(types=["step.completed"]))

    def read() -> None:
        for _ in subscription:
            rt.close()

    reader = Task(read)
    run = Task(rt.run, chain(200), execution_id="e")
    with suppress(RuntimeClosedError):
        run.result()
    reader.result(5)
    began = time.monotonic()
    rt.close()

    assert seconds_since(began) < 2


@pytest.mark.case("C026")
def test_many_may_close_at_once_from_everywhere(store: str | None) -> None:
    runtimes: list[Runtime] = []
    plugins = [
        Everywhere(place, place, lambda _plugin, _ctx: runtimes[0].close())
        for place in ("before_execution", "before_step", "after_step", "on_event", "stop")
    ]
    rt = Runtime(store, plugins=plugins)
    runtimes.append(rt)
    threads = Threads()

    runs = [Task(rt.run, chain(5)) for _ in range(4)]
    closes = [Task(rt.close) for _ in range(4)]
    for run in runs:
        try:
            run.result()
        except RuntimeClosedError:
            continue
    for close in closes:
        close.result()

    eventually(threads.are_gone)


class Doorkeeper:
    """A SQLite store that lets an execution in, or on, only when the test says so."""

    def __init__(self, file: Path, *, is_before: bool) -> None:
        self._inner = SqliteStore(file)
        self._is_before = is_before
        self.reached, self.gate = StoreGate(), StoreGate()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def create(self, *args: Any) -> Any:
        claim = None if self._is_before else self._inner.create(*args)
        self.reached.open()
        self.gate.wait()
        return claim or self._inner.create(*args)


@pytest.mark.parametrize("is_before", [True, False], ids=["before it is stored", "after it is stored"])
@pytest.mark.parametrize("how", ["run", "submit"])
def test_a_run_that_a_close_overtakes_says_that_the_runtime_is_closed(
    tmp_path: Path, how: str, is_before: bool
) -> None:
    file = tmp_path / "ares.db"
    store = Doorkeeper(file, is_before=is_before)
    rt = Runtime(store)  # type: ignore[arg-type]
    wf = chain(2)
    run = Task(getattr(rt, how), wf, execution_id="e")
    store.reached.wait()
    rt.close()
    store.gate.open()

    with pytest.raises(RuntimeClosedError):
        run.result()
    if not is_before:
        with Runtime(file) as again:
            assert again.resume("e", wf).status is ExecutionStatus.COMPLETED


@pytest.mark.parametrize("what", ["run", "resume", "result", "submit and result"])
def test_a_plugin_may_not_wait_for_a_run_of_its_own_runtime(runtime: Make, store: str | None, what: str) -> None:
    """Its hooks would be asked by itself."""
    runtimes: list[Runtime] = []
    said: list[BaseException | None] = []

    def act(_plugin: Everywhere, _ctx: Context) -> None:
        rt = runtimes[0]
        try:
            if what == "run":
                rt.run(single(lambda: 1))
            elif what == "resume":
                rt.resume("earlier", wf)
            elif what == "result":
                rt.execution("e").result(4)
            else:
                rt.submit(single(lambda: 1)).result(4)
        except BaseException as error:
            said.append(error)
            raise

    wf = single(_raise)
    first = runtime(store)
    if store is not None:
        first.run(wf, execution_id="earlier")
        first.close()
    elif what == "resume":
        pytest.skip("there is nothing to resume")
    plugin = Everywhere("eager", "before_step", act, once=True, timeout=3.0)
    rt = runtime(store, plugins=[plugin])
    runtimes.append(rt)
    began = time.monotonic()

    result = rt.run(single(lambda: 1), execution_id="e")

    assert result.status is ExecutionStatus.COMPLETED
    assert seconds_since(began) < 2
    assert isinstance(said[0], UsageError), said
    assert naming(result, "eager")


def _raise() -> None:
    raise ValueError("no")


def test_a_plugin_may_submit_a_run(runtime: Make, store: str | None) -> None:
    """Waiting is what it may not do."""
    runtimes: list[Runtime] = []
    submitted: list[Any] = []

    def act(_plugin: Everywhere, _ctx: Context) -> None:
        submitted.append(runtimes[0].submit(single(lambda: "from inside")))

    rt = runtime(store, plugins=[Everywhere("busy", "after_execution", act, once=True)])
    runtimes.append(rt)

    rt.run(single(lambda: 1)).raise_for_status()

    assert submitted[0].result(20).outputs == {"body": "from inside"}


def test_a_plugin_may_look_at_its_runtime(runtime: Make, store: str | None) -> None:
    runtimes: list[Runtime] = []
    seen: list[Any] = []

    def act(_plugin: Everywhere, ctx: Context) -> None:
        rt = runtimes[0]
        seen.append((rt.execution(ctx.execution_id).status, rt.health()["curious"].calls, len(rt.executions())))

    rt = runtime(store, plugins=[Everywhere("curious", "before_step", act)])
    runtimes.append(rt)

    assert rt.run(chain(2), execution_id="e").raise_for_status().warnings == ()
    assert [line[0] for line in seen] == [ExecutionStatus.RUNNING] * 2
    assert [line[2] for line in seen] == [1, 1]


@pytest.mark.case("C025")
@pytest.mark.parametrize("policy", ["observe", "intercept"])
def test_a_plugin_that_would_wait_for_itself_is_told_at_once(runtime: Make, store: str | None, policy: str) -> None:
    said: list[float] = []

    class Narcissus(Servant):
        def start(self, ctx: Context, bus: Any) -> None:
            self.bus = bus

        def before_step(self, ctx: Context, execution_id: str, step: Step) -> None:
            began = time.monotonic()
            [mirror] = [ref for ref in self.bus.plugins_by_cap(Capability.TOOL) if ref.name == self.name]
            try:
                mirror.call("do", print)
            finally:
                said.append(seconds_since(began))

    threads = Threads()
    rt = runtime(store, plugins=[Narcissus("narcissus", hook_policy=policy, timeout=1.0)])
    began = time.monotonic()

    result = rt.run(chain(3), execution_id="e")
    took = seconds_since(began)
    began = time.monotonic()
    rt.close()

    assert max(said) < 0.5
    assert took < 1
    assert seconds_since(began) < 3
    assert any("narcissus" in warning and "PluginDeadlockError" in warning for warning in result.warnings)
    if policy == "observe":
        assert result.status is ExecutionStatus.COMPLETED
        assert len(said) == 3
    eventually(threads.are_gone)


@pytest.mark.case("C025")
def test_two_plugins_that_call_one_another_from_two_executions_are_told_at_once(
    runtime: Make, store: str | None
) -> None:
    both_in = threading.Barrier(2)
    errors: list[PluginError] = []

    class Twin(Named):
        capabilities = frozenset({Capability.OBSERVER})

        def start(self, ctx: Context, bus: Any) -> None:
            self.bus = bus

        def before_step(self, ctx: Context, execution_id: str, step: Step) -> None:
            if step.path != self.name:
                return
            both_in.wait(20)
            [other] = [ref for ref in self.bus.plugins_by_cap(Capability.OBSERVER) if ref.name in twins - {self.name}]
            try:
                other.call("help", step.path)
            except PluginError as error:
                errors.append(error)

        def help(self, ctx: Context, path: str) -> str:
            return path

    twins = {"castor", "pollux"}
    # Each first hears of its own step, and then of the other's: so neither is kept waiting for that.
    rt = runtime(store, plugins=[Twin(name) for name in sorted(twins)], max_workers=4)
    began = time.monotonic()
    flows = [Workflow(name) for name in sorted(twins)]
    for wf in flows:
        wf.step(lambda: 1, id=wf.id)

    for execution in [rt.submit(wf) for wf in flows]:
        assert execution.result(20).status is ExecutionStatus.COMPLETED

    assert any(isinstance(error, PluginDeadlockError) for error in errors), errors
    assert {"castor", "pollux"} <= set(str(errors[0]).replace("'", " ").split())
    assert seconds_since(began) < 5


# --- nothing is left ------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.case("C050")
def test_each_close_gives_back_every_thread_and_every_file_of_its_plugins(tmp_path: Path) -> None:
    import pykka

    wf = chain(3)
    file = tmp_path / "ares.db"

    def cycle() -> None:
        with Runtime(file, max_workers=2, plugins=[Diary("diary", Log()), Listener("ear", lambda _d: None)]) as rt:
            subscription = rt.bus.subscribe(EventFilter(), buffer=1_000)
            reader = Task(lambda: sum(1 for _ in subscription))
            rt.run(wf).raise_for_status()
        assert reader.result() > 0

    cycle()
    threads = Threads()
    active, files = threading.active_count(), open_files()
    took: list[float] = []

    for _ in range(80):
        began = time.monotonic()
        cycle()
        took.append(seconds_since(began))
        assert threads.are_gone(), threads.names()
        assert threading.active_count() <= active + 1  # of the log
        assert open_files() <= files

    assert pykka.ActorRegistry.get_all() == []
    half = len(took) // 2
    assert sorted(took[half:])[half // 2] < 3 * sorted(took[:half])[half // 2]


def test_a_closed_runtime_and_its_plugins_are_let_go(store: str | None) -> None:
    import weakref

    gone: list[Any] = []

    def work() -> None:
        plugin = Diary("diary", Log())
        with Runtime(store, plugins=[plugin]) as rt:
            rt.run(chain(3)).raise_for_status()
            gone.extend([weakref.ref(plugin), weakref.ref(rt)])

    work()

    def are_gone() -> bool:
        gc.collect()
        return all(ref() is None for ref in gone)

    eventually(are_gone)


def test_a_thousand_executions_leave_nothing_on_the_bus(runtime: Make) -> None:
    rt = runtime(plugins=[Diary("diary", Log()), Everywhere("villain", "after_step", raises)])
    for _ in range(1_000):
        rt.run(single(lambda: 1))

    assert rt.bus._executions._open == {}
    assert rt.health()["diary"].mailbox_depth == 0


# --- logs ------------------------------------------------------------------------------------------------------


@pytest.fixture
def loud() -> Any:
    """The application wants to see what ares logs."""
    logger.enable("ares")
    yield
    assert notices.flush(20)
    logger.disable("ares")


@pytest.mark.case("C051")
def test_subscribers_that_log_sinks_that_emit_and_finalizers_that_do_both_deadlock_nothing(
    runtime: Make, store: str | None, loud: None
) -> None:
    lines: list[str] = []
    emitted: list[str] = []

    class Leftover:
        """Logs and emits when the garbage collector finds it."""

        def __init__(self) -> None:
            self.cycle = self

        def __del__(self) -> None:
            logger.bind(of="test").info("gone")

    class Scribe(Listener):
        def on_event(self, ctx: Context, delivery: Delivery) -> None:
            logger.bind(of="test").info("heard {}", delivery.event.type)

    rt = runtime(store, plugins=[Scribe("scribe", print, subscribes_to=EventFilter(journaled=True), buffer=10_000)])

    def sink(message: Any) -> None:
        lines.append(str(message))
        emitted.append("")
        rt.bus.emit("log", "log.line", "test", {"text": str(message)})

    subscription = rt.bus.subscribe(EventFilter(journaled=True), buffer=10_000)
    reader = Task(lambda: sum(logger.bind(of="test").info("read {}", d.event.type) is None for d in subscription))
    number = logger.add(sink, level=0)
    threshold = gc.get_threshold()
    gc.set_threshold(20, 2, 2)
    began = time.monotonic()
    try:
        wf = chain(100, lambda _i: [Leftover() for _ in range(3)] and None)
        result = rt.run(wf, execution_id="e")
        rt.close()
        heard = reader.result()
    finally:
        gc.set_threshold(*threshold)
        logger.remove(number)

    assert result.status is ExecutionStatus.COMPLETED
    assert seconds_since(began) < 10
    assert heard == 202
    # Two who log each event, and three leftovers a step; nothing makes more of it.
    assert len(emitted) <= 2 * 202 + 3 * 100 + 20
    assert not any("deadlock" in line.lower() for line in lines)


@pytest.mark.case("C051")
def test_a_loop_between_a_subscriber_that_logs_everything_and_a_sink_that_emits_ends_with_the_run(
    runtime: Make, loud: None
) -> None:
    """Whoever makes such a loop has it; it holds up nobody, and ends with the bus."""
    rt = runtime(plugins=[Listener("scribe", lambda d: logger.info("heard {}", d.event.type))])
    number = logger.add(lambda message: rt.bus.emit("log", "log.line", "test", {"text": str(message)}), level=0)
    began = time.monotonic()
    try:
        result = rt.run(chain(100))
        rt.close()
    finally:
        logger.remove(number)

    assert result.status is ExecutionStatus.COMPLETED
    assert seconds_since(began) < 10


@pytest.mark.case("C051")
def test_a_sink_that_blocks_keeps_no_plugin_from_failing(runtime: Make, gate: Gate, loud: None) -> None:
    number = logger.add(lambda _message: gate.pass_through(), level=0)
    try:
        rt = runtime(plugins=[Everywhere("villain", "before_step", raises)])
        began = time.monotonic()
        result = rt.run(chain(100))
        rt.close()
        assert seconds_since(began) < 5
        assert naming(result, "villain")
    finally:
        gate.open()
        notices.flush(20)
        logger.remove(number)


def test_what_goes_wrong_a_hundred_times_is_a_handful_of_lines(runtime: Make, loud: None) -> None:
    lines: list[str] = []
    number = logger.add(lambda message: lines.append(str(message.record["message"])), level="WARNING")
    try:
        rt = runtime(plugins=[Everywhere("villain", "before_step", raises)])
        rt.run(chain(100)).raise_for_status()
        notices.flush(20)
    finally:
        logger.remove(number)

    assert 1 <= len([line for line in lines if "villain" in line]) <= 5


# --- context variables -------------------------------------------------------------------------------------------


@pytest.mark.case("C056")
@pytest.mark.parametrize("steps_on", ["auto", "workers", "caller"])
def test_hooks_see_the_variables_of_nobody_and_change_those_of_nobody(
    runtime: Make, store: str | None, steps_on: str
) -> None:
    """A plugin's thread begins with an empty context, whoever ran what it is asked about; it is its own."""
    seen: list[tuple[str, str]] = []

    class Prying(Asked):
        def start(self, ctx: Context, bus: EventBus) -> None:
            seen.append(("start", VARIABLE.get()))

        def before_step(self, ctx: Context, execution_id: str, step: Step) -> HookResult | None:
            seen.append(("before_step", VARIABLE.get()))
            VARIABLE.set("a plugin's")
            return None

        def after_step(self, ctx: Context, execution_id: str, result: Any) -> None:
            seen.append(("after_step", VARIABLE.get()))

        def before_execution(self, ctx: Context, execution: ExecutionState) -> None:
            seen.append(("before_execution", VARIABLE.get()))

    token = VARIABLE.set("boot")
    try:
        rt = runtime(store, plugins=[Prying()], steps_on=steps_on, max_workers=4)

        def caller(name: str) -> set[str]:
            VARIABLE.set(name)
            result = rt.run(fan(10, lambda _i: VARIABLE.get())).raise_for_status()
            return {result.outputs[f"s{i}"] for i in range(10)}

        tasks = {name: Task(caller, name) for name in ("t1", "t2")}
        assert {name: task.result() for name, task in tasks.items()} == {"t1": {"t1"}, "t2": {"t2"}}
    finally:
        VARIABLE.reset(token)

    assert seen[0] == ("start", "default")
    assert {value for _, value in seen} == {"default", "a plugin's"}
    assert [value for what, value in seen].index("a plugin's") > 0


# --- forks ------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.parametrize("was_used", [True, False], ids=["used", "unused"])
def test_the_child_of_a_fork_has_a_bus_of_its_own_with_the_same_plugins(
    runtime: Make, store: str | None, was_used: bool
) -> None:
    from tests.engine.test_fork import in_child

    log = Log()
    post = Signpost("post", lambda _state: None)
    rt = runtime(store, plugins=[Clerk("clerk", log), Diary("diary", log), post])
    subscription = rt.bus.subscribe(EventFilter(), buffer=1_000)
    if was_used:
        rt.run(chain(2)).raise_for_status()
    before, bus = len(log.lines), rt.bus

    def act() -> list[Any]:
        own = rt.bus.subscribe(EventFilter(types=["step.completed"]), buffer=100)
        result = rt.run(chain(3))
        mine = log.lines[before:]
        rt.close()
        return [
            result.status.value,
            result.warnings,
            rt.bus is bus,
            mine.count("clerk starts"),
            mine.count("clerk stops"),
            len([line for line in mine if line[1] == "after_step"]),
            rt.health()["clerk"].state.value,
            len(list(own)) >= 3,
        ]

    said = in_child(act)

    assert said == "['COMPLETED', (), False, 1, 0, 3, 'stopped', True]"
    assert log.lines[before:] == []
    assert rt.bus is bus
    assert rt.run(chain(2)).raise_for_status().warnings == ()
    rt.close()
    types = [delivery.event.type for delivery in subscription]
    assert types.count("step.completed") == (4 if was_used else 2)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_fork_while_plugins_are_busy_hangs_nobody(runtime: Make, store: str | None) -> None:
    from tests.engine.test_fork import in_child

    rt = runtime(store, plugins=[Diary("diary", Log()), Listener("ear", lambda _d: None)], max_workers=3)
    stop = threading.Event()

    def busy() -> int:
        count = 0
        while not stop.is_set():
            rt.run(fan(3)).raise_for_status()
            count += 1
        return count

    runs = [Task(busy) for _ in range(2)]
    try:
        for _ in range(10):
            assert in_child(lambda: rt.run(fan(3)).status.value) == "'COMPLETED'"
    finally:
        stop.set()

    assert all(run.result() > 0 for run in runs)


# --- kills ------------------------------------------------------------------------------------------------------

KILLED = """
    import os, signal, sys, time
    from ares import HookPolicy, HookResult, Plugin, Runtime, Workflow

    file, kind, how, name = sys.argv[1:5]

    class Villain(Plugin):
        timeout = 0.2
        def flush_all(self, ctx):
            self.before_step(ctx, "", None)
        def before_step(self, ctx, execution_id, step):
            if kind == "hung": time.sleep(3600)
            if kind == "raising": raise RuntimeError("villainy")
            if kind == "exiting": sys.exit(3)
        def after_step(self, ctx, execution_id, result):
            self.before_step(ctx, execution_id, result)

    class Guard(Plugin):
        name = "guard"
        hook_policy = HookPolicy.INTERCEPT
        def before_step(self, ctx, execution_id, step):
            if step.path == "s2": return HookResult.complete("given")
            if step.path == "s3": return HookResult.skip("not needed")
            if step.path == "s4": return HookResult.replace({"n": 10})

    Villain.name = name
    wf = Workflow("w", inputs={"n": int})

    def body(i):
        def work(n):
            with open(file + ".effects", "a") as out:
                out.write(f"s{i} {n}\\n")
            if i == 7 and how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            return i
        return work

    for i in range(10):
        wf.step(body(i), id=f"s{i}", depends_on=[f"s{i - 1}"] if i else [], trigger="always")
    with Runtime(file, plugins=[Villain(), Guard()]) as rt:
        result = rt.run(wf, {"n": 1}, execution_id="e", if_exists="resume")
    print(str(result.status), sorted(result.outputs.items()), result.steps["s3"].reason, flush=True)
"""


@pytest.mark.parametrize("name", ["villain", "checkpoint"], ids=["beside", "instead of checkpoint"])
@pytest.mark.parametrize("kind", ["idle", "hung", "raising", "exiting"])
def test_a_kill_loses_nothing_whatever_the_plugins_do_and_verdicts_hold(tmp_path: Path, kind: str, name: str) -> None:
    """Nor without the plugin that keeps checkpoints: durability depends on none of them."""
    file = str(tmp_path / "ares.db")
    with Child(KILLED, file, kind, "kill", name) as child:
        code, _, err = child.finish()
    assert code == -9, err
    with Child(KILLED, file, kind, "live", name) as child:
        said = child.result()

    outputs = [(f"s{i}", "given" if i == 2 else i) for i in range(10) if i != 3]
    assert said == f"COMPLETED {outputs} verdict: guard: not needed\n"
    effects = Path(f"{file}.effects").read_text().splitlines()
    assert effects == ["s0 1", "s1 1", "s4 10", "s5 1", "s6 1", "s7 1", "s7 1", "s8 1", "s9 1"]


def test_a_plugin_can_be_a_plain_class(runtime: Make, store: str | None) -> None:
    """The base class is a convenience."""
    log = Log()

    class Plain:
        name = "plain"
        capabilities: frozenset[Capability] = frozenset()

        def start(self, ctx: Context, bus: EventBus) -> None:
            log.add("start")

        def stop(self, ctx: Context) -> None:
            log.add("stop")

        def before_step(self, ctx: Context, execution_id: str, step: Step) -> None:
            log.add(step.path)

    with Runtime(store, plugins=[Plain()]) as rt:
        assert rt.run(chain(2)).raise_for_status().warnings == ()

    assert log.lines == ["start", "s0", "s1", "stop"]
    assert not isinstance(Plain(), Plugin)
