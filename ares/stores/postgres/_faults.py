"""What PostgreSQL's errors mean to somebody who only knows the database's name."""

from typing import Any

import psycopg

#: The server ends connections with these, or does not take any for now.
_GOING = frozenset({"57P01", "57P02", "57P03", "57P05", "25P03", "53300"})
#: Somebody else's transaction was in the way: the same again may work.
_CONFLICTS = frozenset({"40001", "40P01"})
#: What the connection has prepared is not there, or not true, any more: a pooler, or a newer schema.
_FORGOTTEN = frozenset({"26000", "42P05", "0A000"})
_MEANINGS = {
    "53100": "the server's disk is full",
    "53200": "the server is out of memory",
    "53300": "the server takes no more connections",
    "55P03": "locked by another transaction for more than 10 s",
    "57014": "the server took more than a minute over it",
    "25006": "the database can only be read: it is a standby, or this user may not write",
    "42501": "this user may not do that",
    "54000": "a value is larger than PostgreSQL can store",
    "22021": "a text that PostgreSQL cannot store",
}


def state(error: BaseException | None) -> str:
    """The five characters by which PostgreSQL names an error; empty when it did not come from there."""
    return getattr(error, "sqlstate", None) or ""


def is_lost(error: BaseException, connection: psycopg.Connection[Any] | None) -> bool:
    """Whether there is no connection to be had, or the one there was is at fault, so that a new one may do."""
    if state(error):
        return state(error) in _GOING or state(error).startswith("08")
    return isinstance(error, psycopg.OperationalError) and (connection is None or connection.closed)


def is_passing(error: BaseException) -> bool:
    """Whether the same transaction may work right away."""
    return state(error) in _CONFLICTS


def is_forgotten(error: BaseException) -> bool:
    """Whether the same statement may work on another connection."""
    return state(error) in _FORGOTTEN


def is_one_rows(error: BaseException | None) -> bool:
    """Whether it is the fault of a value, of one row alone."""
    # Without a code it was found out on this side.
    is_ours = isinstance(error, psycopg.DataError) and not state(error)
    return is_ours or state(error)[:2] in ("22", "23", "54")


def may_be_one_rows(error: BaseException | None) -> bool:
    """Whether a transaction may have failed for the sake of one of its rows: the others are worth another try."""
    return is_one_rows(error) or state(error)[:2] in ("53", "XX")


def meaning(error: BaseException) -> str:
    """The error in words."""
    code = state(error)
    if isinstance(error, psycopg.Error) and code:
        told = error.diag.message_primary or type(error).__name__
        known = _MEANINGS.get(code)
        return f"{known} ({told}, {code})" if known else f"{told} ({code})"
    # libpq's hints stand on lines of their own, behind a tab.
    lines = [line.strip() for line in str(error).splitlines() if not line.startswith("\t")]
    return " ".join(filter(None, lines)) or type(error).__name__
