"""A Dask cluster as an executor. The only module that imports ``distributed``, and imported only by who uses it.

Dask runs a call again by itself when the worker that ran it is lost. Here nothing runs twice unless a step's policy
says so: each call has a ticket at the scheduler, a queue with one thing in it, which the worker takes before it begins.
A second worker finds none, and whoever waits at home is told that the first is lost. To cancel a call is to take its
ticket. The worker also says at the scheduler that it has begun, and who it is: a lost worker may have been the last,
and then no other would ever come to find the ticket gone.
"""

import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future, InvalidStateError
from contextlib import suppress
from functools import partial
from typing import Any, ParamSpec, TypeVar

from distributed import Client, Queue, get_client, get_worker

from ares.executors.place import BodyLost
from ares.postbox import Latch

P = ParamSpec("P")
T = TypeVar("T")

#: Seconds that connecting to a scheduler may take.
CONNECT_SECONDS = 5.0
#: Seconds that a scheduler is given for what it answers at once, and how often in a row it may not.
_ASK_SECONDS, _PATIENCE = 5.0, 3
#: Seconds between two looks at which calls have begun; and at which workers there are. To wait at the scheduler would
#: have it log each time that nothing came.
_NEWS_SECONDS, _LOOK_SECONDS = 0.05, 0.5
#: Seconds after which a call counts as lost whose worker is gone: its result may be on its way.
_LATE_SECONDS = 1.0
#: Seconds that shutting down waits for the thread and the connection.
_END_SECONDS = 5.0

#: What a worker returns that found no ticket.
_NO_TICKET = "no ticket"


