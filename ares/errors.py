"""Every exception of ares, one tree, ids and plain values as fields, the sentence built in ``__str__``.

::

    AresError
    ├── UsageError                      the caller asked for something that cannot be
    │   ├── DefinitionError             a workflow that can never run
    │   ├── InputError                  inputs that do not fit the workflow's declaration
    │   ├── ExecutionNotFoundError
    │   ├── ExecutionExistsError
    │   ├── ExecutionConflictError      the id exists with other inputs or another workflow
    │   ├── ExecutionBusyError          a live owner holds it
    │   ├── WorkflowChangedError        the definition differs from the one that was journaled
    │   ├── QuestionNotFoundError       nobody asks that, or not any more
    │   ├── QuestionAnsweredError       somebody else was first
    │   ├── RegistrationError           a plugin that cannot live on a bus
    │   ├── HookOrderError              a declared order of hooks that cannot be kept
    │   └── RuntimeClosedError
    ├── SerializationError              a value that cannot cross the boundary
    ├── StoreError                      the store cannot keep or give what was asked
    │   └── LeaseLostError              another owner took over
    ├── StepError                       why a step failed, when ares itself is the reason
    │   ├── StepTimeoutError            also a TimeoutError
    │   ├── StepAbortedError
    │   ├── StepCancelledError
    │   ├── StepCrashedError
    │   ├── OutcomeUnknownError
    │   ├── StepRejectedError           a human said No to a map element
    │   ├── MapSourceError
    │   ├── PartFailedError             an element or a child step failed
    │   ├── RouteError
    │   ├── WriteError
    │   ├── ReducerError
    │   ├── InvariantError              a body that broke a rule of its context
    │   ├── UntilError                  nobody knows whether there is another round
    │   ├── ExecutorError               an executor could not run a body
    │   │   └── WorkerLostError         what ran it is gone
    │   ├── RemoteError                 stands for an exception that could not come back from an executor
    │   └── RecordedError               stands for an exception of an earlier process
    ├── PluginError                     a call to a plugin failed; what it raised is the cause
    │   ├── PluginCrashError            it raised SystemExit, KeyboardInterrupt or another BaseException
    │   ├── PluginTimeoutError          also a TimeoutError: no answer in time while it executed
    │   │   └── PluginUnresponsiveError asked for nothing while an earlier call still hangs
    │   ├── PluginBusyError             also a TimeoutError: no answer in time while it was queued
    │   ├── PluginDeadlockError         a call that would wait for itself
    │   ├── PluginNotRunningError       it has not started, failed to, or was stopped
    │   └── InterceptorError            also a StepError: access was not granted, because nobody could say
    ├── ExecutionTimeoutError           also a TimeoutError
    ├── WorkflowNotCompletedError       what raise_for_status raises
    │   ├── WorkflowFailedError
    │   ├── WorkflowWaitingError
    │   └── WorkflowCancelledError
    ├── InjectedError                   made by an arena, on purpose, like InjectedPanic
    └── WalkError                       a defect in ares
        └── IllegalTransition

    raised by the user's code, understood by ares
        RetryAfter(Exception)           retry, but only after so many seconds
        NotDone(Exception)              the effect of an at_most_once step did not happen

    control flow, no Exception, so that ``except Exception`` in a step cannot swallow it
        AttemptEnded(BaseException)     the attempt that makes this call is over
        StepParked(BaseException)       ctx.interrupt unwinds the body until the answer is in

    made on purpose, no Exception, as what is meant to end a thread or a process is none
        InjectedPanic(BaseException)    made by an arena, like InjectedError
"""

from collections.abc import Sequence

import attrs


