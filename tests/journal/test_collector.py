"""What plugins record, on its way into the journal: nothing lost, nothing doubled, nobody out of order."""

import contextlib
import gc
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from ares.errors import SerializationError, StoreError, UsageError
from ares.journal import commit_queue
from ares.journal.collector import ExecutionCollector
from ares.journal.encoding import decode, encode
from ares.journal.notes import Recorded
from ares.journal.protocol import Append, Claim
from ares.journal.writer import StoreJournal
from ares.records import ErrorEntry, LoopEntry, MemoryEntry, RouteDecision, ScoringSignal
from ares.stores.sqlite import SqliteStore
from ares.values import Codec
from tests.durability.stores import StoreWrapper
from tests.journal.spy_store import join_all, new, run_all

CODEC = Codec()


def as_it_is(note: Recorded) -> Recorded:
    return note


def as_text(note: Recorded) -> str:
    return encode(note, CODEC)


def collector(encode: Any = as_it_is) -> ExecutionCollector:
    return ExecutionCollector({"team": "audit"}, encode)


def score(number: int) -> ScoringSignal:
    return ScoringSignal("judge", float(number), "")


def numbers(taken: Sequence[Any]) -> list[int]:
    return [int(note.entry.score) for note, _ in taken]


# --- one thread --------------------------------------------------------------------------------------------------


def test_what_was_recorded_is_handed_out_once_with_what_the_journal_keeps_of_it() -> None:
    collecting = collector(as_text)
    memory = MemoryEntry("a", "c/a", "q", 1, 0.5, ())
    collecting.record("memory", memory)
    collecting.record("loop", LoopEntry(1, "enough"))

    taken = collecting.take()

    assert [note for note, _ in taken] == [
        Recorded("c/a", "memory", memory),
        Recorded("", "loop", LoopEntry(1, "enough")),
    ]
    assert [decode(note.kind, note.path, body, CODEC) for note, body in taken] == [note for note, _ in taken]
    assert collecting.take() == []


def test_where_the_journal_keeps_references_the_body_is_the_note() -> None:
    collecting = collector()
    collecting.record("judge", score(7))

    ((note, body),) = collecting.take()

    assert body is note


def test_it_is_the_port_through_which_a_context_sees_its_run() -> None:
    assert collector().metadata == {"team": "audit"}


def test_pending_counts_what_waits_wherever_it_is() -> None:
    collecting = collector()
    for number in range(3):
        collecting.record(f"writer-{number}", score(number))
    assert collecting.pending == 3

    taken = collecting.take()
    assert collecting.pending == 0

    collecting.give_back(taken[1:])
    collecting.record("writer-0", score(3))
    assert collecting.pending == 3


def test_what_is_given_back_comes_first_and_in_its_order() -> None:
    collecting = collector()
    for number in range(4):
        collecting.record("judge", score(number))
    taken = collecting.take()
    collecting.record("judge", score(4))

    collecting.give_back(taken[1:])

    assert numbers(collecting.take()) == [1, 2, 3, 4]


def test_what_several_had_taken_comes_back_in_the_order_in_which_it_is_given_back() -> None:
    collecting = collector()
    taken = []
    for number in range(3):
        collecting.record("judge", score(2 * number))
        collecting.record("judge", score(2 * number + 1))
        taken.append(collecting.take())
    collecting.record("judge", score(6))

    for part in taken:
        collecting.give_back(part)

    assert numbers(collecting.take()) == [0, 1, 2, 3, 4, 5, 6]


def test_what_is_given_back_comes_even_before_what_an_interrupted_take_has_left() -> None:
    collecting = collector()
    collecting.record("judge", score(0))
    taken = collecting.take()
    collecting.record("judge", score(1))
    collecting._buffers["judge"].lock = InterruptedLock()  # type: ignore[assignment]  # as far as it is used
    with pytest.raises(KeyboardInterrupt):
        collecting.take()

    collecting.give_back(taken)

    assert numbers(collecting.take()) == [0, 1]


def test_an_execution_that_is_over_takes_nothing_more_and_still_gives_what_it_has() -> None:
    collecting = collector()
    collecting.record("judge", score(1))

    collecting.close()
    collecting.close()

    for writer in ("judge", "newcomer"):
        with pytest.raises(UsageError, match=f"plugin '{writer}' records a ScoringSignal, but its execution is over"):
            collecting.record(writer, score(2))
    assert numbers(collecting.take()) == [1]
    assert collecting.take() == []


# --- what is refused ---------------------------------------------------------------------------------------------


class Louder(ErrorEntry):
    """A subclass would come back from the journal as what it is not."""


@pytest.mark.parametrize("entry", [None, "nonsense", {"score": 1}, RouteDecision(("a",)), Louder("a", "a", "boom")])
def test_what_is_no_entry_of_a_history_is_refused_with_plugin_and_type(entry: Any) -> None:
    collecting = collector()

    with pytest.raises(UsageError, match=f"plugin 'judge' records a {type(entry).__name__}, which is none of"):
        collecting.record("judge", entry)

    assert collecting.pending == 0