class DaskExecutor(Executor):
    """Runs calls on a Dask cluster, at most once each, whatever becomes of its workers.

    Give a Runtime ``functools.partial(DaskExecutor, "tcp://scheduler:8786")``, which connects at first use, and again
    when the cluster was gone. The workers need ares, and the modules that the steps are in.

    Args:
        cluster: the address of a scheduler, or a ``distributed.Client``, which stays the caller's to close.
        timeout: seconds that connecting may take.
        options: for ``Client.submit``, such as ``resources`` and ``workers``.

    Raises:
        ConnectionError: no scheduler answers there.
    """

    #: ``shutdown(wait=True)`` returns within seconds, whatever runs.
    is_bounded = True

    def __init__(self, cluster: str | Client, *, timeout: float = CONNECT_SECONDS, **options: Any) -> None:
        self._is_ours = isinstance(cluster, str)
        self._client = _connected(cluster, timeout) if isinstance(cluster, str) else cluster
        self.address = cluster if isinstance(cluster, str) else str(getattr(cluster.scheduler, "address", "nowhere"))
        self._calls = self._client.get_executor(pure=False, retries=0, **options)
        self._lock = threading.Lock()
        self._under_way: dict[str, _Call] = {}
        #: Why it takes nothing any more.
        self._problem = ""
        self._is_shut_down = False
        #: Where workers say that they have begun. It goes when the last one closes it, so it is there before them.
        self._news = _queue(f"ares-news-{uuid.uuid4().hex}", self._client)
        #: Set when there is something to watch, or the end has come.
        self._stir = Latch()
        self._thread: threading.Thread | None = None

    def __repr__(self) -> str:
        return f"<DaskExecutor {self.address}>"

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> "Future[T]":
        """Have ``fn(*args, **kwargs)`` called on the cluster.

        Returns:
            Its future, RUNNING from when a worker has begun. It raises ``BodyLost`` when that worker is lost.

        Raises:
            BrokenExecutor: the cluster is gone.
            RuntimeError: the executor was shut down.
        """
        self._check_open()
        call = _Call(self.address, self._forget)
        try:
            call.ticket = _queue(call.name, self._client)
            call.ticket.put("go", callback_timeout=_ASK_SECONDS)
            self._take_up(call)
            bound = partial(fn, *args, **kwargs)
            call.inner = self._calls.submit(_run_once, call.name, self._news.name, bound, key=call.name)
        except Exception as error:
            self._forget(call)
            self._check_open()
            raise BrokenExecutor(f"the Dask scheduler at {self.address} does not answer: {error!r}") from error
        call.inner.add_done_callback(partial(self._came_back, call))
        self._stir.set()
        return call

    def _check_open(self) -> None:
        with self._lock:
            if self._is_shut_down:
                raise RuntimeError("cannot schedule new futures after shutdown")
            if self._problem:
                raise BrokenExecutor(self._problem)

    def _take_up(self, call: "_Call") -> None:
        """From here on its ticket may be taken back, and it is looked after."""
        self._check_open()
        with self._lock:
            self._under_way[call.name] = call
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, name=f"ares-dask {self.address}", daemon=True)
                self._thread.start()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002 - they are all
        """Cancel what is under way, which ends what has not begun, and disconnect. With ``wait``, within seconds."""
        with self._lock:
            self._is_shut_down = True
            calls, thread = list(self._under_way.values()), self._thread
        for call in calls:
            if self._problem or not call.cancel():
                call.settle(error=BodyLost(self._problem or "the executor was shut down"))
        self._stir.set()
        if thread is None:
            self._disconnect()
        elif wait:
            thread.join(_END_SECONDS)

    def _forget(self, call: "_Call") -> None:
        with self._lock:
            self._under_way.pop(call.name, None)

    def _came_back(self, call: "_Call", inner: "Future[Any]") -> None:
        """On the client's thread: Dask has an answer."""
        if inner.cancelled():
            dropped = BodyLost(f"Dask dropped the call (scheduler: {self.address})")
            with self._lock:
                if self._client.status != "running" and not self._is_shut_down:
                    self._problem = self._problem or f"the Dask scheduler at {self.address} is gone"
            call.settle(error=BrokenExecutor(self._problem) if self._problem else dropped)
            return
        error = inner.exception(0)
        if error is not None:
            is_lost = type(error).__name__ == "KilledWorker"
            call.settle(error=BodyLost(str(error)) if is_lost else error)
            return
        answer = inner.result(0)
        if answer == _NO_TICKET:
            call.settle(error=BodyLost(call.lost()))
        else:
            call.settle(answer[0])

    def _gone(self, problem: str) -> None:
        with self._lock:
            self._problem = self._problem or f"the Dask scheduler at {self.address} {problem}"
            calls = list(self._under_way.values())
        for call in calls:
            call.settle(error=BrokenExecutor(self._problem))

    # --- its thread ---------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Hear which calls have begun, and look after their workers."""
        try:
            self._look_after()
            if self._problem:
                self._gone("is gone")
        except Exception as error:  # the client was closed, or its loop
            self._gone(f"cannot be asked any more: {error!r}")
        finally:
            self._disconnect()

    def _look_after(self) -> None:
        failures, look_at = 0, 0.0
        while not self._is_shut_down and not self._problem:
            if not self._under_way:
                self._stir.wait(_END_SECONDS)
                self._stir.clear()
                continue
            try:
                for name, worker in self._news.get(batch=True, callback_timeout=_ASK_SECONDS):
                    self._begins(name, worker)
                if time.monotonic() >= look_at:
                    self._check(self._client.nthreads(callback_timeout=_ASK_SECONDS))
                    look_at = time.monotonic() + _LOOK_SECONDS
                failures = 0
            except (OSError, TimeoutError) as error:
                failures += 1
                if failures == _PATIENCE or self._client.status != "running":
                    self._gone(f"does not answer: {error!r}")
            self._stir.wait(_NEWS_SECONDS)
            self._stir.clear()

    def _begins(self, name: str, worker: str) -> None:
        with self._lock:
            call = self._under_way.get(name)
        if call is not None:
            call.begins(worker)

    def _check(self, workers: Any) -> None:
        with self._lock:
            calls = list(self._under_way.values())
        for call in calls:
            call.check(workers)

    def _disconnect(self) -> None:
        with suppress(Exception):  # nobody is there to be told
            self._news.close()
        if self._is_ours:
            with suppress(Exception):  # it is gone, and so is whoever would be told
                self._client.close(_ASK_SECONDS)


