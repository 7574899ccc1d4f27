"""``python -m benchmarks [WHAT]``: by itself ``peers``, which is all that is compared, in one run.

``bus`` is the part of it about plugins. ``steps``, ``scale`` and ``loop`` are short looks at ares alone, ``plugins`` at
what each of the built-in ones costs a step. ``learning`` shows whether routing learns, ``strategies`` whether agents
that are proposed get better, each over so many ``--rounds`` or ``--seeds``. ``service`` has many threads run executions
on one Runtime, and four processes on one PostgreSQL, beside DBOS. ``arena`` and ``soak`` measure nothing: they make
everything go wrong, plugins and steps or processes, stores, disks and clocks, and say what was not as it must be. What
is compared with is installed by ``pip install -e '.[bench]'``; what is not installed is left out, with a word.
"""

import argparse
import platform
from collections.abc import Callable

from ares.errors import UsageError
from benchmarks import comparison, loop, scale, steps
from benchmarks.shapes import chain, mapped
from benchmarks.soak import command as soak


def _peers(arguments: argparse.Namespace) -> None:
    comparison.run(arguments)


def _bus(arguments: argparse.Namespace) -> None:
    arguments.parts, arguments.only = "bus", ""
    comparison.run(arguments)


def _arena(arguments: argparse.Namespace) -> None:
    from benchmarks import arena  # needs optional packages, as the next three do

    raise SystemExit(1 if arena.run(arguments.seeds or 500, arguments.first) else 0)


def _soak(arguments: argparse.Namespace) -> None:
    try:
        raise SystemExit(1 if soak.run(arguments) else 0)
    except UsageError as error:
        raise SystemExit(f"soak: {error}") from None


def _service(arguments: argparse.Namespace) -> None:
    from benchmarks import service

    for line in service.report(arguments.rounds, quick=arguments.quick):
        print(line, flush=True)


def _steps(arguments: argparse.Namespace) -> None:
    print(steps.report(steps.measure(arguments.rounds)))


def _plugins(arguments: argparse.Namespace) -> None:
    from benchmarks import plugin_cost

    print(plugin_cost.run(arguments.rounds, quick=arguments.quick))


def _learning(arguments: argparse.Namespace) -> None:
    from benchmarks import learning

    print("\n".join(learning.report(range(arguments.rounds))))


def _strategies(arguments: argparse.Namespace) -> None:
    from benchmarks import strategies

    for line in strategies.report(arguments.seeds or 200):
        print(line, flush=True)


def _loop(_: argparse.Namespace) -> None:
    for line in loop.report((1_000, 10_000, 100_000)):
        print(line, flush=True)


def _scale(_: argparse.Namespace) -> None:
    for lines in (
        scale.sizes(chain, "chain", (1_000, 10_000, 100_000)),
        scale.sizes(mapped, "map", (1_000, 10_000, 100_000)),
        scale.executions(1_000),
        scale.runtimes(1_000),
    ):
        print("\n".join(lines), flush=True)


COMMANDS: dict[str, Callable[[argparse.Namespace], None]] = {
    "peers": _peers,
    "bus": _bus,
    "plugins": _plugins,
    "steps": _steps,
    "scale": _scale,
    "loop": _loop,
    "learning": _learning,
    "strategies": _strategies,
    "arena": _arena,
    "soak": _soak,
    "service": _service,
}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("what", nargs="?", choices=tuple(COMMANDS), default="peers")
    parser.add_argument("--rounds", type=int, default=5, help="how often each figure is taken (not of scale and loop)")
    parser.add_argument("--seeds", type=int, help="arena, strategies: how many are played (500, 200)")
    parser.add_argument("--first", type=int, default=0, help="arena: the first of them")
    comparison.add_options(parser.add_argument_group("peers, bus (plugins, service: --quick)"))
    soak.add_options(parser.add_argument_group("soak"))
    arguments = parser.parse_args()
    if arguments.what not in ("peers", "bus"):
        print(f"Python {platform.python_version()} on {platform.machine()}")
    COMMANDS[arguments.what](arguments)


if __name__ == "__main__":
    main()
