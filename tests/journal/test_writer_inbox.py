"""The inbox: each open request is told once to each watcher of its execution, however many look at once."""

import threading

from ares.journal.inbox import Inbox
from ares.journal.protocol import Request
from tests.journal.spy_store import join_all, run_all


def test_two_looks_at_once_tell_nothing_twice() -> None:
    opened: list[Request] = []
    told: list[int] = []
    lock = threading.Lock()

    def fetch() -> list[Request]:
        with lock:
            return list(opened)

    def take(request: Request) -> None:
        with lock:
            told.append(request.number)
            if request.number % 2:
                opened.remove(request)

    inbox = Inbox(fetch, lambda message: None)
    inbox.watch("e1", take)

    def ask(first: int) -> None:
        for number in range(first, 400, 4):
            with lock:
                opened.append(Request(number, "e1", "cancel", "{}"))
            inbox.deliver()

    join_all(run_all(*(lambda n=n: ask(n) for n in range(4))))  # type: ignore[misc]

    assert sorted(told) == list(range(400))


def test_one_who_watches_again_hears_what_is_still_open() -> None:
    opened = [Request(1, "e1", "cancel", "{}"), Request(2, "e2", "cancel", "{}")]
    told: list[int] = []
    inbox = Inbox(lambda: opened, lambda message: None)

    for _ in range(2):
        end = inbox.watch("e1", lambda request: told.append(request.number))
        inbox.deliver()
        inbox.deliver()
        end()
    inbox.deliver()

    assert told == [1, 1]
    assert not inbox.is_watched()


def test_a_watcher_may_ask_for_more_and_leave_while_it_is_told() -> None:
    opened = [Request(number, "e1", "cancel", "{}") for number in (1, 2, 3)]
    told: list[int] = []
    inbox = Inbox(lambda: opened, lambda message: None)

    def take(request: Request) -> None:
        told.append(request.number)
        end()
        inbox.deliver()

    end = inbox.watch("e1", take)
    inbox.deliver()

    assert told == [1]