class AresError(Exception):
    """The base of every error that ares raises on its own behalf."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"


# --- the caller asked for something that cannot be ---------------------------------------------


class UsageError(AresError):
    """A call that cannot be carried out as it was made. Plain uses carry a sentence."""


@attrs.define(slots=False, eq=False, repr=False)
class DefinitionError(UsageError):
    """A workflow that can never run, found before anything runs."""

    workflow_id: str
    problem: str
    step_id: str = ""
    parameter: str = ""

    def __str__(self) -> str:
        where = f"workflow {self.workflow_id!r}"
        if self.step_id:
            where += f", step {self.step_id!r}"
        if self.parameter:
            where += f", parameter {self.parameter!r}"
        return f"{where}: {self.problem}"


@attrs.define(slots=False, eq=False, repr=False)
class InputError(UsageError):
    """Inputs that do not fit what the workflow declares."""

    workflow_id: str
    problem: str

    def __str__(self) -> str:
        return f"workflow {self.workflow_id!r}: {self.problem}"


@attrs.define(slots=False, eq=False, repr=False)
class ExecutionNotFoundError(UsageError):
    """No execution of this id is in the store."""

    execution_id: str
    store: str = ""

    def __str__(self) -> str:
        place = f" in {self.store}" if self.store else ""
        return f"no execution {self.execution_id!r}{place}"


@attrs.define(slots=False, eq=False, repr=False)
class ExecutionExistsError(UsageError):
    """The id is taken, and ``if_exists`` is ``"error"``."""

    execution_id: str
    status: str = ""

    def __str__(self) -> str:
        state = f" ({self.status})" if self.status else ""
        return f"execution {self.execution_id!r} exists already{state}; pass if_exists='resume' to go on with it"


@attrs.define(slots=False, eq=False, repr=False)
class ExecutionConflictError(UsageError):
    """The id exists, but for another workflow or with other inputs."""

    execution_id: str
    problem: str

    def __str__(self) -> str:
        return f"execution {self.execution_id!r} exists with {self.problem}"


@attrs.define(slots=False, eq=False, repr=False)
class ExecutionBusyError(UsageError):
    """Another live owner walks this execution. ``age`` is seconds since its last heartbeat was seen."""

    execution_id: str
    owner: str
    age: float = 0.0

    def __str__(self) -> str:
        return f"execution {self.execution_id!r} is owned by {self.owner} (last seen {self.age:.1f} s ago)"


@attrs.define(slots=False, eq=False, repr=False)
class WorkflowChangedError(UsageError):
    """The definition is not the one that this execution began with. Nothing was changed."""

    execution_id: str
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    rewired: tuple[str, ...] = ()
    other: tuple[str, ...] = ()

    def __str__(self) -> str:
        parts = [
            f"{name} {', '.join(map(repr, ids))}"
            for name, ids in (
                ("added", self.added),
                ("removed", self.removed),
                ("rewired", self.rewired),
                ("changed", self.other),
            )
            if ids
        ]
        return (
            f"execution {self.execution_id!r} was started by another definition: {'; '.join(parts)}. "
            "Resume with the old one, or pass accept_changes=True"
        )


@attrs.define(slots=False, eq=False, repr=False)
class QuestionNotFoundError(UsageError):
    """An answer to what is not asked: never, or not any more. ``key`` is None where none was named."""

    execution_id: str
    path: str
    key: str | None = None
    problem: str = ""

    def __str__(self) -> str:
        what = f"step {self.path!r} of execution {self.execution_id!r}"
        which = "no open question" if self.key is None else f"no open question {self.key!r}"
        return f"{what} has {which}" + (f": {self.problem}" if self.problem else "")


@attrs.define(slots=False, eq=False, repr=False)
class QuestionAnsweredError(UsageError):
    """The question has an answer already: the first one counts."""

    execution_id: str
    path: str
    key: str

    def __str__(self) -> str:
        which = f" {self.key!r}" if self.key else ""
        return f"the question{which} of step {self.path!r} of execution {self.execution_id!r} is answered already"


@attrs.define(slots=False, eq=False, repr=False)
class RegistrationError(UsageError):
    """A plugin that cannot live on a bus. Nothing was registered."""

    plugin: str
    problem: str

    def __str__(self) -> str:
        return f"plugin {self.plugin!r}: {self.problem}" if self.plugin else self.problem


@attrs.define(slots=False, eq=False, repr=False)
class HookOrderError(UsageError):
    """``runs_after`` and ``runs_before`` ask for what cannot be. ``plugins`` are those concerned; none was started."""

    problem: str
    plugins: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"the order of hooks cannot be kept: {self.problem}"


class RuntimeClosedError(UsageError):
    """The Runtime was closed; what had not ended can be resumed."""


# --- values and the store ----------------------------------------------------------------------


@attrs.define(slots=False, eq=False, repr=False)
class SerializationError(AresError):
    """A value that cannot be stored or loaded: where it is (``path`` inside the value) and its type."""

    problem: str
    path: str = ""
    type_name: str = ""
    where: str = ""

    def __str__(self) -> str:
        place = " of ".join(p for p in (self.path, self.where) if p)
        kind = f" ({self.type_name})" if self.type_name else ""
        return f"{place + ': ' if place else ''}{self.problem}{kind}"


@attrs.define(slots=False, eq=False, repr=False)
class StoreError(AresError):
    """The store cannot keep or give what was asked. ``store`` names the file or server."""

    store: str
    problem: str
    execution_id: str = ""

    def __str__(self) -> str:
        run = f" (execution {self.execution_id!r})" if self.execution_id else ""
        return f"{self.store}: {self.problem}{run}"


@attrs.define(slots=False, eq=False, repr=False)
class LeaseLostError(StoreError):
    """Another owner took this execution over; nothing more of this walk is written."""


# --- why a step failed, when ares is the reason -------------------------------------------------


class StepError(AresError):
    """The base of the failures that ares itself gives to a step."""


@attrs.define(slots=False, eq=False, repr=False)
class StepTimeoutError(StepError, TimeoutError):
    """The attempt was still running at its deadline (``timeout`` in seconds)."""

    path: str
    timeout: float

    def __str__(self) -> str:
        return f"step {self.path!r} was still running after {self.timeout:g} s"


@attrs.define(slots=False, eq=False, repr=False)
class StepCancelledError(StepError):
    """The step was running when its execution was cancelled or timed out, and did not end within the grace."""

    path: str
    reason: str = ""

    def __str__(self) -> str:
        return f"step {self.path!r} was cut short: {self.reason or 'cancelled'}"


@attrs.define(slots=False, eq=False, repr=False)
class StepAbortedError(StepError):
    """The interceptor ``plugin`` refused the step, for ``reason``. Its body did not run."""

    path: str
    plugin: str
    reason: str

    def __str__(self) -> str:
        return f"step {self.path!r} was refused by plugin {self.plugin!r}: {self.reason}"


@attrs.define(slots=False, eq=False, repr=False)
class StepCrashedError(StepError):
    """The process died ``crashes`` times while this step ran."""

    path: str
    crashes: int

    def __str__(self) -> str:
        return f"the process died {self.crashes} times while step {self.path!r} was running"


@attrs.define(slots=False, eq=False, repr=False)
class OutcomeUnknownError(StepError):
    """An ``at_most_once`` step was cut short: whether its effect happened is not known."""

    path: str
    cause: str = ""

    def __str__(self) -> str:
        why = f" ({self.cause})" if self.cause else ""
        return (
            f"step {self.path!r} is at_most_once and was cut short{why}: whether it took effect is unknown. "
            f"Answer its question, give it reconcile=, or name it in rerun= once you know"
        )


@attrs.define(slots=False, eq=False, repr=False)
class StepRejectedError(StepError):
    """A human said No to a map element, which counts as a failed one."""

    path: str
    reason: str = ""

    def __str__(self) -> str:
        return f"step {self.path!r} was rejected" + (f": {self.reason}" if self.reason else "")


@attrs.define(slots=False, eq=False, repr=False)
class MapSourceError(StepError):
    """A map step whose source is neither a list nor a tuple."""

    path: str
    source: str
    type_name: str

    def __str__(self) -> str:
        return f"step {self.path!r} maps over {self.source!r}, whose output is a {self.type_name}, not a list or tuple"


@attrs.define(slots=False, eq=False, repr=False)
class PartFailedError(StepError):
    """A map or sub-workflow step that failed because ``part``, an element or step of it, did."""

    path: str
    part: str
    problem: str

    def __str__(self) -> str:
        return f"step {self.path!r} failed because {self.part!r} failed: {self.problem}"


@attrs.define(slots=False, eq=False, repr=False)
class RouteError(StepError):
    """A decision at a branch point that cannot be followed, or no decision at all."""

    path: str
    problem: str
    permitted: tuple[str, ...] = ()

    def __str__(self) -> str:
        choice = f"; permitted: {', '.join(map(repr, self.permitted))}" if self.permitted else ""
        return f"step {self.path!r}: {self.problem}{choice}"


@attrs.define(slots=False, eq=False, repr=False)
class WriteError(StepError):
    """A write to a variable that the step does not declare in ``writes``."""

    path: str
    variable: str

    def __str__(self) -> str:
        return f"step {self.path!r} sets variable {self.variable!r}, which is not in its writes"


@attrs.define(slots=False, eq=False, repr=False)
class ReducerError(StepError):
    """A reducer raised while a variable's writes were combined; the cause is attached."""

    variable: str
    problem: str

    def __str__(self) -> str:
        return f"the reducer of variable {self.variable!r} failed: {self.problem}"


