"""The facade: what a program holds on to. Wires a store, a bus and an engine."""

from ares.runtime.facade import Runtime
from ares.runtime.recovery import Recovery

__all__ = ["Recovery", "Runtime"]
