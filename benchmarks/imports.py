"""What ``import ares`` costs beside importing the libraries that it stands on, each in a fresh process."""

import subprocess
import sys

import attrs

OURS = ("ares",)
THEIRS = ("pykka", "attrs", "cattrs", "loguru")

_CODE = """
import time
began = time.perf_counter(), time.process_time()
import {}
print(time.perf_counter() - began[0], time.process_time() - began[1])
"""


@attrs.frozen
class Imports:
    """Seconds by the clock and of processor, a pair a process."""

    ours: list[tuple[float, float]] = attrs.field(factory=list)
    theirs: list[tuple[float, float]] = attrs.field(factory=list)

    @property
    def ratio(self) -> float:
        """The best of each divided."""
        return min(self.ours)[0] / min(self.theirs)[0]


def measure(times: int = 5) -> Imports:
    """Import in turn, after one of each that fills the caches."""
    found = Imports()
    for modules in (OURS, THEIRS):
        _seconds(modules)
    for _ in range(times):
        found.ours.append(_seconds(OURS))
        found.theirs.append(_seconds(THEIRS))
    return found


def line(found: Imports) -> str:
    """What to print of it."""
    ours, theirs = ([1e3 * min(figures) for figures in zip(*each, strict=True)] for each in (found.ours, found.theirs))
    return (
        f"import ares: {ours[0]:.0f} ms (of processor {ours[1]:.0f}); import {', '.join(THEIRS)}: {theirs[0]:.0f} ms"
        f" (of processor {theirs[1]:.0f}); best of {len(found.ours)}"
    )


def _seconds(modules: tuple[str, ...]) -> tuple[float, float]:
    command = [sys.executable, "-c", _CODE.format(", ".join(modules))]
    clock, processor = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return float(clock), float(processor)
