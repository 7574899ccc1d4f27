"""So many processes, each in its slot; one that is gone is replaced by a new one."""

import contextlib
import signal
import time
from collections.abc import Callable, Mapping
from typing import Any

from ares.testing import ChildProcess, Nursery
from benchmarks.soak.evidence import Stop


class Crew:
    """Processes that call ``life(line, slot=..., **arguments)``. One thread at a time.

    Args:
        nursery: starts them.
        life: returns once it is told anything, and never by itself.
        arguments: plain values.
        count: how many there are.
    """

    def __init__(self, nursery: Nursery, life: Callable[..., Any], arguments: Mapping[str, Any], count: int) -> None:
        self._nursery = nursery
        self._life = life
        self._arguments = arguments
        #: What nobody did on purpose, in words.
        self.troubles: list[str] = []
        self.stops: list[Stop] = []
        self._members = [self._new(slot) for slot in range(count)]

    def kill(self, slot: int) -> None:
        """``kill -9``, and a new one."""
        self._members[slot].kill()
        self._bury(slot, -signal.SIGKILL)

    def stop(self, slot: int) -> Callable[[], None]:
        """Have one stand still; returns what has it go on, if it is still there."""
        member = self._members[slot]
        self.stops.append(Stop(member.pid, time.monotonic()))
        member.kill(signal.SIGSTOP)

        def go_on() -> None:
            if member is self._members[slot]:
                member.kill(signal.SIGCONT)

        return go_on

    def look(self) -> None:
        """Replace those that ended by themselves, which is trouble."""
        for slot, member in enumerate(self._members):
            with contextlib.suppress(TimeoutError):  # it is at work
                member.wait(0.0)
                self._bury(slot, None)

    def dismiss(self) -> None:
        """Have all end in good order."""
        self.look()
        for member in self._members:
            with contextlib.suppress(OSError):  # it has ended just now: its result says how
                member.say("enough")
        for member in self._members:
            try:
                member.result()
            except (AssertionError, TimeoutError) as error:
                self.troubles.append(f"process {member.pid} did not end in good order: {error}")
            else:
                self._listen(member)

    def _new(self, slot: int) -> ChildProcess:
        return self._nursery.start(self._life, slot=slot, **self._arguments)

    def _bury(self, slot: int, expected: int | None) -> None:
        """Put a new one in the place of one that has ended, or is about to."""
        member = self._members[slot]
        code = member.wait()
        if code != expected:
            self.troubles.append(f"process {member.pid} ended by itself with {code}")
        self._listen(member)
        member.close()
        self._members[slot] = self._new(slot)

    def _listen(self, member: ChildProcess) -> None:
        """What one printed is of threads that failed, and the like: nothing else prints."""
        if said := member.errors().strip():
            self.troubles.append(f"process {member.pid} said:\n{said}")
