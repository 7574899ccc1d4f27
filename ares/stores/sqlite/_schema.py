"""The tables of an ares file, and how an older one becomes this one.

A file is ours by its ``application_id``; its ``user_version`` is the number of migrations it has been through. Both
stand in the header, so that a look at a file needs to know no table.
"""

import sqlite3

from ares.errors import StoreError

#: "ares" in ASCII.
APPLICATION_ID = 0x61726573

# Entries are clustered by execution and number and have no other index: an append writes one page. For the same reason
# nothing that each append would change is kept elsewhere: the last number and the last change are looked up.
#
# AUTOINCREMENT, because a number must never be given out twice: whoever still holds the old one would mean the new row.
_FIRST = (
    """CREATE TABLE leases (
        number INTEGER PRIMARY KEY AUTOINCREMENT, counter INTEGER NOT NULL, beaten_at INTEGER NOT NULL,
        machine TEXT NOT NULL, boot TEXT NOT NULL, pid_namespace TEXT NOT NULL, pid INTEGER NOT NULL,
        started TEXT NOT NULL, host TEXT NOT NULL)""",
    """CREATE TABLE executions (
        key INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, workflow_id TEXT NOT NULL,
        workflow_version TEXT NOT NULL, parent_id TEXT, metadata TEXT NOT NULL, created_at INTEGER NOT NULL,
        status TEXT NOT NULL, error TEXT NOT NULL, ended_at INTEGER,
        claim_lease INTEGER, claim_number INTEGER NOT NULL)""",
    """CREATE TABLE entries (
        execution INTEGER NOT NULL, seq INTEGER NOT NULL, at INTEGER NOT NULL, kind TEXT NOT NULL,
        path TEXT NOT NULL, body TEXT NOT NULL, PRIMARY KEY (execution, seq)) WITHOUT ROWID""",
    """CREATE TABLE requests (
        number INTEGER PRIMARY KEY AUTOINCREMENT, execution INTEGER NOT NULL, kind TEXT NOT NULL,
        body TEXT NOT NULL, at INTEGER NOT NULL)""",
    "CREATE INDEX requests_of_execution ON requests (execution)",
    # Executions that are deleted already, but for their entries: a prune that was cut short goes on with them.
    "CREATE TABLE pruned (execution INTEGER PRIMARY KEY)",
)

# A request with a name is left once: it stays when it is carried out, and goes with its execution's end.
_NAMED_REQUESTS = (
    "ALTER TABLE requests ADD COLUMN name TEXT",
    "ALTER TABLE requests ADD COLUMN is_done INTEGER NOT NULL DEFAULT 0",
    "CREATE UNIQUE INDEX requests_by_name ON requests (execution, name) WHERE name IS NOT NULL",
)

# What has not ended is looked for again and again, among any number that has.
_UNFINISHED = (
    "ALTER TABLE leases ADD COLUMN beats_every REAL NOT NULL DEFAULT 5.0",
    "CREATE INDEX unfinished_executions ON executions (key) WHERE ended_at IS NULL",
)

#: The statements that lead from version i to i + 1. Never change one that was released: add another.
MIGRATIONS: tuple[tuple[str, ...], ...] = (_FIRST, _NAMED_REQUESTS, _UNFINISHED)


def version_of(connection: sqlite3.Connection, name: str) -> int:
    """The version of the file behind ``connection``; 0 for an empty one. Only reads.

    Raises:
        StoreError: It is somebody else's database, or of a version that this ares does not know.
    """
    ((owner, version, objects),) = connection.execute(
        "SELECT (SELECT application_id FROM pragma_application_id), (SELECT user_version FROM pragma_user_version),"
        " (SELECT count(*) FROM sqlite_master)"
    )
    if owner == version == objects == 0:
        return 0
    if owner != APPLICATION_ID:
        raise StoreError(name, "the file is a database of another program; it was left as it is")
    if version > len(MIGRATIONS):
        raise StoreError(
            name,
            f"the file was written by a newer ares (format {version}, this one knows {len(MIGRATIONS)}); "
            "it was left as it is",
        )
    return int(version)


def migrate(connection: sqlite3.Connection, name: str) -> None:
    """Bring the file to the newest version. Call it inside a transaction that writes: another process may be as far."""
    version = version_of(connection, name)
    for steps in MIGRATIONS[version:]:
        for statement in steps:
            connection.execute(statement)
    if version < len(MIGRATIONS):
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
