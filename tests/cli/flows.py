"""Workflows that the tests of the command run in processes of their own.

Bodies that have to last wait for a file: a test makes it when it has seen what it wanted. They wait with a deadline, so
that no child outlives its test for long.
"""

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

from ares import Input, ItemFailure, Loop, RetryPolicy, Runtime, StepContext, StepSpec, Workflow

_PATIENCE = 60.0


def wait_for_file(file: Path) -> None:
    """Block until the file is there."""
    deadline = time.monotonic() + _PATIENCE
    while not file.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{file} never came")
        threading.Event().wait(0.01)


def wait_for_cancel(ctx: StepContext) -> None:
    """Block until the attempt is asked to end."""
    deadline = time.monotonic() + _PATIENCE
    while not ctx.cancelled and time.monotonic() < deadline:
        threading.Event().wait(0.01)


def lines_of(file: Path) -> list[str]:
    """The lines that were left."""
    return file.read_text().splitlines()


def leave_line(file: Path, line: str) -> None:
    """Append a line in one write."""
    with file.open("ab", buffering=0) as lines:
        lines.write(f"{line}\n".encode())


# --- the ways a run can end -----------------------------------------------------------------------------------

completes = Workflow("completes", version="1", inputs={"n": Input(int, 3)})


@completes.step
def first(n: int) -> int:
    print("a step prints this")
    return n + 1


@completes.step(map_over="numbers", on_item_failure="collect")
def double(item: int) -> int:
    if item == 1:
        raise ValueError("one is\nno good")
    return item * 2


@completes.step
def numbers(first: int) -> list[int]:
    return list(range(first))


@completes.step
def report(double: list[int | ItemFailure]) -> Path:
    return Path("/reports") / f"{len(double)}.md"


fails = Workflow("fails", inputs={"mended": Input(Path | None, None)})


@fails.step
def good() -> int:
    return 1


@fails.step
def bad(mended: Path | None) -> int:
    if mended is not None and mended.exists():
        return 2
    raise ValueError("no good")


@fails.step
def after(bad: int) -> int:
    return bad


lasts = Workflow("lasts")


@lasts.step
def endless(ctx: StepContext) -> None:
    wait_for_cancel(ctx)


hangs = Workflow("hangs")


@hangs.step(timeout=0.2)
def hung() -> None:
    threading.Event().wait(_PATIENCE)


cancels = Workflow("cancels", inputs={"store": Path})


@cancels.step
def cancel_this(ctx: StepContext, store: Path) -> None:
    with Runtime(store) as other:
        other.cancel(ctx.execution_id, "by its own step")
    wait_for_cancel(ctx)


# --- interrupting ---------------------------------------------------------------------------------------------

parallel = Workflow("parallel", inputs={"marks": Path, "seconds": Input(float, 30.0)})


@parallel.step
def before(marks: Path) -> None:
    leave_line(marks, "before")


def _sleeper(marks: Path, seconds: float, before: None, ctx: StepContext) -> None:
    leave_line(marks, ctx.step.path)
    time.sleep(seconds)  # noqa: TID251 - a body that no signal and no event ends


for _name in ("sleep_a", "sleep_b", "sleep_c", "sleep_d"):
    parallel.step(_sleeper, id=_name)

alone = Workflow("alone", inputs={"marks": Path, "go": Path})


@alone.step
def inline(marks: Path, go: Path) -> str:
    leave_line(marks, "inline")
    wait_for_file(go)
    return "done"


clinging = Workflow("clinging", inputs={"marks": Path})


@clinging.step
def cling(marks: Path) -> None:
    """Leaves a thread behind that would keep the process alive."""
    threading.Thread(target=threading.Event().wait, args=(_PATIENCE,), name="clinging").start()
    leave_line(marks, "clinging")
    threading.Event().wait(_PATIENCE)


# --- cancelling -----------------------------------------------------------------------------------------------

chain = Workflow("chain", inputs={"marks": Path})


def _link(ctx: StepContext, marks: Path) -> None:
    leave_line(marks, ctx.step.path)
    if ctx.step.path == "link_2":
        wait_for_cancel(ctx)
        leave_line(marks, f"returned at {time.monotonic()}")


