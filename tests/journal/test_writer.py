"""The journal in front of a store: group commit, tickets, modes, claims, requests, and its life.

The store is the spy in memory wherever what matters is who writes what when.
"""

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs
import pytest

from ares.errors import (
    ExecutionBusyError,
    ExecutionExistsError,
    ExecutionNotFoundError,
    LeaseLostError,
    StoreError,
    UsageError,
)
from ares.journal.protocol import Append, Claim, ExecutionLog, Request, Ticket
from ares.journal.writer import StoreJournal
from ares.stores.volatile import VolatileStore
from tests.journal.spy_store import Gate, SpyStore, draft, join_all, new, run_all

Opener = Callable[..., StoreJournal]


@pytest.fixture
def spy() -> SpyStore:
    return SpyStore()


@pytest.fixture
def warnings() -> list[str]:
    return []


@pytest.fixture
def open_journal(spy: SpyStore, warnings: list[str]) -> Iterator[Opener]:
    opened: list[StoreJournal] = []

    def make(**options: Any) -> StoreJournal:
        journal = StoreJournal(spy, on_warning=warnings.append, **options)
        opened.append(journal)
        journal.start()
        return journal

    yield make
    spy.before = spy.after = lambda appends: None
    for journal in opened:
        journal.close()


@pytest.fixture
def journal(open_journal: Opener) -> StoreJournal:
    return open_journal()


def begin(journal: StoreJournal, execution_id: str = "e1") -> ExecutionLog:
    return journal.log(journal.create(new(execution_id), "RUNNING", [], claimed=True))


class Calls:
    """A callback of tickets that notes what it is told, and on which thread."""

    def __init__(self, expected: int = 1) -> None:
        self.expected = expected
        self.made: list[tuple[Ticket, str]] = []
        self.all = threading.Event()

    def __call__(self, ticket: Ticket) -> None:
        self.made.append((ticket, threading.current_thread().name))
        if len(self.made) >= self.expected:
            self.all.set()

    def wait(self) -> list[Ticket]:
        assert self.all.wait(10)
        return [ticket for ticket, _ in self.made]


def busy_writer(journal: StoreJournal, spy: SpyStore, execution_id: str = "busy") -> tuple[Gate, threading.Thread]:
    """Somebody who leads and is held in the store until the gate is opened."""
    log = begin(journal, execution_id)
    gate = Gate()
    spy.before = gate
    (thread,) = run_all(lambda: log.append(draft()).wait())
    assert gate.reached.wait(10)
    return gate, thread


# --- who writes ---


def test_whoever_waits_writes_on_the_own_thread(journal: StoreJournal, spy: SpyStore) -> None:
    log = begin(journal)
    for _ in range(20):
        log.append(draft()).wait()

    assert spy.seqs() == list(range(1, 21))
    me = [commit for commit in spy.commits if commit.thread == threading.current_thread().name]
    assert len(me) >= 18  # on a very slow machine the journal's own thread may come first after 20 ms
    assert all(commit.sync for commit in me)


def test_threads_that_wait_at_once_share_a_commit(journal: StoreJournal, spy: SpyStore) -> None:
    logs = [begin(journal, f"e{n}") for n in range(64)]
    gate, leader = busy_writer(journal, spy)
    queued = threading.Barrier(65)

    def work(log: ExecutionLog) -> None:
        ticket = log.append(draft())
        queued.wait()
        ticket.wait()

    threads = run_all(*(lambda log=log: work(log) for log in logs))
    queued.wait()
    gate.opened.set()
    join_all([*threads, leader])

    assert len(spy.commits) == 2
    assert sorted(spy.commits[1].rows) == sorted((f"e{n}", 1) for n in range(64))


def test_a_leader_goes_home_once_its_own_entries_are_stored(journal: StoreJournal, spy: SpyStore) -> None:
    gate, leader = busy_writer(journal, spy)
    log = begin(journal)
    log.append([*draft() * 3_000], lazy=True)
    mine = log.append(draft())
    for _ in range(10):
        log.append([*draft() * 3_000], lazy=True)
    (waiter,) = run_all(lambda: mine.wait(60))
    waiter.name = "waiter"
    gate.opened.set()
    join_all([leader, waiter])
    last = log.append(draft())
    last.wait()

    assert mine.done
    assert spy.seqs() == list(range(1, 33_003))
    assert len([commit for commit in spy.commits if commit.thread == "waiter"]) <= 2
    assert all(len(commit.rows) <= 7_000 for commit in spy.commits)


