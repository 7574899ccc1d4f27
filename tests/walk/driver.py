"""Drives a scripted case through the pure walk in a random order, with crashes, cancels and everything else.

Work is finished in any order, facts are committed as they were journaled and settled in any order, work is put back,
questions are answered in any order, deadlines pass, the process dies between any two facts and loses any uncommitted
tail, or stops in good order, and ended executions are taken up again. One seed decides it all.
"""

import random
from collections import Counter
from typing import Any

import attrs

from ares.errors import AresError, NotDone, RouteError, StepCancelledError, UntilError, UsageError
from ares.questions import OUTCOME_KEY, AnswerAction, Approve, Cause, OnReject
from ares.walk import facts as f
from ares.walk.agenda import Work, WorkKind
from ares.walk.instance import Instance, Scope
from ares.walk.judge import Failure, describe, judge
from ares.walk.parts import source_item
from ares.walk.rounds import ended, exit_of
from ares.walk.route import check_route, decide_route, unrouted
from ares.walk.table import STATUS, Phase
from ares.workflow import BindingKind
from tests.walk.hand import Hand, answered
from tests.walk.reference import BOOM, Judge, Result
from tests.walk.script import Boom, Fatal
from tests.walk.snapshot import snapshot, variables_before
from tests.walk.strategies import POOLS, Case


@attrs.frozen
class Weather:
    """What may happen to a walk, how often at most, and in which order things go.

    Attributes:
        seed: decides everything that is left open.
        workers: how many pieces of work are under way at once.
        is_sync: whether consequences wait for commits.
        crashes: how often the process dies or is stopped.
        cancels: whether it may be cancelled.
        deadlines: whether deadlines may pass.
        resumes: how often it is taken up again after it ended without completing.
        reruns: whether resumes may name steps.
        put_backs: whether work may be taken and given back.
        closes: whether pools may have no slot.
        has_controllers: whether there are loop controllers, who never object.
    """

    seed: int = 0
    workers: int = 4
    is_sync: bool = True
    crashes: int = 0
    cancels: bool = False
    deadlines: bool = False
    resumes: int = 0
    reruns: bool = False
    put_backs: bool = False
    closes: bool = False
    has_controllers: bool = False


CALM = Weather()


