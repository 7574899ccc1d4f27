"""Walks a walk by hand: takes its work, answers it, keeps its journal. No threads, no clock, no store.

A ``Hand`` is what a shell is to the walk, one call at a time. Every fact that is journaled goes through its encoded
text and back, so that what a crash leaves is what a store would give.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from ares.errors import NotDone, StepCancelledError
from ares.journal.encoding import decode, encode
from ares.questions import AnswerAction, Approve, Cause, OnReject, Reject, RunAgain
from ares.records import ErrorInfo
from ares.values import Codec
from ares.walk import facts as f
from ares.walk import invariants, questions
from ares.walk.agenda import CutShort, RetryIn, StartTimer, Work, WorkKind
from ares.walk.instance import Instance
from ares.walk.judge import Failure, describe, judge
from ares.walk.rounds import UNTIL, ended
from ares.walk.route import check_route, decide_route
from ares.walk.setback import plan
from ares.walk.table import STATUS, Phase
from ares.walk.walk import Walk
from ares.workflow import Graph, Workflow

_CODEC = Codec()


Reply = Approve | Reject | RunAgain


def answered(asked: f.Asked, reply: Reply) -> f.Answered:
    """The fact that a question was answered."""
    match reply:
        case Approve():
            said = AnswerAction.APPROVE, reply.value, reply.feedback
        case Reject():
            said = AnswerAction.REJECT, reply.value, reply.reason
        case RunAgain():
            said = AnswerAction.RUN_AGAIN, None, reply.feedback
    return f.Answered(asked.path, asked.round, asked.epoch, asked.attempt, asked.key, *said)


def created(graph: Graph, inputs: dict[str, Any] | None = None, timeout: float | None = None) -> f.Created:
    """The first fact of an execution."""
    workflow = graph.workflow
    given = workflow.bind_inputs(inputs or {})
    named = {name: r if isinstance(r, str) else "custom" for name, r in workflow.reducers.items()}
    return f.Created(workflow.id, "", "", "", (), given, dict(workflow.variables), named, timeout)


class Hand:
    """One walk, and what its shell would know of it."""

    def __init__(
        self, workflow: Workflow, inputs: dict[str, Any] | None = None, *, has_controllers: bool = False
    ) -> None:
        self.graph = workflow.graph()
        #: Every fact so far, as its text.
        self.journal: list[tuple[str, str, str]] = []
        #: The same facts as they were made.
        self.facts: list[f.Fact] = []
        #: Whether consequences wait until ``settle_all``.
        self.holds_back = False
        #: Whether there are loop controllers.
        self.has_controllers = has_controllers
        self._take_up(Walk(self.graph, "x"))
        self.give(created(self.graph, inputs))
        self.walk.begin()
        self.collect()

    def _take_up(self, walk: Walk) -> None:
        self.walk = walk
        walk.has_controllers = self.has_controllers
        self.held: dict[str, Work] = {}
        #: (how many facts have to be committed first, fact, instance)
        self.unsettled: list[tuple[int, f.Fact, Instance | None]] = []
        self.retries: list[RetryIn] = []
        self.timers: list[StartTimer] = []
        self.cuts: list[CutShort] = []

    # --- facts -------------------------------------------------------------------------------------

    def give(self, fact: f.Fact, instance: Instance | None = None) -> None:
        """A fact happens."""
        self.walk.apply(fact, instance)
        self._journal(fact)
        if self.holds_back:
            self.unsettled.append((len(self.journal), fact, instance))
        else:
            self.walk.settle(fact, instance)
            self.collect()

    def settle_all(self, order: Iterable[int] | None = None) -> None:
        """Let the consequences of all facts happen, in any order."""
        waiting, self.unsettled = self.unsettled, []
        for i in range(len(waiting)) if order is None else order:
            self.walk.settle(*waiting[i][1:])
            self.collect()

    def _journal(self, fact: f.Fact) -> None:
        self.facts.append(fact)
        self.journal.append((fact.kind, getattr(fact, "path", ""), encode(fact, _CODEC)))

    def collect(self) -> None:
        """Journal what followed, and note what the walk wants."""
        facts, commands = self.walk.drain()
        for fact, _ in facts:
            self._journal(fact)
        for command in commands:
            match command:
                case RetryIn():
                    self.retries.append(command)
                case StartTimer():
                    self.timers.append(command)
                case CutShort():
                    self.cuts.append(command)

    # --- work ----------------------------------------------------------------------------------------

    def take(self, most: int = 1_000) -> list[str]:
        """Take all work there is, or so much. Returns the paths that it is for, in order."""
        taken = []
        while len(taken) < most and (work := self.walk.next_work(self.takes)) is not None:
            self.held[work.instance.path] = work
            taken.append(work.instance.path)
        self.collect()
        return taken

    def takes(self, pool: str) -> bool:
        """Whether a slot of a pool can be had."""
        return True

    def work(self, path: str) -> Work:
        """The work for an instance; taken if it is not held yet."""
        if path not in self.held:
            self.take()
        return self.held[path]

    def drop(self, path: str) -> Instance:
        """The work for an instance is done."""
        return self.held.pop(path).instance

    def start(self, path: str) -> Instance:
        """An attempt begins."""
        work = self.work(path)
        assert work.kind is WorkKind.BODY, f"{path} has a {work.kind} to be done"
        instance = work.instance
        self.give(f.Started(path, instance.scope.round, instance.epoch, instance.attempt + 1), instance)
        return instance

    def succeed(
        self, path: str, output: Any = None, writes: Sequence[tuple[str, Any]] = (), goto: Sequence[str] | None = None
    ) -> None:
        """The attempt under way, or the reconcile, returns."""
        instance = self.drop(path)
        if goto is not None:
            error = check_route(instance, goto)
            if error is not None:
                self._failed(instance, error, retryable=False)
                return
        targets = None if goto is None else tuple(goto)
        head = (path, instance.scope.round, instance.epoch, instance.attempt)
        self.give(f.Succeeded(*head, output, tuple(writes), targets), instance)

    def fail(self, path: str, error: BaseException, *, retryable: bool = True, draw: float = 0.0) -> None:
        """The attempt under way, the condition, the reconcile or the verdict raises."""
        self._failed(self.drop(path), error, retryable=retryable, draw=draw)

    def _failed(self, instance: Instance, error: BaseException, *, retryable: bool, draw: float = 0.0) -> None:
        failure = Failure(describe(error), error, retryable, draw=draw, not_done=isinstance(error, NotDone))
        self.give(judge(instance, failure), instance)

    def run(
        self, path: str, output: Any = None, writes: Sequence[tuple[str, Any]] = (), goto: Sequence[str] | None = None
    ) -> None:
        """An attempt begins and returns."""
        self.start(path)
        self.succeed(path, output, writes, goto)

    def run_and_fail(self, path: str, error: BaseException, *, retryable: bool = True) -> None:
        """An attempt begins and raises."""
        self.start(path)
        self.fail(path, error, retryable=retryable)

    def run_all(self, *paths: str) -> None:
        """Attempts begin and return their paths."""
        for path in paths:
            self.run(path, path)

    def check_condition(self, path: str, holds: bool) -> None:
        """The condition is evaluated."""
        work = self.work(path)
        assert work.kind is WorkKind.CONDITION
        instance = self.drop(path)
        self.give(f.Checked(path, instance.scope.round, instance.epoch, holds), instance)

    def ask(self, path: str, key: str = "k", on_reject: str = "skip", payload: Any = None) -> None:
        """The body under way asks, and is parked."""
        instance = self.drop(path)
        head = (path, instance.scope.round, instance.epoch, instance.attempt)
        self.give(f.Asked(*head, key, f"{key}?", payload, Cause.BODY, OnReject(on_reject)), instance)

    def reply(self, path: str, reply: Reply) -> None:
        """A human answers the question that is open."""
        instance = self.instance(path)
        assert path in self.walk.state.waiting, f"{path} asks nothing"
        assert instance.question is not None
        self.give(answered(instance.question, reply), instance)

    def go_on(self, path: str) -> Instance:
        """A parked body runs again, with the answer."""
        work = self.work(path)
        assert work.kind is WorkKind.BODY, f"{path} has a {work.kind} to be done"
        instance = work.instance
        self.give(f.Continued(path, instance.scope.round, instance.epoch, instance.attempt), instance)
        return instance

    def ask_and_hear(self, path: str, reply: Reply, key: str = "k") -> None:
        """The body under way asks, is answered, and runs again."""
        self.ask(path, key)
        self.reply(path, reply)
        self.go_on(path)

    def take_the_word(self, path: str) -> None:
        """What a human said that an unknown outcome was becomes it."""
        work = self.work(path)
        assert work.kind is WorkKind.RECONCILE
        assert work.instance.answer is not None
        self.succeed(path, work.instance.answer.value)

    def route(self, path: str, answer: Any) -> None:
        """The router answers."""
        work = self.work(path)
        assert work.kind is WorkKind.ROUTE
        instance = self.drop(path)
        self.give(decide_route(instance, answer), instance)

    def ask_for_round(self, path: str = "") -> Instance:
        """The question whether a scope has another round is under way; its work stays held."""
        work = self.work(f"{path}/{UNTIL}" if path else UNTIL)
        assert work.kind is WorkKind.ROUND
        return work.instance

    def turn(self, path: str = "", exit: f.RoundExit | None = None, *, by: str = "") -> None:
        """Somebody says that a scope has another round, or why not."""
        turn = self.ask_for_round(path)
        self.drop(turn.path)
        self.give(ended(turn.scope, exit, by), turn)

    def judge(self, path: str, *, retryable: bool) -> None:
        """Somebody says whether the failure of a sub-workflow may be retried."""
        work = self.work(path)
        assert work.kind is WorkKind.VERDICT
        instance = self.drop(path)
        assert instance.error is not None
        self.give(judge(instance, Failure(instance.error, instance.exception, retryable)), instance)

    def fire(self) -> None:
        """All delays before retries are over."""
        retries, self.retries = self.retries, []
        for retry in retries:
            self.walk.due(retry.instance, retry.epoch, retry.attempt)
            self.collect()

    # --- from outside --------------------------------------------------------------------------------

    def cancel(self, reason: str = "") -> None:
        """Somebody cancels the execution."""
        self.give(f.CancelRequested(reason))

    def deadline(self, path: str = "", seconds: float = 5.0) -> None:
        """The time of the execution, or of a sub-workflow step, is up."""
        instance = self.walk.state.find(path) if path else None
        self.give(f.DeadlinePassed(path, seconds, instance.epoch if instance is not None else 0), instance)

    def end_grace(self) -> None:
        """What was asked to end has not, and is ended; what nothing is under way for, too."""
        cuts, self.cuts = self.cuts, []
        for cut in cuts:
            instance = cut.instance
            self.held.pop(instance.path, None)
            if instance.epoch == cut.epoch and instance.phase in (Phase.RUNNING, Phase.RECONCILING):
                error = StepCancelledError(instance.path, cut.reason)
                self.give(judge(instance, Failure(describe(error), error), stopping=True), instance)

    def crash(self, committed: int | None = None, *, quietly: bool = False) -> None:
        """The process dies; so many facts were committed. ``quietly``: it stopped in good order."""
        if quietly:
            self.give(f.Interrupted(self._in_flight()))
        self.facts = self.facts[:committed]
        self.journal = self.journal[:committed]
        self._take_up(self.replayed())

    def replayed(self) -> Walk:
        """The walk that the journal gives; where its definition was changed, leniently up to there."""
        facts = [decode(kind, path, body, _CODEC) for kind, path, body in self.journal]
        changes = [n for n, fact in enumerate(facts) if isinstance(fact, f.Resumed) and fact.accepted is not None]
        walk = Walk(self.graph, "x")
        for n, fact in enumerate(facts):
            walk.state.lenient = bool(changes) and n < changes[-1]
            walk.apply(fact)  # type: ignore[arg-type]  # only facts are journaled here
        walk.state.lenient = False
        return walk

    def resume(self, rerun: str | Iterable[str] = (), *, reopen: bool = False) -> None:
        """Somebody takes the execution up again, after ``crash`` or after its end."""
        state = self.walk.state
        failed = reopen or (state.ended is not None and state.ended.status != "COMPLETED")
        back = plan(state, rerun, failed=failed)
        fact = f.Resumed(state.epoch + 1, self._in_flight(), back, reopened=reopen)
        self.walk.apply(fact)
        self._journal(fact)
        self.walk.begin()
        self.collect()

    def move_to(self, workflow: Workflow) -> None:
        """The process died, and somebody takes the execution up with another definition, accepting the change."""
        self.graph = workflow.graph()
        facts = [decode(kind, path, body, _CODEC) for kind, path, body in self.journal]
        walk = Walk(self.graph, "x")
        walk.state.lenient = True
        for fact in facts:
            walk.apply(fact)  # type: ignore[arg-type]  # only facts are journaled here
        walk.state.lenient = False
        self._take_up(walk)
        state = walk.state
        failed = state.ended is not None and state.ended.status != "COMPLETED"
        steps = tuple(node.id for node in self.graph.nodes)
        change = f.Resumed(state.epoch + 1, self._in_flight(), plan(state, (), failed=failed), accepted=steps)
        walk.apply(change)
        self._journal(change)
        walk.begin()
        self.collect()

    def _in_flight(self) -> tuple[str, ...]:
        return tuple(i.path for i in self.walk.state.instances() if i.phase is Phase.RUNNING)

    # --- what one sees ---------------------------------------------------------------------------------

    @property
    def asks(self) -> list[tuple[str, str]]:
        """The open questions: who asks, and by which key."""
        return sorted((path, str(i.question and i.question.key)) for path, i in self.walk.state.waiting.items())

    @property
    def rests(self) -> bool:
        """Whether all that is left waits for answers."""
        return questions.rests(self.walk.state.root)

    def instance(self, path: str) -> Instance:
        """An instance, which is there."""
        found = self.walk.state.find(path)
        assert found is not None, f"there is no {path}"
        return found

    def status(self, path: str) -> str:
        """The public status of an instance."""
        return str(STATUS[self.instance(path).phase])

    def reason(self, path: str) -> str:
        """Why an instance was skipped, and because of which step."""
        instance = self.instance(path)
        assert instance.reason is not None, f"{path} is {instance.phase}"
        return f"{instance.reason}: {instance.origin}" if instance.origin else str(instance.reason)

    @property
    def end(self) -> str:
        """The status of the execution, once it has ended."""
        return "" if self.walk.state.ended is None else str(self.walk.state.ended.status)

    @property
    def error(self) -> ErrorInfo | None:
        """Why the execution failed."""
        return None if self.walk.state.ended is None else self.walk.state.ended.error

    def check(self) -> None:
        """Raise if the walk is not as it must be."""
        timers = len(self.retries) + len(self.timers)
        invariants.check(self.walk, in_flight=len(self.held) + len(self.unsettled) + len(self.cuts), timers=timers)