def test_somebody_else_leads_when_the_leader_has_gone(journal: StoreJournal, spy: SpyStore) -> None:
    first, second = begin(journal, "first"), begin(journal, "second")
    gate, leader = busy_writer(journal, spy)
    later = Gate()

    def hold_the_second(appends: Sequence[Append]) -> None:
        if any(append.claim.execution_id == "first" for append in appends):
            later()

    one = first.append(draft())
    (waiter,) = run_all(one.wait)
    spy.before = hold_the_second
    gate.opened.set()
    assert later.reached.wait(10)
    join_all([leader])  # the first leader does not wait for those it has handed on to
    two = second.append(draft())
    (other,) = run_all(two.wait)
    later.opened.set()
    join_all([waiter, other])

    assert (spy.seqs("first"), spy.seqs("second")) == ([1], [1])


def test_many_threads_and_executions_lose_nothing_and_keep_their_order(journal: StoreJournal, spy: SpyStore) -> None:
    logs = [begin(journal, f"e{n}") for n in range(16)]
    start = threading.Barrier(16)

    def work(log: ExecutionLog, number: int) -> None:
        start.wait()
        for step in range(50):
            log.append(draft(body=(step, "lazy")), lazy=True)
            ticket = log.append([*draft(body=(step, 1)), *draft(body=(step, 2))])
            if number % 3:
                ticket.wait()
            else:
                calls = Calls()
                ticket.add_callback(calls)
                calls.wait()

    join_all(run_all(*(lambda log=log, n=n: work(log, n) for n, log in enumerate(logs))))

    expected = [(step, what) for step in range(50) for what in ("lazy", 1, 2)]
    for number in range(16):
        assert [entry.body for entry in spy.stored(f"e{number}")] == expected
        assert spy.seqs(f"e{number}") == list(range(1, 151))


# --- entries that nobody waits for ---


def test_lazy_entries_ride_along_with_the_next_commit(journal: StoreJournal, spy: SpyStore) -> None:
    gate, leader = busy_writer(journal, spy)
    one, two = begin(journal, "e1"), begin(journal, "e2")
    lazy = [one.append(draft(), lazy=True), two.append(draft(), lazy=True)]
    eager = one.append(draft())
    gate.opened.set()
    eager.wait()
    join_all([leader])

    assert [ticket.done for ticket in lazy] == [True, True]
    assert spy.commits[1].sync
    assert spy.commits[1].rows == [("e1", 1), ("e2", 1), ("e1", 2)]


def test_lazy_entries_alone_are_written_soon_and_without_a_sync(journal: StoreJournal, spy: SpyStore) -> None:
    calls = Calls()
    begun = time.monotonic()
    begin(journal).append(draft(), lazy=True).add_callback(calls)
    calls.wait()

    assert time.monotonic() - begun >= 0.015
    (commit,) = spy.commits
    assert (commit.sync, commit.thread) == (False, f"ares-journal-writer {spy.name}")


def test_an_entry_that_nobody_waits_for_is_written_all_the_same(journal: StoreJournal, spy: SpyStore) -> None:
    written = threading.Event()
    spy.after = lambda appends: written.set()

    begin(journal).append(draft())

    assert written.wait(10)
    assert spy.commits[0].sync


def test_in_async_entries_are_written_at_once_though_nobody_waits(open_journal: Opener, spy: SpyStore) -> None:
    written = threading.Event()
    spy.after = lambda appends: written.set()

    begin(open_journal(durability="async")).append(draft())

    assert written.wait(10)
    assert spy.seqs() == [1]


def test_when_all_is_written_the_thread_of_the_journal_sleeps(journal: StoreJournal, spy: SpyStore) -> None:
    group = journal._group
    assert group is not None
    turns = 0
    turn = group._clerk._turn

    def counted() -> float | None:
        nonlocal turns
        turns += 1
        return turn()

    group._clerk._turn = counted
    begin(journal).append(draft(), lazy=True)
    threading.Event().wait(0.5)

    assert spy.seqs() == [1]
    assert turns < 10


# --- tickets ---


def test_callbacks_come_in_the_order_of_the_entries_on_the_journals_thread(
    journal: StoreJournal, spy: SpyStore
) -> None:
    log, calls = begin(journal), Calls(200)
    tickets = [log.append(draft()) for _ in range(200)]
    for ticket in tickets:
        ticket.add_callback(calls)

    assert calls.wait() == tickets
    assert {name for _, name in calls.made} == {f"ares-journal-writer {spy.name}"}
    assert not any(ticket.error for ticket in tickets)


def test_a_callback_that_comes_late_is_called_too_and_in_turn(journal: StoreJournal) -> None:
    log, calls = begin(journal), Calls(2)
    ticket = log.append(draft())
    ticket.wait()

    ticket.add_callback(calls)
    ticket.add_callback(calls)

    assert calls.wait() == [ticket, ticket]


