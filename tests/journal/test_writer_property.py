"""Random interleavings of appends, waits, lost claims and failing transactions, over a real SQLite file.

The model is naive: what is stored of an execution is the beginning of what was handed over for it, in order; whatever a
ticket calls stored is in it; and only a lost claim or a failure of its own batch may cut it short.
"""

import contextlib
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
from hypothesis import given, settings
from hypothesis import strategies as st

from ares.errors import StoreError
from ares.journal.protocol import Append, ExecutionLog, Ticket
from ares.journal.writer import StoreJournal
from ares.stores.sqlite import SqliteStore
from tests.journal.spy_store import draft, join_all, new, run_all

EXECUTIONS = 4


class FaultyStore:
    """A store whose appends fail by plan: before the real commit, or after it was carried out."""

    keeps_references = False

    def __init__(self, inner: SqliteStore, plan: Sequence[str]) -> None:
        self.inner = inner
        self.plan = list(plan)
        self.failed: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def append(self, appends: Sequence[Append], *, sync: bool) -> Sequence[Exception | None]:
        fault = self.plan.pop(0) if self.plan else "none"
        if fault in ("before", "interrupt before"):
            self.fail(appends, fault)
        results = self.inner.append(appends, sync=sync)
        if fault in ("after", "interrupt after"):
            self.fail(appends, fault)
        return results

    def fail(self, appends: Sequence[Append], fault: str) -> None:
        if fault.startswith("interrupt"):
            raise KeyboardInterrupt
        self.failed |= {append.claim.execution_id for append in appends}
        raise StoreError(self.inner.name, "as planned")


@attrs.define
class Run:
    """One execution as the model sees it."""

    log: ExecutionLog
    handed: list[str] = attrs.Factory(list)
    tickets: list[tuple[int, Ticket]] = attrs.Factory(list)
    asked: list[Ticket] = attrs.Factory(list)
    is_lost: bool = False

    def append(self, count: int, *, lazy: bool) -> None:
        before = self.log.last_seq
        bodies = [f'"{before + n}"' for n in range(1, count + 1)]
        ticket = self.log.append([d for body in bodies for d in draft(body)], lazy=lazy)
        if self.log.last_seq > before:
            self.handed += bodies
        self.tickets.append((self.log.last_seq, ticket))

    def wait(self) -> None:
        if self.tickets:
            with contextlib.suppress(StoreError, KeyboardInterrupt):
                self.tickets[-1][1].wait(60)

    def call_back(self, calls: list[Ticket]) -> None:
        if self.tickets:
            ticket = self.tickets[-1][1]
            self.asked.append(ticket)
            ticket.add_callback(calls.append)


safe_actions = st.tuples(
    st.sampled_from(["append", "append", "lazy", "wait", "call back"]),
    st.integers(0, EXECUTIONS - 1),
    st.integers(1, 4),
)
actions = st.one_of(safe_actions, st.tuples(st.just("lose"), st.integers(0, EXECUTIONS - 1), st.just(0)))
plans = st.lists(
    st.sampled_from(["none", "none", "before", "after", "interrupt before", "interrupt after"]), max_size=12
)


def do(action: tuple[str, int, int], runs: list[Run], store: FaultyStore, calls: list[Ticket]) -> None:
    what, number, count = action
    run = runs[number]
    if what in ("append", "lazy"):
        run.append(count, lazy=what == "lazy")
    elif what == "wait":
        run.wait()
    elif what == "call back":
        run.call_back(calls)
    else:
        run.is_lost = True
        store.inner.release(run.log.claim)


def check(durability: str, runs: list[Run], store: FaultyStore) -> None:
    for number, run in enumerate(runs):
        stored = list(store.inner.entries(f"e{number}"))
        assert [entry.seq for entry in stored] == list(range(1, len(stored) + 1))
        assert [entry.body for entry in stored] == run.handed[: len(stored)]
        for last_seq, ticket in run.tickets:
            assert ticket.done
            if ticket.error is None:
                assert last_seq <= len(stored)
        failed = [ticket.error is not None for _, ticket in run.tickets]
        if durability != "best_effort":
            assert failed == sorted(failed)  # once one has failed, all later ones have
        if not run.is_lost and (durability == "best_effort" or f"e{number}" not in store.failed):
            assert len(stored) == len(run.handed)
            assert durability == "best_effort" or not any(failed)


def scenario(durability: str, plan: Sequence[str], lanes: Sequence[Sequence[tuple[str, int, int]]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = FaultyStore(SqliteStore(Path(folder) / "a.db", synchronous="NORMAL"), plan)
        journal = StoreJournal(store, durability=durability)
        journal.start()
        try:
            claims = [journal.create(new(f"e{n}"), "RUNNING", [], claimed=True) for n in range(EXECUTIONS)]
            runs = [Run(journal.log(claim)) for claim in claims]
            calls: list[Ticket] = []

            def walk(lane: Sequence[tuple[str, int, int]]) -> None:
                for action in lane:
                    do(action, runs, store, calls)

            if len(lanes) == 1:
                walk(lanes[0])
            else:
                join_all(run_all(*(lambda lane=lane: walk(lane) for lane in lanes)))  # type: ignore[misc]
            store.plan.clear()
        finally:
            journal.close(60)
        check(durability, runs, store)
        asked = [ticket for run in runs for ticket in run.asked]
        assert sorted(map(id, calls)) == sorted(map(id, asked))
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("ares-journal")]


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(["sync", "async", "best_effort"]), plans, st.lists(actions, max_size=40))
def test_on_one_thread_nothing_is_lost_doubled_or_out_of_order(
    durability: str, plan: list[str], lane: list[tuple[str, int, int]]
) -> None:
    scenario(durability, plan, [lane])


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(["sync", "async", "best_effort"]),
    plans,
    st.lists(st.lists(safe_actions, max_size=25), min_size=EXECUTIONS, max_size=EXECUTIONS),
)
def test_on_many_threads_nothing_is_lost_doubled_or_out_of_order(
    durability: str, plan: list[str], lanes: list[list[tuple[str, int, int]]]
) -> None:
    # Each thread appends to an execution of its own, because the model's bookkeeping is not for many.
    own = [[(what, number, count) for what, _, count in lane] for number, lane in enumerate(lanes)]
    scenario(durability, plan, own)
