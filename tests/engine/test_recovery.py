"""What happens when a step's retries are spent and it has a ``RecoveryPolicy``."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from ares import Delivery, RecoveryPolicy, RetryPolicy, Runtime, StepSpec, Workflow
from ares.errors import DefinitionError, StepTimeoutError, WorkflowFailedError
from ares.plugin import Capability, Plugin
from ares.plugins import BasicRecoveryPlugin
from tests.engine.helpers import events_of, single

New = Callable[..., Runtime]
SKIP = RecoveryPolicy("skip")
AT_ONCE = RetryPolicy(max_attempts=2, initial_delay=0.0)


class Flaky:
    """Fails so often, and counts."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.calls = 0

    def __call__(self) -> int:
        self.calls += 1
        if self.calls <= self.failures:
            raise ConnectionError(f"failure {self.calls}")
        return self.calls


class Asked(Plugin):
    """Says what it was told to, and keeps what it was asked."""

    capabilities = frozenset({Capability.RECOVERY})

    def __init__(self, answer: Callable[[Any], Any], name: str = "asked") -> None:
        self.name = name
        self.answer = answer
        self.seen: list[tuple[str, int, str]] = []

    def should_recover(self, ctx: Any, failure: Any, state: Any) -> Any:
        self.seen.append((failure.path, failure.attempts, str(failure.error)))
        return self.answer(failure)


def test_without_a_recovery_plugin_the_policy_applies_by_itself(runtime: New, store: str | None) -> None:
    body = Flaky(failures=1)

    result = runtime(store).run(single(body, recovery=RecoveryPolicy("retry")))

    assert result.raise_for_status().outputs == {"body": 2}
    assert result.steps["body"].attempts == 2


def test_retries_are_spent_before_anything_is_recovered(runtime: New) -> None:
    body = Flaky(failures=2)
    plugin = Asked(lambda _: True)

    result = runtime(plugins=[plugin]).run(single(body, retry=AT_ONCE, recovery=RecoveryPolicy("retry")))

    assert result.outputs == {"body": 3}
    assert plugin.seen == [("body", 2, "failure 2")]


def test_recovery_is_bounded(runtime: New, store: str | None) -> None:
    body = Flaky(failures=100)

    result = runtime(store).run(single(body, recovery=RecoveryPolicy("retry", max_attempts=3)))

    assert body.calls == 4
    assert result.steps["body"].attempts == 4
    assert str(result.error) == "failure 4"


def test_another_agent_takes_over(runtime: New, store: str | None) -> None:
    wf = Workflow("w", inputs={"n": int})

    @wf.step(recovery=RecoveryPolicy("replace", replacement_agent="careful"))
    def bold(n: int) -> int:
        raise ValueError(n)

    result = runtime(store, agents={"careful": lambda n: -n}).run(wf, {"n": 3})

    assert result.raise_for_status().outputs == {"bold": -3}


def test_an_agent_that_nobody_registered_is_refused_before_anything_runs(runtime: New) -> None:
    wf = single(lambda: 1, recovery=RecoveryPolicy("replace", replacement_agent="nobody"))

    with pytest.raises(DefinitionError, match=r"replacement_agent 'nobody' is not registered \(agents: 'other'\)"):
        runtime(agents={"other": lambda: 1}).run(wf)


def test_a_step_that_is_done_without_does_not_block(runtime: New, store: str | None) -> None:
    wf = Workflow("w")
    wf.step(Flaky(failures=9), id="optional", recovery=SKIP)
    wf.step(lambda: "there", id="needed")
    wf.step(lambda optional, needed: (optional, needed), id="after")
    rt = runtime(store)

    result = rt.run(wf, execution_id="e")

    assert result.raise_for_status().outputs["after"] == (None, "there")
    assert (result.steps["optional"].status, result.steps["optional"].reason) == ("SKIPPED", "recovered")
    assert result.steps["optional"].error is None
    checkpoint = rt.checkpoint("e")
    assert checkpoint.step_states["optional"].reason == "recovered"
    assert [entry.message for entry in checkpoint.error_history] == ["ConnectionError: failure 1"]


def test_elements_are_recovered_each(runtime: New, store: str | None) -> None:
    wf = Workflow("w")
    wf.step(lambda: [1, 0, 2], id="numbers")
    wf.step(lambda item: 1 / item, id="inverse", map_over="numbers", recovery=SKIP)

    result = runtime(store).run(wf)

    assert result.raise_for_status().outputs["inverse"] == [1.0, None, 0.5]
    assert result.steps["inverse[1]"].reason == "recovered"


def test_with_recovery_plugins_nothing_is_recovered_that_none_of_them_wants(runtime: New) -> None:
    first, second = Asked(lambda _: False, "first"), Asked(lambda failure: failure.path == "b", "second")
    wf = Workflow("w")
    for step in ("a", "b"):
        wf.step(Flaky(failures=9), id=step, recovery=SKIP)

    result = runtime(plugins=[first, second]).run(wf)

    assert {path: str(step.status) for path, step in result.steps.items()} == {"a": "FAILED", "b": "SKIPPED"}
    assert {path for path, _, _ in first.seen} == {path for path, _, _ in second.seen} == {"a", "b"}


@pytest.mark.parametrize("answer", [lambda _: 1 / 0, lambda _: "yes", lambda _: exec("raise SystemExit")])
def test_a_plugin_that_fails_says_no_and_is_named(runtime: New, answer: Callable[[Any], Any]) -> None:
    result = runtime(plugins=[Asked(answer, "broken")]).run(single(Flaky(failures=9), recovery=SKIP))

    assert result.status == "FAILED"
    assert any("'broken'" in warning for warning in result.warnings)