def test_no_lock_is_held_while_a_callback_runs(journal: StoreJournal, spy: SpyStore) -> None:
    log, calls = begin(journal), Calls()
    other = begin(journal, "e2")

    def reentrant(ticket: Ticket) -> None:
        other.append(draft()).wait()
        log.append(draft()).add_callback(calls)
        assert journal.execution("e1").last_seq == 1

    log.append(draft()).add_callback(reentrant)
    calls.wait()

    assert (spy.seqs("e1"), spy.seqs("e2")) == ([1, 2], [1])


@pytest.mark.parametrize("exception", [ValueError("no"), SystemExit(3)])
def test_a_callback_that_raises_is_a_warning_and_the_next_one_is_called(
    journal: StoreJournal, warnings: list[str], exception: BaseException
) -> None:
    log, calls = begin(journal), Calls()

    def bad(ticket: Ticket) -> None:
        raise exception

    ticket = log.append(draft())
    ticket.add_callback(bad)
    ticket.add_callback(calls)
    calls.wait()
    again = Calls()
    log.append(draft()).add_callback(again)
    again.wait()

    assert len(warnings) == 1
    assert repr(exception) in warnings[0]


def test_a_wait_with_a_short_timeout_ends_in_time_and_the_entry_is_stored_later(
    journal: StoreJournal, spy: SpyStore
) -> None:
    log, gate, calls = begin(journal), Gate(), Calls()
    spy.before = gate
    ticket = log.append(draft())

    begun = time.monotonic()
    with pytest.raises(TimeoutError):
        ticket.wait(0.2)
    assert 0.15 < time.monotonic() - begun < 2
    assert not ticket.done

    gate.opened.set()
    ticket.add_callback(calls)
    calls.wait()
    ticket.wait(0.2)
    assert spy.seqs() == [1]


def test_a_ticket_may_be_waited_for_by_many_and_again(journal: StoreJournal, spy: SpyStore) -> None:
    gate, leader = busy_writer(journal, spy)
    ticket = begin(journal).append(draft())
    threads = run_all(*(ticket.wait for _ in range(8)))
    gate.opened.set()
    join_all([*threads, leader])
    ticket.wait()

    assert spy.seqs() == [1]


def test_seq_numbers_are_given_when_entries_are_handed_over(journal: StoreJournal, spy: SpyStore) -> None:
    gate, leader = busy_writer(journal, spy)
    log = begin(journal)
    log.append(draft() * 3)
    assert log.last_seq == 3
    ticket = log.append(draft() * 2)
    assert log.last_seq == 5
    gate.opened.set()
    ticket.wait()
    join_all([leader])

    assert spy.seqs() == [1, 2, 3, 4, 5]


# --- what the store refuses ---


def test_a_lost_claim_closes_its_log_and_no_other(journal: StoreJournal, spy: SpyStore) -> None:
    lost, kept = begin(journal, "lost"), begin(journal, "kept")
    gate, leader = busy_writer(journal, spy)
    first, second, other = lost.append(draft()), lost.append(draft()), kept.append(draft())
    spy.inner.release(lost.claim)
    gate.opened.set()
    other.wait()
    join_all([leader])

    for ticket in (first, second):
        with pytest.raises(LeaseLostError) as caught:
            ticket.wait()
        assert caught.value.execution_id == "lost"
    assert (lost.closed(), kept.closed()) == (True, False)
    commits, last = len(spy.commits), lost.last_seq
    late = lost.append(draft(), status="COMPLETED")
    assert late.done
    assert isinstance(late.error, LeaseLostError)
    with pytest.raises(LeaseLostError):
        late.wait()
    assert (len(spy.commits), lost.last_seq) == (commits, last)
    kept.append(draft()).wait()
    assert (spy.seqs("lost"), spy.seqs("kept")) == ([], [1, 2])


def test_entries_queued_behind_a_refused_one_fail_without_the_store(journal: StoreJournal, spy: SpyStore) -> None:
    log = begin(journal)
    spy.inner.release(log.claim)
    gate = Gate()
    spy.before = gate
    first = log.append(draft())
    (thread,) = run_all(lambda: swallow(first))
    assert gate.reached.wait(10)
    second, calls = log.append(draft()), Calls()
    second.add_callback(calls)
    gate.opened.set()
    calls.wait()
    join_all([thread])

    assert isinstance(second.error, LeaseLostError)
    assert [commit.rows for commit in spy.commits] == [[("e1", 1)]]


def swallow_interrupt(ticket: Ticket) -> None:
    with contextlib.suppress(KeyboardInterrupt):
        ticket.wait()


def swallow(ticket: Ticket) -> None:
    with contextlib.suppress(StoreError):
        ticket.wait()


