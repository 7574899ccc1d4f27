"""Decides at branch points by rules: the first one that speaks of the step, and whose condition holds, is followed.

Where none does, the router has no answer, and the next one is asked. A rule can be wrong in two ways and hurts nobody:
a condition that fails counts as not met, and a branch that the step does not have passes the rule over. Both are
counted, and told by events.
"""

from collections.abc import Iterable

from ares.plugin import Context
from ares.plugins._rules import Rule, RuledRouter
from ares.records import RouteDecision, RouteState


class ExpressionRouter(RuledRouter):
    """A router that has rules, and nothing besides.

    Its decisions have the source ``expression``, the reason of the rule, and the score 1.0 for what is taken. Events:
    ``router.rule_failed`` of a condition that raised, ``router.rule_stray`` of a rule for this very step that names no
    branch of it; both tell ``path``, ``rule`` (its number from 1), ``when``, ``to`` and ``problem``.

    Args:
        rules: In the order in which they are tried; ``rules_from`` reads them from a file.
        name: Of the plugin.
        timeout: Seconds that one decision may take; None for the bus's own.

    Raises:
        UsageError: one of ``rules`` is no ``Rule``.
    """

    def __init__(self, rules: Iterable[Rule] = (), name: str = "expression", *, timeout: float | None = None) -> None:
        super().__init__(name, rules, timeout)

    def route(self, ctx: Context, state: RouteState) -> RouteDecision | None:  # noqa: ARG002 - a contract's word
        """What the first rule says that holds; None if none does."""
        return self.by_rules(state)
