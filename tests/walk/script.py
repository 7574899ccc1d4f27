"""What the steps of a generated workflow do: a script that says, for each step, how each of its runs ends.

The functions made here can be called for real, by any shell: they look their script up by the path in their ``ctx`` and
by how often that path ran before. The pure driver reads the same script without calling anything. A run is counted by
its outcome, so one that was cut short happens again exactly as it was.
"""

import inspect
import threading
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from ares.errors import NotDone
from ares.questions import Approve, Cause, Reject, RunAgain
from ares.workflow import Goto, ItemFailure

ALWAYS_FAILS = 1_000


class Boom(Exception):
    """A failure that the generated retry policies retry."""


class Fatal(Exception):
    """A failure that they do not."""


@attrs.frozen
class Plan:
    """What one step does.

    Attributes:
        fails: how many of its runs, the first ones, raise.
        fatal: what they raise is ``Fatal``, not ``Boom``.
        fails_at: only in instances whose path has one of these indices; None: in all.
        length: how long a list it returns; None: it returns no list.
        goto: the branches it chooses itself; None: it does not.
        holds: what its condition says; None: that it raises.
        answer: what its router says.
        router_raises: the router raises instead.
        writes: the variables it sets.
        done: what its reconcile says: True, False, or None: that it raises.
        before: what a human says to its ``interrupt=``: True or False; None: it has none.
        asks: what a human says to each question of its body: "yes", "no", or "told", a No that the body wants to hear.
        no_at: the questions of its body get their "no" only in instances whose path has one of these indices; None: in
            all.
        outcomes: what a human says each time that it is unknown whether it took effect: "yes", "no" or "again"; "yes"
            from then on.
    """

    fails: int = 0
    fatal: bool = False
    fails_at: frozenset[int] | None = None
    length: int | None = None
    goto: tuple[str, ...] | None = None
    holds: bool | None = True
    answer: Any = None
    router_raises: bool = False
    writes: tuple[str, ...] = ()
    done: bool | None = True
    before: bool | None = None
    asks: tuple[str, ...] = ()
    no_at: frozenset[int] | None = None
    outcomes: tuple[str, ...] = ()

    def said(self, path: str) -> tuple[str, ...]:
        """What a human says to the questions of one instance's body."""
        spared = self.no_at is not None and not indices_in(path) & self.no_at
        return tuple("yes" if each == "no" and spared else each for each in self.asks)

    def is_rejected(self, path: str) -> bool:
        """Whether a human says No to one instance's body."""
        return "no" in self.said(path)


@attrs.frozen
class Returned:
    """A run that returned."""

    value: Any
    writes: tuple[tuple[str, Any], ...] = ()
    goto: tuple[str, ...] | None = None


def indices_in(path: str) -> set[int]:
    """The map indices in a path."""
    return {int(part.partition("]")[0]) for part in path.split("[")[1:]}


def told(path: str, key: str) -> str:
    """What comes with the answer to a body's question."""
    return f"{path}?{key}"


def show(value: Any) -> str:
    """A value as text that is the same in every process, and after its exceptions became records."""
    if isinstance(value, ItemFailure):
        return f"<{value.index} {show(value.item)}>"  # what it failed with is the business of the step's own result
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{k}:{show(v)}" for k, v in sorted(value.items())) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(show, value)) + "]"
    return repr(value)


