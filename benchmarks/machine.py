"""What the figures were taken on, and how much of it others used meanwhile."""

import os
import platform
import subprocess
import time
from pathlib import Path

import attrs

_ROOT = Path(__file__).resolve().parent.parent


def describe(folder: Path) -> dict[str, str]:
    """The machine, the interpreter, the state of ares, and the file system that durable runs wrote to."""
    return {
        "date": time.strftime("%Y-%m-%d %H:%M %Z"),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "processor": f"{_processor()}, {len(os.sched_getaffinity(0))} CPUs",
        "file system": _file_system(folder),
        "ares at": _commit(),
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def _file_system(folder: Path) -> str:
    place = str(folder.resolve())
    found = ("", "unknown")
    for line in Path("/proc/mounts").read_text().splitlines():
        device, point, kind = line.split()[:3]
        if (place + "/").startswith(point.rstrip("/") + "/") and len(point) >= len(found[0]):
            found = (point, f"{kind} on {device}")
    return found[1]


def _commit() -> str:
    def git(*arguments: str) -> str:
        command = ["git", "-C", str(_ROOT), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()

    return git("rev-parse", "--short", "HEAD") + (" and changes" if git("status", "--porcelain", "ares") else "")


def _jiffies() -> tuple[int, int]:
    """What all processors have worked, and what the host kept for other guests."""
    user, nice, system, _idle, _wait, irq, softirq, steal = map(
        int, Path("/proc/stat").read_text().splitlines()[0].split()[1:9]
    )
    return user + nice + system + irq + softirq, steal


def _own_seconds() -> float:
    return sum(os.times()[:4])


@attrs.define
class Usage:
    """What was used of the processors since it was made: by this process and its children, by all others."""

    _began: float = attrs.field(factory=time.monotonic)
    _all: tuple[int, int] = attrs.field(factory=_jiffies)
    _own: float = attrs.field(factory=_own_seconds)
    _load: float = attrs.field(factory=lambda: os.getloadavg()[0])

    def report(self) -> dict[str, float]:
        """Minutes passed; shares of all processors, from 0 to 1; the load average at the beginning and now."""
        seconds = time.monotonic() - self._began
        busy, stolen = (now - then for now, then in zip(_jiffies(), self._all, strict=True))
        whole = seconds * (os.cpu_count() or 1)
        own = _own_seconds() - self._own
        used = busy / os.sysconf("SC_CLK_TCK")
        return {
            "minutes": seconds / 60,
            "own": own / whole,
            "others": max(0.0, used - own) / whole,
            "stolen": stolen / os.sysconf("SC_CLK_TCK") / whole,
            "load before": self._load,
            "load after": os.getloadavg()[0],
        }
