"""What a Runtime takes up that its owner has left, and why it leaves the rest."""

from collections.abc import Iterable, Iterator, Mapping

import attrs

from ares.engine.beginning import Begun
from ares.engine.engine import Engine
from ares.engine.execution import Execution, Host
from ares.engine.takeover import ResumeRequest
from ares.errors import AresError
from ares.journal.protocol import ExecutionRow
from ares.records import ExecutionStatus
from ares.workflow import Workflow


@attrs.frozen
class Recovery:
    """What ``recover`` took up, and why it left what it left (execution id to reason)."""

    taken: tuple[Execution, ...]
    left: Mapping[str, str]

    def __iter__(self) -> Iterator[Execution]:
        return iter(self.taken)

    def __len__(self) -> int:
        return len(self.taken)


def recover(host: Host, engine: Engine, workflows: Iterable[Workflow]) -> Recovery:
    """Take up every execution that nobody walks and whose workflow is among ``workflows``. Returns at once."""
    taken: list[Execution] = []
    left: dict[str, str] = {}
    known = {workflow.id: workflow for workflow in workflows}
    statuses = (ExecutionStatus.PENDING, ExecutionStatus.RUNNING, ExecutionStatus.WAITING)
    for row in reversed(engine.journal.executions(statuses=statuses)):
        reason = _not_to_recover(row, known)
        if reason is None:
            try:
                definition = engine.definitions.define(known[row.workflow_id])
                begun = engine.beginning.again(definition, row.execution_id, ResumeRequest())
                if isinstance(begun, Begun):
                    taken.append(Execution(host, row.execution_id, engine.submit(begun)))
                continue
            except AresError as error:
                reason = f"{type(error).__name__}: {error}"
        left[row.execution_id] = reason
    return Recovery(tuple(taken), left)


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