class Script:
    """The plans of all steps, by ``workflow id/step id``."""

    def __init__(self, plans: Mapping[str, Plan]) -> None:
        self.plans = dict(plans)
        #: By workflow id: the round after which its ``until`` says yes, or raises if that is among ``raising``.
        self.untils: dict[str, int] = {}
        self.raising: set[str] = set()
        self._lock = threading.Lock()
        #: How often each path ran, where the functions are called for real.
        self.calls: Counter[str] = Counter()

    def run(
        self,
        key: str,
        path: str,
        number: int,
        given: Mapping[str, Any],
        heard: Mapping[str, Any] | None = None,
    ) -> Returned:
        """How the run ``number`` (from 0) of an instance ends that takes these values, and heard these answers (those
        of the plan if not told). Raises if it does."""
        plan = self.plans[key]
        applies = plan.fails_at is None or indices_in(path) & plan.fails_at
        if applies and number < plan.fails:
            raise (Fatal if plan.fatal else Boom)(f"{path}#{number}")
        if plan.asks:
            heard = heard if heard is not None else {str(n): told(path, str(n)) for n in range(len(plan.asks))}
            given = {**given, **{f"?{n}": value for n, value in heard.items()}}
        digest = f"{zlib.crc32(show(given).encode()):08x}"
        value: Any = f"{path}#{number}:{digest}"
        if plan.length is not None:
            value = [f"{value}:{i}" for i in range(plan.length)]
        return Returned(value, tuple((name, self.written(name, path, number)) for name in plan.writes), plan.goto)

    @staticmethod
    def written(name: str, path: str, number: int) -> Any:
        """What a run writes to a variable: ``total`` is added up, ``log`` extended, ``v`` replaced."""
        if name == "total":
            return 1 + zlib.crc32(path.encode()) % 100
        return [f"{path}#{number}"] if name == "log" else f"{path}#{number}"

    def condition(self, key: str) -> bool:
        """What the condition says, or raises."""
        holds = self.plans[key].holds
        if holds is None:
            raise Fatal(f"condition of {key}")
        return holds

    def route(self, key: str) -> Any:
        """What the router answers, or raises."""
        if self.plans[key].router_raises:
            raise Fatal(f"router of {key}")
        return self.plans[key].answer

    def reconcile(self, key: str, path: str) -> str:
        """What the reconcile finds, or raises."""
        done = self.plans[key].done
        if done is None:
            raise Fatal(f"reconcile of {key}")
        if not done:
            raise NotDone
        return f"reconciled {path}"

    def reply(self, key: str, question: Any, number: int) -> Approve | Reject | RunAgain:
        """What a human says to a question, or to the outcome that is unknown for the ``number``-th time (from 0)."""
        plan, path = self.plans[key], question.path
        match question.cause:
            case Cause.BEFORE:
                said = "yes" if plan.before else "no"
            case Cause.BODY:
                said = plan.said(path)[int(question.key)]
            case _:
                said = plan.outcomes[number] if number < len(plan.outcomes) else "yes"
        if said == "again":
            return RunAgain()
        value = f"told {path}" if question.cause is Cause.OUTCOME else told(path, question.key)
        return Approve(value) if said == "yes" else Reject("no", value)

    def until(self, key: str, round: int) -> bool:
        """What the ``until`` of a workflow says after a round, or raises."""
        if round < self.untils[key]:
            return False
        if key in self.raising:
            raise Fatal(f"until of {key}")
        return True

    def next_call(self, path: str) -> int:
        """Count a real call."""
        with self._lock:
            self.calls[path] += 1
            return self.calls[path] - 1


class _Function:
    """A callable with just these parameters."""

    def __init__(self, script: Script, key: str, parameters: Sequence[str]) -> None:
        self.script = script
        self.key = key
        self.__name__ = self.__qualname__ = f"{type(self).__name__}_{key}"
        kind = inspect.Parameter.KEYWORD_ONLY
        self.__signature__ = inspect.Signature([inspect.Parameter(name, kind) for name in ("ctx", *parameters)])


class Body(_Function):
    """A step's function."""

    def __call__(self, *, ctx: Any, **given: Any) -> Any:
        path, heard = ctx.step.path, {}
        for number, said in enumerate(self.script.plans[self.key].asks):
            key = str(number)
            answer = ctx.interrupt(key, f"{key}?", on_reject="return" if said == "told" else "skip")
            heard[key] = answer.value if said == "told" else answer
        returned = self.script.run(self.key, path, self.script.next_call(path), given, heard)
        for name, value in returned.writes:
            ctx.set(name, value)
        return returned.value if returned.goto is None else Goto(*returned.goto, value=returned.value)


class Condition(_Function):
    """A step's condition."""

    def __call__(self, *, ctx: Any, **_: Any) -> bool:
        return self.script.condition(self.key)


class Until(_Function):
    """A loop's ``until``."""

    def __call__(self, *, ctx: Any, **_: Any) -> bool:
        return self.script.until(self.key, ctx.round)


class Router(_Function):
    """A step's router."""

    def __call__(self, *, ctx: Any, **_: Any) -> Any:
        return self.script.route(self.key)


class Reconcile(_Function):
    """A step's reconcile."""

    def __call__(self, *, ctx: Any, **_: Any) -> str:
        return self.script.reconcile(self.key, ctx.step.path)