class _Call(Future[Any]):
    """One call. Its state is changed by the client's thread, by the executor's, and by who cancels."""

    def __init__(self, address: str, forget: Callable[["_Call"], None]) -> None:
        super().__init__()
        self._address = address
        self.name = f"ares-{uuid.uuid4().hex}"
        self.ticket: Queue | None = None
        self.inner: Future[Any] | None = None
        self._forget = forget
        self._worker = ""
        self._gone_since: float | None = None
        self._changing = threading.Lock()

    def cancel(self) -> bool:
        """Take its ticket, so that it never begins. False if it has begun, or nobody can tell: then it runs on."""
        if self.done() or self.running() or not self._take_ticket():
            return self.cancelled()
        with self._changing:
            if super().cancel():
                self.set_running_or_notify_cancel()
        self._leave()
        return True

    def _take_ticket(self) -> bool:
        try:
            return self.ticket is None or bool(self.ticket.get(batch=True, callback_timeout=_ASK_SECONDS))
        except Exception:  # nobody is there to be asked
            return False

    def begins(self, worker: str) -> None:
        """A worker has begun it."""
        with self._changing:
            self._worker = worker
            if not self.done() and not self.running():
                self.set_running_or_notify_cancel()

    def check(self, workers: Any) -> None:
        """Lost, if its worker is not among these any more, and was not a while ago."""
        if not self._worker or self._worker in workers:
            self._gone_since = None
        elif self._gone_since is None:
            self._gone_since = time.monotonic()
        elif time.monotonic() - self._gone_since > _LATE_SECONDS:
            self.settle(error=BodyLost(self.lost()))

    def lost(self) -> str:
        """In words."""
        return f"the Dask worker {self._worker or 'that began it'} is gone (scheduler: {self._address})"

    def settle(self, result: Any = None, error: BaseException | None = None) -> None:
        """It came to this, unless it came to something before."""
        with self._changing, suppress(InvalidStateError):
            if error is None:
                self.set_result(result)
            else:
                self.set_exception(error)
        self._leave()

    def _leave(self) -> None:
        self._forget(self)
        inner, self.inner = self.inner, None
        if inner is not None:
            inner.cancel()
        ticket, self.ticket = self.ticket, None
        if ticket is not None:
            with suppress(Exception):  # nobody is there to be told
                ticket.close()


def _connected(address: str, timeout: float) -> Client:
    try:
        return Client(address, timeout=timeout, set_as_default=False)
    except Exception as error:
        raise ConnectionError(f"no Dask scheduler answers at {address} within {timeout:g} s: {error}") from error


def _queue(name: str, client: Client) -> Queue:
    """A queue at the scheduler, which is waited for only so long."""
    made: list[Queue] = []

    def make() -> Any:
        made.append(Queue(name, client=client))
        return made[0]._started  # noqa: SLF001 - to wait for the queue itself would count it twice

    client.sync(make, callback_timeout=_ASK_SECONDS)
    return made[0]


# --- on a worker ------------------------------------------------------------------------------------------


def _run_once(name: str, news: str, call: Callable[[], Any]) -> Any:
    """Call it, if its ticket is still there; in a tuple, so that nothing it returns means that it was not."""
    client = get_client()
    ticket = Queue(name, client=client)
    is_mine = bool(ticket.get(batch=True))
    ticket.close()
    if not is_mine:
        return _NO_TICKET
    told = Queue(news, client=client)
    told.put((name, get_worker().address))
    told.close()
    return (call(),)
