"""What tests of promises run, here and in child processes: workflows that leave traces, and stores that fail on purpose.

The functions that a child is started with take a ``Voice`` first and plain values after it, and return plain values.
Tests import the rest.
"""

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import ares
from ares import Goto, RetryPolicy, Runtime, Workflow, WorkflowResult
from ares.errors import NotDone, RecordedError
from ares.journal.protocol import Append, Store
from ares.stores.sqlite import SqliteStore
from tests.durability.nursery import Voice

#: The line to the test, in a child.
VOICE: Voice


# --- traces ----------------------------------------------------------------------------------------------------------


def leave(file: str, text: str) -> None:
    """Add a line that is on the disk when this returns."""
    with Path(file).open("ab", buffering=0) as out:
        out.write(text.encode() + b"\n")
        os.fsync(out.fileno())


def traces(file: str) -> list[str]:
    """The lines so far."""
    path = Path(file)
    return path.read_text().splitlines() if path.exists() else []


def counted(file: str) -> Counter[str]:
    """How often each line is there."""
    return Counter(traces(file))


class Ran(list[str]):
    """The bodies that began in this process, in order."""

    def since(self) -> list[str]:
        """Those since this was asked last."""
        new, self[:] = list(self), []
        return new


def die() -> None:
    """End this process as ``kill -9`` would."""
    os.kill(os.getpid(), signal.SIGKILL)


# --- stores ----------------------------------------------------------------------------------------------------------


class StoreWrapper:
    """A store that is another one, but for what a subclass changes."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def append(self, appends: Sequence[Append], *, sync: bool) -> Sequence[Exception | None]:
        return self._inner.append(appends, sync=sync)


class CrashingStore(StoreWrapper):
    """Commits entries one by one and kills its process at the ``at``-th one: right before it, or right after.

    A store may commit what it is given in one transaction; that it does so here entry by entry makes every boundary
    between two facts a place to die at.
    """

    def __init__(self, inner: Store, *, at: int, before: bool) -> None:
        super().__init__(inner)
        self._at = at
        self._before = before
        self._count = 0

    def create(self, new: Any, lease: int | None, status: str, entries: Any) -> Any:
        self._count += len(entries)
        if self._before and self._count >= self._at:
            die()
        claim = self._inner.create(new, lease, status, entries)
        if self._count >= self._at:
            die()
        return claim

    def append(self, appends: Sequence[Append], *, sync: bool) -> Sequence[Exception | None]:
        return [self._append(append, sync=sync) for append in appends]

    def _append(self, append: Append, *, sync: bool) -> Exception | None:
        for entry in append.entries:
            self._count += 1
            if self._before and self._count >= self._at:
                die()
            is_last = entry is append.entries[-1]
            part = Append(append.claim, [entry], append.status if is_last else None, append.error if is_last else "")
            (refused,) = self._inner.append([part], sync=sync)
            if refused is not None:
                return refused
            if self._count >= self._at:
                die()
        return None


# --- what a result was -----------------------------------------------------------------------------------------------


def said(error: BaseException | None) -> str:
    """What an exception says; the same for one of this process and one that an earlier process had."""
    return "" if error is None else error.message if isinstance(error, RecordedError) else str(error)


def told(result: WorkflowResult) -> dict[str, Any]:
    """A result as plain values; the same for the same outcome, whichever process it comes from."""
    return {
        "status": str(result.status),
        "outputs": {step: repr(output) for step, output in result.outputs.items()},
        "variables": {name: repr(value) for name, value in result.variables.items()},
        "steps": {
            path: [str(step.status), str(step.reason), repr(step.output), said(step.error)]
            for path, step in result.steps.items()
        },
        "attempts": {path: step.attempts for path, step in result.steps.items()},
        "error": said(result.error),
        "warnings": list(result.warnings),
    }


# --- running a workflow of this module --------------------------------------------------------------------------------


def run(
    _: Voice,
    workflow: str,
    db: str,
    execution_id: str = "e",
    inputs: dict[str, Any] | None = None,
    at: int | None = None,
    before: bool = False,
    **options: Any,
) -> dict[str, Any]:
    """Run one of ``WORKFLOWS``; with ``at`` until the store kills the process."""
    store: Any = db if at is None else CrashingStore(SqliteStore(db), at=at, before=before)
    with Runtime(store, **options) as rt:
        return told(rt.run(WORKFLOWS[workflow](), inputs, execution_id=execution_id))


def resume(
    _: Voice,
    workflow: str,
    db: str,
    execution_id: str = "e",
    runtime: dict[str, Any] | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Resume an execution of one of ``WORKFLOWS``."""
    with Runtime(db, **(runtime or {})) as rt:
        return told(rt.resume(execution_id, WORKFLOWS[workflow](), **options))