def test_a_timeout_is_recovered_like_any_failure(runtime: New, store: str | None) -> None:
    pause = threading.Event()
    plugin = Asked(lambda _: True)
    rt = runtime(store, plugins=[plugin])
    try:
        result = rt.run(single(lambda: pause.wait(20), timeout=0.05, recovery=SKIP))
    finally:
        pause.set()

    assert result.raise_for_status().steps["body"].reason == "recovered"
    assert plugin.seen[0][:2] == ("body", 1)
    assert StepTimeoutError("body", 0.05).__str__() == plugin.seen[0][2]


def test_the_time_of_the_body_does_not_run_while_plugins_are_asked(runtime: New) -> None:
    pause = threading.Event()
    plugin = Asked(lambda _: pause.wait(0.3) or True)

    result = runtime(plugins=[plugin]).run(single(Flaky(failures=1), timeout=0.1, recovery=RecoveryPolicy("retry")))

    assert result.raise_for_status().outputs == {"body": 2}


def test_an_unknown_outcome_is_not_recovered(runtime: New, store: str | None) -> None:
    """Nothing runs it again, nor says that it did not matter, before somebody knows."""
    plugin = Asked(lambda _: True)
    wf = single(Flaky(failures=9), delivery=Delivery.AT_MOST_ONCE, recovery=RecoveryPolicy("retry"))

    result = runtime(store, plugins=[plugin]).run(wf)

    assert result.status == "WAITING"
    assert [question.key for question in result.interrupts] == ["outcome"]


def test_a_recovered_step_stays_so_when_the_execution_is_resumed(runtime: New, tmp_path: Any) -> None:
    optional, broken = Flaky(failures=1), [True]
    wf = Workflow("w")
    wf.step(optional, id="optional", recovery=SKIP)

    @wf.step(depends_on=["optional"], trigger="always")
    def fails() -> str:
        if broken[0]:
            raise ValueError
        return "done"

    file = tmp_path / "ares.db"
    with Runtime(file) as rt, pytest.raises(WorkflowFailedError):
        rt.run(wf, execution_id="e").raise_for_status()
    broken[0] = False

    result = runtime(file).resume("e", wf)

    assert result.raise_for_status().outputs == {"fails": "done"}
    assert optional.calls == 1


def test_the_recoveries_are_counted_over_a_resume(runtime: New, tmp_path: Any) -> None:
    """A crash gives no more of them: what was spent is in the journal."""
    calls: list[int] = []
    gate, reached = threading.Event(), threading.Event()
    wf = Workflow("w")

    @wf.step(recovery=RecoveryPolicy("retry", max_attempts=1))
    def body() -> None:
        calls.append(1)
        if len(calls) == 2:
            reached.set()
            gate.wait(20)
        raise ValueError(len(calls))

    file = tmp_path / "ares.db"
    rt = runtime(file)
    rt.submit(wf, execution_id="e")
    assert reached.wait(20)
    rt.close(0.1)
    gate.set()

    result = runtime(file).resume("e", wf)

    assert len(calls) == 3  # the one that was cut short runs again, and is the last
    assert str(result.error) == "3"


def test_a_cancelled_step_is_not_recovered(runtime: New) -> None:
    plugin = Asked(lambda _: True)
    began = threading.Event()
    wf = Workflow("w")

    @wf.step(recovery=RecoveryPolicy("retry"))
    def body(ctx: Any) -> None:
        began.set()
        while not ctx.cancelled:
            began.wait(0.001)
        raise ValueError("cancelled")

    rt = runtime(plugins=[plugin])
    execution = rt.submit(wf)
    assert began.wait(20)
    execution.cancel()

    assert execution.result(20).status == "CANCELLED"


def test_the_event_of_a_recovery_says_which_one_it_is(runtime: New, store: str | None) -> None:
    rt = runtime(store)
    rt.run(single(Flaky(failures=9), recovery=RecoveryPolicy("retry", max_attempts=2)), execution_id="e")

    payloads = [event.payload for event in events_of(rt, "e") if event.type == "step.retrying"]

    assert [payload["recovery"] for payload in payloads] == [1, 2]


# --- the built-in plugin --------------------------------------------------------------------------------------


def test_an_allowlist_can_be_changed_while_it_is_used(runtime: New) -> None:
    plugin = BasicRecoveryPlugin(["body"])
    rt = runtime(plugins=[plugin])

    def run() -> str:
        return str(rt.run(single(Flaky(failures=9), recovery=SKIP)).status)

    assert run() == "COMPLETED"
    plugin.revoke_step("body")
    assert run() == "FAILED"
    plugin.allow_step("body")
    assert run() == "COMPLETED"
    assert plugin.allowed == {"body"}


def test_an_allowlist_may_name_one_instance(runtime: New) -> None:
    wf = Workflow("w")
    wf.step(lambda: [0, 0], id="zeros")
    wf.add(StepSpec("inverse", lambda item: 1 / item, map_over="zeros", recovery=SKIP, on_item_failure="collect"))

    result = runtime(plugins=[BasicRecoveryPlugin(["inverse[1]"])]).run(wf)

    assert str(result.steps["inverse[0]"].status) == "FAILED"
    assert str(result.steps["inverse[1]"].status) == "SKIPPED"


@pytest.mark.parametrize("step", ["", None, 3])
def test_an_allowlist_takes_names_only(step: Any) -> None:
    from ares.errors import UsageError

    with pytest.raises(UsageError, match="named by its id or path"):
        BasicRecoveryPlugin().allow_step(step)
