"""``python -m benchmarks [peers|bus|steps|scale|loop]``: by itself ``peers``, all that is compared, in one run.

``bus`` is the part of it about plugins; ``steps``, ``scale`` and ``loop`` are short looks at ares alone. What is
compared with is installed by ``pip install -e '.[bench]'``; what is not installed is left out, with a word.
"""

import argparse
import platform

from benchmarks import comparison, loop, scale, steps
from benchmarks.shapes import chain, mapped


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("what", nargs="?", choices=("peers", "bus", "steps", "scale", "loop"), default="peers")
    parser.add_argument("--rounds", type=int, default=5, help="how often each figure is taken (not of scale and loop)")
    comparison.add_options(parser.add_argument_group("peers, bus"))
    arguments = parser.parse_args()
    if arguments.what == "bus":
        arguments.parts, arguments.only = "bus", ""
    if arguments.what in ("peers", "bus"):
        comparison.run(arguments)
        return
    print(f"Python {platform.python_version()} on {platform.machine()}")
    if arguments.what == "steps":
        print(steps.report(steps.measure(arguments.rounds)))
        return
    if arguments.what == "loop":
        for line in loop.report((1_000, 10_000, 100_000)):
            print(line, flush=True)
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
