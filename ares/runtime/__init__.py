"""The facade: what a program holds on to. Wires a store, a bus and an engine."""

from ares.runtime.facade import Recovery, Runtime

__all__ = ["Recovery", "Runtime"]