@attrs.define(slots=False, eq=False, repr=False)
class InvariantError(StepError):
    """A step's body broke a rule of its context."""

    path: str
    problem: str

    def __str__(self) -> str:
        return f"step {self.path!r}: {self.problem}"


@attrs.define(slots=False, eq=False, repr=False)
class UntilError(StepError):
    """Whether there is another round could not be found out: ``until`` raised or was out of time; the cause is
    attached. ``path`` is the sub-workflow step's, empty for the execution itself."""

    path: str
    workflow_id: str
    round: int
    problem: str

    def __str__(self) -> str:
        where = f"step {self.path!r}: " if self.path else ""
        return f"{where}until of workflow {self.workflow_id!r}, asked after round {self.round}: {self.problem}"


@attrs.define(slots=False, eq=False, repr=False)
class ExecutorError(StepError):
    """The executor of that name could not run the body of a step."""

    path: str
    executor: str
    problem: str

    def __str__(self) -> str:
        return f"step {self.path!r}: executor {self.executor!r} {self.problem}"


@attrs.define(slots=False, eq=False, repr=False)
class WorkerLostError(ExecutorError):
    """The worker that ran the body of a step, or may have, is gone: it died, or nobody reaches it any more."""


@attrs.define(slots=False, eq=False, repr=False)
class RemoteError(StepError):
    """Stands for an exception that a body raised on an executor and that could not come back: ``problem`` says why.
    What was left of it is its type's name, its message and, as the cause, its frames."""

    path: str
    executor: str
    type_name: str
    message: str
    problem: str

    def __str__(self) -> str:
        said = f": {self.message}" if self.message else ""
        where = f"step {self.path!r} raised on executor {self.executor!r}"
        return f"{where} {self.type_name}{said} (which cannot be brought back: {self.problem})"


