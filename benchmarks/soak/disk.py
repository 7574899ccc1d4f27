"""A file system of a few megabytes, which only this process and those that it starts can see, and that goes with them.

Root may mount one in a mount namespace of its own; somebody else, where the kernel lets him, in a user namespace, too.
"""

import ctypes
import os
from pathlib import Path
from typing import Final

_NEW_MOUNTS: Final = 0x00020000
_NEW_USERS: Final = 0x10000000
_DETACHED: Final = 2
_PRIVATE: Final = 0x4000 | (1 << 18)  # for all that is mounted below


def mount_small_disk(folder: str | Path, megabytes: int) -> None:
    """Mount an empty file system on a folder. To be called before the process starts a thread.

    Raises:
        OSError: it may not be done here, or not on this system.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "unshare"):
        raise OSError("file systems cannot be mounted for one process on this system")
    users = f"0 {os.getuid()} 1", f"0 {os.getgid()} 1"
    if libc.unshare(_NEW_MOUNTS):
        _checked(libc.unshare(_NEW_MOUNTS | _NEW_USERS), "a user namespace")
        Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
        for name, text in zip(("uid_map", "gid_map"), users, strict=True):
            Path("/proc/self", name).write_text(text, encoding="ascii")
    _checked(libc.mount(b"none", b"/", None, ctypes.c_ulong(_PRIVATE), None), "a mount namespace")
    options = f"size={megabytes}m".encode()
    _checked(libc.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", ctypes.c_ulong(0), options), "a file system")


def unmount(folder: str | Path) -> None:
    """Have the folder be what it was, for this process and those that start now.

    Raises:
        OSError: nothing is mounted there.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    _checked(libc.umount2(os.fsencode(folder), _DETACHED), "unmounting a file system")


def _checked(failed: int, what: str) -> None:
    if failed:
        number = ctypes.get_errno()
        raise OSError(number, f"{what} of its own is refused to this process: {os.strerror(number)}")
