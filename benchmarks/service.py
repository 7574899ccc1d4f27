"""Services: many threads that each run one execution after the other, on one Runtime, or in several processes on one
database; there beside DBOS, which keeps what it does in the same PostgreSQL.

Every process is a fresh one. All begin together, once each has opened its store and run one execution to warm up. What
is counted is durable steps: of both libraries a step's outcome is committed before the next one begins. A step's
latency is the time from the beginning of its body to that of the next one.
"""

import contextvars
import gc
import importlib.util
import itertools
import multiprocessing
import os
import resource
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import attrs

from ares import Runtime, Workflow
from tests import postgres

#: Seconds that one process may take to be ready, or for its work.
_PATIENCE = 600.0
_SAMPLING = 0.05

#: When the bodies of one execution began.
Beginnings = list[float]
_begun: contextvars.ContextVar[Beginnings] = contextvars.ContextVar("begun")


@attrs.frozen
class Load:
    """How much is to be done, in all: executions of so many steps, by so many threads in so many processes."""

    processes: int
    threads: int
    executions: int
    steps: int

    def share(self) -> "Load":
        """What one process does of it."""
        return Load(1, self.threads // self.processes, self.executions // self.processes, self.steps)

    def __str__(self) -> str:
        processes = f"{self.processes} processes, " if self.processes > 1 else ""
        return f"{processes}{self.threads} threads, {self.executions:,} executions of {self.steps} steps"


@attrs.frozen
class Service:
    """What came out: seconds from the first beginning to the last end, over all processes.

    ``latencies`` are seconds a step, ``threads`` the most that were alive at once in one process, ``memory`` bytes that
    it had resident at its peak.
    """

    label: str
    load: Load
    seconds: float
    latencies: Sequence[float]
    threads: int
    memory: int

    @property
    def steps_a_second(self) -> float:
        """Durable steps of all executions, a second."""
        return self.load.executions * self.load.steps / self.seconds

    def __str__(self) -> str:
        cuts = statistics.quantiles(self.latencies, n=100)
        return (
            f"{self.label}: {self.load}: {self.steps_a_second:,.0f} steps/s, a step p50 {cuts[49] * 1e3:.2f} ms, "
            f"p99 {cuts[98] * 1e3:.2f} ms; a process: {self.memory / 2**20:.0f} MiB, {self.threads} threads"
        )


#: Runs one execution.
One = Callable[[], Beginnings]
#: Opens a store and gives what runs one execution of so many steps on it.
Opening = Callable[[str, int], AbstractContextManager[One]]


@contextmanager
def ares(store: str, steps: int) -> Iterator[One]:
    """Executions of a chain on one Runtime, in the default durability."""
    workflow = Workflow("chain")
    for i in range(steps):
        workflow.step(_first if i == 0 else _next, id=f"s{i}", params={} if i == 0 else {"x": f"s{i - 1}"})
    with Runtime(store) as runtime:

        def one() -> Beginnings:
            begun: Beginnings = []
            _begun.set(begun)  # steps run in a copy of the caller's context
            outputs = runtime.run(workflow).raise_for_status().outputs
            if outputs[f"s{steps - 1}"] != steps:
                raise RuntimeError(f"not the last output: {outputs}")
            return begun

        yield one


@contextmanager
def dbos(store: str, steps: int) -> Iterator[One]:
    """The same in DBOS: a workflow function that calls a step function in a loop."""
    from dbos import DBOS

    # Each process is an executor of its own: of its namesakes' workflows it would take up what is under way.
    executor = f"bench-{os.getpid()}"
    DBOS(config={"name": "bench", "system_database_url": store, "log_level": "ERROR", "executor_id": executor})
    under_way: dict[int, Beginnings] = {}
    numbers = itertools.count()

    @DBOS.step()
    def step(x: int, number: int) -> int:
        under_way[number].append(time.perf_counter())
        return x + 1

    @DBOS.workflow()
    def chain(number: int) -> int:
        x = 0
        for _ in range(steps):
            x = step(x, number)
        return x

    def one() -> Beginnings:
        number = next(numbers)
        under_way[number] = []
        if chain(number) != steps:
            raise RuntimeError("not the last output")
        return under_way.pop(number)

    try:
        DBOS.launch()
        yield one
    finally:
        DBOS.destroy()


def _first() -> int:
    return _next(0)


def _next(x: int) -> int:
    _begun.get().append(time.perf_counter())
    return x + 1


def measure(label: str, opening: Opening, store: str | Path, load: Load) -> Service:
    """Have it done by fresh processes.

    Raises:
        RuntimeError: one of them failed, or took too long.
    """
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(load.processes), context.Queue()
    arguments = (opening, str(store), load.share(), barrier, results)
    processes = [context.Process(target=_serve, args=arguments, daemon=True) for _ in range(load.processes)]
    for process in processes:
        process.start()
    try:
        done = [results.get(timeout=_PATIENCE) for _ in processes]
    except Empty:
        raise RuntimeError(f"{label}: no answer within {_PATIENCE:g} s") from None
    finally:
        for process in processes:
            process.join(10.0)
            process.kill()
    for each in done:
        if isinstance(each, str):
            raise RuntimeError(f"{label}: {each}")
    began, ended, latencies, threads, memory = zip(*done, strict=True)
    # The monotonic clock is one for all processes of a machine.
    seconds = max(ended) - min(began)
    return Service(label, load, seconds, list(itertools.chain(*latencies)), max(threads), max(memory))


def _serve(opening: Opening, store: str, load: Load, barrier: Any, results: Any) -> None:
    """In a process of its own: its share of the work."""
    try:
        with opening(store, load.steps) as one:
            one()
            gc.collect()
            barrier.wait(_PATIENCE)
            results.put(_work(one, load))
    except BaseException as error:
        barrier.abort()  # nobody waits for this one
        results.put(f"{type(error).__name__}: {error}")
        raise


def _work(one: One, load: Load) -> tuple[float, float, list[float], int, int]:
    tasks: SimpleQueue[int] = SimpleQueue()
    for number in range(load.executions):
        tasks.put(number)
    latencies: SimpleQueue[list[float]] = SimpleQueue()
    failures: list[BaseException] = []

    def take() -> None:
        try:
            while True:
                tasks.get_nowait()
                began = one()
                latencies.put([b - a for a, b in itertools.pairwise(began)])
        except Empty:
            return
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=take, name=f"client-{n}") for n in range(load.threads)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    most = _most_threads(threads)
    ended = time.monotonic()
    if failures:
        raise failures[0]
    found = [each for _ in range(load.executions) for each in latencies.get()]
    return began, ended, found, most, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _most_threads(threads: Sequence[threading.Thread]) -> int:
    most = 0
    for thread in threads:
        while thread.is_alive():
            most = max(most, threading.active_count())
            thread.join(_SAMPLING)
    return most


