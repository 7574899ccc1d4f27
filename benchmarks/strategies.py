"""Whether the best of five agents is found within 60 runs: by StrategyEvolution, and by samplers of Optuna's alone.

An agent succeeds with some probability, takes some time and costs something, both with noise; the best is the one whose
runs are worth most on average, by the default weights. What is found after 60 runs is, for all alike, the agent that is
expected to be worth most by the runs that were made. Each is started anew with each seed.
"""

import math
import random
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter

import attrs

from ares import Runtime, StepContext, Workflow
from ares.context import Context, NoExecution, NoJournal
from ares.plugins import EvolutionRouter, StrategyEvolution, Weights
from ares.plugins._bandit import Run, utilities
from ares.plugins._objectives import standings
from ares.records import ExecutionOutcome, ExecutionState, ExecutionStatus

RUNS = 60


@attrs.frozen
class Agent:
    """One in so many runs succeeds; seconds and cost (tool calls) are means. What fails takes part of them."""

    success: float
    seconds: float
    cost: float

    def run(self, name: str, rng: random.Random) -> Run:
        """Work once."""
        succeeds = rng.random() < self.success
        part = 1.0 if succeeds else rng.uniform(0.3, 1.0)
        seconds = self.seconds * part * math.exp(rng.gauss(-0.045, 0.3))
        return Run(name, float(succeeds), seconds, max(0, round(self.cost * part + rng.gauss(0, 1))))


#: Five agents each, the best one in the middle.
SCENES = {
    "one stands out": {
        "a": Agent(0.45, 0.5, 2),
        "b": Agent(0.60, 0.7, 3),
        "best": Agent(0.92, 1.0, 4),
        "c": Agent(0.55, 1.2, 5),
        "d": Agent(0.35, 1.5, 6),
    },
    "cheap ones lure": {
        "a": Agent(0.50, 0.5, 2),
        "b": Agent(0.45, 0.4, 2),
        "best": Agent(0.95, 1.2, 5),
        "c": Agent(0.55, 0.6, 3),
        "d": Agent(0.40, 0.4, 2),
    },
    "close": {
        "a": Agent(0.75, 1.0, 4),
        "b": Agent(0.70, 1.0, 4),
        "best": Agent(0.95, 1.0, 4),
        "c": Agent(0.75, 1.0, 4),
        "d": Agent(0.70, 1.0, 4),
    },
}


def worth(agents: dict[str, Agent], times: int = 4_000) -> dict[str, float]:
    """What a run of each agent is worth on average."""
    rng = random.Random(0)
    runs = [agent.run(name, rng) for name, agent in agents.items() for _ in range(times)]
    each = utilities(runs, Weights())
    return {name: math.fsum(each[i * times : (i + 1) * times]) / times for i, name in enumerate(agents)}


# --- who chooses ----------------------------------------------------------------------------------------------------

#: Runs agents by a seed, so many times.
Chooser = Callable[[dict[str, Agent], int], list[Run]]


@contextmanager
def started(agents: Sequence[str], seed: int, folder: str) -> Iterator[StrategyEvolution]:
    """The plugin, without a bus."""
    plugin = StrategyEvolution(Path(folder) / "strategy.study", agents, seed=seed)
    plugin.start(nowhere(), None)  # type: ignore[arg-type]  # it has no use for one
    yield plugin
    plugin.stop(nowhere())


def nowhere() -> Context:
    """The context of a call that belongs to no execution."""
    return Context("", NoExecution(), NoJournal(), "strategy", threading.RLock())


def outcome(execution_id: str, run: Run) -> ExecutionOutcome:
    """How an execution went that was one run."""
    status = ExecutionStatus.COMPLETED if run.success else ExecutionStatus.FAILED
    return ExecutionOutcome(execution_id, "w", status, 1, run.duration, 3, 1, 0, 1, int(run.cost), 0, 0, 0)


def strategy(agents: dict[str, Agent], seed: int) -> list[Run]:
    """By StrategyEvolution."""
    rng = random.Random(seed)
    runs = []
    with tempfile.TemporaryDirectory() as folder, started(list(agents), seed, folder) as plugin:
        for number in range(RUNS):
            asked = ExecutionState(f"e{number}", "w", "choose", 1, {}, {})
            recommended = plugin.recommend(nowhere(), asked)
            assert recommended is not None
            name = recommended.preferred_agent
            runs.append(agents[name].run(name, rng))
            plugin.after_execution(nowhere(), outcome(f"e{number}", runs[-1]))
    return runs


