"""The transitions of one instance of a step, as data.

An instance is a step, a map element or a child step, in one round. ``Phase`` is finer than the public status:
a step that waits for its retry is RUNNING to everyone else, one that waits for its route is COMPLETED, one whose parked
body is about to run again is WAITING still.

A ``Stimulus`` is a fact reduced to what the table needs to know of it. What is not in the table cannot happen:
such a fact is refused and changes nothing.
"""

from enum import StrEnum
from typing import Final

from ares.records import StepStatus


class Phase(StrEnum):
    """Where an instance stands, as the walk sees it."""

    PENDING = "pending"
    RUNNING = "running"
    RETRYING = "retrying"
    RECONCILING = "reconciling"
    WAITING = "waiting"
    ANSWERED = "answered"
    OPEN = "open"
    ROUTING = "routing"
    COMPLETED = "completed"
    FAILED = "failed"
    SKIPPED = "skipped"


class Stimulus(StrEnum):
    """What can happen to an instance."""

    CHECKED = "condition answered"
    STARTED = "attempt started"
    OPENED = "parts opened"
    DONE = "succeeded"
    DONE_UNROUTED = "succeeded, route to be asked"
    RETRY = "failed, to be retried"
    RECONCILE = "outcome unknown, to be asked"
    ASKED = "question asked"
    CLEARED = "answered: may begin"
    TOLD = "answered: outcome known"
    ANSWERED = "answered"
    CONTINUED = "body goes on"
    FAILED = "failed for good"
    RECOVERED = "failed, to be done without"
    SKIPPED = "skipped"
    ROUTED = "routed, or no route"
    CUT = "cut short"
    CUT_UNKNOWN = "cut short, at_most_once"
    REROUTE = "route to be asked again"
    SET_BACK = "set back"


_P, _S = Phase, Stimulus

