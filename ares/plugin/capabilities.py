"""What a plugin can say it is good for, and which methods that takes."""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType


class Capability(StrEnum):
    """What plugins find each other by. Observer, checkpoint and tool are labels; the others have a protocol."""

    OBSERVER = "observer"
    CHECKPOINT = "checkpoint"
    ROUTER = "router"
    LOOP = "loop"
    MEMORY = "memory"
    EVOLUTION = "evolution"
    TOOL = "tool"
    RECOVERY = "recovery"


#: The methods that a capability promises.
PROTOCOLS: Mapping[Capability, tuple[str, ...]] = MappingProxyType(
    {
        Capability.ROUTER: ("route",),
        Capability.LOOP: ("should_execute_round", "on_round_end"),
        Capability.MEMORY: ("advise_route",),
        Capability.EVOLUTION: ("recommend", "record_outcome"),
        Capability.RECOVERY: ("should_recover",),
    }
)
