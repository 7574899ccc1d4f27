"""``python -m benchmarks [peers|bus|steps|scale|arena]``: by itself ``peers``, all that is compared, in one run.

``bus`` is the part of it about plugins; ``steps`` and ``scale`` are short looks at ares alone. ``arena`` measures
nothing: it makes everything go wrong, and says what was not as it must be. What is compared with is installed by
``pip install -e '.[bench]'``; what is not installed is left out, with a word.
"""

import argparse
import platform

from benchmarks import arena, comparison, scale, steps
from benchmarks.shapes import chain, mapped


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("what", nargs="?", choices=("peers", "bus", "steps", "scale", "arena"), default="peers")
    parser.add_argument("--rounds", type=int, default=5, help="how often each figure is taken (not of scale)")
    parser.add_argument("--seeds", type=int, default=500, help="arena: how many are played")
    parser.add_argument("--first", type=int, default=0, help="arena: the first of them")
    comparison.add_options(parser.add_argument_group("peers, bus"))
    arguments = parser.parse_args()
    if arguments.what == "arena":
        raise SystemExit(1 if arena.run(arguments.seeds, arguments.first) else 0)
    if arguments.what == "bus":
        arguments.parts, arguments.only = "bus", ""
    if arguments.what in ("peers", "bus"):
        comparison.run(arguments)
        return
    print(f"Python {platform.python_version()} on {platform.machine()}")
    if arguments.what == "steps":
        print(steps.report(steps.measure(arguments.rounds)))
        return
    for lines in (
        scale.sizes(chain, "chain", (1_000, 10_000, 100_000)),
        scale.sizes(mapped, "map", (1_000, 10_000, 100_000)),
        scale.executions(1_000),
        scale.runtimes(1_000),
    ):
        print("\n".join(lines), flush=True)


if __name__ == "__main__":
    main()
