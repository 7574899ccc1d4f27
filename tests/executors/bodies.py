"""What runs on executors in tests. Importable there, as the functions of a program's modules are."""

import ctypes
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import ares
from ares import Goto, Runtime, StepContext, Workflow
from ares.errors import RetryAfter

# --- plain ones ------------------------------------------------------------------------------------------


def one() -> int:
    return 1


def double(item: int) -> int:
    return 2 * item


def add(a: Any, b: Any = 5) -> Any:
    return a + b


def by_position(a: int, /, b: int, *, c: int = 3) -> tuple[int, int, int]:
    return a, b, c


def pid() -> int:
    return os.getpid()


def where() -> tuple[int, str, bool]:
    thread = threading.current_thread()
    return os.getpid(), thread.name, thread is threading.main_thread()


def go_left() -> Goto:
    return Goto("left", value=7)


def go_astray() -> Goto:
    return Goto("nowhere")


# --- the context -----------------------------------------------------------------------------------------


def look_around(ctx: StepContext, n: int) -> dict[str, Any]:
    left = None if ctx.deadline is None else ctx.deadline - time.monotonic()
    ctx.logger.debug("looked around")
    return {
        "execution_id": ctx.execution_id,
        "path": ctx.step.path,
        "attempt": ctx.attempt,
        "round": ctx.round,
        "inputs": dict(ctx.inputs),
        "variables": dict(ctx.variables),
        "metadata": dict(ctx.metadata),
        "step_metadata": dict(ctx.step.metadata),
        "left": left,
        "cancelled": ctx.cancelled,
        "key": ctx.idempotency_key,
        "key_for": ctx.idempotency_key_for("mail"),
        "pid": os.getpid(),
    }


def key(ctx: StepContext) -> str:
    return ctx.idempotency_key


def write(ctx: StepContext, value: Any = 3) -> str:
    ctx.set("total", value)
    return "written"


def write_what_is_not_its(ctx: StepContext) -> None:
    ctx.set("stranger", 1)


def ask_for(ctx: StepContext, what: str) -> Any:
    match what:
        case "once":
            return ctx.once("k", one)
        case "tool":
            return ctx.tool("t", one)
        case "interrupt":
            return ctx.interrupt("q", "Well?")
        case "emit":
            return ctx.emit("mine.said", n=1)
        case "progress":
            return ctx.progress(1, 2)
        case _:
            return ctx.upstream


# --- failures --------------------------------------------------------------------------------------------


class Unhappy(Exception):
    """Has arguments, a cause and a note."""

    def __init__(self, code: int, detail: str) -> None:
        super().__init__(code, detail)
        self.code = code
        self.detail = detail


class Obstinate(Exception):
    """Goes into a pickle, and does not come out, whoever helps exceptions with that: some libraries do."""

    def __init__(self, *, code: int) -> None:
        super().__init__("obstinate")
        self.code = code

    def __reduce__(self) -> Any:
        return _stay_inside, ()


def _stay_inside() -> None:
    raise RuntimeError("it stays inside")


class Holding(Exception):
    """Does not go into a pickle."""

    def __init__(self) -> None:
        super().__init__("holding a lock")
        self.lock = threading.Lock()


def be_unhappy() -> None:
    try:
        _deep_down()
    except KeyError as error:
        unhappy = Unhappy(4, "so it is")
        unhappy.add_note("a note")
        raise unhappy from error


def _deep_down() -> None:
    raise KeyError("deep down")


def be_obstinate() -> None:
    raise Obstinate(code=4)


def hold() -> None:
    raise Holding


def exit_by_exception() -> None:
    raise SystemExit(3)


def interrupt_oneself() -> None:
    raise KeyboardInterrupt


class Base(BaseException):
    pass


def raise_base() -> None:
    raise Base("of no Exception")


def later(ctx: StepContext) -> int:
    if ctx.attempt == 1:
        raise RetryAfter(0.01)
    return ctx.attempt


def return_a_lock() -> Any:
    return threading.Lock()


def write_a_lock(ctx: StepContext) -> None:
    ctx.set("total", threading.Lock())


def return_an_object() -> Any:
    """Can be pickled, and the codec has no word for it."""
    return Unhappy(1, "no value")


class Bomb:
    """Does not come out of its pickle."""

    def __reduce__(self) -> Any:
        return _explode, ()


def _explode() -> None:
    raise RuntimeError("cannot be made again")


def return_a_bomb() -> Any:
    return Bomb()


# --- what takes its time, or kills ------------------------------------------------------------------------


def note(file: Path | str, text: str = "x") -> None:
    """A side effect that is seen whatever becomes of the process."""
    descriptor = os.open(file, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    os.write(descriptor, f"{text}\n".encode())
    os.fsync(descriptor)
    os.close(descriptor)


def native() -> None:
    """Native code that never returns, and holds the interpreter lock."""
    while True:  # a signal ends it
        ctypes.PyDLL(None).pause()


def note_and_hang(file: str) -> None:
    note(file, str(os.getpid()))
    native()


def hang() -> None:
    time.sleep(3600)  # noqa: TID251 - the body of a step that hangs


def last(seconds: float) -> float:
    time.sleep(seconds)  # noqa: TID251 - the body of a step that takes so long
    return seconds


def wait_for(file: str, item: int = 0, seconds: float = 20.0) -> int:
    """Until the file is there."""
    until = time.monotonic() + seconds
    while not Path(file).exists():
        assert time.monotonic() < until, "nobody made it"
        time.sleep(0.005)  # noqa: TID251 - another process makes it
    return item


def note_and_wait(notes: str, file: str, item: int = 0) -> int:
    note(notes, str(item))
    return wait_for(file, item)


def die() -> None:
    os._exit(1)


def wait_and_die(file: str) -> None:
    wait_for(file)
    os._exit(1)


def be_killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_at_first(ctx: StepContext, file: str) -> int:
    note(file)
    if ctx.attempt == 1:
        os._exit(1)
    return ctx.attempt


def note_and_die(file: str) -> None:
    note(file)
    os._exit(1)


def fail_or_not(item: int) -> int:
    """One in four dies, one in four raises, the first time that it is run."""
    kind = item % 4
    marker = Path(os.environ["ARES_TEST_FOLDER"]) / str(item)
    if kind < 2 and not marker.exists():
        note(marker)
        if kind == 0:
            os._exit(1)
        raise Unhappy(item, "by chance")
    return item


# --- a Runtime from inside ---------------------------------------------------------------------------------

inner = Workflow("inner")
inner.step(one, id="one")

#: The Runtime of the program, as many have it: at the top of a module.
runtime: Runtime | None = None


def run_nested() -> str:
    assert runtime is not None
    return str(runtime.run(inner).status)


def submit_nested() -> str:
    assert runtime is not None
    return str(runtime.submit(inner).result(5).status)


def run_its_own() -> str:
    with ares.Runtime() as rt:
        return str(rt.run(inner).status)
