"""Who wants to hear of requests from outside, and what each has heard already. Knows no thread and no clock."""

import threading
from collections.abc import Callable, Sequence

from ares.journal.protocol import Request


class Watcher:
    """One interest in the requests of one execution."""

    def __init__(self, execution_id: str, on_request: Callable[[Request], None]) -> None:
        self.execution_id = execution_id
        self.on_request = on_request
        self.is_active = True
        #: Numbers of open requests that it was told of. A set and not a highest number, because numbers may become
        #: visible in another order than they were given out in.
        self.told: set[int] = set()


class Inbox:
    """Hands each open request to each watcher of its execution once.

    Args:
        fetch: Gives the open requests, oldest first.
        on_failure: Told of a watcher that raised.
    """

    def __init__(self, fetch: Callable[[], Sequence[Request]], on_failure: Callable[[str], None]) -> None:
        self._fetch = fetch
        self._on_failure = on_failure
        #: Held from a look at the store to the note of what was seen: two looks at once would not know of each other.
        self._looking = threading.Lock()
        self._lock = threading.Lock()
        self._watchers: dict[str, list[Watcher]] = {}

    def watch(self, execution_id: str, on_request: Callable[[Request], None]) -> Callable[[], None]:
        """Add a watcher; returns the function that takes it away. A call that has begun by then comes to its end."""
        watcher = Watcher(execution_id, on_request)
        try:
            with self._lock:
                self._watchers.setdefault(execution_id, []).append(watcher)
        except BaseException:  # of a Ctrl-C: nobody gets to know how to take it away
            self._unwatch(watcher)
            raise
        return lambda: self._unwatch(watcher)

    def is_watched(self) -> bool:
        """Whether anybody wants to hear."""
        with self._lock:
            return bool(self._watchers)

    def deliver(self, only: str = "") -> None:
        """Fetch what is open and tell whoever has not heard of it; ``only`` the watchers of one execution, if given."""
        if not self.is_watched():
            return
        with self._looking:
            calls = self._untold([r for r in self._fetch() if not only or r.execution_id == only], only)
        for watcher, request in calls:
            if not watcher.is_active:
                continue
            try:
                watcher.on_request(request)
            except Exception as error:  # one watcher's failure is not the others'
                self._on_failure(f"a request to execution {request.execution_id!r} was not taken up: {error!r}")

    def _untold(self, requests: Sequence[Request], only: str) -> list[tuple[Watcher, Request]]:
        """Who is to be told what; from here on it counts as told."""
        still_open = {request.number for request in requests}
        calls: list[tuple[Watcher, Request]] = []
        with self._lock:
            for watchers in [self._watchers.get(only, [])] if only else self._watchers.values():
                for watcher in watchers:
                    watcher.told &= still_open
            for request in requests:
                for watcher in self._watchers.get(request.execution_id, ()):
                    if request.number not in watcher.told:
                        watcher.told.add(request.number)
                        calls.append((watcher, request))
        return calls

    def _unwatch(self, watcher: Watcher) -> None:
        with self._lock:
            watcher.is_active = False
            others = [other for other in self._watchers.get(watcher.execution_id, ()) if other is not watcher]
            if others:
                self._watchers[watcher.execution_id] = others
            else:
                self._watchers.pop(watcher.execution_id, None)
