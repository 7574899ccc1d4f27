"""What the machine says: disks, limits of threads, versions. Functions of texts and numbers, and those that read them.

What a platform does not tell is not guessed: there is no finding then.
"""

import os
import platform
import re
import shutil
import sqlite3
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

import attrs

import ares
from ares.cli.doctor.finding import Finding, fail, ok, warn

#: File systems that other machines may write, by their names in /proc/mounts.
_SHARED = frozenset({
    "9p", "afs", "beegfs", "ceph", "cifs", "fuse.ceph", "fuse.gcsfuse", "fuse.glusterfs", "fuse.rclone", "fuse.s3fs",
    "fuse.sshfs", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "smb3", "smbfs", "vboxsf", "virtiofs",
})  # fmt: skip
#: Bytes that must be free: less than that, and the next commits may be refused.
_LEAST = 64 * 2**20
#: A disk with less than this, and less than that part of it, is nearly full.
_LITTLE = 2 * 2**30
_LITTLE_PART = 0.05
#: Threads that a Runtime has beside its workers and one for each plugin: of its journal, its walks, its bus.
_OWN_THREADS = 8


# --- disks ----------------------------------------------------------------------------------------------------


def disk(mounts: str, file: str) -> Finding:
    """Whether a file is where SQLite's locks reach everybody.

    Args:
        mounts: the text of /proc/mounts.
        file: an absolute path without symbolic links.
    """
    point, kind = mount_of(mounts, file)
    if kind not in _SHARED:
        return ok(f"{point} is of type {kind}")
    return warn(
        f"{file} is on {point}, which is of type {kind}: with processes of two machines SQLite can damage it",
        "use it from one machine alone, keep it on a local disk, or use a database server",
    )


def mount_of(mounts: str, file: str) -> tuple[str, str]:
    """Where the file system of a file is mounted, and its type."""
    found = ("/", "an unknown one")
    for line in mounts.splitlines():
        _, point, kind, *_ = line.split(" ")
        point = _unescaped(point)
        is_above = file == point or file.startswith(point.rstrip("/") + "/")
        if is_above and len(point) >= len(found[0]):  # of two at one point, the later one covers the other
            found = (point, kind)
    return found


def _unescaped(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), text)


def space(free: int, total: int) -> Finding:
    """Whether a disk has room for more, in bytes."""
    said = f"{free / 2**20:,.0f} MiB of {total / 2**20:,.0f} MiB are free"
    todo = "make room: ares prune --compact deletes old executions"
    if free < _LEAST:
        return fail(f"the disk is full: {said}", todo)
    if free < _LITTLE and free < total * _LITTLE_PART:
        return warn(f"the disk is nearly full: {said}", todo)
    return ok(said)


def look_at_disk(file: str) -> Iterator[Finding]:
    """``disk`` of this machine."""
    mounts = Path("/proc/self/mounts")
    if mounts.exists():
        yield disk(mounts.read_text(encoding="utf-8", errors="surrogateescape"), os.path.realpath(file))


def look_at_space(file: str) -> Iterator[Finding]:
    """``space`` of this machine."""
    found = shutil.disk_usage(Path(os.path.realpath(file)).parent)
    yield space(found.free, found.total)


# --- threads --------------------------------------------------------------------------------------------------


@attrs.frozen
class Limit:
    """How many threads there may be, and how many there are."""

    name: str
    most: int
    used: int

    @property
    def room(self) -> int:
        """How many more there may be."""
        return max(0, self.most - self.used)


def threads(limits: Iterable[Limit], workers: int, plugins: int) -> Finding:
    """Whether so many workers and plugins find room for their threads."""
    needed = workers + plugins + _OWN_THREADS
    least = min(limits, key=lambda limit: limit.room, default=None)
    if least is None:
        return ok(f"a Runtime may need {needed:,} threads, and no limit is known")
    said = (
        f"a Runtime may need {needed:,} threads; {least.name} allows {least.most:,}, of which {least.used:,} are used"
    )
    return ok(said) if least.room >= needed else fail(said, f"raise {least.name}, or lower max_workers ({workers:,})")


def cgroup_limits(cgroups: str, root: Path) -> Iterator[Limit]:
    """The limits of the control groups that a process is in.

    Args:
        cgroups: the text of /proc/self/cgroup.
        root: where control groups are mounted.
    """
    for line in cgroups.splitlines():
        number, controllers, path = line.split(":", 2)
        if number != "0" and "pids" not in controllers.split(","):
            continue
        top = root if number == "0" else root / "pids"
        folder = top / path.strip("/")
        # In a container the path may be that of the host, and only the top of it is there.
        for each in (folder, *folder.parents):
            if not each.is_relative_to(top):
                break
            most, used = _number(each / "pids.max"), _number(each / "pids.current")
            if most is not None and used is not None:
                yield Limit(str(each / "pids.max"), most, used)


def _number(file: Path) -> int | None:
    try:
        text = file.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return None
    return int(text) if text.isdecimal() else None


def user_limit() -> Iterator[Limit]:
    """``RLIMIT_NPROC``, which counts the threads of a user, and does not hold for root."""
    try:
        import resource
    except ImportError:  # not on Windows
        return
    most, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if most != resource.RLIM_INFINITY and os.getuid() != 0:
        yield Limit("ulimit -u", most, threads_of_user(Path("/proc"), os.getuid()))


def threads_of_user(proc: Path, user: int) -> int:
    """How many threads of a user run, by what ``/proc`` shows of them."""
    count = 0
    for folder in proc.glob("[0-9]*"):
        try:
            if folder.stat().st_uid == user:
                count += sum(1 for _ in (folder / "task").iterdir())
        except OSError:
            continue  # it has ended
    return count


def look_at_threads(workers: int, plugins: int) -> Iterator[Finding]:
    """``threads`` of this machine."""
    limits = [*user_limit()]
    file = Path("/proc/self/cgroup")
    if file.exists():
        limits += cgroup_limits(file.read_text(encoding="utf-8"), Path("/sys/fs/cgroup"))
    yield threads(limits, workers, plugins)


# --- versions -------------------------------------------------------------------------------------------------

_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)[^;]*;.*extra == ['\"]([^'\"]+)['\"]")
#: Extras for those who work on ares itself.
_OF_DEVELOPERS = frozenset({"test", "bench"})


def versions() -> Iterator[Finding]:
    """What runs here."""
    python = f"{platform.python_implementation()} {platform.python_version()}"
    parts = [f"ares {ares.__version__}", python, f"SQLite {sqlite3.sqlite_version}", f"pykka {version_of('pykka')}"]
    try:
        wanted = optional_packages(requires("ares-workflow") or ())
    except PackageNotFoundError:  # it runs from a folder
        wanted = {}
    parts += [f"{name} {version_of(name)} (optional: {extra})" for name, extra in wanted.items()]
    yield ok(", ".join([*parts, f"on {sys.platform}"]))


def optional_packages(requirements: Iterable[str]) -> dict[str, str]:
    """What extras ask for, by name: the extra."""
    found = (_REQUIREMENT.match(each) for each in requirements)
    return {each[1]: each[2] for each in found if each is not None and each[2] not in _OF_DEVELOPERS}


def version_of(distribution: str) -> str:
    """The version of what is installed."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "not installed"
