"""Whether routing learns: a workflow whose best branch depends on what its first step returns, run again and again.

Tickets come in, and each belongs to one of three desks. A ticket has words that its topic is likely to have, and others
that say nothing, as do the customer's number and the length. Luck plays its part: the right desk fails one ticket in
twenty, and a wrong one is lucky with one in twenty. Nobody tells a router what was right; it can see how runs ended.

*rules* are what somebody wrote who knew the most obvious words. *memory* is a ``MemoryRouter`` with an
``ExperienceMemory``, and differs in who tries something new: ``at random`` its rules draw lots where there is no advice
yet; ``explores`` the memory itself does, the rules above being its last resort; ``after rules`` nobody does, and the
same rules decide where there is no advice. That learns from what the rules chose, and from nothing else: enough here,
where they choose each desk for some tickets of its own.
"""

import random
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs

from ares import ExecutionStatus, Plugin, Runtime, Workflow
from ares.plugins import ExperienceMemory, ExpressionRouter, MemoryRouter, Rule

DESKS = {
    "billing": ["invoice", "payment", "refund", "charge", "receipt", "price", "tax", "card"],
    "technical": ["error", "crash", "login", "update", "slow", "install", "screen", "backup"],
    "sales": ["offer", "licence", "upgrade", "demo", "quote", "discount", "seats", "contract"],
}
_OTHER = [f"word{number}" for number in range(60)]
#: How often the right desk fails, and a wrong one does not.
_LUCK = 0.05

RULES = (
    Rule("'invoice' in output.text or 'payment' in output.text", "billing"),
    Rule("'error' in output.text or 'crash' in output.text", "technical"),
    Rule("True", "sales"),
)


@attrs.frozen
class Routed:
    """What became of the runs of one way to route: whether each took the right branch, and whether it went well."""

    name: str
    right: tuple[bool, ...]
    good: tuple[bool, ...]

    def share_right(self, first: int, last: int) -> float:
        """The part of the runs from ``first`` to before ``last`` that took the right branch."""
        some = self.right[first:last]
        return sum(some) / len(some)


def triage() -> Workflow:
    """The workflow. Its input is a ticket, and the desks that it would go well at."""
    wf = Workflow("triage", inputs={"ticket": dict, "well_at": list})
    wf.step(lambda ticket: ticket, id="read", branches=list(DESKS))
    for desk in DESKS:
        wf.step(_work_of(desk), id=desk, depends_on=["read"])
    return wf


def _work_of(desk: str) -> Callable[[Any], str]:
    def work(well_at: list[str]) -> str:
        if desk not in well_at:
            raise ValueError(f"nothing for {desk}")
        return desk

    return work


def tickets(count: int, seed: int) -> list[tuple[str, dict[str, Any]]]:
    """So many tickets, as the right desk and the inputs of a run; the same for every way to route."""
    drawn = random.Random(seed)
    made = []
    for _ in range(count):
        right = drawn.choice(list(DESKS))
        words = drawn.sample(DESKS[right], 3) + drawn.sample(_OTHER, 7)
        drawn.shuffle(words)
        ticket = {"text": " ".join(words), "customer": drawn.randrange(10**6), "lines": drawn.randrange(1, 40)}
        well_at = [desk for desk in DESKS if (desk == right) != (drawn.random() < _LUCK)]
        made.append((right, {"ticket": ticket, "well_at": well_at}))
    return made


def _lots(seed: int) -> list[Rule]:
    """Rules that take any branch, at random."""
    drawn, desks = random.Random(seed), list(DESKS)
    return [
        Rule(lambda output, variables, left=left: drawn.random() * left < 1, desk)  # noqa: ARG005 - a rule's words
        for desk, left in zip(desks, range(len(desks), 0, -1), strict=True)
    ]


def ways(file: Path, seed: int) -> dict[str, Callable[[], list[Plugin]]]:
    """The plugins of each way to route; ``file`` is where a memory is kept."""
    return {
        "rules": lambda: [ExpressionRouter(RULES)],
        "memory, at random": lambda: [ExperienceMemory(file), MemoryRouter(_lots(seed))],
        "memory, explores": lambda: [ExperienceMemory(file, explore=True), MemoryRouter(RULES)],
        "memory, after rules": lambda: [ExperienceMemory(file), MemoryRouter(RULES)],
    }


def measure(name: str, runs: int, seed: int) -> Routed:
    """Route so many tickets in one way.

    Args:
        name: One of ``ways``.
        runs: How many.
        seed: Of the tickets, and of what is drawn on the way.
    """
    right, good = [], []
    wf = triage()
    with tempfile.TemporaryDirectory() as folder:
        plugins = ways(Path(folder) / "experience.db", seed)[name]()
        with Runtime(plugins=plugins) as runtime:
            for number, (desk, inputs) in enumerate(tickets(runs, seed)):
                result = runtime.run(wf, inputs, execution_id=f"ticket-{seed}-{number}")
                right.append(result.steps[desk].status != "SKIPPED")
                good.append(result.status is ExecutionStatus.COMPLETED)
    return Routed(name, tuple(right), tuple(good))


def report(seeds: Sequence[int], runs: int = 200) -> list[str]:
    """A line a way to route: the part of right choices, the mean over the seeds and, at the end, the lowest."""
    half = runs // 2
    heads = "".join(f"{head:>10}" for head in ("first 50", f"to {half}", f"after {half}"))
    lines = [f"{'right choices':22}{heads}  lowest of {len(seeds)} seeds"]
    for name in ways(Path(), 0):
        found = [measure(name, runs, seed) for seed in seeds]
        shares = [
            sum(each.share_right(first, last) for each in found) / len(found)
            for first, last in ((0, 50), (50, half), (half, runs))
        ]
        lowest = min(each.share_right(half, runs) for each in found)
        lines.append(f"{name:22}" + "".join(f"{share:10.0%}" for share in shares) + f"  {lowest:.0%}")
    return lines
