"""Which store a command means, by ``--store`` or ``ARES_STORE``. Only ``run`` ever creates one."""

from pathlib import Path

from ares.errors import UsageError

#: Keeps all in the process.
IN_PROCESS = ":memory:"


def existing_store(store: str | None) -> str:
    """The store of a command that goes on with, reads or changes what is there.

    Raises:
        UsageError: none was named, or there is none.
    """
    if not store:
        raise UsageError("which store? name its file by --store or ARES_STORE")
    if store == IN_PROCESS:
        raise UsageError(f"{IN_PROCESS} ends with the process that made it; name a file by --store or ARES_STORE")
    if "://" not in store and not _is_there(store):
        raise UsageError(f"there is no store {store}")
    return store


def _is_there(store: str) -> bool:
    try:
        return Path(store).exists()
    except (OSError, ValueError):
        return False
