"""The fixtures of ``ares.testing``, also where ares runs from its source and no entry point brings them."""

from _ares_pytest import ares_arena, ares_bus, ares_child, ares_nursery, ares_recorder, crash_after, step_context

__all__ = ["ares_arena", "ares_bus", "ares_child", "ares_nursery", "ares_recorder", "crash_after", "step_context"]
