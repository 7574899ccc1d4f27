"""The store that keeps executions in a PostgreSQL database."""

from ares.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