@attrs.define(slots=False, eq=False, repr=False)
class RecordedError(StepError):
    """Stands for an exception that a step raised in an earlier process: what was journaled of it."""

    type_name: str
    message: str
    traceback: str = ""

    def __str__(self) -> str:
        return f"{self.type_name}: {self.message}" if self.message else self.type_name


# --- plugins -----------------------------------------------------------------------------------


@attrs.define(slots=False, eq=False, repr=False)
class PluginError(AresError):
    """The call ``call`` to ``plugin`` failed. Where the plugin raised something, that is the cause."""

    plugin: str
    call: str
    problem: str = ""

    def __str__(self) -> str:
        return f"plugin {self.plugin!r}: {self.call} {self.problem or 'failed'}"


@attrs.define(slots=False, eq=False, repr=False)
class PluginCrashError(PluginError):
    """The plugin raised what is meant to end a thread or a process. It ended neither."""


@attrs.define(slots=False, eq=False, repr=False)
class PluginTimeoutError(PluginError, TimeoutError):
    """The call was executing and gave no answer within ``seconds``."""

    seconds: float = 0.0

    def __str__(self) -> str:
        return f"plugin {self.plugin!r}: {self.call} {self.problem or f'gave no answer in {self.seconds:g} s'}"


@attrs.define(slots=False, eq=False, repr=False)
class PluginUnresponsiveError(PluginTimeoutError):
    """The plugin still hangs in ``hung_call``, an earlier one. This call was not made."""

    hung_call: str = ""

    def __str__(self) -> str:
        return f"plugin {self.plugin!r}: {self.call} was not made, because it still hangs in {self.hung_call}"


@attrs.define(slots=False, eq=False, repr=False)
class PluginBusyError(PluginError, TimeoutError):
    """The call was queued behind others for ``seconds`` and was given up. It was not made."""

    seconds: float = 0.0

    def __str__(self) -> str:
        return f"plugin {self.plugin!r}: {self.call} was still queued after {self.seconds:g} s and was not made"


@attrs.define(slots=False, eq=False, repr=False)
class PluginDeadlockError(PluginError):
    """The call would wait for itself: each plugin of ``chain`` waits for the next one."""

    chain: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"plugin {self.plugin!r}: {self.call} would wait for itself: {' -> '.join(self.chain)}"


