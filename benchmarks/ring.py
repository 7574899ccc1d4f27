"""Where the arena is played: every plugin there is, a workflow that needs them all, and what must come of a fault.

A new plugin is a line in ``subjects``, and a place in ``Ring.plugins``.
"""

import shutil
import threading
import time
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Final

import attrs

from ares import (
    Capability,
    EventFilter,
    HookPolicy,
    Loop,
    Plugin,
    RecoveryPolicy,
    RouteAdvice,
    Runtime,
    RuntimeRecommendation,
    StepContext,
    StepSpec,
    Workflow,
    WorkflowResult,
)
from ares.bus import PluginState
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
from ares.stores.volatile import VolatileStore

#: Seconds that a call may take to a plugin that is to hang, and to any other: however busy the machine is, none but
#: those that are to shall be late.
TIMEOUT: Final = 0.2
PATIENCE: Final = 10.0
WORKERS: Final = 8
#: Branch points, and who knows the way there. Nobody knows it at the last.
POINTS: Final = {"m": "memory-router", "e": "evolution-router", "x": "expression", "f": "fallback"}


# --- plugins of strangers ------------------------------------------------------------------------------------------


class Watcher(Plugin):
    """Has every hook, and listens."""

    name = "watcher"
    capabilities = frozenset({Capability.OBSERVER})
    subscribes_to = EventFilter(types=["step.completed", "fault.injected"])
    buffer = 1_000
    per_item = True

    def before_execution(self, ctx: Any, execution: Any) -> None:
        """Watch."""

    def after_execution(self, ctx: Any, outcome: Any) -> None:
        """Watch."""

    def before_step(self, ctx: Any, execution_id: str, step: Any) -> None:
        """Watch."""

    def after_step(self, ctx: Any, execution_id: str, result: Any) -> None:
        """Watch."""

    def on_event(self, ctx: Any, delivery: Any) -> None:
        """Watch."""

    def flush(self, ctx: Any, execution_id: str) -> None:
        """Nothing is kept back."""


class Guard(Plugin):
    """Lets everything pass."""

    name = "guard"
    hook_policy = HookPolicy.INTERCEPT

    def before_step(self, ctx: Any, execution_id: str, step: Any) -> None:
        """It may run."""


class Memory(Plugin):
    """Knows the way at ``m``."""

    name = "memory"
    capabilities = frozenset({Capability.MEMORY})

    def advise_route(self, ctx: Any, state: Any) -> list[RouteAdvice]:  # noqa: ARG002 - a contract's word
        """The left one."""
        return [RouteAdvice("m_left", 0.9)] if state.step_id == "m" else []


class Strategy(Plugin):
    """Knows the agent at ``e``."""

    name = "strategy"
    capabilities = frozenset({Capability.EVOLUTION})

    def recommend(self, ctx: Any, state: Any) -> RuntimeRecommendation | None:  # noqa: ARG002 - a contract's word
        """The critic."""
        return RuntimeRecommendation("critic", confidence=0.9) if state.step_id == "e" else None

    def record_outcome(self, ctx: Any, outcome: Any) -> None:
        """It never learns."""


class Rounds(Plugin):
    """Wants no further round."""

    name = "rounds"
    capabilities = frozenset({Capability.LOOP})

    def should_execute_round(self, ctx: Any, next_round: int, state: Any) -> bool:  # noqa: ARG002 - a contract's word
        """No."""
        return False

    def on_round_end(self, ctx: Any, round: int, state: Any) -> None:
        """So be it."""


class Silent:
    """A router that never knows."""

    def route(self, ctx: Any, state: Any) -> None:
        """It abstains."""


# --- who can be struck, and what must come of it --------------------------------------------------------------------


@attrs.frozen
class Subject:
    """A plugin in the arena.

    Attributes:
        name: Of the plugin.
        calls: That can be struck.
        point: The branch point that goes without it if it fails in ``start`` or one of ``asked``.
        asked: The calls in which it is asked for the way there.
    """

    name: str
    calls: tuple[str, ...]
    point: str = ""
    asked: tuple[str, ...] = ()


