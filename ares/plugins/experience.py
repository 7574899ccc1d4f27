"""A memory that learns: from executions that ended, which branch of which step went well, for similar outputs and
variables. A ``MemoryRouter`` asks it.

*What it learns from* are the decisions that it was asked about: it writes down at once what the step had returned and
which variables there were, since nobody can tell that once the execution has gone on. Who decided then, and by what, is
all the same; what was decided stands in the execution's history. When the execution ends, in whatever process, each
such decision becomes one experience, exactly once: what ended while nobody could learn from it is caught up with.
Learned is what one branch did; a decision for several, or none, says nothing about any of them.

*What went well.* An execution that FAILED scores 0. One that COMPLETED scores the mean of its ``ScoringSignal`` entries
(those from 0 to 1), or 1 where it has none. One that was CANCELLED says nothing about the way it took. If an execution
is resumed and ends anew, its experiences get the new score.

*What is similar* and *what is believed then*: see ``_rendering`` and ``_evidence``, where the formulas and their
sources are.
"""

import math
import os
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from random import Random
from typing import Any, Final

import attrs

from ares.errors import StoreError, UsageError
from ares.plugin import Capability, Context, EventBus, Plugin
from ares.plugins._evidence import Evidence, cosine, normal, similarity
from ares.plugins._experiences import NEAREST, Experiences, Question, hashed, place_of
from ares.plugins._rendering import render
from ares.plugins._rules import words as in_words
from ares.plugins._verdicts import SCORED, micros, score_of, targets_of
from ares.records import (
    ExecutionOutcome,
    ExecutionStatus,
    RouteAdvice,
    RouteState,
)

#: What is told when an embedding function fails.
EMBEDDING_FAILED: Final = "memory.embedding_failed"

#: Decisions that wait to be written down while the file is locked; the oldest are forgotten first.
_MOST_UNWRITTEN: Final = 1_000
#: Seconds for which a file that would not be written is left alone, so that not each decision waits for it.
_REST: Final = 5.0
#: Executions of earlier processes that are looked at again: whether they have ended meanwhile.
_CAUGHT_UP: Final = 100
#: How similar embeddings are that have nothing in common, unless told otherwise.
_UNLIKE: Final = 0.5

#: A text, as numbers that are close together for texts that mean the same.
Embed = Callable[[str], Sequence[float]]


@attrs.frozen
class ExperienceCounts:
    """What a memory did since it was made.

    Attributes:
        asked: Decisions that it was asked about, in full.
        advised: Those for which it had advice.
        learned: Decisions that became experiences.
        unwritten: Decisions that could not be written down, and so nothing is learned from.
        unembedded: Questions for which the embedding function failed; words were compared instead.
        last_error: What the last of these failed with; "" for none.
    """

    asked: int = 0
    advised: int = 0
    learned: int = 0
    unwritten: int = 0
    unembedded: int = 0
    last_error: str = ""


