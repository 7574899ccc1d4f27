"""The store that keeps executions in one SQLite file."""

from ares.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