@pytest.mark.parametrize("durability", ["sync", "async"])
@pytest.mark.parametrize("error", [StoreError("spy.db", "the disk is full"), RuntimeError("a bug")])
def test_a_commit_that_fails_ends_the_logs_that_were_in_it(
    open_journal: Opener, spy: SpyStore, durability: str, error: Exception
) -> None:
    journal = open_journal(durability=durability)
    one, two, three = (begin(journal, id_) for id_ in ("e1", "e2", "e3"))

    def fail(appends: Sequence[Append]) -> None:
        raise error

    gate, leader = busy_writer(journal, spy)
    tickets = [one.append(draft()), two.append(draft())]
    spy.before = fail
    gate.opened.set()
    failures = []
    for ticket in tickets:
        with pytest.raises(StoreError) as caught:
            ticket.wait()
        failures.append(caught.value)
    join_all([leader])
    spy.before = lambda appends: None

    assert [(f.execution_id, f.store) for f in failures] == [("e1", "spy.db"), ("e2", "spy.db")]
    assert all(str(getattr(error, "problem", error)) in str(f) for f in failures)
    assert [log.closed() for log in (one, two, three)] == [True, True, False]
    three.append(draft()).wait()
    assert (spy.seqs("e1"), spy.seqs("e2"), spy.seqs("e3")) == ([], [], [1])


def test_each_wait_raises_an_exception_of_its_own(journal: StoreJournal, spy: SpyStore) -> None:
    def fail(appends: Sequence[Append]) -> None:
        raise StoreError("spy.db", "no") from OSError("the cause")

    spy.before = fail
    ticket = begin(journal).append(draft())
    raised = []
    for _ in range(2):
        with pytest.raises(StoreError) as caught:
            ticket.wait()
        raised.append(caught.value)

    assert raised[0] is not raised[1]
    assert repr(raised[0].__cause__) == "OSError('the cause')"


def test_a_store_that_answers_wrongly_is_a_failure_and_nobody_hangs(journal: StoreJournal, spy: SpyStore) -> None:
    spy.inner.append = lambda appends, sync: []  # type: ignore[method-assign]
    ticket = begin(journal).append(draft())

    with pytest.raises(StoreError):
        ticket.wait()


# --- best effort ---


