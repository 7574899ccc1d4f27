"""Decides at branch points by what memories advise; where they advise nothing, by rules.

A memory may have to search. So it is asked while the step still runs: ``before_step`` sends the question, and waits for
nothing; ``route`` takes the answer if it is there, waits for it if it is under way, and asks anew if it is of no use.

*What the early question is.* Nobody knows yet what the step will return, which variables it writes, or even whether it
is a branch point. So the state of an early question has no output (None), no variables, and no ``candidates``; by the
last, which is never so at a branch point, a memory can tell. One whose advice depends on what is missing must say
nothing (an empty sequence): then it is asked again, in full, once the step has returned. One that knows its way by
workflow, step and round can answer, and its answer is as good as it would be later.

*Whom it is about.* Early answers are held for one execution, path and round, and forgotten when the execution ends.
Steps are not known to be branch points before the first route of one; so in the first execution of a workflow any step
is asked about, a few at a time, and after that only those that turned out to be one.
"""

import re
import time
from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from typing import Any, Final

import attrs

from ares.errors import UsageError
from ares.plugin import Capability, Context, EventBus
from ares.plugins._peers import PEER_FAILED, Asked, answers, ask, until
from ares.plugins._rules import Rule, RuledRouter, confidence, words
from ares.records import (
    ExecutionOutcome,
    ExecutionState,
    ExecutionStatus,
    MemoryEntry,
    RouteAdvice,
    RouteDecision,
    RouteState,
    Step,
)

#: Early answers that are held at most, the executions whose workflow is known, and the steps of which it is known
#: whether they are branch points. The oldest is forgotten first, and costs an early question at most.
_HELD: Final = 1_000
_KNOWN: Final = 10_000
#: Early questions under way, when it is not known whether the step is a branch point, and when it is.
_GUESSES: Final = 4
_UNDER_WAY: Final = 64

#: What tells one element of a map, or one round of a sub-workflow, from another in a path.
_INSTANCE: Final = re.compile(r"\[\d+\]|#\d+")

#: An execution, a path in it, and a round.
_Key = tuple[str, str, int]
#: A workflow that is run, and a path in it, whichever instance.
_Place = tuple[str, str]


@attrs.frozen
class PrefetchCounts:
    """What became of early questions, since the router was made.

    Attributes:
        asked: Steps for which they were sent.
        used: Decisions that early advice made.
        useless: Branch points at which early answers had come and held no advice to follow, so that it asked again.
    """

    asked: int = 0
    used: int = 0
    useless: int = 0


