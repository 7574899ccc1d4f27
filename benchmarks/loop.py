"""Whether a round costs the same however many there are: a loop of three steps, its memory, and how it is taken up."""

import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from ares import Loop, Runtime, StepContext, Workflow

_PAGE = 4096


def looping(rounds: int) -> Workflow:
    """A chain of three steps with a variable that is replaced and one that is added up."""
    wf = Workflow(
        "loop",
        variables={"n": 0, "total": 0},
        reducers={"total": "add"},
        loop=Loop(until=lambda ctx: ctx.round == rounds),
    )

    @wf.step(writes=("n", "total"))
    def a(ctx: StepContext, n: int) -> int:
        ctx.set("n", n + 1)
        ctx.set("total", 1)
        return n

    wf.step(lambda a: a, id="b")
    wf.step(lambda b: b, id="c")
    return wf


def report(counts: Sequence[int]) -> Iterator[str]:
    """Lines about loops of so many rounds, on an SQLite file in ``async``: microseconds and bytes a round, the memory
    of the process at the end, and the seconds that a resume takes which runs the last step again."""
    yield f"{'rounds':>9} {'us/round':>9} {'bytes/round':>12} {'MB at end':>10} {'resume s':>9} {'resume us/round':>16}"
    for count in counts:
        with tempfile.TemporaryDirectory() as folder:
            file, wf = Path(folder) / "loop.db", looping(count)
            with Runtime(file, durability="async") as runtime:
                began = time.perf_counter()
                result = runtime.run(wf, execution_id="e").raise_for_status()
                seconds = time.perf_counter() - began
                memory = _memory()
            assert result.variables == {"n": count, "total": count}
            size = file.stat().st_size
            with Runtime(file) as runtime:
                began = time.perf_counter()
                runtime.resume("e", wf, rerun=["c"]).raise_for_status()
                again = time.perf_counter() - began
        yield (
            f"{count:>9,} {seconds / count * 1e6:>9.0f} {size / count:>12.0f} {memory:>10.1f} {again:>9.2f}"
            f" {again / count * 1e6:>16.0f}"
        )


def _memory() -> float:
    """Megabytes that this process has in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE / 1e6
