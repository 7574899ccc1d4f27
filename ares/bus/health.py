"""How a plugin is, as others see it."""

from enum import StrEnum

import attrs

from ares.plugin.capabilities import Capability


class PluginState(StrEnum):
    """Where a plugin stands with its bus.

    UNRESPONSIVE: a call is executing past its timeout; when its late answer comes in, it is RUNNING again.
    ABANDONED: it was to stop and did not in time; its thread ends when it can.
    """

    REGISTERED = "registered"
    STARTING = "starting"
    RUNNING = "running"
    UNRESPONSIVE = "unresponsive"
    FAILED = "failed"
    STOPPING = "stopping"
    STOPPED = "stopped"
    ABANDONED = "abandoned"


@attrs.frozen
class PluginHealth:
    """One plugin at one moment.

    Attributes:
        calls: Calls that were executed, events included.
        errors: Those that raised.
        timeouts: How often it was found to hang.
        mailbox_depth: Calls that are queued.
        last_error: What went wrong last, in a line.
        latency: Mean seconds that a call executed.
        slowest: The longest that one did.
        faults_on: Whether its calls can be made to go wrong now, because the fault points of the bus are open.
        faults: Calls that were.
    """

    name: str
    capabilities: frozenset[Capability]
    state: PluginState
    calls: int
    errors: int
    timeouts: int
    mailbox_depth: int
    events_matched: int
    events_delivered: int
    events_dropped: int
    events_pending: int
    last_error: str
    latency: float
    slowest: float
    faults_on: bool = False
    faults: int = 0