def test_an_entry_without_a_proper_path_is_refused() -> None:
    with pytest.raises(UsageError, match="plugin 'judge' records a ErrorEntry whose path is no str"):
        collector().record("judge", ErrorEntry("a", None, "boom"))  # type: ignore[arg-type]  # the point


def test_an_entry_that_cannot_be_stored_is_refused_to_the_one_who_records_it() -> None:
    collecting = collector(as_text)

    with pytest.raises(SerializationError, match="the score of the ScoringSignal recorded by plugin 'judge'"):
        collecting.record("judge", ScoringSignal("x", "high", ""))  # type: ignore[arg-type]  # the point

    collecting.record("judge", score(1))
    assert collecting.pending == 1


# --- interruptions -----------------------------------------------------------------------------------------------


class Recording:
    """Records when it is collected."""

    def __init__(self, collecting: ExecutionCollector, number: int) -> None:
        self.collecting = collecting
        self.number = number
        self.itself = self

    def __del__(self) -> None:
        self.collecting.record("judge", score(self.number))


def test_a_finalizer_may_record_while_its_own_thread_is_in_the_middle_of_it() -> None:
    collecting = collector()
    total, seen = 2_000, []
    before = gc.get_threshold()
    gc.collect()
    gc.set_threshold(1)
    try:
        for number in range(total):
            Recording(collecting, number)
            collecting.record("judge", score(total + number))
            if number % 7 == 0:
                seen += numbers(collecting.take())
    finally:
        gc.set_threshold(*before)
    gc.collect()
    seen += numbers(collecting.take())

    assert Counter(seen) == Counter(range(2 * total))
    assert [number for number in seen if number >= total] == list(range(total, 2 * total))


class InterruptedLock:
    """A lock whose holder is interrupted when it lets go, once."""

    def __init__(self) -> None:
        self.is_due = True

    def __enter__(self) -> None:
        """Nobody else is there."""

    def __exit__(self, *exc_info: object) -> None:
        if self.is_due:
            self.is_due = False
            raise KeyboardInterrupt


@pytest.mark.parametrize("where", ["the collector", "a buffer"])
def test_an_interruption_of_the_one_who_takes_loses_nothing(where: str) -> None:
    collecting = collector()
    for number in range(3):
        collecting.record("judge", score(number))
    if where == "the collector":
        collecting._lock = InterruptedLock()  # type: ignore[assignment]  # as far as it is used
    else:
        collecting._buffers["judge"].lock = InterruptedLock()  # type: ignore[assignment]  # as above

    with pytest.raises(KeyboardInterrupt):
        collecting.take()

    assert numbers(collecting.take()) == [0, 1, 2]


# --- many threads ------------------------------------------------------------------------------------------------


def in_the_writers_order(bodies: Sequence[Recorded], writers: int, each: int) -> None:
    found: dict[str, list[int]] = {}
    for body in bodies:
        found.setdefault(body.writer, []).append(body.entry.round)  # type: ignore[union-attr]  # all are LoopEntries
    assert found == {f"writer-{number}": list(range(each)) for number in range(writers)}


def test_writers_and_takers_that_race_lose_and_double_nothing() -> None:
    writers, each = 8, 250
    collecting = collector()
    begin, done = threading.Barrier(writers + 2), threading.Event()
    kept: list[list[Any]] = [[], []]

    def write(number: int) -> None:
        begin.wait(30)
        for i in range(each):
            collecting.record(f"writer-{number % 4}", score(number * each + i))

    def take(number: int) -> None:
        begin.wait(30)
        while not done.is_set():
            taken = collecting.take()
            collecting.give_back(taken[::3])
            kept[number] += [one for i, one in enumerate(taken) if i % 3]

    takers = run_all(*[lambda n=n: take(n) for n in range(2)])  # type: ignore[misc]  # a default is no argument
    join_all(run_all(*[lambda n=n: write(n) for n in range(writers)]))  # type: ignore[misc]  # as above
    done.set()
    join_all(takers)

    assert Counter(numbers([*kept[0], *kept[1], *collecting.take()])) == Counter(range(writers * each))


def test_every_record_that_was_not_refused_is_in_the_last_take_whenever_the_execution_ends() -> None:
    writers = 8
    collecting = collector()
    begin, counts = threading.Barrier(writers + 1), [0] * writers

    def write(number: int) -> None:
        begin.wait(30)
        with contextlib.suppress(UsageError):
            while True:
                collecting.record(f"writer-{number}", LoopEntry(counts[number], ""))
                counts[number] += 1

    threads = run_all(*[lambda n=n: write(n) for n in range(writers)])  # type: ignore[misc]  # a default is no argument
    begin.wait(30)
    taken = collecting.take()
    collecting.close()
    taken += collecting.take()
    join_all(threads)

    assert collecting.take() == []
    found = Counter(note.writer for note, _ in taken)
    assert [found[f"writer-{number}"] for number in range(writers)] == counts


