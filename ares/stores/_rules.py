"""What every store decides in the same way, whatever it keeps its rows in. Pure: no rows are read or written here."""

from collections.abc import Callable, Iterable, Sequence

from ares.errors import LeaseLostError, StoreError
from ares.journal.protocol import Append, Entry

#: Statuses that end an execution. A later one that is not among them reopens it.
ENDED = frozenset({"COMPLETED", "FAILED", "CANCELLED"})


def lost(store: str, execution_id: str) -> LeaseLostError:
    """The answer to an append whose claim or lease does not stand any more."""
    return LeaseLostError(store, "the claim was lost: another owner took it over, or the lease has ended", execution_id)


def unstored(
    store: str, append: Append, last_seq: int, stored: Callable[[int, int], Iterable[Entry]]
) -> Sequence[Entry]:
    """Those entries of ``append`` that are still to be written behind ``last_seq``.

    Args:
        store: The store's name, for messages.
        append: Entries under a claim that stands.
        last_seq: The number of the execution's newest entry.
        stored: Gives the stored entries from one number to another; asked only when an append is repeated.

    Raises:
        StoreError: Writing them would leave a hole, or one is stored already with something else in it.
    """
    entries = append.entries
    if not entries:
        return entries
    first = entries[0].seq
    if entries[-1].seq - first != len(entries) - 1 or first > last_seq + 1:
        raise StoreError(
            store, f"entry {first} does not follow entry {last_seq} without a hole", append.claim.execution_id
        )
    repeated = last_seq - first + 1
    if repeated <= 0:
        return entries
    if first <= append.claim.last_seq:
        raise StoreError(
            store, f"entry {first} was written before the claim was taken (at {append.claim.last_seq})",
            append.claim.execution_id,
        )  # fmt: skip
    again = entries[:repeated]
    # Not strict: what the same call is about to write for the first time is not stored yet.
    for old, new in zip(stored(first, again[-1].seq), again, strict=False):
        if not _same(old, new):
            raise StoreError(store, f"entry {new.seq} is stored already, with other content", append.claim.execution_id)
    return entries[repeated:]


def _same(old: Entry, new: Entry) -> bool:
    return old is new or (old.at, old.kind, old.path, old.body) == (new.at, new.kind, new.path, new.body)