class MemoryRouter(RuledRouter):
    """Asks the plugins with the capability ``memory`` (``advise_route``), and follows the best advice.

    The best is the one of highest confidence, of those that name a branch of the step and are at least as sure as
    ``confidence_min``; of equals, the first. Its decisions have the source ``memory``, and as scores how sure the
    advice for each branch was. Whatever advice for a branch there was, it records a ``MemoryEntry`` for the execution:
    how many pieces, the best confidence, and in ``used_ids`` the memory that was followed. A memory that fails, hangs
    or answers what is no advice is passed over, and told by an event ``router.peer_failed`` (``path``, ``plugin``,
    ``problem``).

    Args:
        rules: Are tried when there is no advice to follow, as in an ``ExpressionRouter``.
        confidence_min: How sure advice must be, from 0 to 1.
        name: Of the plugin.
        prefetch: Whether memories are asked while the step runs. Without it, the router has no hooks.
        timeout: Seconds that one decision may take; None for the bus's own. Memories get 0.8 of it.

    Raises:
        UsageError: one of ``rules`` is no ``Rule``, or ``confidence_min`` no number from 0 to 1.
    """

    def __init__(
        self,
        rules: Iterable[Rule] = (),
        confidence_min: float = 0.5,
        name: str = "memory-router",
        *,
        prefetch: bool = True,
        timeout: float | None = None,
    ) -> None:
        super().__init__(name, rules, timeout)
        self.confidence_min = confidence(confidence_min, name)
        if not prefetch:
            # A hook that is not there costs a step nothing.
            self.before_execution = self.before_step = self.after_execution = None  # type: ignore[method-assign,assignment]
        self._forget_all()
        self._prefetches = PrefetchCounts()

    def _forget_all(self) -> None:
        #: Whom was asked for a step that runs.
        self._held: dict[_Key, tuple[Asked, ...]] = {}
        #: The early questions of late, for counting those that are open.
        self._recent: list[Asked] = []
        #: By execution, the id of the workflow that is run.
        self._workflows: dict[str, str] = {}
        #: Of a branch point, the id of the workflow that it is in; of any other step, None.
        self._places: dict[_Place, str | None] = {}

    @property
    def prefetch_counts(self) -> PrefetchCounts:
        """What became of early questions. Any thread."""
        return self._prefetches

    def start(self, ctx: Context, bus: EventBus) -> None:
        """Get ready, with nothing held."""
        super().start(ctx, bus)
        with self._lock:
            self._forget_all()

    # --- while the step runs ------------------------------------------------------------------------------------

    def before_execution(self, ctx: Context, execution: ExecutionState) -> None:  # noqa: ARG002 - a contract's word
        """Which workflow it is that is run; what was held for the execution, if it was interrupted, is forgotten."""
        with self._lock:
            self._drop(execution.execution_id)
            self._workflows[execution.execution_id] = execution.workflow_id
            _trim(self._workflows, _KNOWN)

    def before_step(self, ctx: Context, execution_id: str, step: Step) -> None:  # noqa: ARG002 - a contract's word
        """Ask the memories about a step that may be a branch point, and wait for none."""
        key = (execution_id, step.path, step.round)
        with self._lock:
            workflow_id = self._worth_asking(key)
        if workflow_id is None:
            return
        early = RouteState(execution_id, workflow_id, step.step_id, step.path, step.round, None, {}, ())
        asked = ask(self._bus, Capability.MEMORY, "advise_route", early)
        if not asked:
            return
        with self._lock:
            self._held[key] = asked
            self._recent += asked
            self._prefetches = attrs.evolve(self._prefetches, asked=self._prefetches.asked + 1)
            _trim(self._held, _HELD)

    def after_execution(self, ctx: Context, outcome: ExecutionOutcome) -> None:  # noqa: ARG002 - a contract's word
        """Forget what is held for an execution. What a whole one never routed is no branch point, it seems."""
        with self._lock:
            root = self._workflows.get(outcome.execution_id)
            unused = self._drop(outcome.execution_id)
            if root is not None and outcome.status is ExecutionStatus.COMPLETED:
                for _, path, _ in unused:
                    self._places.setdefault(_place(root, path), None)
                _trim(self._places, _KNOWN)

    def _worth_asking(self, key: _Key) -> str | None:
        """The id of the workflow that a step is in, if it is to be asked about; otherwise None. Under the lock."""
        execution_id, path, _ = key
        root = self._workflows.get(execution_id)
        if root is None or key in self._held:
            return None
        self._recent = [each for each in self._recent if each.is_open()]
        place = _place(root, path)
        if place in self._places:
            return self._places[place] if len(self._recent) < _UNDER_WAY else None
        # Of a step in a sub-workflow it is not known yet which one that is.
        return root if "/" not in path and len(self._recent) < _GUESSES else None

    def _drop(self, execution_id: str) -> list[_Key]:
        """Forget an execution. Under the lock."""
        self._workflows.pop(execution_id, None)
        keys = [key for key in self._held if key[0] == execution_id]
        for key in keys:
            del self._held[key]
        return keys

    # --- when it has returned -------------------------------------------------------------------------------------

    def route(self, ctx: Context, state: RouteState) -> RouteDecision | None:
        """The branch that the best advice names, or the first rule that holds; None if there is neither."""
        end = until(ctx)
        with self._lock:
            early = self._held.pop((state.execution_id, state.path, state.round), ())
            self._learn(state)
        hits, query = self._heed(early, state, end), "asked while it ran"
        best = hits.best(self.confidence_min)
        if early:
            self._count_early(used=best is not None, useless=best is None)
        if best is None and (end is None or time.monotonic() < end):
            asked = ask(self._bus, Capability.MEMORY, "advise_route", state)
            hits, query = self._heed(asked, state, end), "asked when it had returned"
            best = hits.best(self.confidence_min)
        if hits.found:
            self._record(ctx, state, hits, best, f"advise_route of {state.step_id!r}, {query}")
        return self.by_rules(state) if best is None else hits.decision(best)

    def _learn(self, state: RouteState) -> None:
        """It is a branch point. Under the lock."""
        root = self._workflows.get(state.execution_id)
        if root is not None:
            self._places[_place(root, state.path)] = state.workflow_id
            _trim(self._places, _KNOWN)

    def _heed(self, asked: tuple[Asked, ...], state: RouteState, end: float | None) -> "_Hits":
        """The advice that there is by then, for branches of the step."""

        def complain(plugin: str, error: Exception) -> None:
            self.tell(state, PEER_FAILED, plugin=plugin, problem=words(error))

        found = []
        for name, said in answers(asked, end, complain):
            try:
                found += [_Hit(name, each) for each in _advice(said) if each.next_step_id in state.candidates]
            except Exception as error:
                complain(name, error)
        return _Hits(tuple(found))

    def _count_early(self, *, used: int = 0, useless: int = 0) -> None:
        with self._lock:
            now = self._prefetches
            self._prefetches = attrs.evolve(now, used=now.used + used, useless=now.useless + useless)

    def _record(self, ctx: Context, state: RouteState, hits: "_Hits", best: "_Hit | None", query: str) -> None:
        used = () if best is None else (best.memory,)
        try:
            ctx.record(MemoryEntry(state.step_id, state.path, query, len(hits.found), hits.highest, used))
        except UsageError:
            return  # somebody asked who walks no execution; there is no history to keep it in