class UnreliableStore(StoreWrapper):
    """Fails every ``every``-th append: before it was carried out, or, every other time, after."""

    def __init__(self, inner: SqliteStore, every: int) -> None:
        super().__init__(inner)
        self.every = every
        self.count = 0
        self.failed = 0

    @property
    def keeps_references(self) -> bool:
        return False

    @property
    def name(self) -> str:
        return "unreliable.db"

    def append(self, appends: Sequence[Append], *, sync: bool) -> Sequence[Exception | None]:
        self.count += 1
        if self.count % self.every:
            return super().append(appends, sync=sync)
        self.failed += 1
        if self.failed % 2:
            raise StoreError(self.name, "as planned, before it was carried out")
        super().append(appends, sync=sync)
        raise StoreError(self.name, "as planned, after it was carried out")


class Walk:
    """Appends what is recorded, as the owner of an execution and those who flush it do: one lock for taking and handing
    over. When an append fails for good it takes the execution up again, and gives back what was not stored."""

    def __init__(self, journal: StoreJournal, collecting: ExecutionCollector) -> None:
        self.journal = journal
        self.collecting = collecting
        self.lock = threading.Lock()
        self.claim: Claim = journal.create(new("e"), "RUNNING", [("recorded", "", "{}")], claimed=True)
        self.log = journal.log(self.claim)
        self.failures = 0

    def write(self) -> None:
        with self.lock:
            taken = self.collecting.take()
            while taken:
                first = self.log.last_seq + 1
                part = taken[:500]
                ticket = self.log.append([(note.kind, note.path, body) for note, body in part])
                try:
                    ticket.wait(30)
                except StoreError:
                    self.take_up_again()
                    self.collecting.give_back(taken[self.claim.last_seq + 1 - first :])
                    return
                taken = taken[len(part) :]

    def take_up_again(self) -> None:
        self.failures += 1
        self.journal.release(self.claim)
        self.claim = self.journal.claim("e")
        self.log = self.journal.log(self.claim)


def hand_over(walk: Walk) -> None:
    """As ``write``, where a store that fails is none of the walk's business: the journal keeps what it was given."""
    with walk.lock:
        taken = walk.collecting.take()
        for start in range(0, len(taken), 500):
            part = taken[start : start + 500]
            ticket = walk.log.append([(note.kind, note.path, body) for note, body in part])
            with contextlib.suppress(StoreError):
                ticket.wait(30)


@contextlib.contextmanager
def unreliable(path: Path, every: int, durability: str) -> Iterator[tuple[StoreJournal, UnreliableStore]]:
    store = UnreliableStore(SqliteStore(path, synchronous="NORMAL"), every)
    journal = StoreJournal(store, durability=durability)  # type: ignore[arg-type]  # what it lacks it passes on
    journal.start()
    try:
        yield journal, store
    finally:
        journal.close()


def run_writers(collecting: ExecutionCollector, writers: int, each: int, appending: Sequence[Any]) -> None:
    begin, done = threading.Barrier(writers), threading.Event()

    def write(number: int) -> None:
        begin.wait(30)
        for i in range(each):
            collecting.record(f"writer-{number}", LoopEntry(i, "x"))

    def append(step: Any) -> None:
        while not done.is_set():
            step()

    appenders = run_all(*[lambda step=step: append(step) for step in appending])  # type: ignore[misc]  # as above
    join_all(run_all(*[lambda n=n: write(n) for n in range(writers)]))  # type: ignore[misc]  # as above
    done.set()
    join_all(appenders)


def stored(store: Any) -> list[Recorded]:
    rows = list(store.entries("e", 1))
    assert [row.seq for row in rows] == list(range(2, len(rows) + 2))
    return [decode(row.kind, row.path, row.body, CODEC) for row in rows]  # type: ignore[misc]  # nothing else is there


@pytest.mark.parametrize("each", [250, pytest.param(6_250, marks=pytest.mark.slow)])
def test_sixteen_writers_and_a_store_that_fails_at_times_lose_double_and_disorder_nothing(
    tmp_path: Path, each: int
) -> None:
    collecting = collector(as_text)
    with unreliable(tmp_path / "ares.db", 3, "sync") as (journal, store):
        walk = Walk(journal, collecting)

        run_writers(collecting, 16, each, [walk.write, walk.write])
        while collecting.pending:
            walk.write()

        assert walk.failures == store.failed
        in_the_writers_order(stored(store), 16, each)
        assert walk.failures > 1


@pytest.mark.parametrize("each", [250, pytest.param(6_250, marks=pytest.mark.slow)])
def test_where_the_journal_itself_tries_again_nothing_need_be_given_back(
    tmp_path: Path, each: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit_queue, "_RETRY", 0.001)
    collecting = collector(as_text)
    with unreliable(tmp_path / "ares.db", 3, "best_effort") as (journal, store):
        walk = Walk(journal, collecting)

        run_writers(collecting, 16, each, [lambda: hand_over(walk)] * 2)
        hand_over(walk)
        store.every = 1_000_000  # it works again, and what comes last brings along what it did not take
        walk.log.append([("recorded", "", as_text(Recorded("", "last", LoopEntry(0, ""))))]).wait(30)

        *bodies, last = stored(store)
        assert store.failed > 1
        assert last.writer == "last"
        in_the_writers_order(bodies, 16, each)
