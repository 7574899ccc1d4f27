"""``ctx.once``: what it keeps, for whom, and what makes it forget. And the keys that tell an effect apart."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import ares
from ares import ExecutionStatus, RetryPolicy, Runtime, StepSpec, Workflow
from ares.errors import SerializationError, StoreError, UsageError
from ares.stores.sqlite import SqliteStore
from tests.durability.nursery import Nursery
from tests.durability.stores import StoreWrapper
from tests.durability.traces import Ran, counted, traces

New = Callable[..., Runtime]
EAGER = RetryPolicy(max_attempts=4, initial_delay=0.0)


def test_a_later_attempt_gets_the_result_instead_of_a_call(ran: Ran, again: New) -> None:
    wf = Workflow("once")

    @wf.step(retry=EAGER)
    def step(ctx: ares.StepContext) -> list[Any]:
        kept = ctx.once("effect", lambda: ran.append("effect") or {"at": (1, 2)})
        if ctx.attempt < 3:
            raise ConnectionError
        return [kept, ctx.attempt]

    result = again().run(wf)

    assert ran == ["effect"]
    assert result.outputs["step"] == [{"at": (1, 2)}, 3]


def test_what_it_keeps_is_committed_when_it_returns(db: str, again: New) -> None:
    seen: list[list[str]] = []
    wf = Workflow("once")

    @wf.step
    def step(ctx: ares.StepContext) -> None:
        ctx.once("effect", lambda: 7)
        seen.append([entry.kind for entry in SqliteStore(db).entries(ctx.execution_id)])

    for durability in ("sync", "async", "best_effort"):
        again(durability=durability).run(wf)

    assert len(seen) == 3
    assert all("remembered" in kinds for kinds in seen)


@pytest.mark.parametrize("dies", ["in the effect", "after it"])
@pytest.mark.parametrize("durability", ["sync", "async", "best_effort"])
def test_a_killed_process_repeats_only_an_effect_whose_result_was_not_kept(
    nursery: Nursery, db: str, effects: str, dies: str, durability: str
) -> None:
    inputs = {"effects": effects, "dies": dies}
    child = nursery.start("run", workflow="ordering", db=db, inputs=inputs, max_workers=1, durability=durability)
    assert child.wait() == -9
    while True:
        child = nursery.start("resume", workflow="ordering", db=db)
        if child.wait() == 0:
            break

    result = nursery.call("resume", workflow="ordering", db=db)

    assert result["outputs"]["order"] == "['order of 0', 'order of 1']"
    done = {line: times for line, times in counted(effects).items() if line.startswith("effect")}
    if dies == "after it":
        assert done == {"effect order[0]": 1, "effect order[1]": 1}
    else:
        assert done["effect order[0]"] > 1
    keys: dict[str, set[str]] = {}
    for line in traces(effects):
        word, path, *rest = [*line.split(" "), ""]
        if word == "key":
            keys.setdefault(path, set()).add(" ".join(rest))
    assert [len(of_path) for of_path in keys.values()] == [1, 1]
    assert not keys["order[0]"] & keys["order[1]"]


def test_keys_paths_and_elements_keep_apart(ran: Ran, again: New) -> None:
    child = Workflow("child")
    child.step(lambda ctx: ctx.once("key", lambda: ran.append("in the child")), id="same")
    wf = Workflow("apart")
    wf.step(lambda: [0, 1], id="source")
    wf.add(StepSpec("inside", workflow=child))

    @wf.step(map_over="source")
    def each(ctx: ares.StepContext, item: int) -> list[int]:
        return [ctx.once(key, lambda key=key: ran.append(f"{key} of {item}") or item) for key in ("a", "b", "a")]

    @wf.step
    def same(ctx: ares.StepContext) -> None:
        ctx.once("key", lambda: ran.append("outside"))

    result = again().run(wf)

    assert sorted(ran) == ["a of 0", "a of 1", "b of 0", "b of 1", "in the child", "outside"]
    assert result.outputs["each"] == [[0, 0, 0], [1, 1, 1]]


def test_a_set_back_step_keeps_it_and_one_that_rerun_names_forgets_it(ran: Ran, broken: set[str], again: New) -> None:
    wf = Workflow("forget")

    def body(ctx: ares.StepContext) -> None:
        ctx.once("effect", lambda: ran.append(f"effect of {ctx.step.path}"))
        ran.append(f"{ctx.step.path} {ctx.idempotency_key}")
        if ctx.step.path in broken:
            raise ValueError

    wf.step(body, id="first")
    wf.step(body, id="second", depends_on=["first"])
    wf.step(body, id="tidy", depends_on=["second"], trigger="always")

    def keys() -> dict[str, str]:
        return dict(line.split(" ") for line in ran.since() if not line.startswith("effect"))

    def effects() -> list[str]:
        return [line for line in ran if line.startswith("effect")]

    broken.add("second")
    again().run(wf, execution_id="e")
    assert effects() == ["effect of first", "effect of second", "effect of tidy"]
    begun = keys()
    broken.clear()
    again().resume("e", wf)
    assert effects() == ["effect of tidy"]  # what failed keeps what it did; the clean-up is for this time
    resumed = keys()
    again().resume("e", wf, rerun=["first"])
    assert effects() == ["effect of first", "effect of tidy"]
    rerun = keys()
    again().resume("e", wf, rerun=["second"])
    assert effects() == ["effect of second", "effect of tidy"]
    last = keys()

    assert resumed["second"] == begun["second"]
    assert resumed["tidy"] != begun["tidy"]
    assert rerun["first"] != begun["first"]
    assert rerun["second"] == begun["second"]
    assert last["second"] != begun["second"]
    assert len({run["tidy"] for run in (begun, resumed, rerun, last)}) == 4


def test_an_element_that_rerun_names_forgets_and_the_others_do_not(ran: Ran, again: New) -> None:
    wf = Workflow("elements")
    wf.step(lambda: [0, 1], id="source")

    @wf.step(map_over="source")
    def each(ctx: ares.StepContext, item: int) -> str:
        ctx.once("effect", lambda: ran.append(f"effect {item}"))
        return ctx.idempotency_key

    first = again().run(wf, execution_id="e").outputs["each"]
    assert sorted(ran.since()) == ["effect 0", "effect 1"]
    second = again().resume("e", wf, rerun=["each[1]"]).outputs["each"]
    assert ran.since() == ["effect 1"]
    third = again().resume("e", wf, rerun=["source"]).outputs["each"]

    assert (first[0] == second[0], first[1] == second[1]) == (True, False)
    assert third == second  # what follows a step that is run again keeps its keys, and so what it did once
    assert ran == []


def test_what_cannot_be_kept_fails_and_says_where(again: New) -> None:
    wf = Workflow("unstorable")
    wf.step(lambda ctx: ctx.once("made", lambda: {"a": [object()]}), id="step")

    result = again().run(wf)

    error = result.steps["step"].error
    assert isinstance(error, SerializationError)
    assert "once('made') in step 'step'" in str(error)
    assert error.path == "a[0]"


def test_an_effect_that_raises_is_not_kept(ran: Ran, again: New) -> None:
    wf = Workflow("raises")

    def effect() -> str:
        ran.append("effect")
        if len(ran) < 3:
            raise ConnectionError
        return "done"

    wf.step(lambda ctx: ctx.once("effect", effect), id="step", retry=EAGER)

    result = again().run(wf)

    assert ran == ["effect"] * 3
    assert result.outputs["step"] == "done"


@pytest.mark.parametrize("key", ["", None, 7])
def test_a_key_is_a_text(again: New, key: Any) -> None:
    wf = Workflow("keys")
    wf.step(lambda ctx: ctx.once(key, lambda: 1), id="step")

    assert isinstance(again().run(wf).error, UsageError)


def test_a_result_of_none_is_kept_too(ran: Ran, again: New) -> None:
    wf = Workflow("none")
    wf.step(lambda ctx: [ctx.once("k", lambda: ran.append("k")) for _ in range(3)], id="step")

    assert again().run(wf).outputs["step"] == [None] * 3
    assert ran == ["k"]


class Failing(StoreWrapper):
    """Fails while it is told to."""

    fails = False

    def append(self, appends: Any, *, sync: bool) -> Any:
        if self.fails:
            raise StoreError("the disk", "is full")
        return super().append(appends, sync=sync)


@pytest.mark.parametrize("durability", ["sync", "async", "best_effort"])
def test_a_result_that_cannot_be_committed_is_not_handed_out(db: str, again: New, durability: str) -> None:
    store = Failing(SqliteStore(db))
    got: list[Any] = []
    wf = Workflow("full")

    @wf.step
    def step(ctx: ares.StepContext) -> None:
        store.fails = True
        try:
            got.append(ctx.once("effect", lambda: 7))
        except StoreError as error:
            got.append(error)
            raise
        finally:
            store.fails = False

    rt = again(store, durability=durability)
    if durability == "best_effort":
        result = rt.run(wf, execution_id="e")
        assert isinstance(result.error, StoreError)
    else:
        with pytest.raises(StoreError):
            rt.run(wf, execution_id="e")
        assert rt.execution("e").status is ExecutionStatus.INTERRUPTED

    assert isinstance(got[0], StoreError)
    assert len(got) == 1


def test_events_tell_that_something_is_kept(again: New) -> None:
    wf = Workflow("events")
    wf.step(lambda ctx: ctx.once("k", lambda: 7), id="step")
    rt = again()
    rt.run(wf, execution_id="e")

    types = [event.type for event in rt.execution("e").events()]

    assert Counter(types)["step.remembered"] == 1
    assert types.index("step.remembered") < types.index("step.completed")
