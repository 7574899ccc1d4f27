"""What the processes of a soak do: submit their share of the executions, and take over what others left.

A step's effect is a line of the process's own file. It is written twice if the process dies between the effect and its
commit, and never again once it is committed.
"""

import json
import os
import threading
import time
from collections import deque
from contextlib import suppress
from typing import Any, Final

import attrs

from ares import Execution, RetryPolicy, Runtime, StepContext, StepDefaults, Workflow
from ares.errors import ExecutionExistsError, StoreError
from ares.testing.processes import Line
from benchmarks.soak.plan import Plan

#: So many executions of its own a process has under way.
AT_ONCE: Final = 8
#: Seconds between two looks of a process for what others left.
RECOVERS: Final = 0.5
#: Every so many steps one fails at its first attempt, after its effect.
FAILS_EVERY: Final = 5
#: What a step makes of the value before it stays below this.
_LIMIT: Final = 1_000_003


class NotYetError(Exception):
    """The first attempt of a step that has two."""


@attrs.frozen
class Effect:
    """A line: an attempt of a step began (``kind`` "began"), or its effect was done ("did").

    ``key`` is the step's idempotency key, ``token`` is different for every effect that is done, ``at`` is seconds of
    the monotonic clock, which processes of one machine share.
    """

    kind: str
    execution_id: str
    step: str
    attempt: int
    key: str
    pid: int
    token: str
    at: float


def attempts_of(number: int) -> int:
    """How many attempts a step has, whatever is killed."""
    return 2 if number % FAILS_EVERY == FAILS_EVERY - 1 else 1


def value_of(start: int, number: int) -> int:
    """What a step of an execution makes of the number that this begins with."""
    for step in range(number + 1):
        start = _next_value(start, step)
    return start


def _next_value(before: int, number: int) -> int:
    return (before * 31 + number) % _LIMIT


def chain(plan: Plan) -> Workflow:
    """The workflow: each step needs what the one before it made."""
    wf = Workflow("soak", inputs={"start": int}, defaults=StepDefaults(max_crashes=None))
    retry = RetryPolicy(max_attempts=2, initial_delay=0.05, retry_on=NotYetError)
    for number in range(plan.steps):
        body = _body(plan, number)
        wf.step(body, id=f"s{number}", params={"before": f"s{number - 1}" if number else "start"}, retry=retry)
    return wf


def _body(plan: Plan, number: int) -> Any:
    def body(ctx: StepContext, before: Any) -> dict[str, Any]:
        leave(plan, ctx, "began")
        token = ctx.once("effect", leave, plan, ctx, "did")
        threading.Event().wait(plan.seconds)
        if ctx.attempt < attempts_of(number):
            raise NotYetError
        return {"value": _next_value(before["value"] if number else before, number), "token": token}

    return body


def leave(plan: Plan, ctx: StepContext, kind: str) -> str:
    """Add a line that is on the disk when this returns. The token in it."""
    pid, at = os.getpid(), time.monotonic()
    token = f"{pid}-{at!r}"
    effect = Effect(kind, ctx.execution_id, ctx.step.path, ctx.attempt, ctx.idempotency_key, pid, token, at)
    with plan.effects_of(pid).open("ab", buffering=0) as out:
        out.write(json.dumps(attrs.astuple(effect)).encode() + b"\n")
        os.fsync(out.fileno())
    return token


def live(line: Line, slot: int, plan: dict[str, Any]) -> None:
    """The life of a process, until it is told to stop: it keeps some executions of its own under way, and begins those
    that its predecessor did not come to. Its Runtime takes up whatever somebody left."""
    work = Plan(**plan)
    wf = chain(work)
    ahead = deque(work.ids_of(slot))
    under_way: list[Execution] = []
    rt: Runtime | None = None
    while not _told(line):
        with suppress(StoreError):  # it is away: the next round tries again
            rt = rt or Runtime(work.store, workflows=[wf], lease_timeout=work.lease_timeout, recover_interval=RECOVERS)
            rt.start()
            under_way = [execution for execution in under_way if not execution.done()]
            while ahead and len(under_way) < AT_ONCE:
                with suppress(ExecutionExistsError):  # by a predecessor: whoever recovers it goes on with it
                    under_way.append(rt.submit(wf, {"start": int(ahead[0][1:])}, execution_id=ahead[0]))
                ahead.popleft()
    if rt is not None:
        rt.close()


def _told(line: Line) -> bool:
    try:
        line.hear(0.1)
    except TimeoutError:
        return False
    return True
