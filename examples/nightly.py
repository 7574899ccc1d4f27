"""A script for cron that never runs twice at once, and goes on where a crash has left it.

    0 3 * * *  python nightly.py http://stations.example.org /var/lib/nightly

There is no lock file to be left behind. The store knows who walks an execution, and whether that process still lives:
that is the lock. Each night is one execution, named after its day. When the night before has crashed, it is finished
first. Exit codes: 0 done (or done before), 1 failed, 75 another start is at it (``EX_TEMPFAIL``).
"""

import sys
from datetime import UTC, datetime
from pathlib import Path
from urllib.request import urlopen

from ares import Runtime, StepContext, Workflow
from ares.errors import ExecutionBusyError

DONE, FAILED, BUSY = 0, 1, 75

nightly = Workflow("nightly", version="1", inputs={"service": str, "day": str})


@nightly.step
def stations() -> list[str]:
    """What is asked."""
    return ["north", "east", "south", "west"]


@nightly.step(map_over=stations, max_concurrency=2, timeout=60)
def readings(item: str, service: str, day: str) -> int:
    """What one of them has measured: asked once, whatever happens to the others and to this process."""
    with urlopen(f"{service}/{item}", day.encode()) as said:
        return len(said.read())


@nightly.step
def publish(ctx: StepContext, readings: list[int], service: str, day: str) -> int:
    """The sum. ``once``: what was published stays published, even if the process ends before the step does."""
    total = sum(readings)
    ctx.once("publish", lambda: urlopen(f"{service}/total", f"{day} {total}".encode()).close())
    return total


def main(service: str, folder: Path, day: str) -> int:
    """Finishes what earlier nights have left, then runs this one; returns the exit code."""
    with Runtime(folder / "nightly.db") as runtime:
        left = [each.execution_id for each in runtime.executions() if each.status != "COMPLETED"]
        try:
            for night in sorted(left):
                runtime.resume(night, nightly)
            result = runtime.run(
                nightly, {"service": service, "day": day}, execution_id=f"nightly-{day}", if_exists="resume"
            )
        except ExecutionBusyError as busy:
            print(f"another start is at it: {busy}", file=sys.stderr)
            return BUSY
        if result.status != "COMPLETED":
            print(f"failed: {result.error}", file=sys.stderr)
            return FAILED
        print(f"{day}: {result.output(publish)}")
        return DONE


if __name__ == "__main__":
    today = sys.argv[3] if len(sys.argv) > 3 else f"{datetime.now(UTC):%Y-%m-%d}"
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), today))
