"""From what a program calls its store to the store itself. Imports a store's module only when that store is wanted."""

from pathlib import Path

from ares.errors import NotBuiltError, UsageError
from ares.journal.protocol import Store


def open_store(spec: str | Path | Store | None) -> Store:
    """The store that ``spec`` names: a path, None or ``":memory:"``, or a store itself. Opens nothing yet.

    Raises:
        NotBuiltError: the URL of a store that does not exist yet.
        UsageError: something that names no store.
    """
    if spec is None or spec == ":memory:":
        from ares.stores.volatile import VolatileStore

        return VolatileStore()
    if isinstance(spec, str) and "://" in spec:
        raise NotBuiltError(f"{spec.partition('://')[0]}://", "as a store; a file name is")
    if isinstance(spec, str | Path):
        if not str(spec):
            raise UsageError("the store's file name is empty")
        from ares.stores.sqlite import SqliteStore

        return SqliteStore(spec)
    if hasattr(spec, "append") and hasattr(spec, "entries"):
        return spec
    raise UsageError(f"a store is a file name, a store object or None, not {spec!r}")