class TestBestEffort:
    @pytest.fixture
    def journal(self, open_journal: Opener) -> StoreJournal:
        return open_journal(durability="best_effort")

    @staticmethod
    def failing(appends: Sequence[Append]) -> None:
        raise StoreError("spy.db", "the disk is full")

    def test_what_could_not_be_stored_is_stored_later_in_order(
        self, journal: StoreJournal, spy: SpyStore, warnings: list[str]
    ) -> None:
        log, other = begin(journal), begin(journal, "e2")
        spy.before = self.failing
        tickets = [log.append(draft(body=n)) for n in range(20)]
        for ticket in tickets[::7]:
            with pytest.raises(StoreError) as caught:
                ticket.wait()
            assert caught.value.execution_id == "e1"
        assert not log.closed()
        spy.before = lambda appends: None

        other.append(draft()).wait()
        log.append(draft(body=20)).wait()
        journal.close()  # warnings come from the journal's thread

        assert [entry.body for entry in spy.stored()] == list(range(21))
        assert spy.seqs() == list(range(1, 22))
        assert [w for w in warnings if "the disk is full" in w] == warnings
        assert len(warnings) == 1

    def test_a_ticket_that_failed_stays_so_though_its_entry_is_stored_later(
        self, journal: StoreJournal, spy: SpyStore
    ) -> None:
        log = begin(journal)
        spy.before = self.failing
        ticket = log.append(draft())
        with pytest.raises(StoreError):
            ticket.wait()
        spy.before = lambda appends: None
        log.append(draft()).wait()

        assert spy.seqs() == [1, 2]
        with pytest.raises(StoreError):
            ticket.wait()

    def test_a_second_trouble_is_a_second_warning(
        self, journal: StoreJournal, spy: SpyStore, warnings: list[str]
    ) -> None:
        log = begin(journal)
        for _ in range(2):
            spy.before = self.failing
            with pytest.raises(StoreError):
                log.append(draft()).wait()
            spy.before = lambda appends: None
            log.append(draft()).wait()
        calls = Calls()
        log.append(draft()).add_callback(calls)
        calls.wait()

        assert len(warnings) == 2
        assert spy.seqs() == [1, 2, 3, 4, 5]

    def test_a_lost_claim_is_final_all_the_same(self, journal: StoreJournal, spy: SpyStore) -> None:
        log = begin(journal)
        spy.inner.release(log.claim)

        with pytest.raises(LeaseLostError):
            log.append(draft()).wait()

        assert log.closed()

    def test_a_beat_that_gets_through_has_the_rest_tried_again(self, open_journal: Opener, spy: SpyStore) -> None:
        journal = open_journal(durability="best_effort", lease_timeout=0.3)
        log = begin(journal)
        spy.before = self.failing
        with pytest.raises(StoreError):
            log.append(draft()).wait()
        written = threading.Event()
        spy.after = lambda appends: written.set()
        spy.before = lambda appends: None

        assert written.wait(10)
        assert spy.seqs() == [1]

    def test_a_failing_store_is_not_asked_all_the_time(self, journal: StoreJournal, spy: SpyStore) -> None:
        log = begin(journal)
        spy.before = self.failing
        begun = time.monotonic()
        while time.monotonic() - begun < 0.6:
            log.append(draft()).add_callback(lambda ticket: None)

        assert len(spy.commits) <= 6

    def test_close_tries_once_more_and_says_what_is_lost(
        self, journal: StoreJournal, spy: SpyStore, warnings: list[str]
    ) -> None:
        log = begin(journal)
        spy.before = self.failing
        with pytest.raises(StoreError):
            log.append(draft() * 3).wait()

        journal.close()

        assert "3 entries of 1 executions could not be stored" in warnings

    def test_close_stores_what_is_left(self, journal: StoreJournal, spy: SpyStore, warnings: list[str]) -> None:
        log = begin(journal)
        spy.before = self.failing
        with pytest.raises(StoreError):
            log.append(draft() * 3).wait()
        spy.before = lambda appends: None

        journal.close()

        assert spy.seqs() == [1, 2, 3]
        assert len(warnings) == 1

    def test_what_is_kept_has_a_bound(
        self, journal: StoreJournal, spy: SpyStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("ares.journal.commit_queue._BACKLOG", 100)
        log = begin(journal)
        spy.before = self.failing
        with pytest.raises(StoreError):
            log.append(draft() * 101).wait()

        assert log.closed()


# --- interruption ---


@pytest.mark.parametrize("moment", ["before", "after"])
def test_an_interrupted_leader_leaves_nobody_without_an_answer(
    journal: StoreJournal, spy: SpyStore, moment: str
) -> None:
    mine, theirs = begin(journal, "mine"), begin(journal, "theirs")
    interrupted = threading.Event()
    gate, leader = busy_writer(journal, spy)

    def interrupt(appends: Sequence[Append]) -> None:
        if not interrupted.is_set() and len(appends) == 2:
            interrupted.set()
            raise KeyboardInterrupt  # as if a signal had come on the thread that leads

    ticket, other, calls = mine.append(draft()), theirs.append(draft()), Calls()
    other.add_callback(calls)
    spy.before = lambda appends: None
    setattr(spy, moment, interrupt)

    threads = run_all(lambda: swallow_interrupt(ticket), lambda: swallow_interrupt(other))
    gate.opened.set()
    join_all([*threads, leader])
    calls.wait()
    ticket.wait()
    other.wait()

    assert interrupted.is_set()
    assert (spy.seqs("mine"), spy.seqs("theirs")) == ([1], [1])


def test_entries_of_an_interrupted_commit_keep_their_place(journal: StoreJournal, spy: SpyStore) -> None:
    log = begin(journal)

    def interrupt(appends: Sequence[Append]) -> None:
        if threading.current_thread() is threading.main_thread():
            raise KeyboardInterrupt

    spy.after = interrupt
    with contextlib.suppress(KeyboardInterrupt):
        log.append(draft(body=1)).wait()
    spy.after = lambda appends: None
    log.append(draft(body=2)).wait()

    assert [entry.body for entry in spy.stored()] == [1, 2]


def test_a_ctrl_c_while_waiting_for_somebody_else_leads_to_no_standstill(journal: StoreJournal, spy: SpyStore) -> None:
    gate, leader = busy_writer(journal, spy)
    mine, others = begin(journal, "mine"), [begin(journal, f"e{n}") for n in range(4)]
    ticket = mine.append(draft())
    main = threading.main_thread().ident
    assert main is not None
    timer = threading.Timer(0.2, lambda: signal.pthread_kill(main, signal.SIGINT))
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job begins with it ignored
    try:
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            ticket.wait()
    finally:
        signal.signal(signal.SIGINT, handler)
    threads = run_all(*(log.append(draft()).wait for log in others))
    gate.opened.set()
    join_all([*threads, leader, timer])
    ticket.wait()

    assert spy.seqs("mine") == [1]


# --- claims ---


def test_giving_a_claim_back_writes_first_what_was_handed_over(journal: StoreJournal, spy: SpyStore) -> None:
    log = begin(journal)
    log.append(draft() * 3, lazy=True)

    journal.release(log.claim)

    assert spy.seqs() == [1, 2, 3]
    assert log.closed()
    assert isinstance(log.append(draft()).error, StoreError)
    assert spy.seqs() == [1, 2, 3]
    assert not journal.execution("e1").live


def test_a_claim_can_be_taken_again_and_goes_on_where_it_was(journal: StoreJournal, spy: SpyStore) -> None:
    log = begin(journal)
    log.append(draft()).wait()
    with pytest.raises(ExecutionBusyError):
        journal.claim("e1")
    journal.release(log.claim)
    journal.release(log.claim)

    again = journal.log(journal.claim("e1"))
    again.append(draft()).wait()

    assert again.last_seq == 2
    assert spy.seqs() == [1, 2]


def test_release_survives_a_store_that_fails(journal: StoreJournal, spy: SpyStore, warnings: list[str]) -> None:
    log = begin(journal)
    log.append(draft(), lazy=True)

    def fail(*args: object) -> None:
        raise StoreError("spy.db", "gone")

    spy.before = fail
    spy.release = fail  # type: ignore[method-assign]
    journal.release(log.claim)

    assert log.closed()
    assert any("gone" in warning for warning in warnings)


def test_a_claim_has_one_log(journal: StoreJournal) -> None:
    claim = journal.create(new(), "RUNNING", draft(), claimed=True)

    assert journal.log(claim) is journal.log(claim)
    assert journal.log(claim).last_seq == 1


def test_created_without_a_claim_it_waits_for_one(journal: StoreJournal) -> None:
    claim = journal.create(new(), "PENDING", draft(), claimed=False)
    assert claim.lease == 0
    with pytest.raises(ExecutionExistsError):
        journal.create(new(), "PENDING", [], claimed=False)

    assert journal.claim("e1").last_seq == 1
    with pytest.raises(ExecutionNotFoundError):
        journal.claim("e2")


def test_statuses_go_with_their_entries(journal: StoreJournal) -> None:
    log = begin(journal)
    log.append(draft(), status="FAILED", error="boom").wait()

    row = journal.execution("e1")
    assert (row.status, row.error) == ("FAILED", "boom")
    assert [row.execution_id for row in journal.executions(statuses=["FAILED"], limit=1)] == ["e1"]
    assert [entry.seq for entry in journal.entries("e1")] == [1]


# --- requests ---


def heard() -> tuple[list[Request], threading.Event, Callable[[Request], None]]:
    got: list[Request] = []
    event = threading.Event()

    def take(request: Request) -> None:
        got.append(request)
        event.set()

    return got, event, take


def test_requests_made_before_and_after_watching_are_heard_once(journal: StoreJournal) -> None:
    begin(journal)
    journal.request("e1", "cancel", '"early"')
    got, event, take = heard()

    end = journal.watch("e1", take)
    assert event.wait(5)
    event.clear()
    begun = time.monotonic()
    assert journal.request("e1", "answer", '"late"')
    assert event.wait(5)
    assert time.monotonic() - begun < 0.2  # in the same process nobody waits for the next look
    journal.close_request(got[0].number)
    event.clear()
    journal.request("e1", "cancel", '"last"')
    assert event.wait(5)
    end()
    end()
    journal.request("e1", "cancel", '"unheard"')
    threading.Event().wait(0.4)

    assert [request.body for request in got] == ['"early"', '"late"', '"last"']


def test_each_watcher_hears_of_its_own_execution(journal: StoreJournal, warnings: list[str]) -> None:
    begin(journal, "e1")
    begin(journal, "e2")
    one, _, take_one = heard()
    two, event, take_two = heard()

    def bad(request: Request) -> None:
        raise ValueError("no")

    journal.watch("e1", bad)
    journal.watch("e1", take_one)
    journal.watch("e2", take_two)
    journal.request("e1", "cancel", "1")
    journal.request("e2", "cancel", "2")
    assert event.wait(5)

    assert [request.body for request in one] == ["1"]
    assert [request.body for request in two] == ["2"]
    assert len(warnings) == 1


def test_an_inbox_that_cannot_be_read_is_a_warning_and_read_again(
    journal: StoreJournal, spy: SpyStore, warnings: list[str]
) -> None:
    begin(journal)
    got, event, take = heard()
    failures = [StoreError("spy.db", "locked")] * 2

    def requests(lease: int, after: int = 0) -> Sequence[Request]:
        if failures:
            raise failures.pop()
        return spy.inner.requests(lease, after)

    spy.requests = requests  # type: ignore[method-assign]
    journal.watch("e1", take)
    journal.request("e1", "cancel", "1")
    assert event.wait(5)

    assert len(got) == 1
    assert len(warnings) == 1


# --- its life ---


def names() -> set[str]:
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("ares-journal")}


