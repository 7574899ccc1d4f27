"""How a walk begins: makes, claims and replays executions, and reads the results of those that stand.

Walks nothing: what is *begun* is claimed, and its owner has to walk it or to give the claim back.
"""

import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from ares.engine.definitions import Definition
from ares.engine.histories import Histories
from ares.engine.options import COMMIT_TIMEOUT, Options
from ares.engine.replay import Replay, check_drift, check_inputs, fold, read, replay
from ares.engine.results import Kept, WorkflowResult, make_result, question_of, result_of_record
from ares.engine.takeover import ResumeRequest, plan_set_back, take_up
from ares.engine.variables import Values
from ares.errors import ExecutionConflictError, ExecutionExistsError, StoreError, UsageError
from ares.events import instant
from ares.journal.encoding import encode
from ares.journal.protocol import Claim, Journal, NewExecution
from ares.plugin.engine_bus import EngineBus
from ares.records import ExecutionStatus
from ares.walk import facts as f
from ares.walk.walk import Walk


@attrs.frozen
class RunRequest:
    """What a run is given."""

    execution_id: str
    inputs: Mapping[str, Any]
    metadata: Mapping[str, str]
    timeout: float | None = None
    parent_id: str | None = None


@attrs.define(eq=False)
class Begun:
    """An execution that is claimed and about to be walked."""

    definition: Definition
    claim: Claim
    walk: Walk
    metadata: Mapping[str, str]
    remembered: dict[tuple[str, int, int, str], Any]
    #: The facts by which it begins, and the number of the first of them.
    opening: tuple[int, Sequence[f.Fact]]
    histories: Histories | None = None
    after_crash: bool = False
    asked_at: Mapping[str, int] = attrs.field(factory=dict)