@attrs.define(slots=False, eq=False, repr=False)
class PluginNotRunningError(PluginError):
    """The plugin is not there to be called; ``state`` is where it stands."""

    state: str = ""

    def __str__(self) -> str:
        return f"plugin {self.plugin!r}: {self.call} was not made, because it is {self.state}"


@attrs.define(slots=False, eq=False, repr=False)
class InterceptorError(PluginError, StepError):
    """An interceptor failed, hung or gave an answer that is none: the step does not run."""


# --- made on purpose ---------------------------------------------------------------------------


@attrs.define(slots=False, eq=False, repr=False)
class InjectedError(AresError):
    """Nothing was wrong: ``injector`` made ``target`` fail, to see what becomes of all else."""

    injector: str
    target: str

    def __str__(self) -> str:
        return f"injected by {self.injector!r} into {self.target}"


@attrs.define(slots=False, eq=False, repr=False)
class InjectedPanic(BaseException):
    """As ``InjectedError``, but nothing that ``except Exception`` would catch."""

    injector: str
    target: str

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    def __str__(self) -> str:
        return f"injected by {self.injector!r} into {self.target}"


# --- how an execution ended --------------------------------------------------------------------


@attrs.define(slots=False, eq=False, repr=False)
class ExecutionTimeoutError(AresError, TimeoutError):
    """The execution walked longer than its ``timeout`` (seconds); ``steps`` did not get done."""

    execution_id: str
    timeout: float
    steps: tuple[str, ...] = ()

    def __str__(self) -> str:
        left = f"; not done: {', '.join(map(repr, self.steps))}" if self.steps else ""
        return f"execution {self.execution_id!r} was still walking after {self.timeout:g} s{left}"


@attrs.define(slots=False, eq=False, repr=False)
class WorkflowNotCompletedError(AresError):
    """What ``WorkflowResult.raise_for_status`` raises: the execution did not end COMPLETED."""

    execution_id: str
    workflow_id: str
    problem: str = ""

    def __str__(self) -> str:
        state = type(self).__name__.removeprefix("Workflow").removesuffix("Error").lower()
        why = f": {self.problem}" if self.problem else ""
        return f"execution {self.execution_id!r} of workflow {self.workflow_id!r} {_STATE.get(state, state)}{why}"


_STATE = {"waiting": "is waiting", "cancelled": "was cancelled", "notcompleted": "has not completed"}


class WorkflowFailedError(WorkflowNotCompletedError):
    """The execution failed. ``__cause__`` is the first failed step's exception, or a RecordedError."""


class WorkflowWaitingError(WorkflowNotCompletedError):
    """The execution waits for answers."""


class WorkflowCancelledError(WorkflowNotCompletedError):
    """The execution was cancelled."""


# --- defects -----------------------------------------------------------------------------------


class WalkError(AresError):
    """The walk found itself in a state that its theory excludes: a defect in ares, please report it."""


@attrs.define(slots=False, eq=False, repr=False)
class IllegalTransition(WalkError):
    """A fact that does not fit the state of its instance. The walk did not change."""

    path: str
    status: str
    fact: str
    story: Sequence[str] = ()

    def __str__(self) -> str:
        tail = f"; before: {' > '.join(self.story)}" if self.story else ""
        return f"{self.fact} does not fit {self.path!r}, which is {self.status}{tail}"


# --- raised by the user's code -------------------------------------------------------------------


@attrs.define(slots=False, eq=False, repr=False)
class RetryAfter(Exception):
    """Raise it in a step to be run again after ``seconds``, within the attempts its retry policy allows."""

    seconds: float

    def __str__(self) -> str:
        return f"retry after {self.seconds:g} s"


class NotDone(Exception):
    """Raise it in an ``at_most_once`` step, or in its ``reconcile``, to say that the effect did not happen."""


# --- control flow --------------------------------------------------------------------------------


@attrs.define(slots=False, eq=False, repr=False)
class AttemptEnded(BaseException):
    """The attempt that makes this call has timed out, was cancelled or lost: its context is dead."""

    path: str = ""

    def __str__(self) -> str:
        return f"this attempt of step {self.path!r} is over"


@attrs.define(slots=False, eq=False, repr=False)
class StepParked(BaseException):
    """A body asked a human and is unwound until the answer is in; then it runs again. Let it pass."""

    path: str = ""
    key: str = ""

    def __str__(self) -> str:
        return f"step {self.path!r} waits for an answer to {self.key!r}"