def test_threads_are_named_and_end_with_it(open_journal: Opener, spy: SpyStore) -> None:
    journal = open_journal()
    assert names() == {f"ares-journal-heartbeat {spy.name}"}
    begin(journal).append(draft()).wait()
    assert f"ares-journal-heartbeat {spy.name}" in names()

    journal.close()

    assert names() == set()
    assert not spy.is_open


def test_close_writes_what_waits_and_gives_back_the_lease(open_journal: Opener, spy: SpyStore) -> None:
    journal = open_journal()
    log = begin(journal)
    log.append(draft() * 3, lazy=True)

    journal.close()
    journal.close()

    assert spy.seqs() == [1, 2, 3]
    assert not spy.inner.execution("e1").live
    assert log.closed()
    refused = log.append(draft())
    calls = Calls()
    refused.add_callback(calls)
    assert calls.wait() == [refused]
    with pytest.raises(StoreError):
        refused.wait()
    for call in (lambda: journal.claim("e1"), lambda: begin(journal, "e2"), journal.start):
        with pytest.raises(StoreError):
            call()
    assert journal.execution("e1").last_seq == 3


def test_close_comes_back_in_time_from_a_store_that_hangs(
    open_journal: Opener, spy: SpyStore, warnings: list[str]
) -> None:
    journal = open_journal()
    log = begin(journal)
    gate = Gate()
    spy.before = gate
    ticket = log.append(draft(), lazy=True)
    assert gate.reached.wait(10)

    begun = time.monotonic()
    journal.close(0.3)
    assert time.monotonic() - begun < 1.5
    assert any("could not be closed" in warning for warning in warnings)

    gate.opened.set()
    ticket.wait(10)
    heartbeat = journal._heartbeat
    assert heartbeat is not None
    assert heartbeat.stop(10)
    assert spy.seqs() == [1]
    assert not spy.is_open