class Beginning:
    """Begins executions on one journal. Thread-safe."""

    def __init__(self, journal: Journal, bus: EngineBus, options: Options) -> None:
        self._journal = journal
        self._bus = bus
        self._options = options

    def new(self, definition: Definition, request: RunRequest, status: ExecutionStatus) -> Begun:
        """Store a new execution and claim it; committed when this returns.

        Raises:
            InputError: the inputs do not fit the declaration.
            SerializationError: an input cannot be stored.
            ExecutionExistsError: the id is taken.
        """
        graph = definition.graph
        fingerprint = graph.fingerprint
        workflow = graph.workflow
        fact = f.Created(
            workflow.id,
            workflow.version,
            fingerprint.digest,
            fingerprint.shape,
            definition.nodes,
            workflow.bind_inputs(request.inputs),
            dict(workflow.variables),
            {name: r if isinstance(r, str) else "custom" for name, r in workflow.reducers.items()},
            request.timeout,
            dict(request.metadata),
        )
        body: Any = fact
        if not self._journal.keeps_references or self._options.check_values:
            text = encode(fact, definition.codec)
            body = fact if self._journal.keeps_references else text
        new = NewExecution(
            request.execution_id, workflow.id, workflow.version, request.parent_id, request.metadata, time.time_ns()
        )
        walk = Walk(graph, request.execution_id)
        walk.apply(fact)
        claim = self._journal.create(new, status, [(fact.kind, "", body)], claimed=True)
        try:
            return Begun(definition, claim, walk, request.metadata, {}, (1, (fact,)), self._histories())
        except BaseException:  # a Ctrl-C between the two
            self._journal.release(claim)
            raise

    def _replay(self, definition: Definition, execution_id: str) -> Replay:
        entries = self._journal.entries(execution_id)
        return replay(definition.graph, execution_id, entries, definition.codec, self._journal.name)

    def again(self, definition: Definition, execution_id: str, how: ResumeRequest) -> Begun | WorkflowResult:
        """Claim an execution and prepare going on with it; or give its stored result, if it stands.

        What is refused is refused before the claim is taken: nothing in the store is touched by then.

        Raises:
            ExecutionBusyError: a live owner walks it.
            WorkflowChangedError: the definition differs, and the change was not accepted.
            UsageError: ``rerun`` names what is not there.
        """
        stands = self._as_it_stands(definition, execution_id, how)
        if stands is not None:
            return stands
        claim: Claim | None = None
        try:
            if self._journal.execution(execution_id).live:
                # Somebody walks it, and this says who; unless it was given back just now.
                claim = self._journal.claim(execution_id)
            found = self._checked(definition, execution_id, how)
            if claim is None:
                claim = self._journal.claim(execution_id)
            # Only now nobody else can go on with it: whoever did in the meantime may have come to its end.
            stands = self._as_it_stands(definition, execution_id, how)
            if stands is None:
                if claim.last_seq != found.last_seq:
                    found = self._checked(definition, execution_id, how)
                return self._take_up(definition, claim, found, how)
        except BaseException:
            if claim is not None:
                self._journal.release(claim)
            raise
        self._journal.release(claim)
        return stands

    def _checked(self, definition: Definition, execution_id: str, how: ResumeRequest) -> Replay:
        """What there is to go on with, if that is possible in the way it was asked for."""
        found = self._replay(definition, execution_id)
        if how.accept_changes:
            check_inputs(found, definition.graph)
        else:
            check_drift(found, definition.graph)
        plan_set_back(found.walk.state, how)
        return found

    def _as_it_stands(self, definition: Definition, execution_id: str, how: ResumeRequest) -> WorkflowResult | None:
        """The result of an execution that a resume changes nothing about."""
        row = self._journal.execution(execution_id)
        status = ExecutionStatus(row.status)
        if status is ExecutionStatus.CANCELLED and how.rerun and not how.reopen:
            raise UsageError(f"execution {execution_id!r} was cancelled: rerun needs reopen=True as well")
        is_done = status is ExecutionStatus.COMPLETED and not how.rerun
        if how.is_recovery:  # somebody may have been faster, and come to this
            is_done = status.is_final or (status is ExecutionStatus.WAITING and not row.requests)
        if is_done or (status is ExecutionStatus.CANCELLED and not how.reopen):
            return self.stored_result(definition, execution_id, status)
        return None

    def _take_up(self, definition: Definition, claim: Claim, found: Replay, how: ResumeRequest) -> Begun:
        crashed = claim.was_abandoned and found.walk.state.ended is None
        facts = take_up(found, definition.graph, definition.nodes, how, was_abandoned=crashed)
        references = self._journal.keeps_references
        drafts = [(fact.kind, "", fact if references else encode(fact, definition.codec)) for fact in facts]
        ticket = self._journal.log(claim).append(drafts, status=ExecutionStatus.RUNNING)
        try:
            ticket.wait(COMMIT_TIMEOUT)
        except TimeoutError as error:
            problem = f"no commit within {COMMIT_TIMEOUT:g} s"
            raise StoreError(self._journal.name, problem, claim.execution_id) from error
        return Begun(
            definition,
            claim,
            found.walk,
            found.created.metadata,
            found.remembered,
            (self._journal.log(claim).last_seq - len(facts) + 1, facts),
            self._histories(definition, claim.execution_id),
            crashed,
            found.asked_at,
        )

    def _histories(self, definition: Definition | None = None, execution_id: str = "") -> Histories | None:
        """The histories of an execution, which goes on if it has a definition already; None if nobody asks for them."""
        stages = self._bus.stages
        if not (stages.has_routers or stages.has_recovery or stages.has_execution_hooks or stages.has_loop):
            return None
        histories = Histories()
        for entry in () if definition is None else self._journal.entries(execution_id):
            codec = None if definition is None else definition.codec
            histories.add(read(entry.kind, entry.path, entry.body, codec), instant(entry.at))
        return histories

    def new_or_again(
        self,
        definition: Definition,
        request: RunRequest,
        if_exists: str,
        status: ExecutionStatus,
    ) -> Begun | WorkflowResult:
        """As ``new``; or, where the id is taken and ``if_exists`` is ``"resume"``, as ``again``.

        Raises:
            UsageError: ``if_exists`` is neither that nor ``"error"``.
            ExecutionConflictError: what is there was begun with something else.
        """
        if if_exists not in ("error", "resume"):
            raise UsageError(f"if_exists must be 'error' or 'resume', not {if_exists!r}")
        try:
            return self.new(definition, request, status)
        except ExecutionExistsError:
            if if_exists == "error":
                raise
        self._check_same(definition, request)
        return self.again(definition, request.execution_id, ResumeRequest(timeout=request.timeout))

    def _check_same(self, definition: Definition, request: RunRequest) -> None:
        """Refuse to go on with an execution that was begun with something else."""
        row = self._journal.execution(request.execution_id)
        if row.workflow_id != definition.id:
            raise ExecutionConflictError(request.execution_id, f"another workflow, {row.workflow_id!r}")
        created = self._created(definition, request.execution_id)
        wanted = definition.codec.encode(dict(request.inputs)) if not self._journal.keeps_references else None
        if wanted is None:
            same = created.inputs == request.inputs
        else:
            same = definition.codec.encode(dict(created.inputs)) == wanted
        if not same:
            raise ExecutionConflictError(request.execution_id, "other inputs")

    def _created(self, definition: Definition, execution_id: str) -> Any:
        entry = next(iter(self._journal.entries(execution_id)))
        return read(entry.kind, entry.path, entry.body, definition.codec)

    def stored_result(self, definition: Definition, execution_id: str, status: ExecutionStatus) -> WorkflowResult:
        """The result of an execution that nobody walks in this process, read from its journal."""
        found = self._replay(definition, execution_id)
        if found.fingerprint.digest != definition.graph.fingerprint.digest:
            entries = self._journal.entries(execution_id)
            record = fold(execution_id, definition.graph, entries, definition.codec)
            return result_of_record(attrs.evolve(record, status=status), definition.graph.workflow)
        state = found.walk.state
        variables = Values(found.created).snapshot(state.root, len(state.root.writes))
        asked = [(fact, found.asked_at[path]) for path, i in state.waiting.items() if (fact := i.question) is not None]
        questions = tuple(question_of(execution_id, *each) for each in sorted(asked, key=lambda pair: pair[1]))
        return make_result(Kept(state), variables, status=status, duration=0.0, questions=questions)


def new_id() -> str:
    """An execution id that nobody has."""
    return uuid.uuid4().hex
