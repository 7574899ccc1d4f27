"""What whoever takes an execution up writes first: what its last owner left running, what is set back, what changed.

An owner that stopped in good order said so itself. One whose store failed could not: it gave its claim back, and what
it left running is cut short in its name, which counts against nobody. Only a claim that was never given back tells of
a process that died, and then everything that it left running counts one crash more.
"""

from collections.abc import Iterable

import attrs

from ares.engine.replay import Nodes, Replay
from ares.records import ExecutionStatus
from ares.walk import facts as f
from ares.walk.setback import plan
from ares.walk.state import State
from ares.workflow import Graph


@attrs.frozen
class ResumeRequest:
    """How a resume goes on: see ``Runtime.resume``. A recovery leaves alone what has ended, or waits for answers that
    are not in."""

    rerun: str | Iterable[str] = ()
    reopen: bool = False
    accept_changes: bool = False
    timeout: float | None = None
    is_recovery: bool = False


def plan_set_back(state: State, how: ResumeRequest) -> tuple[f.SetBack, ...]:
    """What is set back.

    Raises:
        UsageError: ``rerun`` names what is not there, or leaves out what it must name.
    """
    has_failed = state.ended is not None and state.ended.status is not ExecutionStatus.COMPLETED
    return plan(state, how.rerun, failed=has_failed)


def take_up(
    found: Replay, graph: Graph, nodes: Nodes, how: ResumeRequest, *, was_abandoned: bool
) -> list[f.ExecutionFact]:
    """Apply what a resume changes to a replayed walk.

    Args:
        found: what the journal adds up to; changed.
        graph: the present definition.
        nodes: its steps, as facts keep them.
        how: what the caller asked for.
        was_abandoned: whether the last owner died.

    Returns:
        The facts, applied and to be journaled.
    """
    state = found.walk.state
    facts: list[f.ExecutionFact] = []
    if not was_abandoned and (left := found.in_flight()):
        facts.append(f.Interrupted(left, "its owner could not write any more"))
        found.walk.apply(facts[-1])
    resumed = f.Resumed(
        state.epoch + 1,
        found.in_flight(),
        plan_set_back(state, how),
        reopened=how.reopen,
        timeout=how.timeout,
    )
    now = graph.fingerprint
    if now.digest != found.fingerprint.digest:
        resumed.accepted = tuple(now.steps)
        resumed.nodes = nodes
        resumed.digest, resumed.shape, resumed.version = now.digest, now.shape, now.version
    found.walk.apply(resumed)
    facts.append(resumed)
    return facts
