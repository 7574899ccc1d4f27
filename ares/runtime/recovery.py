"""What a Runtime takes up that its owner has left, and why it leaves the rest."""

from collections.abc import Iterable, Iterator, Mapping

import attrs

from ares.engine.beginning import Begun
from ares.engine.engine import Engine
from ares.engine.execution import Execution, Host
from ares.engine.takeover import ResumeRequest
from ares.errors import ExecutionBusyError, RuntimeClosedError
from ares.journal.protocol import ExecutionRow
from ares.records import ExecutionStatus
from ares.workflow import Workflow


@attrs.frozen
class Recovery:
    """What ``recover`` took up, and why it left what it left (execution id to reason).

    Attributes:
        taken: those that go on here.
        left: those that do not, and why.
        errors: what went wrong with some of these, if that is the reason.
    """

    taken: tuple[Execution, ...]
    left: Mapping[str, str]
    errors: Mapping[str, Exception] = attrs.field(factory=dict)

    def __iter__(self) -> Iterator[Execution]:
        return iter(self.taken)

    def __len__(self) -> int:
        return len(self.taken)


def recover(host: Host, engine: Engine, workflows: Iterable[Workflow]) -> Recovery:
    """Take up every execution that nobody walks and whose workflow is among ``workflows``. Returns at once."""
    taken: list[Execution] = []
    left: dict[str, str] = {}
    errors: dict[str, Exception] = {}
    known = {workflow.id: workflow for workflow in workflows}
    statuses = (ExecutionStatus.PENDING, ExecutionStatus.RUNNING, ExecutionStatus.WAITING)
    for row in reversed(engine.journal.executions(statuses=statuses)):
        reason = _not_to_recover(row, known) or _not_here(engine, row.execution_id)
        if reason is None:
            try:
                definition = engine.definitions.define(known[row.workflow_id])
                begun = engine.beginning.again(definition, row.execution_id, ResumeRequest(is_recovery=True))
                if isinstance(begun, Begun):
                    taken.append(Execution(host, row.execution_id, engine.submit(begun)))
                continue
            except RuntimeClosedError:
                raise
            except ExecutionBusyError as error:  # somebody was faster
                reason = f"owned by {error.owner}"
            except Exception as error:  # one's trouble stops no other
                reason = f"{type(error).__name__}: {error}"
                errors[row.execution_id] = error
        left[row.execution_id] = reason
    return Recovery(tuple(taken), left, errors)


def _not_here(engine: Engine, execution_id: str) -> str | None:
    if engine.live(execution_id) is not None:
        return "its walk in this process comes to an end"
    defect = engine.defect_of(execution_id)
    return None if defect is None else f"its walk in this process failed: {type(defect).__name__}: {defect}"


def _not_to_recover(row: ExecutionRow, known: Mapping[str, Workflow]) -> str | None:
    if row.live:
        return f"owned by {row.owner}"
    if row.parent_id is not None:
        return f"nested in {row.parent_id}, which goes on with it"
    if row.status == ExecutionStatus.WAITING and not row.requests:
        return "waits for an answer"
    if row.workflow_id not in known:
        return f"its workflow {row.workflow_id!r} is not in workflows="
    return None