# --- what is printed ---------------------------------------------------------------------------------------------

#: ares does at least so many times the durable steps a second of DBOS, on the same server in the same round.
TARGET = 8.0
_ALONE = Load(1, 200, 2_000, 20)
_TOGETHER = attrs.evolve(_ALONE, processes=4)
#: DBOS is given less to do: what counts is steps a second.
_LESS = 10
#: The same with a client a process: nobody's commits can be put together.
_SINGLY = Load(4, 4, 80, 20)
#: To see that everything works.
_QUICK = 10


def report(rounds: int, *, quick: bool) -> Iterator[str]:
    """Measure and say what came out, as it comes: one Runtime on SQLite, then four processes on PostgreSQL."""
    alone, together = (_small(_ALONE), _small(_TOGETHER)) if quick else (_ALONE, _TOGETHER)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(rounds):
            yield str(measure("ares, SQLite", ares, Path(folder) / f"{number}.db", alone))
    if importlib.util.find_spec("dbos") is None or postgres.binaries() is None:
        yield "not measured: PostgreSQL; install the extras bench and test"
        return
    server = postgres.Server(is_durable=True, max_connections="300")
    try:
        yield from _beside_dbos(server.url(), together, rounds)
        yield from _beside_dbos(server.url(), _SINGLY, rounds)
    finally:
        server.close()


def _small(load: Load) -> Load:
    return attrs.evolve(load, threads=load.threads // _QUICK, executions=load.executions // _QUICK)


def _beside_dbos(server: str, load: Load, rounds: int) -> Iterator[str]:
    """Ares and DBOS in turns, each in a fresh database of the same server, and their ratio."""
    less = attrs.evolve(load, executions=max(load.threads, load.executions // _LESS))
    ratios = []
    for number in range(rounds):
        done: dict[str, Service] = {}
        for name, opening, each in sorted([("ares", ares, load), ("DBOS", dbos, less)], reverse=number % 2 == 0):
            with postgres.fresh_database(server) as url:
                done[name] = measure(f"{name}, PostgreSQL", opening, url, each)
            yield str(done[name])
        ratios.append(done["ares"].steps_a_second / done["DBOS"].steps_a_second)
    median = statistics.median(ratios)
    word = "met" if median >= TARGET else "missed"
    spread = f"{min(ratios):.1f}-{max(ratios):.1f}"
    yield f"ares / DBOS, durable steps a second: {median:.1f} ({spread}); at least {TARGET:g} wanted: {word}"
