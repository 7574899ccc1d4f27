"""Who holds a lease, and whether that process is certainly gone.

Knows processes of this machine; knows nothing of stores, leases or time. The only question it answers with
yes is *certainly gone*: a live owner that is declared dead has its steps run twice, a dead one that is taken for
live costs a wait. So whatever cannot be told is "no", and no wall clock is asked.

What tells an owner apart
    - the boot (``/proc/sys/kernel/random/boot_id``): random at each start of a kernel, so two processes that show
      the same one run on the same kernel, whatever their containers say of machine and host;
    - the pid and time namespaces, because a pid means something only inside its own namespace, and a start time
      only inside its clock's;
    - the pid and the start time (field 22 of ``/proc/<pid>/stat``): a pid that was given to somebody else is not
      the owner;
    - machine id and host name together, only to recognise an earlier boot of the same machine. The machine id
      alone is not enough: it is baked into many container images and cloned disks.

Where there is no ``/proc`` (macOS, BSD) boot and start time are unknown: then only a pid that nobody has is gone,
and a pid that was reused looks alive. On Windows nobody is ever gone. The heartbeat's counter, which needs none of
this, decides in those cases.
"""

import functools
import os
import socket
import sys
import uuid
from pathlib import Path

from ares.journal.protocol import Owner

_UNKNOWN = ""

#: States of ``/proc/<pid>/stat`` in which a process runs no code any more: zombie, dead.
_ENDED = frozenset("ZXx")


def this_process() -> Owner:
    """The owner that this process is. Costs a few reads of ``/proc``; anew after a fork."""
    found = _stat("self")
    return Owner(
        machine=_machine(),
        boot=_boot(),
        pid_namespace=_namespaces(os.getpid()),
        pid=os.getpid(),
        started=found[1] if found else _UNKNOWN,
        host=socket.gethostname(),
    )


def is_gone(owner: Owner) -> bool:
    """Whether the process behind ``owner`` certainly does not run any more.

    True only when it ran on this machine, and in an earlier boot, or in this boot and in this process's pid
    namespace with its pid free, ended (a zombie) or given to a process that started at another time.
    """
    boot = _boot()
    if boot and owner.boot:
        if owner.boot != boot:
            return _same_machine(owner)
    elif not _same_machine(owner):
        return False
    namespaces = _namespaces(os.getpid())
    if owner.pid_namespace != namespaces or (sys.platform == "linux" and not namespaces):
        return False
    return _has_ended(owner.pid, owner.started)


def describe(owner: Owner) -> str:
    """How messages and listings name an owner."""
    return f"pid {owner.pid} on host {owner.host}"


def _same_machine(owner: Owner) -> bool:
    known = bool(owner.machine) and bool(owner.host)
    return known and owner.machine == _machine() and owner.host == socket.gethostname()


def _has_ended(pid: int, started: str) -> bool:
    # There, and so, os.kill is not a question: it hits other processes. What is no number was written by hand.
    if sys.platform == "win32" or not _is_number(pid) or pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        pass  # it is somebody else's process, or no pid at all: neither is ours to declare dead by this
    if not _proc_is_ours():
        return False
    found = _stat(str(pid))
    if found is None:  # a /proc that hides other users' processes
        return False
    state, found_started = found
    return state in _ENDED or bool(started and started != found_started)


def _is_number(pid: object) -> bool:
    return isinstance(pid, int)


def _proc_is_ours() -> bool:
    # Inside a new pid namespace /proc may still be the mount of the old one: its numbers are other processes then.
    try:
        return str(Path("/proc/self").readlink()) == str(os.getpid())
    except OSError:
        return False


def _stat(process: str) -> tuple[str, str] | None:
    """State and start time (clock ticks since boot) of a process; None where they cannot be read."""
    text = _read(f"/proc/{process}/stat")
    # The second field is the command in parentheses and may itself hold blanks and parentheses.
    fields = text.rpartition(")")[2].split()
    return (fields[0], fields[19]) if len(fields) > 19 else None


@functools.cache
def _boot() -> str:
    return _read("/proc/sys/kernel/random/boot_id")


@functools.cache
def _machine() -> str:
    for path in ("/etc/machine-id", "/var/lib/dbus/machine-id"):
        found = _read(path)
        if found and found != "uninitialized":  # what an image holds before its first boot
            return found
    node = uuid.getnode()
    # Without a network card getnode() invents a number, marked by this bit, and each process another one.
    return _UNKNOWN if node >> 40 & 1 else f"node-{node:012x}"


@functools.lru_cache(maxsize=1)
def _namespaces(_pid: int) -> str:
    # Kept by pid, because a child may have been forked into namespaces of its own.
    links = []
    for kind in ("pid", "time"):
        try:
            links.append(str(Path(f"/proc/self/ns/{kind}").readlink()))
        except OSError:
            continue  # an older kernel, or no /proc
    return " ".join(links)


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return _UNKNOWN