def sampler(kind: str) -> Chooser:
    """By a sampler of Optuna's, which is told of success, duration and cost."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)

    def choose(agents: dict[str, Agent], seed: int) -> list[Run]:
        rng = random.Random(seed)
        made = getattr(optuna.samplers, kind)(seed=seed)
        study = optuna.create_study(directions=["maximize", "minimize", "minimize"], sampler=made)
        among = {"agent": optuna.distributions.CategoricalDistribution(list(agents))}
        runs = []
        for _ in range(RUNS):
            trial = study.ask(among)
            name = trial.params["agent"]
            runs.append(agents[name].run(name, rng))
            study.tell(trial, [runs[-1].success, runs[-1].duration, runs[-1].cost])
        return runs

    return choose


def choosers() -> dict[str, Chooser]:
    """All that are compared."""
    return {
        "StrategyEvolution": strategy,
        "TPE": sampler("TPESampler"),
        "NSGA-II": sampler("NSGAIISampler"),
        "at random": sampler("RandomSampler"),
    }


# --- how they do ----------------------------------------------------------------------------------------------------


@attrs.frozen
class Score:
    """Of so many seeds: how many found the best agent; which part of the last 20 runs were its; what the 60 runs were
    worth less than 60 of the best, on average; milliseconds a run."""

    seeds: int
    found: int
    last: float
    regret: float
    milliseconds: float


def found(agents: dict[str, Agent], runs: Sequence[Run]) -> str:
    """The agent that is expected to be worth most by the runs that were made."""
    return standings(list(agents), runs, Weights())[0].agent


def score(agents: dict[str, Agent], choose: Chooser, seeds: int) -> Score:
    """Let one choose, with each seed."""
    expected = worth(agents)
    best = max(expected, key=expected.__getitem__)
    right = 0
    last = regret = 0.0
    begun = perf_counter()
    for seed in range(seeds):
        runs = choose(agents, seed)
        right += found(agents, runs) == best
        last += sum(run.agent == best for run in runs[-20:]) / 20
        regret += math.fsum(expected[best] - expected[run.agent] for run in runs)
    took = perf_counter() - begun
    return Score(seeds, right, last / seeds, regret / seeds, 1e3 * took / seeds / RUNS)


def on_a_runtime(agents: dict[str, Agent], seed: int, runs: int = RUNS) -> str:
    """The agent that is found by as many executions, whose branch point EvolutionRouter decides.

    What an agent does takes no time here but is counted: success is whether its step fails, cost its tool calls.
    """
    rng = random.Random(seed)
    wf = Workflow("w")
    wf.step(lambda: None, id="choose", branches=list(agents))

    def work(name: str) -> Callable[..., None]:
        def body(ctx: StepContext) -> None:
            run = agents[name].run(name, rng)
            for _ in range(int(run.cost)):
                ctx.tool("think", int)
            if not run.success:
                raise ValueError("failed")

        return body

    for name in agents:
        wf.step(work(name), id=name, depends_on=["choose"])
    with tempfile.TemporaryDirectory() as folder:
        plugin = StrategyEvolution(Path(folder) / "strategy.study", list(agents), seed=seed)
        with Runtime(plugins=[plugin, EvolutionRouter({name: name for name in agents})]) as runtime:
            for _ in range(runs):
                runtime.run(wf)
            return plugin.standings("w", "choose")[0].agent


def report(seeds: int) -> Iterator[str]:
    """What to print."""
    for name, agents in SCENES.items():
        expected = sorted(worth(agents).values(), reverse=True)
        figures = ", ".join(f"{each:.2f}" for each in expected)
        yield f"\n{name}: a run is worth {figures}; after {RUNS} runs, over {seeds} seeds"
        for who, choose in choosers().items():
            it = score(agents, choose, seeds)
            yield (
                f"  {who:18} found it in {it.found / seeds:4.0%}; {it.last:4.0%} of the last 20 runs were its;"
                f" regret {it.regret:4.1f}; {it.milliseconds:.2f} ms a run"
            )
    agents = SCENES["one stands out"]
    right = sum(on_a_runtime(agents, seed) == "best" for seed in range(10))
    yield f"\non a Runtime, with EvolutionRouter, {RUNS} executions each: found in {right} of 10 seeds"