class ExperienceMemory(Plugin):
    """Advises the branch that went well for similar outputs and variables.

    *The confidence of its advice* is an estimate of how probable it is that the execution goes well if it takes that
    branch here: the mean of a belief that begins with all probabilities equally likely, and that every similar
    experience changes in the measure of its similarity. After experiences with the similarities w (0 to 1) and the
    scores s (0 to 1) it is

        confidence = (1 + sum(w s)) / (2 + sum(w))

    which is Laplace's rule of succession where all are the same in everything: 3 of 3 went well, 0.8; 3 of 4, 0.67. A
    branch with too little experience is not advised at all, whatever its luck was: ``sum(w)`` must reach
    ``evidence_min``. So the confidences say what they seem to say, and a ``MemoryRouter`` with ``confidence_min`` 0.5
    follows advice that is more likely right than wrong.

    *Who tries something new?* Not this estimate: a branch that goes well often enough is advised for ever, although one
    that nobody takes may be better. Either the router's rules try, as long as there is no advice; or the memory does,
    with ``explore``: then it advises each branch of the step, also one that it knows nothing of, and the confidence is
    not the mean but a draw from the belief (Thompson, *On the Likelihood that One Unknown Probability Exceeds Another*,
    Biometrika 25, 1933). So the best draw wins, each branch is taken as often as it is likely to be the best, and what
    was bad luck is tried again. The draws depend on the execution's id and the branch point alone.

    Args:
        path: Of the SQLite file that it keeps, beside the store and not in it; several processes may share it.
        embed: Makes numbers of a text (the output and the variables, 4,000 characters at most), for similarity by
            meaning: the cosine of two embeddings, of the newest 1,000 experiences of the step. Without it, words are
            compared, and full-text search finds what to compare with. A function that is changed needs a new file.
        name: Of the plugin.
        about: What of a decision is compared; without it, its output and variables.
        explore: Whether it tries branches on its own account.
        evidence_min: How much similar experience there must be for advice, as a number of experiences that are the same
            in everything. With 2, nobody follows one lucky run.
        similarity_min: What is not more similar than this, from 0 to 1, counts nothing; what is, in the measure in
            which it is. 0 for words and 0.5 for embeddings, unless given.
        max_entries: How many experiences are kept, and how many decisions in executions that have not ended; the oldest
            go first.
        timeout: Seconds that one call may take; None for the bus's own.

    Raises:
        UsageError: an argument is not what it must be.
    """

    capabilities = frozenset({Capability.MEMORY})

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        embed: Embed | None = None,
        name: str = "experience",
        about: Callable[[RouteState], Any] | None = None,
        explore: bool = False,
        evidence_min: float = 2.0,
        similarity_min: float | None = None,
        max_entries: int = 10_000,
        timeout: float | None = None,
    ) -> None:
        for argument, value in (("embed", embed), ("about", about)):
            if value is not None and not callable(value):
                raise UsageError(f"{argument} of plugin {name!r} must be a function, not {value!r}")
        place: object = path
        if not isinstance(place, str | os.PathLike) or place == ":memory:":
            raise UsageError(f"plugin {name!r} needs a path for its file, not {place!r}")
        if type(max_entries) is not int or max_entries < 1:
            raise UsageError(f"max_entries of plugin {name!r} must be a whole number above 0, not {max_entries!r}")
        unlike = (_UNLIKE if embed else 0.0) if similarity_min is None else similarity_min
        self.name = name
        self.timeout = timeout
        self._embed = embed
        self._about = about or _output_and_variables
        self._explore = explore
        self._evidence_min = _number(evidence_min, "evidence_min", name, math.inf)
        self._similarity_min = _number(unlike, "similarity_min", name, 1.0)
        self._experiences = Experiences(path, max_entries)
        self._bus: EventBus | None = None
        #: Replaced by the plugin's own thread, never changed.
        self._counts = ExperienceCounts()
        self._forget()

    def _forget(self) -> None:
        #: Decisions that are not written down yet; and until when it is not tried again, by the monotonic clock.
        self._unwritten: dict[tuple[str, str, int], Question] = {}
        self._rests_until = 0.0
        #: The executions to be caught up with.
        self._behind: list[str] = []

    def size(self) -> int:
        """How many experiences there are, of all processes. While the plugin runs; any thread.

        Raises:
            StoreError: the file cannot be read.
        """
        return self._experiences.count()

    @property
    def counts(self) -> ExperienceCounts:
        """What it did. Any thread."""
        return self._counts

    # --- its life -------------------------------------------------------------------------------------------------

    def start(self, ctx: Context, bus: EventBus) -> None:  # noqa: ARG002 - a contract's word
        """Open the file, or make it.

        Raises:
            StoreError: it is locked, read-only, damaged, another program's, or of a newer ares; it names file and
                cause. The file is as it was.
        """
        self._forget()
        self._experiences.open()
        # By its own executions it is told when they end.
        self._behind = self._experiences.open_executions(_CAUGHT_UP)
        self._bus = bus

    def stop(self, ctx: Context) -> None:  # noqa: ARG002 - a contract's word
        """Write down what waits, and let go of the file.

        Raises:
            StoreError: it could not be written.
        """
        self._bus = None
        try:
            self._write()
        finally:
            self._experiences.close()

    # --- advice -----------------------------------------------------------------------------------------------------

    def advise_route(self, ctx: Context, state: RouteState) -> Sequence[RouteAdvice]:  # noqa: ARG002 - a contract's word
        """Which branches went well for what is similar; the best first. Of a question that does not show yet what the
        step returns (without ``candidates``) nothing can be said.

        Raises:
            StoreError: the file cannot be read.
        """
        if not state.candidates:
            return ()
        question = self._question(state)
        try:
            advice = self._advice(state, self._weigh(question))
        finally:
            self._note(question)
        now = self._counts
        self._counts = attrs.evolve(now, asked=now.asked + 1, advised=now.advised + bool(advice))
        return advice

    def _question(self, state: RouteState) -> Question:
        rendering = render(self._about(state))
        place = place_of(state.workflow_id, state.step_id)
        return Question(
            state.execution_id,
            state.path,
            state.round,
            place,
            hashed(place, rendering.words),
            self._vector(state, rendering.text),
            time.time_ns(),
        )

    def _vector(self, state: RouteState, text: str) -> "array[float] | None":
        """The embedding, of length 1."""
        if self._embed is None:
            return None
        try:
            return normal(self._embed(text))
        except Exception as error:
            now = self._counts
            self._counts = attrs.evolve(now, unembedded=now.unembedded + 1, last_error=in_words(error))
            if self._bus is not None:
                payload = {"path": state.path, "problem": in_words(error)}
                with suppress(Exception):  # whatever is wrong with the bus, a route is wanted
                    self._bus.emit(state.execution_id, EMBEDDING_FAILED, self.name, payload)
            return None

    def _weigh(self, question: Question) -> dict[str, Evidence]:
        """What there is to say for each branch, by what it knows."""
        if question.vector is None:
            found, weight = self._experiences.by_words(question.place, question.words)
            mine = frozenset(question.words[1:])
            pairs = [(similarity(mine, each.words, weight), each) for each in found]
        else:
            found = self._experiences.by_place(question.place)
            pairs = [(cosine(question.vector, each.vector), each) for each in found if each.vector is not None]
            pairs = sorted(pairs, key=lambda pair: pair[0], reverse=True)[:NEAREST]
        known: dict[str, Evidence] = {}
        for alike, each in pairs:
            if alike > self._similarity_min:
                weight_of_it = (alike - self._similarity_min) / (1.0 - self._similarity_min)
                known[each.target] = known.get(each.target, Evidence()).and_also(weight_of_it, each.score)
        return known

    def _advice(self, state: RouteState, known: Mapping[str, Evidence]) -> tuple[RouteAdvice, ...]:
        advice = []
        for branch in state.candidates:
            evidence = known.get(branch, Evidence())
            said = f"{evidence.good:.1f} of {evidence.weight:.1f} similar runs went well"
            if self._explore:
                drawn = evidence.draw(self._random(state, branch))
                advice.append(RouteAdvice(branch, drawn, f"{said}; {drawn:.2f} drawn from that"))
            elif evidence.weight + 1e-6 >= self._evidence_min and evidence.weight:
                advice.append(RouteAdvice(branch, evidence.mean, f"{said}, so that is {evidence.mean:.2f} likely"))
        return tuple(sorted(advice, key=lambda each: each.confidence, reverse=True))

    @staticmethod
    def _random(state: RouteState, branch: str) -> Random:
        parts = (state.execution_id, state.path, str(state.round), branch)
        return Random(blake2b("\0".join(parts).encode("utf-8", "surrogatepass")).digest())

    # --- what it was asked about --------------------------------------------------------------------------------------

    def _note(self, question: Question) -> None:
        """Have it written down, now or later: a file that is locked at this moment holds up no walk."""
        self._unwritten[question.execution_id, question.path, question.round] = question
        if len(self._unwritten) > _MOST_UNWRITTEN:
            del self._unwritten[next(iter(self._unwritten))]
            now = self._counts
            self._counts = attrs.evolve(now, unwritten=now.unwritten + 1)
        if time.monotonic() < self._rests_until:
            return
        try:
            self._write()
        except StoreError as error:
            self._rests_until = time.monotonic() + _REST
            self._counts = attrs.evolve(self._counts, last_error=str(error))

    def _write(self) -> None:
        if self._unwritten:
            self._experiences.note(self._unwritten.values())
            self._unwritten.clear()

    # --- what became of it --------------------------------------------------------------------------------------------

    def after_execution(self, ctx: Context, outcome: ExecutionOutcome) -> None:
        """Learn from an execution that it was asked about.

        Raises:
            StoreError: the file could not be written, or the journal not be read. It will be caught up with.
        """
        if outcome.status in SCORED:
            try:
                self._write()
                self._learn(ctx, outcome.execution_id, outcome.status)
            except Exception:
                self._fall_behind(outcome.execution_id)
                raise
        if self._behind:
            self._catch_up_later()

    def catch_up(self, ctx: Context) -> None:
        """Learn from one execution that ended while nobody could, if there is one: its process died as it ended, or the
        file was locked. Is asked for by the plugin itself, one at a time, so that nobody waits for it.

        Raises:
            StoreError: the file could not be written, or the journal not be read. It will be tried again.
        """
        if not self._behind:
            return
        execution_id = self._behind.pop()
        try:
            self._learn(ctx, execution_id, None)
        except UsageError:
            pass  # it is in the store of somebody who shares the file
        except Exception:
            self._fall_behind(execution_id)
            raise
        if self._behind:
            self._catch_up_later()

    def _fall_behind(self, execution_id: str) -> None:
        if execution_id not in self._behind:
            self._behind = [*self._behind[1 - _MOST_UNWRITTEN :], execution_id]

    def _catch_up_later(self) -> None:
        find = getattr(self._bus, "plugins_by_cap", None)
        for ref in () if find is None else find(Capability.MEMORY):
            if ref.name == self.name:
                ref.ask("catch_up")

    def _learn(self, ctx: Context, execution_id: str, status: ExecutionStatus | None) -> None:
        """``status`` is what it ended with; None if that is to be seen."""
        asked, has_ended_before = self._experiences.asked_in(execution_id)
        if not asked and not has_ended_before:
            return
        ctx.journal.flush(execution_id)  # signals of other plugins, say
        checkpoint = ctx.journal.snapshot(execution_id)
        began, ended = micros(checkpoint.created_at), micros(checkpoint.updated_at)
        if status is None:
            # In another one of the same id, in another store say, it was asked before this began or after it ended.
            asked = [each for each in asked if began <= each.asked_at // 1_000 <= ended]
            status = checkpoint.status
        if status not in SCORED:
            return
        targets = targets_of(asked, checkpoint)
        self._experiences.learn(execution_id, began, asked, targets, score_of(status, checkpoint))
        self._counts = attrs.evolve(self._counts, learned=self._counts.learned + len(targets))


def _output_and_variables(state: RouteState) -> Mapping[str, Any]:
    return {"output": state.output, "variables": dict(state.variables)}


def _number(value: object, argument: str, plugin: str, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most or value == math.inf:
        raise UsageError(f"{argument} of plugin {plugin!r} must be a number from 0 to {most:g}, not {value!r}")
    return float(value)