# --- the workflow whose every boundary is a place to die at -----------------------------------------------------------


def rich() -> Workflow:
    """Small, and has one of everything."""
    child = Workflow("child", inputs={"base": int, "effects": str}, variables={"seen": 0})

    @child.step(writes="seen")
    def first(ctx: ares.StepContext, base: int, effects: str) -> int:
        leave(effects, "inside/first")
        ctx.set("seen", base)
        return base + 1

    @child.step
    def second(first: int, seen: int, effects: str) -> int:
        leave(effects, "inside/second")
        return first + seen

    wf = Workflow(
        "rich", inputs={"effects": str}, variables={"log": [], "total": 0}, reducers={"log": "append", "total": "add"}
    )

    @wf.step(writes=("log", "total"))
    def begin(ctx: ares.StepContext, effects: str) -> list[int]:
        leave(effects, "begin")
        ctx.set("log", "begin")
        ctx.set("total", 1)
        return [1, 2, 3]

    @wf.step
    def token(ctx: ares.StepContext, begin: list[int], effects: str) -> str:
        leave(effects, "token")

        def make() -> str:
            leave(effects, "token.once")
            return f"{sum(begin)}-{ctx.idempotency_key_for('make')}"

        return ctx.once("make", make)

    @wf.step(map_over=begin, writes=("total", "log"), retry=RetryPolicy(max_attempts=3, initial_delay=0.001))
    def each(ctx: ares.StepContext, item: int, effects: str) -> int:
        leave(effects, f"each[{item - 1}]")
        ctx.emit("each.seen", item=item)
        ctx.set("total", item)
        ctx.set("log", f"each {item}")
        if item == 2 and ctx.attempt == 1:
            raise ConnectionError("the first attempt never works")
        return item * item

    wf.add(ares.StepSpec("inside", workflow=child, inputs={"base": "size"}))

    @wf.step(id="size")
    def size(each: list[int], effects: str) -> int:
        leave(effects, "size")
        return len(each)

    @wf.step(branches=("left", "right"), router=lambda: "right", depends_on=["inside"])
    def fork(effects: str) -> str:
        leave(effects, "fork")
        return "fork"

    @wf.step
    def left(fork: str, effects: str) -> str:
        leave(effects, "left")
        return "left"

    @wf.step(branches=("near", "far"))
    def right(ctx: ares.StepContext, fork: str, effects: str) -> Goto:
        leave(effects, "right")
        return Goto("near", value=ctx.tool("upper", str.upper, fork))

    @wf.step
    def near(right: str, effects: str) -> str:
        leave(effects, "near")
        return right

    @wf.step
    def far(right: str, effects: str) -> str:
        leave(effects, "far")
        return right

    @wf.step(condition=lambda: False)
    def never(begin: list[int]) -> None:
        raise AssertionError("a condition said no")

    def was_charged(ctx: ares.StepContext, effects: str) -> str:
        if f"charge {ctx.idempotency_key}" not in traces(effects):
            raise NotDone
        return "charged"

    @wf.step(delivery="at_most_once", reconcile=was_charged, retry=RetryPolicy(initial_delay=0.001))
    def charge(ctx: ares.StepContext, token: str, effects: str) -> str:
        leave(effects, f"charge {ctx.idempotency_key}")
        return "charged"

    @wf.step(writes="log")
    def join(
        ctx: ares.StepContext, left: Any, near: Any, far: Any, inside: Any, token: str, charge: str, effects: str
    ) -> dict[str, Any]:
        leave(effects, "join")
        ctx.set("log", "join")
        return {"left": left, "near": near, "far": far, "inside": inside, "total": ctx.variables["total"]}

    @wf.step
    def broken(join: Any, effects: str) -> None:
        leave(effects, "broken")
        raise ValueError("it always breaks")

    @wf.step
    def behind(broken: None) -> None:
        raise AssertionError("what it depends on failed")

    @wf.step(trigger="always", depends_on=[behind])
    def tidy(ctx: ares.StepContext, effects: str) -> str:
        leave(effects, "tidy")
        return f"{ctx.upstream['behind'].status}: {ctx.upstream['behind'].reason}"

    return wf


# --- workflows that kill their process --------------------------------------------------------------------------------


