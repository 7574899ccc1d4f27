"""How much one transaction holds."""

from ares.journal.commit_queue import CommitQueue
from ares.journal.protocol import Append, Claim, Entry
from ares.journal.queued import QueuedLog, QueuedTicket


def queue_of(count: int, size: int) -> CommitQueue:
    queue = CommitQueue("store", persistent=False, on_done=lambda ticket: None)
    log = QueuedLog(None, Claim("x", 1, 1, 1, 0), lambda: None)  # type: ignore[arg-type]  # nothing is handed over through it
    for seq in range(1, count + 1):
        entry = Entry(seq, 0, "succeeded", "a", "x" * size)
        queue.put(QueuedTicket(None, log, Append(log.claim, [entry])))  # type: ignore[arg-type]  # as above
    return queue


def test_large_values_are_spread_over_transactions() -> None:
    taken, *_ = queue_of(count=100, size=100_000).take()

    assert 1 < len(taken) < 100


def test_a_value_larger_than_a_transaction_goes_alone() -> None:
    taken, *_ = queue_of(count=3, size=10_000_000).take()

    assert len(taken) == 1