_STEPS: Final = ("before_step", "after_step")
_RUNS: Final = ("before_execution", "after_execution")
SUBJECTS: Final = (
    Subject("checkpoint", ("flush", "flush_all")),
    Subject("observer", ("on_event",)),
    Subject("tool", ("on_event",)),
    Subject("interrupt", ("on_event",)),
    Subject("experience", ("advise_route", "after_execution")),
    Subject("watcher", (*_STEPS, *_RUNS, "on_event", "flush")),
    Subject("guard", ("before_step",)),
    Subject("memory", ("advise_route",), "m", ("advise_route",)),
    Subject("strategy", ("recommend", "record_outcome"), "e", ("recommend",)),
    Subject("strategies", ("recommend", "record_outcome", "after_execution")),
    Subject("memory-router", ("route", "before_step", *_RUNS), "m", ("route",)),
    Subject("evolution-router", ("route",), "e", ("route",)),
    Subject("expression", ("route",), "x", ("route",)),
    Subject("fallback", ("route",)),
    Subject("recovery", ("should_recover",)),
    Subject("loop", ("should_execute_round", "on_round_end")),
    Subject("rounds", ("should_execute_round", "on_round_end")),
)
BY_NAME: Final = {subject.name: subject for subject in SUBJECTS}

#: Calls that peers make in this workflow, and hear of what comes of them: no warning of a result does.
OF_PEERS: Final = frozenset({"advise_route", "recommend", "record_outcome", "flush"})

#: Calls that nobody makes by himself in this workflow; the arena makes them, as any plugin could.
EXTRA: Final[Mapping[str, tuple[str, Capability, Callable[[str], tuple[Any, ...]]]]] = {
    "checkpoint.flush_all": ("flush_all", Capability.CHECKPOINT, lambda _: ()),
    "watcher.flush": ("flush", Capability.OBSERVER, lambda run: (run,)),
}


# --- the workflow ----------------------------------------------------------------------------------------------------


