"""What the built-in plugins cost a step: all switched on, beside the same chain with none, and the share of each.

A chain has no branch points, loops, failures or questions: what is measured is what a plugin costs a step that it has
nothing to do with. One more plugin is one more line in ``PLUGINS``.

The share of a plugin is taken in two ways, since what several are told together costs less than the sum of what each
is told alone: *alone* is a chain with it less one with none, *among all* a chain with all less one with all others.
The four chains of a plugin are run one after another, so that a difference is one of the same moment; a round is the
best of its turns, since what others do meanwhile only ever adds to it. Processor time, that of all threads, is told
besides: it is changed little by others.
"""

import gc
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from typing import Any

import attrs

from ares import Plugin, Runtime, Workflow
from ares.plugins import (
    ArenaPlugin,
    BasicRecoveryPlugin,
    CheckpointPlugin,
    EvolutionRouter,
    ExperienceMemory,
    ExpressionRouter,
    FallbackRouter,
    InterruptPlugin,
    LoopPlugin,
    MemoryRouter,
    ObserverPlugin,
    Rule,
    StrategyEvolution,
    ToolPlugin,
)
from benchmarks import machine
from benchmarks.contest import say
from benchmarks.report import markdown
from benchmarks.shapes import chain

#: Makes a plugin; one that keeps a file of its own is given a folder for it.
Make = Callable[[Path], Any]


def _rule() -> Rule:
    return Rule(lambda _output, _variables: True, "s1")


#: By the name that the table shows, in the order of registration.
PLUGINS: dict[str, Make] = {
    "CheckpointPlugin": lambda _folder: CheckpointPlugin(),
    "ObserverPlugin": lambda _folder: ObserverPlugin(),
    "InterruptPlugin": lambda _folder: InterruptPlugin(),
    "ToolPlugin": lambda _folder: ToolPlugin(),
    "BasicRecoveryPlugin": lambda _folder: BasicRecoveryPlugin(),
    "LoopPlugin": lambda _folder: LoopPlugin(),
    "ExperienceMemory": lambda folder: ExperienceMemory(folder / "experience.db"),
    "StrategyEvolution": lambda folder: StrategyEvolution(folder / "study.log", ["agent"]),
    "ArenaPlugin": lambda _folder: ArenaPlugin(),
    "ExpressionRouter": lambda _folder: ExpressionRouter([_rule()]),
    "MemoryRouter": lambda _folder: MemoryRouter(),
    "EvolutionRouter": lambda _folder: EvolutionRouter({"agent": "s1"}),
    "FallbackRouter": lambda _folder: FallbackRouter([ExpressionRouter([_rule()], "last")]),
}

#: Those that a Runtime with a store has unless it is given others of the same names.
_DEFAULTS = ("checkpoint", "observer", "interrupt", "tool")


class Kind(StrEnum):
    """The chains that are run for each plugin, in this order: all of them are the same but for the plugins."""

    NONE = "none"
    ALONE = "alone"
    ALL = "all"
    WITHOUT = "all others"


class _Blank(Plugin):
    """Stands in the place of a default, and is told nothing."""

    def __init__(self, name: str) -> None:
        self.name = name


@attrs.frozen
class Amount:
    """How much is measured a round: every chain, of so many steps, ``turns`` times."""

    turns: int
    steps: int


WHOLE = Amount(turns=5, steps=200)
#: To see that everything works.
QUICK = Amount(turns=1, steps=10)


#: Seconds a step, by the clock and of processor.
Taken = tuple[float, float]


@attrs.define(eq=False)
class Figures:
    """Seconds a step of each plugin's chains, one figure a round. ``where`` is what they keep."""

    where: str
    seconds: dict[tuple[str, Kind], list[float]] = attrs.field(factory=dict)
    processor: dict[tuple[str, Kind], list[float]] = attrs.field(factory=dict)

    def add(self, chain: tuple[str, Kind], turns: Sequence[Taken]) -> None:
        """What the turns of a round took."""
        for figures, values in zip((self.seconds, self.processor), zip(*turns, strict=True), strict=True):
            figures.setdefault(chain, []).append(min(values))


def run(rounds: int, *, quick: bool) -> str:
    """Measure so many rounds. Returns what is to be printed."""
    amount = QUICK if quick else WHOLE
    usage = machine.Usage()
    with tempfile.TemporaryDirectory() as name:
        about = machine.describe(Path(name))
        found = [measure(rounds, amount, Path(name) / "files", is_stored=is_stored) for is_stored in (False, True)]
    facts = [f"- {name}: {value}" for name, value in about.items()]
    used = usage.report()
    facts.append(
        f"- chains of {amount.steps} steps, {rounds} rounds, each the best of {amount.turns} turns,"
        f" {used['minutes']:.1f} minutes; others used {used['others']:.0%} of the processors meanwhile, the host's"
        f" other guests {used['stolen']:.0%}"
    )
    return "\n\n".join(("\n".join(facts), *(report(figures) for figures in found)))


