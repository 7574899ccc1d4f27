"""From what a program calls its store to the store itself. Imports a store's module only when that store is wanted."""

from pathlib import Path

from ares.errors import UsageError
from ares.journal.protocol import Store


def open_store(spec: str | Path | Store | None) -> Store:
    """The store that ``spec`` names: a path, a URL, None or ``":memory:"``, or a store itself. Opens nothing yet.

    Raises:
        UsageError: something that names no store, or one whose packages are not installed.
    """
    if spec is None or spec == ":memory:":
        from ares.stores.volatile import VolatileStore

        return VolatileStore()
    if isinstance(spec, str) and "://" in spec:
        return _open_url(spec)
    if isinstance(spec, str | Path):
        if not str(spec):
            raise UsageError("the store's file name is empty")
        from ares.stores.sqlite import SqliteStore

        return SqliteStore(spec)
    if hasattr(spec, "append") and hasattr(spec, "entries"):
        return spec
    raise UsageError(f"a store is a file name, a store object or None, not {spec!r}")


def _open_url(url: str) -> Store:
    # Only what comes before it is repeated in what is said: there may be a password in the rest.
    scheme = url.partition("://")[0].lower()
    if scheme not in ("postgresql", "postgres"):
        raise UsageError(f"there is no store for {scheme}://: it is a file name or postgresql://...")
    try:
        from ares.stores.postgres import PostgresStore
    except ImportError as error:
        if not (error.name or "").startswith("psycopg") and "libpq" not in str(error):
            raise
        raise UsageError(
            f"a store at {scheme}:// needs psycopg: pip install 'ares-workflow[postgres]' ({error})"
        ) from None
    return PostgresStore(url)
