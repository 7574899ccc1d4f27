"""What tests of promises run, here and in child processes: workflows that leave traces, and stores that fail on purpose.

The functions that a child is started with take a ``Voice`` first and plain values after it, and return plain values.
Tests import the rest.
"""

import enum
import math
import os
import resource
import signal
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import attrs
from loguru import logger

import ares
from ares import Goto, RetryPolicy, Runtime, Workflow, WorkflowResult
from ares.errors import ExecutionBusyError, NotDone, RecordedError, StoreError
from ares.journal.protocol import Append, Store
from ares.stores.sqlite import SqliteStore
from examples import code_audit
from tests.durability.nursery import DEADLINE, Voice

#: The line to the test, in a child.
VOICE: Voice
#: Set when a step of this process stands at its gate.
at_gate = threading.Event()


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


def audit(_: Voice, db: str, root: str, report: str, effects: str) -> str:
    """Run the code audit, or go on with it."""
    inputs = {"root": Path(root), "report": Path(report), "effects": Path(effects)}
    with Runtime(db) as rt:
        result = rt.run(code_audit.workflow, inputs, execution_id="audit", if_exists="resume")
    return str(result.raise_for_status().status)


# --- workflows that wait for the test --------------------------------------------------------------------------------


def gated(steps: int = 3) -> Workflow:
    """A chain of steps. Each leaves a line; the second says that it is there and waits to be told to go on."""
    wf = Workflow("gated", inputs={"effects": str})

    def body(number: int) -> Callable[..., int]:
        def run(effects: str) -> int:
            leave(effects, f"step {number}")
            if number == 2:
                at_gate.set()
                VOICE.say("at the gate")
                VOICE.hear()
                leave(effects, "through the gate")
            return number

        return run

    for number in range(1, steps + 1):
        wf.add(ares.StepSpec(f"s{number}", body(number), depends_on=[f"s{number - 1}"] if number > 1 else []))
    return wf


def gated_five() -> Workflow:
    """Five steps."""
    return gated(5)


def quick() -> Workflow:
    """Two steps and a map of three, all of which leave lines."""
    wf = Workflow("quick", inputs={"effects": str, "name": str})
    wf.step(lambda effects, name: leave(effects, f"{name} first") or [0, 1, 2], id="first")
    wf.step(lambda item, effects, name: leave(effects, f"{name} {item}") or item, id="each", map_over="first")
    wf.step(lambda each, effects, name: leave(effects, f"{name} last") or sum(each), id="last")
    return wf


def run_many(voice: Voice, db: str, effects: str, name: str, count: int) -> dict[str, Any]:
    """Many runs of ``quick`` at once on one Runtime. What they came to, and what was logged."""
    logged: list[str] = []
    logger.enable("ares")
    logger.remove()
    logger.add(lambda message: logged.append(str(message)), level="WARNING")
    wf = quick()
    with Runtime(db, max_workers=8) as rt:
        voice.say("begun")
        handles = [rt.submit(wf, {"effects": effects, "name": f"{name}{i}"}) for i in range(count)]
        results = [handle.result(DEADLINE) for handle in handles]
    return {
        "statuses": Counter(str(result.status) for result in results),
        "errors": [said(result.error) for result in results if result.error],
        "warnings": [warning for result in results for warning in result.warnings],
        "logged": logged,
    }


def submit_two_and_hang(voice: Voice, db: str, effects: str) -> None:
    """One execution that is at its gate, and one that the only worker has not begun."""
    rt = Runtime(db, max_workers=1)
    rt.submit(gated(), {"effects": effects}, execution_id="at the gate")
    assert at_gate.wait(DEADLINE)
    rt.submit(gated(), {"effects": effects}, execution_id="not begun")
    voice.say("submitted")
    voice.hear()


def interrupted_by_signal(voice: Voice, db: str, effects: str) -> str:
    """A run that is at its gate when SIGINT comes; then the Runtime, still open, is asked who has it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with Runtime(db) as rt:
        try:
            rt.run(gated(), {"effects": effects}, execution_id="e")
        except KeyboardInterrupt:
            voice.say({"status": str(rt.execution("e").status)})
            voice.hear()
            return "interrupted"
    return "not interrupted"


def try_to_take(_: Voice, db: str) -> dict[str, Any]:
    """What a process gets that tries to recover and to resume an execution that another one walks."""
    began = monotonic()
    with Runtime(db, workflows=[gated()]) as rt:
        recovery = rt.recover()
        try:
            rt.resume("e")
        except ExecutionBusyError as error:
            return {
                "taken": len(recovery),
                "left": dict(recovery.left),
                "owner": error.owner,
                "age": error.age,
                "seconds": monotonic() - began,
            }
    raise AssertionError("it was taken")


# --- files that cannot be written ------------------------------------------------------------------------------------


def growing(begun: list[int]) -> Workflow:
    """Two hundred steps that each add ten kilobytes to the journal."""
    wf = Workflow("growing")

    def body(number: int) -> Callable[[], str]:
        def run() -> str:
            begun.append(number)
            return f"{number}" * 10_000

        return run

    for number in range(200):
        wf.step(body(number), id=f"s{number}", depends_on=[f"s{number - 1}"] if number else ())
    return wf


def run_in_a_small_file(_: Voice, db: str) -> dict[str, Any]:
    """What ``run`` raises when no file of this process may grow beyond a megabyte."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, resource.RLIM_INFINITY))
    begun: list[int] = []
    with Runtime(db) as rt:
        try:
            rt.run(growing(begun), execution_id="e")
        except StoreError as error:
            return {
                "error": type(error).__name__,
                "text": str(error),
                "execution_id": error.execution_id,
                "begun": len(begun),
            }
    raise AssertionError("the file had room for everything")