def measure(rounds: int, amount: Amount, folder: Path, *, is_stored: bool) -> Figures:
    """Measure every chain.

    Args:
        rounds: how often each figure is taken.
        amount: how much a round is.
        folder: where files are made.
        is_stored: whether the chains are durable.
    """
    found = Figures("durable" if is_stored else "no store")
    workflow = chain(amount.steps)
    workflow.validate()
    with ExitStack() as stack:
        runtimes: dict[tuple[str, Kind], Runtime] = {}
        for number, (chains, makes) in enumerate(_chains()):
            own = folder / found.where.replace(" ", "-") / str(number)
            own.mkdir(parents=True)
            runtime = stack.enter_context(_runtime(makes, own, is_stored=is_stored))
            _once(runtime, workflow)  # routers that ask while a step runs learn here that none is a branch point
            runtimes |= dict.fromkeys(chains, runtime)
        for number in range(rounds):
            say(f"plugins, {found.where}: round {number + 1}")
            order = [(name, kind) for name in PLUGINS for kind in Kind]
            taken: dict[tuple[str, Kind], list[Taken]] = {each: [] for each in order}
            for _ in range(amount.turns):
                for each in order:
                    taken[each].append(_once(runtimes[each], workflow))
                order.reverse()
            for each, turns in taken.items():
                found.add(each, turns)
    return found


def _chains() -> Iterator[tuple[list[tuple[str, Kind]], list[Make]]]:
    """What a Runtime is for, and its plugins. None and all are the same for every plugin, but taken anew for each."""
    yield [(name, Kind.NONE) for name in PLUGINS], []
    yield [(name, Kind.ALL) for name in PLUGINS], list(PLUGINS.values())
    for name, make in PLUGINS.items():
        yield [(name, Kind.ALONE)], [make]
        yield [(name, Kind.WITHOUT)], [other for key, other in PLUGINS.items() if key != name]


def _runtime(makes: Sequence[Make], folder: Path, *, is_stored: bool) -> Runtime:
    plugins = [make(folder) for make in makes]
    if not is_stored:
        return Runtime(plugins=plugins)
    names = {plugin.name for plugin in plugins}
    blanks = [_Blank(name) for name in _DEFAULTS if name not in names]
    return Runtime(folder / "ares.db", plugins=[*blanks, *plugins])


def _once(runtime: Runtime, workflow: Workflow) -> Taken:
    """Seconds a step, by the clock and of processor."""
    gc.collect()
    began, used = time.perf_counter(), time.process_time()
    result = runtime.run(workflow).raise_for_status()
    seconds, used = time.perf_counter() - began, time.process_time() - used
    if result.warnings:
        raise RuntimeError(f"what is measured does not work: {result.warnings}")
    return seconds / len(workflow.steps), used / len(workflow.steps)


# --- how it is written --------------------------------------------------------------------------------------------


def report(found: Figures) -> str:
    """A table: microseconds a step, the ratio to none, and what each plugin adds."""
    rows = [
        [f"{found.where}, us a step", "by the clock", "of none", "of processor", "of none"],
        ["none", *_whole(found, Kind.NONE)],
        [f"all {len(PLUGINS)}", *_whole(found, Kind.ALL)],
    ]
    shares = [["what it adds, us a step", "alone", "among all", "of processor, alone", "among all"]]
    shares += ([name, *_share(found.seconds, name), *_share(found.processor, name)] for name in PLUGINS)
    return f"{markdown(rows)}\n\n{markdown(shares)}"


def _whole(found: Figures, kind: Kind) -> Iterator[str]:
    for figures in (found.seconds, found.processor):
        mine, none = _best(figures, kind), _best(figures, Kind.NONE)
        yield _spread([each * 1e6 for each in mine])
        yield _spread([each / other for each, other in zip(mine, none, strict=True)], 2)


def _best(figures: dict[tuple[str, Kind], list[float]], kind: Kind) -> list[float]:
    """Of a chain that is run beside each plugin's, the best of a round."""
    return [min(each) for each in zip(*(figures[name, kind] for name in PLUGINS), strict=True)]


def _share(figures: dict[tuple[str, Kind], list[float]], name: str) -> Iterator[str]:
    for more, less in ((Kind.ALONE, Kind.NONE), (Kind.ALL, Kind.WITHOUT)):
        yield _spread([(a - b) * 1e6 for a, b in zip(figures[name, more], figures[name, less], strict=True)])


def _spread(values: Sequence[float], digits: int = 1) -> str:
    middle, low, high = (f"{each:,.{digits}f}" for each in (statistics.median(values), min(values), max(values)))
    return f"{middle} ({low} to {high})"
