"""Which store a command means, by ``--store`` or ``ARES_STORE``. Only ``run`` ever creates one."""

from pathlib import Path

from ares.cli.concealing import is_url, without_password
from ares.errors import UsageError

#: Keeps all in the process.
IN_PROCESS = ":memory:"


def existing_store(store: str | None) -> str:
    """The store of a command that goes on with, reads or changes what is there. Whether a server is there shows only
    when it is asked.

    Raises:
        UsageError: none was named, or there is no such file.
    """
    if not store:
        raise UsageError("which store? name its file or URL by --store or ARES_STORE")
    if store == IN_PROCESS:
        raise UsageError(f"{IN_PROCESS} ends with the process that made it; name a file by --store or ARES_STORE")
    if not is_url(store) and not is_there(store):
        raise UsageError(f"there is no store {without_password(store)}")
    return store


def is_there(store: str) -> bool:
    """Whether there is such a file."""
    try:
        return Path(store).exists()
    except (OSError, ValueError):
        return False