def run_as_nobody(_: Voice, db: str, effects: str) -> dict[str, Any]:
    """What ``run`` raises for somebody whom files say no to, and what a listing shows all the same."""
    if os.geteuid() == 0:
        for folder in list(Path(db).parents)[:-1]:
            if folder.is_dir() and folder.owner() == "root" and folder.name != "tmp" and folder != Path("/dev/shm"):
                folder.chmod(folder.stat().st_mode | 0o055)
        os.setegid(65534)
        os.seteuid(65534)
    wf = Workflow("refused")
    wf.step(lambda: leave(effects, "ran"), id="step")
    listed: list[str] = []
    try:
        rt = Runtime(db)
        with suppress(StoreError):
            listed = [summary.execution_id for summary in rt.executions()]
        rt.run(wf)
    except StoreError as error:
        return {"error": type(error).__name__, "text": str(error), "listed": listed}
    raise AssertionError("it could be written")


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


# --- values that get lost easily --------------------------------------------------------------------------------------


class Color(enum.Enum):
    """Stands in an annotation below."""

    RED = "red"


@attrs.define
class Point:
    """Stands in an annotation below."""

    x: int
    names: tuple[str, ...] = ()


class Pair(NamedTuple):
    """Stands in an annotation below."""

    left: Any
    right: Any


Known = Color | Point | Pair

HOSTILE: dict[str, Any] = {
    "aware, in the fold": datetime(2024, 10, 27, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin")),
    "aware, before it": datetime(2024, 10, 27, 2, 30, fold=0, tzinfo=ZoneInfo("Europe/Berlin")),
    "utc": datetime(2024, 1, 1, tzinfo=UTC),
    "fixed offset": datetime(2024, 1, 1, tzinfo=timezone(timedelta(hours=5, minutes=45))),
    "naive": datetime(2024, 1, 1, 1, 2, 3, 4),  # noqa: DTZ001 - it is one
    "date": date(2024, 2, 29),
    "time": time(1, 2, 3, 4, fold=1),
    "timedelta": timedelta(days=-1, microseconds=1),
    "decimal": Decimal("1.10"),
    "decimal, odd": [Decimal("-0"), Decimal("Infinity"), Decimal("1E+500")],
    "bytes": b"\x00\xff$",
    "set": {1, (2, 3), "4"},
    "frozenset": frozenset({frozenset({1})}),
    "uuid": UUID(int=7),
    "path": Path("/tmp/../x y"),
    "int and text keys": {1: "a", "1": "b"},
    "tuple key": {(1, 2): "t"},
    "none key": {None: 1},
    "true key": {True: 1},
    "false and zero": [{False: 1}, {0: 1}],
    "tuple": (1, 2),
    "nested": {"nested": {2: (3,)}},
    "order": {"b": 1, "a": 2},
    "2**63": 2**63,
    "-2**63-1": -(2**63) - 1,
    "2**200": 2**200,
    "10**5000": 10**5000,
    "bools": [True, False, 1, 0],
    "complex": complex(-0.0, 2),
    "floats": [0.1, -0.0, 1e308, 5e-324, math.inf, -math.inf],
    "surrogates": ["\ud800", "\ud83d\ude00", "\x00", "\u2028"],
    "like a tag": [{"$tuple": [1]}, {"$": 1}, "$tuple"],
    "empty": [[], (), {}, set(), "", b"", None],
    "enum": Color.RED,
    "attrs": Point(1, ("a",)),
    "named tuple": Pair((1,), {2: 3}),
}


def anatomy(value: Any) -> Any:
    """What a value is, down to its types, as text that is the same only for the same."""
    kind = type(value).__name__
    if isinstance(value, dict):
        return [kind, [[anatomy(k), anatomy(v)] for k, v in value.items()]]
    if isinstance(value, set | frozenset):
        return [kind, sorted((anatomy(item) for item in value), key=repr)]
    if isinstance(value, list | tuple):
        return [kind, [anatomy(item) for item in value]]
    if attrs.has(type(value)):
        return [kind, [anatomy(item) for item in attrs.astuple(value, recurse=False)]]
    if isinstance(value, int):
        return [kind, hex(value)]
    if isinstance(value, datetime):
        zone = getattr(value.tzinfo, "key", repr(value.tzinfo))
        return [kind, repr(value.replace(tzinfo=None)), value.fold, zone]
    return [kind, ascii(value)]


def hostile() -> Workflow:
    """Makes every hostile value, looks at them in the next step, and fails the first time; the input is one, too."""
    wf = Workflow("hostile", inputs={"effects": str, "big": int})
    wf.step(lambda: list(HOSTILE), id="names")

    @wf.step(map_over="names")
    def make(item: str) -> Known | Any:
        return HOSTILE[item]

    @wf.step
    def look(make: list[Any], names: list[str], big: int) -> list[Any]:
        return [*([name, anatomy(value)] for name, value in zip(names, make, strict=True)), ["big", anatomy(big)]]

    @wf.step(depends_on=["look"])
    def dies(effects: str) -> None:
        leave(effects, "dies")
        if len(traces(effects)) == 1:
            die()

    return wf


def look_again(_: Voice, db: str) -> dict[str, Any]:
    """The looks of ``hostile`` as they were, and of the stored values, in a process that made none of them."""
    with Runtime(db) as rt:
        first = rt.resume("e", hostile()).outputs["look"]
        second = rt.resume("e", hostile(), rerun=["look"]).outputs["look"]
        return {"first": first, "second": second}


WORKFLOWS: dict[str, Callable[[], Workflow]] = {make.__name__: make for make in (
    rich, deadly_pay, reconciled_pay, deadly, deadly_without_limit, deadly_beside_others, in_three_parts, ordering,
    hostile, gated, gated_five, quick,
)}