def deadly_pay() -> Workflow:
    """An at_most_once body that dies of its own effect."""
    wf = Workflow("deadly_pay", inputs={"effects": str})

    @wf.step(delivery="at_most_once")
    def pay(effects: str) -> None:
        leave(effects, "pay")
        die()

    wf.step(lambda pay: "sent", id="send")
    return wf


def reconciled_pay() -> Workflow:
    """As ``deadly_pay``, but somebody can be asked; where nothing is found, the body lives the second time."""
    wf = Workflow("reconciled_pay", inputs={"effects": str, "found": bool})

    def ask(ctx: ares.StepContext, effects: str, found: bool) -> str:
        leave(effects, f"ask {ctx.idempotency_key}")
        if not found:
            raise NotDone
        return "paid"

    @wf.step(delivery="at_most_once", reconcile=ask)
    def pay(ctx: ares.StepContext, effects: str) -> str:
        leave(effects, f"pay {ctx.idempotency_key}")
        if len(traces(effects)) == 1:
            die()
        return "paid"

    wf.step(lambda pay: pay, id="send")
    return wf


def deadly(max_crashes: int | None = 3) -> Workflow:
    """A body that ends its process at once, before its start can be anywhere but in memory; one beside it that lives."""
    wf = Workflow("deadly", inputs={"effects": str})
    wf.step(lambda effects: leave(effects, "before"), id="before")

    @wf.step(max_crashes=max_crashes, depends_on=["before"])
    def kills(ctx: ares.StepContext, effects: str) -> None:
        leave(effects, f"kills in attempt {ctx.attempt}")
        os._exit(7)

    wf.step(lambda kills, effects: leave(effects, "after"), id="after")
    wf.step(lambda effects: leave(effects, "tidy"), id="tidy", trigger="always", depends_on=["after"])
    return wf


def deadly_without_limit() -> Workflow:
    """As ``deadly``, with no limit."""
    return deadly(None)


def deadly_beside_others() -> Workflow:
    """One element of a map that kills its process, among twenty that do not."""
    wf = Workflow("deadly_beside_others", inputs={"effects": str})
    wf.step(lambda: list(range(20)), id="source")

    @wf.step(map_over="source", on_item_failure="collect", max_concurrency=2)
    def each(ctx: ares.StepContext, item: int, effects: str) -> int:
        leave(effects, ctx.step.path)
        if item == 11:
            os._exit(7)
        return item

    return wf


def in_three_parts() -> Workflow:
    """p1 -> sub(s1 -> s2 -> s3) -> p2; s3 and p2 die the first time they run."""
    child = Workflow("sub", inputs={"effects": str})
    child.step(lambda effects: leave(effects, "s1") or 1, id="s1")
    child.step(lambda s1, effects: leave(effects, "s2") or s1 + 1, id="s2")

    @child.step
    def s3(s2: int, effects: str) -> int:
        leave(effects, "s3")
        if counted(effects)["s3"] == 1:
            die()
        return s2 + 1

    wf = Workflow("in_three_parts", inputs={"effects": str})
    wf.step(lambda effects: leave(effects, "p1") or 0, id="p1")
    wf.add(ares.StepSpec("sub", workflow=child, depends_on=["p1"]))

    @wf.step
    def p2(sub: dict[str, int], effects: str) -> int:
        leave(effects, "p2")
        if counted(effects)["p2"] == 1:
            die()
        return sub["s3"] + 1

    return wf


def ordering() -> Workflow:
    """Asks for the goods once, dies at the place that ``dies`` names, and tells its keys."""
    wf = Workflow("ordering", inputs={"effects": str, "dies": str})
    wf.step(lambda: [0, 1], id="goods")

    @wf.step(map_over="goods")
    def order(ctx: ares.StepContext, item: int, effects: str, dies: str) -> str:
        leave(effects, f"key {ctx.step.path} {ctx.idempotency_key} {ctx.idempotency_key_for('order')}")

        def effect() -> str:
            leave(effects, f"effect {ctx.step.path}")
            if dies == "in the effect" and len(traces(effects)) < 8:
                die()
            return f"order of {item}"

        number = ctx.once("order", effect)
        if dies == "after it" and item == 1 and counted(effects)["died"] == 0:
            leave(effects, "died")
            die()
        return number

    return wf


WORKFLOWS: dict[str, Callable[[], Workflow]] = {make.__name__: make for make in (
    rich, deadly_pay, reconciled_pay, deadly, deadly_without_limit, deadly_beside_others, in_three_parts, ordering,
)}