@pytest.mark.parametrize("where", ["callback", "request"])
def test_close_from_the_journals_own_threads_returns_at_once_and_happens(
    open_journal: Opener, spy: SpyStore, where: str
) -> None:
    journal = open_journal()
    log = begin(journal)
    returned = threading.Event()

    def close(_: object) -> None:
        journal.close(30)
        returned.set()

    if where == "callback":
        log.append(draft()).add_callback(close)
    else:
        journal.watch("e1", close)
        journal.request("e1", "cancel", "{}")
    assert returned.wait(5)
    journal.close(10)

    assert names() == set()
    assert not spy.is_open


def test_close_before_start_and_without_any_use(spy: SpyStore) -> None:
    journal = StoreJournal(spy)
    journal.close()
    with pytest.raises(StoreError):
        journal.start()

    idle = StoreJournal(spy)
    idle.start()
    idle.start()
    idle.close()
    assert names() == set()


def test_a_start_that_fails_leaves_nothing_open(spy: SpyStore) -> None:
    def fail(owner: object) -> int:
        raise StoreError("spy.db", "no")

    spy.start_lease = fail  # type: ignore[method-assign]
    journal = StoreJournal(spy)
    with pytest.raises(StoreError):
        journal.start()

    assert not spy.is_open
    assert names() == set()
    del spy.start_lease
    journal.start()
    assert begin(journal)
    journal.close()


def test_nothing_works_before_start(spy: SpyStore) -> None:
    journal = StoreJournal(spy)

    for call in (
        lambda: journal.create(new(), "RUNNING", [], claimed=True),
        lambda: journal.claim("e1"),
        lambda: journal.watch("e1", lambda request: None),
    ):
        with pytest.raises(StoreError):
            call()


def test_a_lease_that_is_gone_is_told_and_another_one_is_beaten(
    open_journal: Opener, spy: SpyStore, warnings: list[str]
) -> None:
    beats: list[int] = []
    beaten = threading.Event()
    lost: list[Claim] = []

    def beat(lease: int) -> bool:
        if beats and beats[-1] != lease:
            beaten.set()
        beats.append(lease)
        return spy.inner.beat(lease)

    spy.beat = beat  # type: ignore[method-assign]
    journal = open_journal(lease_timeout=0.06, on_lost=lost.extend)
    claim = journal.create(new(), "RUNNING", [], claimed=True)
    log = journal.log(claim)
    log.append(draft()).wait()
    spy.inner.end_lease(claim.lease)
    assert beaten.wait(10)

    assert lost == [claim]
    assert len(warnings) == 1
    assert "the lease was lost" in warnings[0]
    assert log.closed()
    assert isinstance(log.append(draft()).error, LeaseLostError)
    with pytest.raises(ExecutionBusyError):
        journal.claim("e1")  # whoever walks it has not come to the end of that
    journal.release(claim)
    assert journal.claim("e1").lease == beats[-1]