class Driver(Hand):
    """One case in one weather."""

    def __init__(self, case: Case, weather: Weather = CALM) -> None:
        self.case = case
        self.weather = weather
        self.random = random.Random(weather.seed)
        #: (how many facts were journaled, path): the runs of bodies that ended.
        self.runs: list[tuple[int, str]] = []
        self.committed = 0
        self.crashes = 0
        self.resumes = 0
        #: (how many facts were journaled, prefix, round, what it wrote): the rounds that others follow on.
        self.rounds: list[tuple[int, str, int, list[tuple[str, Any]]]] = []
        super().__init__(case.workflow, case.inputs, has_controllers=weather.has_controllers)
        self.holds_back = weather.is_sync

    # --- the loop ------------------------------------------------------------------------------------

    def drive(self) -> str:
        """Walk to the end. Returns the status of the execution."""
        for _ in range(20_000):
            if not self.end:
                self._happen()
            elif not self._taken_up_again():
                return self.end
        raise AssertionError("the walk does not end")

    def _happen(self) -> None:
        """One thing that may happen now, happens."""
        if self.random.random() < 0.02:
            self.check()
        choices: list[Any] = []
        if len(self.held) < self.weather.workers and not self.walk.is_idle():
            choices += [self._take] * 4
        if self.held:
            choices += [self._advance] * 6
        if self.unsettled:
            choices += [self._settle_one] * 4
            choices += [self._commit] * 3 if self.committed < len(self.journal) else []
        if self.retries:
            choices += [self._fire_one] * 2
        if self.cuts:
            choices.append(self._cut_one)
        troubles = self._troubles() if self.random.random() < 0.15 else []
        if self.walk.state.waiting:
            if not choices:
                assert self.rests, "the walk waits, but does not rest"
            choices += [self._answer_one] * 2
        choices += troubles
        assert choices, "the walk is stuck"
        self.random.choice(choices)()

    def _troubles(self) -> list[Any]:
        troubles: list[Any] = []
        if self.crashes < self.weather.crashes:
            troubles += [self._die, self._stop_and_resume]
        if self.weather.cancels and self.walk.state.cancelled is None:
            troubles.append(self.cancel)
        if self.weather.deadlines:
            troubles.append(self._let_a_deadline_pass)
        if self.weather.put_backs and self.held:
            troubles += [self._put_back] * 3
        if any(i.question is not None for i in self.walk.state.instances()):
            troubles.append(self._answer_in_vain)
        return troubles

    # --- work ----------------------------------------------------------------------------------------

    def _take(self) -> None:
        if self.weather.closes:
            self.walk.wants(self.random.choice([*POOLS]))
        self.take(1)

    def takes(self, pool: str) -> bool:
        """Whether a slot of a pool can be had just now."""
        return not self.weather.closes or self.random.random() < 0.5

    def _put_back(self) -> None:
        untouched = [w for w in self.held.values() if w.instance.phase is not Phase.RUNNING]
        if untouched:
            work = self.random.choice(untouched)
            del self.held[work.instance.path]
            self.walk.put_back(work)

    def _answer_one(self) -> None:
        """A human answers one of the open questions."""
        if self.rests and not (self.held or self.unsettled):
            self.check()
            work = self.walk.next_work()
            assert work is None, f"the walk rests, but has {work}"
        path = self.random.choice(list(self.walk.state.waiting))
        asked = self.instance(path).question
        assert asked is not None
        number = len(self.outcomes().get(path, [])) if asked.cause is Cause.OUTCOME else 0
        self.reply(path, self.case.script.reply(self.case.key_of(path), asked, number))

    def _answer_in_vain(self) -> None:
        """An answer comes to what is not asked, or in a way in which that cannot be answered."""
        asked = self.random.choice([i.question for i in self.walk.state.instances() if i.question is not None])
        wrong: list[dict[str, Any]] = [{"key": "stranger"}, {"epoch": asked.epoch - 1}, {"attempt": asked.attempt + 1}]
        if asked.cause is not Cause.OUTCOME:
            wrong.append({"action": AnswerAction.RUN_AGAIN})
        if asked.path not in self.walk.state.waiting:
            wrong.append({})  # too late
        fact = attrs.evolve(answered(asked, Approve("in vain")), **self.random.choice(wrong))
        assert not self.walk.state.accepts(fact)

    def outcomes(self) -> dict[str, list[str]]:
        """What was said of unknown outcomes, by path."""
        words = {"approve": "yes", "reject": "no", "run_again": "again"}
        said: dict[str, list[str]] = {}
        for fact in self.facts:
            if isinstance(fact, f.Answered) and fact.key == OUTCOME_KEY:
                said.setdefault(fact.path, []).append(words[fact.action])
        return said

    def _advance(self) -> None:
        work = self.random.choice(list(self.held.values()))
        instance = work.instance
        if work.kind is WorkKind.ROUND:
            self._turn(self.held.pop(instance.path))
            return
        if work.kind is WorkKind.BODY and instance.phase is not Phase.RUNNING:
            head = instance.path, instance.scope.round, work.epoch
            fact: f.InstanceFact = f.Started(*head, instance.attempt + 1)
            if instance.phase is Phase.ANSWERED:
                fact = f.Continued(*head, instance.attempt)
            if self.walk.state.accepts(fact, instance):
                self.give(fact, instance)
                return
            self.walk.put_back(self.held.pop(instance.path))
            return
        self.held.pop(instance.path)
        if instance.epoch != work.epoch or not _waits_for(work):
            return  # it was skipped, cut short or set back meanwhile
        fact = self._outcome(work)
        if self.walk.state.accepts(fact, instance):
            if work.kind is WorkKind.BODY and not isinstance(fact, f.Asked):
                self.runs.append((len(self.journal), instance.path))
                self._check_snapshot(instance)
            self.give(fact, instance)

    def _outcome(self, work: Work) -> f.InstanceFact:
        """The fact that answers a piece of work."""
        instance, script = work.instance, self.case.script
        path, key = instance.path, f"{instance.scope.graph.workflow.id}/{instance.node.id}"
        head = (path, instance.scope.round, instance.epoch)
        try:
            match work.kind:
                case WorkKind.CONDITION:
                    return f.Checked(*head, script.condition(key))
                case WorkKind.RECONCILE if instance.node.reconcile is None:
                    assert instance.answer is not None
                    return f.Succeeded(*head, instance.attempt, instance.answer.value)
                case WorkKind.RECONCILE:
                    return f.Succeeded(*head, instance.attempt, script.reconcile(key, path))
                case WorkKind.VERDICT:
                    return self._verdict(instance)
                case WorkKind.ROUTE:
                    return decide_route(instance, None if instance.node.router is None else script.route(key))
            return self._run(instance, key)
        except (Boom, Fatal, NotDone, AresError) as error:
            if work.kind is WorkKind.ROUTE:
                return unrouted(instance, RouteError(path, f"its router raised {error!r}"))
            retryable = isinstance(error, Boom)
            failure = Failure(describe(error), error, retryable, not_done=isinstance(error, NotDone))
            return judge(instance, failure)

    def _run(self, instance: Instance, key: str) -> f.Asked | f.Succeeded:
        """How a run of a body ends, unless it raises."""
        head, script = (instance.path, instance.scope.round, instance.epoch, instance.attempt), self.case.script
        heard: dict[str, Any] = {}
        for number, said in enumerate(script.plans[key].asks):
            answer = instance.answers.get(str(number))
            if answer is None:
                on_reject = OnReject.RETURN if said == "told" else OnReject.SKIP
                return f.Asked(*head, str(number), "?", None, Cause.BODY, on_reject)
            heard[str(number)] = answer.value
        returned = script.run(key, instance.path, self.ran()[instance.path], self._given(instance), heard)
        error = None if returned.goto is None else check_route(instance, returned.goto)
        if error is not None:
            raise error
        return f.Succeeded(*head, returned.value, returned.writes, returned.goto)

    def _turn(self, work: Work) -> None:
        """The answer to the question whether there is another round."""
        turn = work.instance
        scope, key = turn.scope, turn.scope.graph.workflow.id
        if scope.turn is not turn:
            return
        fact = ended(scope, exit_of(scope))
        try:
            if fact.again and key in self.case.script.untils and self.case.script.until(key, scope.round):
                fact = ended(scope, f.RoundExit.UNTIL)
        except Fatal as error:
            fact = ended(scope, f.RoundExit.UNTIL_FAILED)
            fact.error = describe(UntilError(scope.owner.path if scope.owner else "", key, scope.round, repr(error)))
        if fact.again:
            judge = self.judge()
            if not scope.prefix:
                judge.check_round()
            self.rounds.append((len(self.journal), scope.prefix, scope.round, judge.written(scope.prefix, scope.graph)))
            fact.variables = self.variables(scope) if self.random.random() < 0.5 else None
        self.give(fact, turn)

    @staticmethod
    def _verdict(instance: Instance) -> f.Failed:
        assert instance.error is not None
        innermost = instance.error.message.rpartition(" failed: ")[2]
        retryable = innermost.startswith(BOOM) or instance.error.type_name == "StepTimeoutError"
        return judge(instance, Failure(instance.error, instance.exception, retryable))

    def _given(self, instance: Instance) -> dict[str, Any]:
        """What the parameters of a body take."""
        assert instance.node.run is not None
        given: dict[str, Any] = {}
        for binding in instance.node.run.bindings:
            if binding.kind is BindingKind.STEP:
                source = instance.scope.instances[binding.index]
                given[binding.parameter] = source.output if source.phase is Phase.COMPLETED else None
            elif binding.kind is BindingKind.ITEM:
                given[binding.parameter] = source_item(instance.map_step, instance.index or 0)
            elif binding.kind is BindingKind.INPUT:
                given[binding.parameter] = self.case.inputs[binding.name]
        return given

    def _check_snapshot(self, instance: Instance) -> None:
        """A body sees what every step above it wrote."""
        scope, node = instance.scope, instance.node
        seen = {id(writer) for _, _, writer in scope.writes[: instance.snapshot]}
        above, left = set[int](), list(node.deps)
        while left:
            i = left.pop()
            if i not in above:
                above.add(i)
                left += scope.graph.nodes[i].deps
        for _, _, writer in scope.writes:
            assert writer.node.index not in above or id(writer) in seen, f"{instance.path} misses a write"

    def ran(self) -> Counter[str]:
        """How many runs of each body ended."""
        return Counter(path for _, path in self.runs)

    # --- commits, time and trouble -----------------------------------------------------------------------

    def _commit(self) -> None:
        self.committed = self.random.randint(self.committed + 1, len(self.journal))

    def _settle_one(self) -> None:
        ready = [entry for entry in self.unsettled if entry[0] <= self.committed]
        if not ready:
            self._commit()
            return
        entry = self.random.choice(ready)
        self.unsettled.remove(entry)
        self.walk.settle(*entry[1:])
        self.collect()

    def _fire_one(self) -> None:
        retry = self.retries.pop(self.random.randrange(len(self.retries)))
        self.walk.due(retry.instance, retry.epoch, retry.attempt)
        self.collect()

    def _cut_one(self) -> None:
        """A grace is over, or nothing was under way."""
        cut = self.cuts.pop(self.random.randrange(len(self.cuts)))
        instance = cut.instance
        work = self.held.get(instance.path)
        if work is not None and work.instance is instance and work.epoch == cut.epoch:
            del self.held[instance.path]
            if work.kind is WorkKind.ROUND and instance.scope.turn is instance:
                self.give(ended(instance.scope, f.RoundExit(str(cut.reason))), instance)
        if instance.epoch == cut.epoch and instance.phase in (Phase.RUNNING, Phase.RECONCILING):
            error = StepCancelledError(instance.path, cut.reason)
            self.give(judge(instance, Failure(describe(error), error), stopping=True), instance)

    def _let_a_deadline_pass(self) -> None:
        timers = [t for t in self.timers if t.instance.phase is Phase.OPEN and t.instance.epoch == t.epoch]
        if timers and self.random.random() < 0.8:
            timer = self.random.choice(timers)
            self.timers.remove(timer)
            self.give(f.DeadlinePassed(timer.instance.path, timer.timeout, timer.epoch), timer.instance)
        elif self.walk.state.overdue is None:
            self.give(f.DeadlinePassed("", 5.0))

    def _die(self) -> None:
        """The process dies, and loses what was not committed."""
        self.crashes += 1
        self._restart(self.random.randint(max(self.committed, 1), len(self.journal)))

    def _stop_and_resume(self) -> None:
        """The process stops in good order."""
        self.crashes += 1
        self.give(f.Interrupted(self._in_flight()))
        self._restart(len(self.journal))

    def _restart(self, committed: int) -> None:
        state = snapshot(self.walk.state) if committed == len(self.journal) else None
        self.crash(committed)
        if state is not None:
            assert snapshot(self.walk.state) == state, "replaying the journal gives another state"
        self.runs = [run for run in self.runs if run[0] < committed]
        self.rounds = [each for each in self.rounds if each[0] < committed]
        self._resume(reopen=False)

    def _resume(self, *, reopen: bool, rerun: tuple[str, ...] | str = ()) -> None:
        try:
            self.resume(rerun, reopen=reopen)
        except UsageError:
            # An at_most_once step that completed would run again: name them all.
            self.resume([i.path for i in self.walk.state.instances() if i.index is None], reopen=reopen)
        self.committed = len(self.journal)

    def _taken_up_again(self) -> bool:
        if self.resumes >= self.weather.resumes:
            return False
        if self.end == "COMPLETED" and not self.weather.reruns:
            return False
        self.resumes += 1
        self._restart_ended()
        return True

    def _restart_ended(self) -> None:
        self.crash(len(self.journal))
        rerun: tuple[str, ...] | str = ()
        if self.weather.reruns:
            paths = [i.path for i in self.walk.state.instances()]
            rerun = tuple(self.random.sample(paths, min(len(paths), self.random.randint(0, 2))))
            if self.random.random() < 0.2:
                rerun = "item_failures"
        self._resume(reopen=self.end == "CANCELLED", rerun=rerun)

    # --- what one sees ---------------------------------------------------------------------------------

    def results(self) -> dict[str, Result]:
        """How every instance ended."""
        found: dict[str, Result] = {}
        for instance in self.walk.state.instances():
            found[instance.path] = _result(instance)
            parts = instance.parts
            for i in range(0 if parts is None else parts.length):
                path = f"{instance.path}[{i}]"
                if parts is not None and parts.states[i] == 2:
                    found[path] = Result("COMPLETED", output=parts.outputs[i], attempts=parts.attempts.get(i, 1))
        return found

    def judge(self) -> Judge:  # type: ignore[override]  # of the outcome, not of a failure
        """The judge of this outcome."""
        state = self.walk.state
        overdue = {s.prefix for s in state.scopes.values() if s.overdue}
        if state.overdue is not None:
            overdue.add("")
        cancelled = state.cancelled is not None
        crashes = Counter(path for fact in self.facts if isinstance(fact, f.Resumed) for path in fact.in_flight)
        rounds = {scope.prefix: scope.round for scope in state.scopes.values()}
        past = {(prefix, round_): wrote for _, prefix, round_, wrote in self.rounds}
        told = self.outcomes()
        return Judge(self.case, self.results(), self.ran(), cancelled, frozenset(overdue), crashes, told, rounds, past)

    def variables(self, scope: Scope) -> dict[str, Any]:
        """What the writes in a scope add up to."""
        workflow = scope.graph.workflow
        values = variables_before(scope)
        for name, value, _ in scope.writes:
            reducer = workflow.reducer(name)
            values[name] = value if reducer is None else reducer(values[name], value)
        return values


def _waits_for(work: Work) -> bool:
    """Whether an instance still waits for an answer."""
    wanted = {
        WorkKind.CONDITION: Phase.PENDING,
        WorkKind.BODY: Phase.RUNNING,
        WorkKind.RECONCILE: Phase.RECONCILING,
        WorkKind.ROUTE: Phase.ROUTING,
        WorkKind.VERDICT: Phase.OPEN,
    }
    return work.instance.phase is wanted[work.kind]


def _result(instance: Instance) -> Result:
    error = instance.unrouted or (instance.error if instance.phase is Phase.FAILED else None)
    return Result(
        str(STATUS[instance.phase]),
        str(instance.reason or ""),
        instance.origin,
        instance.output,
        instance.attempt,
        "" if error is None else str(error),
    )
