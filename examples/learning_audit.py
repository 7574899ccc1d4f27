"""The code audit, with a memory that learns which layout of the report is approved.

    ares run examples/learning_audit.py --store audit.db --input publish_to=public/audit.md

Whether the most complex functions are listed by function or by file, nobody says beforehand. A coin decides until the
memory knows better: a report that was published went well, one that was rejected did not, for about so many functions
in about so many files. What it knows is kept in a file beside the store, ``audit.db.experience``.

This is a program of its own, and no part of ``code_audit.py``: a target that makes its own Runtime decides itself about
``--durability`` and ``--workers``, and the plain audit keeps no file but its store. What this one began, it should
resume: an execution that ends where nobody records a score counts as one that went well.
"""

import random
from collections.abc import Callable
from pathlib import Path

from code_audit import workflow  # type: ignore[import-not-found]  # found beside this file, where mypy does not look

from ares import Context, ExecutionOutcome, Plugin, Runtime, ScoringSignal
from ares.plugins import ExperienceMemory, MemoryRouter, Rule

__all__ = ["Approvals", "plugins", "runtime", "workflow"]

SCORES = {"approve": 1.0, "reject": 0.0}
#: Of a report that nobody was asked about: nothing that a layout should be taken for again.
UNASKED = 0.5


class Approvals(Plugin):
    """Judges an execution by what the human said about its report."""

    name = "approvals"
    runs_before = ("experience",)  # the memory looks for a score when an execution has ended

    def after_execution(self, ctx: Context, outcome: ExecutionOutcome) -> None:
        """Records the score: of the last answer, if the question was asked more than once."""
        ctx.journal.flush(outcome.execution_id)
        history = ctx.journal.snapshot(outcome.execution_id).interrupt_history
        said = [each for each in history if each.path == "publish" and each.action in SCORES]
        score = SCORES[said[-1].action] if said else UNASKED
        ctx.record(ScoringSignal(self.name, score, said[-1].feedback if said else "nobody was asked"))


def plugins(experience: Path, coin: Callable[[], float] = random.random) -> list[Plugin]:
    """What an audit needs to learn.

    Args:
        experience: the file that the memory keeps.
        coin: gives numbers from 0 to 1.
    """
    rules = [
        Rule(lambda output, variables: coin() < 0.5, "by_function", source="worst", reason="a coin"),  # noqa: ARG005 - a rule's words
        Rule(lambda output, variables: True, "by_file", source="worst", reason="a coin"),  # noqa: ARG005
    ]
    memory = ExperienceMemory(experience, about=lambda state: state.output)
    # More than one half, or runs that nobody judged would be taken for advice. It has to see what the step returned.
    return [Approvals(), memory, MemoryRouter(rules, confidence_min=0.6, prefetch=False)]


def runtime(store: str) -> Runtime:
    """The Runtime that the command line uses. Without a store nothing is learned, and the first layout is taken."""
    return Runtime(store, plugins=[] if store == ":memory:" else plugins(Path(f"{store}.experience")))