#: (phase, stimulus) -> phase.
TRANSITIONS: Final[dict[tuple[Phase, Stimulus], Phase]] = {
    (_P.PENDING, _S.CHECKED): _P.PENDING,
    (_P.PENDING, _S.STARTED): _P.RUNNING,
    (_P.PENDING, _S.OPENED): _P.OPEN,
    # Set back while nobody knew whether its effect had happened: that is asked before anything else.
    (_P.PENDING, _S.RECONCILE): _P.RECONCILING,
    # A condition that raised, a map's wrong source, one crash too many.
    (_P.PENDING, _S.FAILED): _P.FAILED,
    (_P.PENDING, _S.SKIPPED): _P.SKIPPED,
    # An interceptor said so, or failed, before the attempt began.
    (_P.PENDING, _S.DONE): _P.COMPLETED,
    (_P.PENDING, _S.DONE_UNROUTED): _P.ROUTING,
    (_P.PENDING, _S.RETRY): _P.RETRYING,
    (_P.RETRYING, _S.DONE): _P.COMPLETED,
    (_P.RETRYING, _S.DONE_UNROUTED): _P.ROUTING,
    (_P.RETRYING, _S.RETRY): _P.RETRYING,
    (_P.RETRYING, _S.SKIPPED): _P.SKIPPED,
    # A step asks before its body or in it; where an effect is unknown, ares asks. An answer in the body's favour, or
    # against it, has it go on or end from ANSWERED; one that lets it begin leads back to the beginning.
    (_P.PENDING, _S.ASKED): _P.WAITING,
    (_P.RUNNING, _S.ASKED): _P.WAITING,
    (_P.RECONCILING, _S.ASKED): _P.WAITING,
    (_P.WAITING, _S.CLEARED): _P.PENDING,
    (_P.WAITING, _S.TOLD): _P.RECONCILING,
    (_P.WAITING, _S.ANSWERED): _P.ANSWERED,
    (_P.WAITING, _S.SKIPPED): _P.SKIPPED,
    (_P.WAITING, _S.FAILED): _P.FAILED,
    (_P.ANSWERED, _S.CONTINUED): _P.RUNNING,
    (_P.ANSWERED, _S.SKIPPED): _P.SKIPPED,
    (_P.ANSWERED, _S.FAILED): _P.FAILED,
    (_P.RUNNING, _S.DONE): _P.COMPLETED,
    (_P.RUNNING, _S.DONE_UNROUTED): _P.ROUTING,
    (_P.RUNNING, _S.RETRY): _P.RETRYING,
    (_P.RUNNING, _S.RECONCILE): _P.RECONCILING,
    (_P.RUNNING, _S.FAILED): _P.FAILED,
    (_P.RUNNING, _S.RECOVERED): _P.SKIPPED,
    (_P.RUNNING, _S.CUT): _P.PENDING,
    (_P.RUNNING, _S.CUT_UNKNOWN): _P.RECONCILING,
    (_P.RETRYING, _S.STARTED): _P.RUNNING,
    (_P.RETRYING, _S.OPENED): _P.OPEN,
    (_P.RETRYING, _S.FAILED): _P.FAILED,
    (_P.RECONCILING, _S.DONE): _P.COMPLETED,
    (_P.RECONCILING, _S.DONE_UNROUTED): _P.ROUTING,
    (_P.RECONCILING, _S.RETRY): _P.RETRYING,
    (_P.RECONCILING, _S.FAILED): _P.FAILED,
    (_P.OPEN, _S.DONE): _P.COMPLETED,
    (_P.OPEN, _S.DONE_UNROUTED): _P.ROUTING,
    (_P.OPEN, _S.RETRY): _P.RETRYING,
    (_P.OPEN, _S.FAILED): _P.FAILED,
    # A human said No to something inside a sub-workflow.
    (_P.OPEN, _S.SKIPPED): _P.SKIPPED,
    (_P.ROUTING, _S.ROUTED): _P.COMPLETED,
    (_P.PENDING, _S.SET_BACK): _P.PENDING,
    (_P.RETRYING, _S.SET_BACK): _P.PENDING,
    (_P.RECONCILING, _S.SET_BACK): _P.PENDING,
    (_P.WAITING, _S.SET_BACK): _P.PENDING,
    (_P.ANSWERED, _S.SET_BACK): _P.PENDING,
    (_P.OPEN, _S.SET_BACK): _P.PENDING,
    (_P.ROUTING, _S.SET_BACK): _P.PENDING,
    (_P.COMPLETED, _S.REROUTE): _P.ROUTING,
    (_P.COMPLETED, _S.SET_BACK): _P.PENDING,
    (_P.FAILED, _S.SET_BACK): _P.PENDING,
    (_P.SKIPPED, _S.SET_BACK): _P.PENDING,
}

STATUS: Final[dict[Phase, StepStatus]] = {
    Phase.PENDING: StepStatus.PENDING,
    Phase.RUNNING: StepStatus.RUNNING,
    Phase.RETRYING: StepStatus.RUNNING,
    Phase.RECONCILING: StepStatus.RUNNING,
    Phase.WAITING: StepStatus.WAITING,
    Phase.ANSWERED: StepStatus.WAITING,
    Phase.OPEN: StepStatus.RUNNING,
    Phase.ROUTING: StepStatus.COMPLETED,
    Phase.COMPLETED: StepStatus.COMPLETED,
    Phase.FAILED: StepStatus.FAILED,
    Phase.SKIPPED: StepStatus.SKIPPED,
}

FINAL: Final = frozenset({Phase.COMPLETED, Phase.FAILED, Phase.SKIPPED})


def as_markdown() -> str:
    """The table as it stands in ``docs/walk.md``: a row a phase, a column a stimulus."""
    stimuli = list(Stimulus)
    lines = [
        "| phase (public status) | " + " | ".join(stimuli) + " |",
        "|---" * (len(stimuli) + 1) + "|",
    ]
    for phase in Phase:
        cells = [TRANSITIONS.get((phase, s)) for s in stimuli]
        lines.append(f"| {phase} ({STATUS[phase]}) | " + " | ".join(c or "·" for c in cells) + " |")
    return "\n".join(lines) + "\n"