class Bodies:
    """Which steps ran. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ran: set[str] = set()

    def note(self, path: str) -> None:
        """One runs."""
        with self._lock:
            self._ran.add(path)

    @property
    def ran(self) -> frozenset[str]:
        """Those that did."""
        with self._lock:
            return frozenset(self._ran)


def workflow(bodies: Bodies) -> Workflow:
    """A map beside four branch points and a step that has to be recovered, in a loop that is asked after one round
    whether it goes on: ``loop`` says yes, ``rounds`` says no, if it lives."""
    wf = Workflow("ring", loop=Loop(2))
    wf.add(StepSpec("numbers", lambda: list(range(WORKERS))))

    def square(ctx: StepContext, item: int) -> int:
        bodies.note(ctx.step.path)
        return ctx.tool("square", lambda n: n * n, item)

    wf.add(StepSpec("square", square, map_over="numbers"))
    for point in POINTS:
        ways = (f"{point}_left", f"{point}_right")

        def choose(point: str = point) -> str:
            bodies.note(point)
            return point

        wf.add(StepSpec(point, choose, branches=ways, on_no_route="all"))
        for way in ways:
            wf.add(StepSpec(way, lambda way=way: way, depends_on=[point]))
        join = {"left": ways[0], "right": ways[1]}
        wf.add(StepSpec(f"{point}_join", lambda left, right: [way for way in (left, right) if way], params=join))

    def flaky() -> None:
        raise ConnectionError("as every time")

    wf.add(StepSpec("flaky", flaky, recovery=RecoveryPolicy("skip")))
    return wf


#: What the joins of the branch points give when all is well, and when nobody knows the way.
WAYS: Final = {point: [f"{point}_left"] for point in POINTS} | {"f": ["f_left", "f_right"]}
ALL_WAYS: Final = {point: [f"{point}_left", f"{point}_right"] for point in POINTS}
SQUARES: Final = [n * n for n in range(WORKERS)]


class Ring:
    """A Runtime with everybody in it, and an arena that can reach them all.

    Args:
        seed: Of the arena.
        store: A store object; one in memory unless given.
        durability: Of the Runtime.
        hanging: The plugins that are to hang.
    """

    def __init__(
        self, seed: int = 0, store: Any = None, durability: str = "sync", hanging: Collection[str] = ()
    ) -> None:
        self.arena = ArenaPlugin(seed=seed)
        self.bodies = Bodies()
        self._folder = Path(mkdtemp(prefix="ares-ring-"))
        weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        self.workflow = workflow(self.bodies)
        self.store = VolatileStore() if store is None else store
        plugins = self.plugins()
        for plugin in plugins:
            if plugin.name in hanging:
                plugin.timeout = TIMEOUT
        self.runtime = Runtime(
            self.arena.store(self.store),
            plugins=plugins,
            around_step=self.arena.steps(),
            max_workers=WORKERS,
            plugin_timeout=PATIENCE,
            durability=durability,
        )

    def plugins(self) -> list[Any]:
        """Everybody."""
        return [
            self.arena,
            CheckpointPlugin(),
            ObserverPlugin(),
            ToolPlugin(),
            InterruptPlugin(),
            ExperienceMemory(self._folder / "experience.db", evidence_min=1e9),  # learns, and stays silent
            Watcher(),
            Guard(),
            Memory(),
            Strategy(),
            StrategyEvolution(self._folder / "study.log", ["critic"], steps=["elsewhere"], name="strategies"),
            MemoryRouter(),
            EvolutionRouter({"critic": "e_left"}),
            ExpressionRouter([Rule(lambda output, _: output == "x", "x_left")]),
            FallbackRouter([Silent()]),
            BasicRecoveryPlugin(["flaky"]),
            LoopPlugin(),
            Rounds(),
        ]

    def run(self) -> WorkflowResult:
        """Once."""
        return self.runtime.run(self.workflow)

    def ask_extra(self, run: str, names: Sequence[str] = tuple(EXTRA)) -> list[BaseException]:
        """Make the calls that nobody else makes. Returns what they failed with."""
        failed: list[BaseException] = []
        for name in names:
            plugin = name.partition(".")[0]
            method, capability, arguments = EXTRA[name]
            for ref in self.runtime.bus.plugins_by_cap(capability):
                if ref.name == plugin:
                    try:
                        ref.call(method, *arguments(run))
                    except Exception as error:  # what it is about, the report says
                        failed.append(error)
        return failed

    def settle(self, seconds: float = 10.0) -> None:
        """Wait until nobody hangs any more."""
        until = time.monotonic() + seconds
        pause = threading.Event()
        while any(health.state is PluginState.UNRESPONSIVE for health in self.runtime.health().values()):
            if time.monotonic() > until:
                raise AssertionError(f"a plugin still hangs after {seconds:g} s")
            pause.wait(0.005)


def problems_of(result: WorkflowResult, *, lost: frozenset[str], is_recovered: bool, may_refuse: bool) -> list[str]:
    """What is not as it must be in a result.

    Args:
        result: Of a run.
        lost: Branch points whose way nobody may have known.
        is_recovered: Whether ``flaky`` must have been recovered.
        may_refuse: Whether the interceptor may have kept steps from running.
    """
    problems = []
    expected = {f"{point}_join": ways for point, ways in WAYS.items()} | {"square": SQUARES}
    for step, output in expected.items():
        found = result.outputs.get(step)
        point = step.partition("_")[0]
        allowed = [output, ALL_WAYS[point]] if point in lost else [output]
        if found not in allowed and not (may_refuse and found is None):
            problems.append(f"{step} gave {found!r}, not {output!r}")
    if is_recovered and result.steps["flaky"].status != "SKIPPED" and not may_refuse:
        problems.append(f"flaky is {result.steps['flaky'].status}")
    return problems
