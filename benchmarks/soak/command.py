"""``python -m benchmarks soak``: the options, and what is printed."""

import argparse
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager

from ares.errors import UsageError
from benchmarks.soak.conductor import Soaked
from benchmarks.soak.places import FilePlace, Place, ServerPlace
from benchmarks.soak.plan import Plan, Timing
from benchmarks.soak.proof import violations
from benchmarks.soak.stage import NAMES, play

#: Violations that are printed: where there are many, they have one cause.
_SHOWN = 50


def add_options(group: argparse._ArgumentGroup) -> None:
    """The options of this command."""
    group.add_argument("--processes", type=_count, default=4, help="how many work at once (4)")
    group.add_argument("--executions", type=_count, default=500, help="how many there are to do (500)")
    group.add_argument("--steps", type=_count, default=20, help="of each execution (20)")
    group.add_argument("--seconds", type=float, default=0.01, help="that the body of a step takes (0.01)")
    group.add_argument("--lease-timeout", type=float, default=30.0, help="as a Runtime has it, in seconds (30)")
    group.add_argument(
        "--fault",
        action="append",
        metavar="NAME:EVERY[:LASTS[:TIMES]]",
        help="what goes wrong, about every so many seconds (kill:1); may be given more than once: "
        + "; ".join(f"{name}: {what}" for name, what in NAMES.items()),
    )
    group.add_argument("--postgres", action="store_true", help="on a PostgreSQL server of its own, not in a file")
    group.add_argument("--seed", type=int, default=0, help="of the moments and victims (0)")
    group.add_argument(
        "--limit", type=float, default=600.0, help="seconds after which what has not ended is stuck (600)"
    )


def _count(text: str) -> int:
    if int(text) < 1:
        raise argparse.ArgumentTypeError("there has to be one at least")
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    """Soak, judge and print. Returns how many violations there were.

    Raises:
        UsageError: a fault, or a server, that there is not, or not here.
    """
    timings = [Timing.parse(text) for text in arguments.fault or ["kill:1"]]
    with tempfile.TemporaryDirectory(prefix="ares-soak-") as folder, _place(folder, arguments.postgres) as place:
        plan = Plan(
            store=place.store,
            folder=folder,
            processes=arguments.processes,
            executions=arguments.executions,
            steps=arguments.steps,
            seconds=arguments.seconds,
            lease_timeout=arguments.lease_timeout,
        )
        soaked = play(place, plan, timings, arguments.seed, arguments.limit)
    found = violations(plan, soaked.evidence)
    print("\n".join([*report(plan, soaked), f"{len(found)} violations", *found[:_SHOWN]]))
    return len(found)


@contextmanager
def _place(folder: str, on_server: bool) -> Iterator[Place]:
    if on_server:
        from tests.postgres import Server  # needs optional packages

        try:
            server = Server(is_durable=True)
        except FileNotFoundError as error:
            raise UsageError(str(error)) from error
        with closing(server):
            yield ServerPlace(server, server.url())
    else:
        with closing(FilePlace(folder)) as place:
            yield place


def report(plan: Plan, soaked: Soaked) -> list[str]:
    """What happened, whether it was right or not."""
    evidence = soaked.evidence
    kinds = Counter(effect.kind for effect in evidence.effects)
    places = {(effect.execution_id, effect.step) for effect in evidence.effects if effect.kind == "did"}
    resumed = sum(event.type == "workflow.resumed" for each in evidence.executions for event in each.events)
    statuses = Counter(str(execution.status) for execution in evidence.executions)
    return [
        f"{plan.processes} processes, {plan.executions} executions of {plan.steps} steps: {soaked.seconds:.1f} s",
        ", ".join(f"{name} {times} times" for name, times in soaked.struck.items()) or "nothing went wrong",
        ", ".join(f"{count} {status}" for status, count in statuses.items()),
        f"{kinds['began']} bodies began, {resumed} times somebody went on with what somebody else had begun",
        f"{len(places)} effects, {kinds['did'] - len(places)} of them again because they were not recorded yet",
    ]