def test_a_new_execution_does_not_suffer_from_a_lease_that_was_lost(open_journal: Opener, spy: SpyStore) -> None:
    journal = open_journal()
    first = journal.create(new("first"), "RUNNING", [], claimed=True)
    spy.inner.end_lease(first.lease)

    second = journal.create(new("second"), "RUNNING", [], claimed=True)
    journal.log(second).append(draft()).wait()

    assert second.lease != first.lease
    assert spy.seqs("second") == [1]


def test_a_beat_that_fails_is_told_once_and_tried_again(
    open_journal: Opener, spy: SpyStore, warnings: list[str]
) -> None:
    failures, beaten = [StoreError("spy.db", "locked")] * 3, threading.Event()

    def beat(lease: int) -> bool:
        if failures:
            raise failures.pop()
        beaten.set()
        return True

    spy.beat = beat  # type: ignore[method-assign]
    open_journal(lease_timeout=0.06)

    assert beaten.wait(10)
    assert len(warnings) == 1


def test_a_warning_that_cannot_be_told_harms_nobody(spy: SpyStore) -> None:
    beats = threading.Semaphore(0)

    def beat(lease: int) -> bool:
        beats.release()
        raise StoreError("spy.db", f"beat {time.monotonic()}")

    def refuse(message: str) -> None:
        raise ValueError(message)

    spy.beat = beat  # type: ignore[method-assign]
    journal = StoreJournal(spy, lease_timeout=0.06, on_warning=refuse)
    journal.start()
    try:
        assert all(beats.acquire(timeout=10) for _ in range(3))
    finally:
        journal.close()


def test_an_unknown_durability_is_refused(spy: SpyStore) -> None:
    with pytest.raises(UsageError):
        StoreJournal(spy, durability="never")


def test_where_no_thread_can_be_started_waiting_and_closing_still_work(
    open_journal: Opener, spy: SpyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = open_journal()
    log, calls = begin(journal), Calls()

    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    log.append(draft()).wait(1.0)
    log.append(draft()).add_callback(calls)
    assert len(calls.wait()) == 1
    log.append(draft(), lazy=True)
    journal.close()

    assert spy.seqs() == [1, 2, 3]


# --- a store that keeps references ---


class TestInline:
    @pytest.fixture
    def journal(self) -> Iterator[StoreJournal]:
        journal = StoreJournal(VolatileStore())
        journal.start()
        yield journal
        journal.close()

    def test_everything_happens_at_once_and_no_thread_is_started(self, journal: StoreJournal) -> None:
        log, body, calls = begin(journal), object(), Calls()

        ticket = log.append(draft(body=body), lazy=True)

        assert ticket.done
        assert ticket.error is None
        ticket.wait()
        ticket.add_callback(calls)
        assert calls.made == [(ticket, threading.current_thread().name)]
        (entry,) = journal.entries("e1")
        assert entry.body is body
        assert journal.keeps_references
        assert names() == set()

    def test_a_lost_claim_closes_the_log(self, journal: StoreJournal) -> None:
        log = begin(journal)
        log.append(draft()).wait()
        journal.release(log.claim)
        assert log.closed()
        journal.claim("e1")

        ticket = log.append(draft())

        assert ticket.done
        with pytest.raises(StoreError):
            ticket.wait()
        assert log.last_seq == 1

    def test_a_claim_taken_away_is_told_by_the_next_append(self, journal: StoreJournal) -> None:
        log = begin(journal)
        journal._store.release(log.claim)

        with pytest.raises(LeaseLostError) as caught:
            log.append(draft()).wait()

        assert caught.value.execution_id == "e1"
        assert log.closed()
        assert isinstance(log.append(draft()).error, LeaseLostError)

    def test_requests_are_heard_on_the_thread_that_makes_them(self, journal: StoreJournal) -> None:
        begin(journal)
        journal.request("e1", "cancel", "1")
        got, _, take = heard()

        end = journal.watch("e1", take)
        journal.request("e1", "answer", "2")
        end()
        journal.request("e1", "cancel", "3")

        assert [request.body for request in got] == ["1", "2"]

    def test_many_threads_share_one_log(self, journal: StoreJournal) -> None:
        log = begin(journal)
        start = threading.Barrier(8)

        def work() -> None:
            start.wait()
            for _ in range(500):
                log.append(draft()).wait()

        join_all(run_all(*(work for _ in range(8))))

        assert [entry.seq for entry in journal.entries("e1")] == list(range(1, 4_001))

    def test_after_close_what_was_stored_can_be_read(self, journal: StoreJournal) -> None:
        log = begin(journal)
        log.append(draft())
        journal.close()

        assert log.closed()
        assert isinstance(log.append(draft()).error, StoreError)
        assert [entry.seq for entry in journal.entries("e1")] == [1]
        assert attrs.evolve(journal.execution("e1"), live=True).last_seq == 1
