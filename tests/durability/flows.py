"""Workflows for child processes: some wait until the test tells them to go on, some kill the process they run in."""

import os
import threading
import time
from collections.abc import Callable

import ares
from ares import RetryPolicy, Runtime, Workflow
from ares.errors import NotDone
from tests.durability.nursery import DEADLINE, Voice
from tests.durability.traces import counted, die, leave, traces

#: The line to the test, in a child.
LINE: list[Voice] = []
#: The Runtimes of this process whose steps run other workflows.
RUNTIMES: list[Runtime] = []
#: Set when a step of this process stands at its gate.
at_gate = threading.Event()


# --- that wait for the test ------------------------------------------------------------------------------------------


def gated(steps: int = 3, max_crashes: int = 3) -> Workflow:
    """A chain of steps. Each leaves a line; the second says that it is there and waits to be told to go on."""
    wf = Workflow("gated", inputs={"effects": str}, defaults=ares.StepDefaults(max_crashes=max_crashes))

    def body(number: int) -> Callable[..., int]:
        def run(effects: str) -> int:
            leave(effects, f"step {number}")
            if number == 2:
                at_gate.set()
                LINE[-1].say("at the gate")
                LINE[-1].hear()
                leave(effects, "through the gate")
            return number

        return run

    for number in range(1, steps + 1):
        wf.add(ares.StepSpec(f"s{number}", body(number), depends_on=[f"s{number - 1}"] if number > 1 else []))
    return wf


def gated_once() -> Workflow:
    """Of which a step that dies once is given up."""
    return gated(max_crashes=1)


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


def filling(begun: list[str], fill: Callable[[], None]) -> Workflow:
    """Four steps, of which the second fills something, and the third has much to store."""
    wf = Workflow("filling")
    bodies: dict[str, Callable[[], str | None]] = {
        "first": lambda: None,
        "fill": fill,
        "large": lambda: "x" * 100_000,
        "last": lambda: None,
    }

    def named(name: str) -> Callable[[], str | None]:
        def body() -> str | None:
            begun.append(name)
            return bodies[name]()

        return body

    for before, name in zip([None, *bodies], bodies, strict=False):
        wf.step(named(name), id=name, depends_on=[before] if before else ())
    return wf


def timed() -> Workflow:
    """A step that is tried again after a second, one that has a second, and one behind that. The first and the last say
    by how many seconds they are late. The others, and one that ends when it is told to, say when they have begun."""
    wf = Workflow("timed")
    due: dict[str, float] = {}

    def retried() -> float:
        if "retried" in due:
            return time.monotonic() - due["retried"]
        LINE[-1].say("begun")
        due["retried"] = time.monotonic() + 1.0
        raise ConnectionError

    def limited(ctx: ares.StepContext) -> None:
        assert ctx.deadline is not None
        due["limited"] = ctx.deadline
        LINE[-1].say("begun")
        while not ctx.cancelled:
            threading.Event().wait(0.005)

    def told() -> None:
        LINE[-1].say("begun")
        LINE[-1].hear()

    wf.step(retried, retry=RetryPolicy(max_attempts=2, initial_delay=1.0, jitter=0.0))
    wf.step(told)
    wf.step(limited, timeout=1.0)
    wf.step(lambda: time.monotonic() - due["limited"], id="after", depends_on=["limited"], trigger="always")
    return wf


# --- that kill their process -----------------------------------------------------------------------------------------


def deadly_pay() -> Workflow:
    """An at_most_once body that dies of its own effect the first time."""
    wf = Workflow("deadly_pay", inputs={"effects": str})

    @wf.step(delivery="at_most_once")
    def pay(effects: str) -> str:
        leave(effects, "pay")
        if counted(effects)["pay"] == 1:
            die()
        return "paid"

    wf.step(lambda pay: "sent", id="send")
    return wf


def deadly_pays(on_item_failure: str) -> Workflow:
    """A map of two at_most_once bodies, of which one kills the process once both have begun."""
    wf = Workflow("deadly_pays", inputs={"effects": str})
    wf.step(lambda: [0, 1], id="orders")

    @wf.step(map_over="orders", delivery="at_most_once", on_item_failure=on_item_failure)
    def pay(ctx: ares.StepContext, item: int, effects: str) -> str:
        leave(effects, ctx.step.path)
        if len(traces(effects)) == 2:
            die()
        if len(traces(effects)) == 1:
            threading.Event().wait(DEADLINE)
        return f"paid {item}"

    return wf


def deadly_pays_fail() -> Workflow:
    """As ``deadly_pays``."""
    return deadly_pays("fail")


def deadly_pays_collect() -> Workflow:
    """As ``deadly_pays``."""
    return deadly_pays("collect")


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
    """A body that ends its process at once, before its start can be anywhere but in memory."""
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


def nesting() -> Workflow:
    """A step that runs another workflow, whose second step dies the first time."""
    inner = Workflow("inner", inputs={"effects": str})
    inner.step(lambda effects: leave(effects, "inner one") or 1, id="one")

    @inner.step
    def two(one: int, effects: str) -> int:
        leave(effects, "inner two")
        if counted(effects)["inner two"] == 1:
            die()
        return one + 1

    wf = Workflow("nesting", inputs={"effects": str})

    @wf.step
    def outer(ctx: ares.StepContext, effects: str) -> list[int]:
        leave(effects, "outer")
        return [RUNTIMES[-1].run(inner, {"effects": effects}).outputs["two"] for _ in range(2)]

    return wf


def patient() -> Workflow:
    """Fails, waits for its retry, and is killed while it waits."""
    wf = Workflow("patient", inputs={"effects": str})

    @wf.step(retry=RetryPolicy(max_attempts=3, initial_delay=1.0, multiplier=1.0, jitter=0.0))
    def step(ctx: ares.StepContext, effects: str) -> int:
        leave(effects, f"attempt {ctx.attempt}")
        if ctx.attempt < 3:
            raise ConnectionError
        return ctx.attempt

    @wf.step
    def beside(effects: str) -> None:
        if not traces(effects + ".told"):
            leave(effects + ".told", "told")
            LINE[-1].say("beside")
            LINE[-1].hear()

    return wf


def ending(how: str) -> Workflow:
    """Ends early, cancelled or out of time, and dies in its clean-up the first time."""
    wf = Workflow("ending", inputs={"effects": str})

    @wf.step
    def works(ctx: ares.StepContext, effects: str) -> None:
        leave(effects, "works")
        LINE[-1].say("works")
        while not ctx.cancelled:
            threading.Event().wait(0.005)
        raise InterruptedError(how)

    wf.step(lambda works, effects: leave(effects, "never"), id="never")

    @wf.step(trigger="always", depends_on=["never"])
    def tidy(effects: str) -> str:
        leave(effects, "tidy")
        if counted(effects)["tidy"] == 1:
            die()
        return "tidied"

    return wf


def ending_plainly() -> Workflow:
    """As ``ending``."""
    return ending("asked to end")


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