for _number in range(1, 6):
    chain.step(_link, id=f"link_{_number}", depends_on=[f"link_{_number - 1}"] if _number > 1 else [])

# --- crashing -------------------------------------------------------------------------------------------------

crashes = Workflow("crashes", inputs={"unless": Path})


@crashes.step
def crash(unless: Path) -> str:
    if not unless.exists():
        os.kill(os.getpid(), signal.SIGKILL)
    return "survived"


fates = Workflow("fates", inputs={"marks": Path, "fate": str})


@fates.step
def dies_once(ctx: StepContext, marks: Path, fate: str) -> str:
    """Its first process is killed."""
    leave_line(marks, ctx.execution_id)
    if lines_of(marks).count(ctx.execution_id) == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return fate


@fates.step
def meets(ctx: StepContext, dies_once: str, marks: Path) -> str:
    if dies_once == "fails":
        raise ValueError("no good")
    if dies_once == "waits":
        ctx.interrupt("go", "Go on?")
    if dies_once == "lasts":
        wait_for_file(marks.with_name("go"))
    return dies_once


# --- what is shown --------------------------------------------------------------------------------------------

hostile = Workflow("hostile", inputs={"url": str, "name": str})


@hostile.step(id="\u202estep", name="\x1b[31mred\x1b[0m\nname")
def hostile_step(url: str) -> dict[str, str]:
    return {"url": url, "out": "\x1b]0;title\x07\r\nnext [bold]line[/bold]"}


@hostile.step
def hostile_failure(name: str) -> None:
    raise ValueError(f"{name}\x1b[2J\nsecond line")


shows = Workflow("shows", inputs={"go": Path, "marks": Path})


@shows.step
def things() -> list[str]:
    return ["a", "b\x1b[31m", "c"]


@shows.step(map_over=things)
def work(ctx: StepContext, item: str, go: Path, marks: Path) -> str:
    ctx.progress(1, 4)
    leave_line(marks, "working")
    print(f"[bold]step prints {item!r}[/bold]", end="", flush=True)
    wait_for_file(go)
    return item


# --- much of it -----------------------------------------------------------------------------------------------

bulk = Workflow("bulk", inputs={"count": int, "size": int})


@bulk.step
def chunks(ctx: StepContext, count: int, size: int) -> int:
    """Commits so many chunks, one after another."""
    return sum(len(ctx.once(f"chunk {number}", lambda: "x" * size)) for number in range(count))


def indices(count: int) -> list[int]:
    return list(range(count))


fails_often = Workflow("fails_often", inputs={"count": int})
fails_often.step(indices)


@fails_often.step(map_over=indices, on_item_failure="collect", retry=RetryPolicy(max_attempts=2, initial_delay=0))
def odd(item: int) -> int:
    if item % 2:
        raise ValueError(f"{item} is odd")
    return item


# --- what cannot run ------------------------------------------------------------------------------------------

undefined = Workflow("undefined")


@undefined.step
def needs(nothing: Any) -> None:
    pass


number = 5
# --- asking ---------------------------------------------------------------------------------------------------

asks = Workflow("asks", inputs={"marks": Path})


@asks.step
def draft(marks: Path) -> str:
    leave_line(marks, "draft")
    return "a report"


@asks.step(interrupt="Publish it?")
def publish(draft: str) -> str:
    return f"{draft}, published"


@asks.step
def price(ctx: StepContext, draft: str) -> Any:
    return ctx.interrupt("amount", "How much?\nIn euros.", {"upper": 10})


pays = Workflow("pays", inputs={"marks": Path})


@pays.step(delivery="at_most_once")
def pay(marks: Path) -> str:
    leave_line(marks, "pay")
    if len(marks.read_text().splitlines()) == 1:
        raise ConnectionError("no answer from the bank")
    return "paid"


# --- rounds ---------------------------------------------------------------------------------------------------

inner_loop = Workflow("inner_loop", loop=Loop(max_rounds=2))


@inner_loop.step
def try_it() -> str:
    return "tried"


loops = Workflow("loops", loop=Loop(until=lambda ctx: ctx.round == 3))
loops.add(StepSpec("inside", workflow=inner_loop))