@attrs.frozen
class _Hit:
    memory: str
    advice: RouteAdvice


@attrs.frozen
class _Hits:
    """Advice for branches of the step."""

    found: tuple[_Hit, ...]

    @property
    def highest(self) -> float:
        return max((hit.advice.confidence for hit in self.found), default=0.0)

    def best(self, least: float) -> _Hit | None:
        sure = [hit for hit in self.found if hit.advice.confidence >= least]
        return max(sure, key=lambda hit: hit.advice.confidence, default=None)

    def decision(self, best: _Hit) -> RouteDecision:
        scores: dict[str, float] = {}
        for hit in self.found:
            target = hit.advice.next_step_id
            scores[target] = max(scores.get(target, 0.0), float(hit.advice.confidence))
        advice = best.advice
        reason = advice.reason or f"memory {best.memory!r} advised it, {advice.confidence:.2f} sure"
        return RouteDecision((advice.next_step_id,), reason, "memory", scores)


def _advice(said: object) -> Iterator[RouteAdvice]:
    """The pieces of advice in an answer.

    Raises:
        TypeError: what was said is no advice.
        ValueError: a confidence is not from 0 to 1.
    """
    if said is None:
        return
    if not isinstance(said, Sequence) or isinstance(said, str):
        raise TypeError(f"advise_route must return a list of RouteAdvice, not a {type(said).__name__}")
    for each in said:
        if not isinstance(each, RouteAdvice):
            raise TypeError(f"advise_route must return RouteAdvice, not a {type(each).__name__}")
        if not 0 <= each.confidence <= 1:
            raise ValueError(f"the confidence of advice must be from 0 to 1, not {each.confidence!r}")
        yield each


def _place(root: str, path: str) -> _Place:
    return root, _INSTANCE.sub("", path)


def _trim(table: MutableMapping[Any, Any], size: int) -> None:
    """Forget the oldest."""
    while len(table) > size:
        del table[next(iter(table))]
