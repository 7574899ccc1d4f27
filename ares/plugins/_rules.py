"""Rules of routers: what one is, where they come from, and the base of the routers that fall back on them."""

import inspect
import json
import os
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import attrs

from ares.errors import UsageError
from ares.plugin import Capability, Context, EventBus, Plugin
from ares.plugins._expressions import Condition, ExpressionError, compiled
from ares.records import RouteDecision, RouteState

#: What is told of a rule whose condition failed, and of one that names a branch which its step does not have.
RULE_FAILED: Final = "router.rule_failed"
RULE_STRAY: Final = "router.rule_stray"

#: Characters of a message that are passed on.
_LONGEST: Final = 500


def _targets(to: str | Iterable[str]) -> tuple[str, ...]:
    # Checked with the rule, which can be named by then.
    return (to,) if isinstance(to, str) or not isinstance(to, Iterable) else tuple(to)


@attrs.frozen
class Rule:
    """One rule of a router: where it applies, on what condition, and what to take then.

    Attributes:
        when: The condition: a callable ``(output, variables)``, or an expression over both, as a text (see
            ``docs/routers.md``; it takes ``ares-workflow[expressions]``). Either is true or false as Python takes it.
        to: The id of the branch to take, or several.
        source: The branch point that it speaks of, by its id or its path; "" for any.
        reason: Why, for people; the condition itself where it is "".

    Raises:
        UsageError: the rule, which is named, can never work: its expression does not parse or reaches for what it may
            not, its callable does not take two arguments, it names no branch.
    """

    when: str | Condition
    to: tuple[str, ...] = attrs.field(converter=_targets)
    source: str = ""
    reason: str = ""
    _test: Condition = attrs.field(init=False, eq=False, repr=False)

    @_test.default
    def _check(self) -> Condition:
        for name, texts in (("to", self.to), ("source", (self.source,)), ("reason", (self.reason,))):
            if not all(isinstance(text, str) for text in texts):
                raise UsageError(f"{self}: {name} must be text")
        if not self.to or not all(self.to):
            raise UsageError(f"{self}: it names no branch to take")
        return self._expression(self.when) if isinstance(self.when, str) else self._callable()

    def __str__(self) -> str:
        to = ", ".join(map(repr, self.to))
        return f"rule {self.condition!r} -> {to}"

    @property
    def condition(self) -> str:
        """The condition in words: the expression, or the callable's name."""
        return self.when if isinstance(self.when, str) else getattr(self.when, "__name__", type(self.when).__name__)

    def speaks_of(self, state: RouteState) -> bool:
        """Whether it is a rule for this branch point."""
        return not self.source or self.source in (state.step_id, state.path)

    def holds(self, state: RouteState) -> bool:
        """Whether its condition does. Raises whatever goes wrong in it."""
        return bool(self._test(state.output, state.variables))

    def _expression(self, text: str) -> Condition:
        try:
            return compiled(text)
        except ExpressionError as error:
            raise UsageError(f"{self}: {error}") from error
        except ModuleNotFoundError as error:
            raise UsageError(
                f"{self}: an expression needs simpleeval, which is not installed: "
                "pip install 'ares-workflow[expressions]', or give a callable"
            ) from error

    def _callable(self) -> Condition:
        when: Any = self.when
        if not callable(when):
            raise UsageError(f"{self}: its condition must be an expression or a callable, not {when!r}")
        if inspect.iscoroutinefunction(when) or inspect.isgeneratorfunction(when) or inspect.isasyncgenfunction(when):
            raise UsageError(f"{self}: its condition is async or a generator, which nobody would run")
        try:
            inspect.signature(when).bind(None, {})
        except TypeError as error:
            raise UsageError(f"{self}: its condition must take (output, variables): {error}") from None
        except ValueError:
            pass  # of C: only calling it will tell
        condition: Condition = when
        return condition


def rules_from(path: str | os.PathLike[str]) -> tuple[Rule, ...]:
    """Read rules from a file: a JSON list of objects, each with ``when`` (an expression) and ``to`` (a branch, or a
    list of them), and ``source`` and ``reason`` if it likes.

    Args:
        path: Of the file, in UTF-8.

    Returns:
        The rules, in the order of the file.

    Raises:
        UsageError: the file cannot be read, is no such list, or one of its rules can never work. It names the file
            and, by its number from 1, the rule.
    """
    try:
        entries = json.loads(Path(path).read_text("utf-8"), object_pairs_hook=_object)
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"no rules can be read from {os.fspath(path)!r}: {words(error)}") from error
    if not isinstance(entries, list):
        raise UsageError(f"{os.fspath(path)!r} must hold a list of rules")
    return tuple(_read(entry, f"{os.fspath(path)!r}, rule {number}") for number, entry in enumerate(entries, 1))


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError(f"an object has a key twice: {', '.join(name for name, _ in pairs)}")
    return made


_KEYS: Final = ("when", "to", "source", "reason")


def _read(entry: object, where: str) -> Rule:
    if not isinstance(entry, dict):
        raise UsageError(f"{where}: must be an object, not {entry!r}")
    strange = [name for name in entry if name not in _KEYS]
    missing = [name for name in _KEYS[:2] if name not in entry]
    if strange or missing:
        problem = f"has no {missing[0]!r}" if missing else f"has {strange[0]!r}, which no rule has"
        raise UsageError(f"{where}: {problem}; there are {', '.join(_KEYS)}")
    if not isinstance(entry["when"], str):
        raise UsageError(f"{where}: when must be an expression in a text, not {entry['when']!r}")
    try:
        return Rule(**entry)
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from error


# --- the routers that have them -------------------------------------------------------------------------------------


@attrs.frozen
class RuleCounts:
    """What became of a router's rules, since it was made.

    Attributes:
        matched: How often one decided.
        failed: How often a condition failed; it counted as not met.
        strays: How often a rule was passed over because what it names is no branch of the step in question.
        last_error: Of the conditions that failed, what the last one failed with; "" for none.
    """

    matched: int = 0
    failed: int = 0
    strays: int = 0
    last_error: str = ""


class RuledRouter(Plugin):
    """The base of the routers that have rules: keeps them in order, and takes the first that holds.

    Args:
        name: Of the plugin.
        rules: In order.
        timeout: Seconds that one call may take; None for the bus's own.

    Raises:
        UsageError: one of ``rules`` is no ``Rule``.
    """

    capabilities = frozenset({Capability.ROUTER})

    def __init__(self, name: str, rules: Iterable[Rule], timeout: float | None) -> None:
        self.name = name
        self.timeout = timeout
        self._bus: EventBus | None = None
        self._pid = os.getpid()
        #: Guards what follows, and what subclasses say.
        self._lock = threading.Lock()
        #: Replaced, never changed.
        self._rules = tuple(_checked(rule, name) for rule in rules)
        self._counts = RuleCounts()

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules in the order in which they are tried. Any thread."""
        return self._rules

    @property
    def rule_counts(self) -> RuleCounts:
        """What became of them. Any thread."""
        return self._counts

    def add_rule(self, rule: Rule, *, first: bool = False) -> None:
        """Have one more rule, from the next decision on. Any thread, at any time.

        Args:
            rule: The rule.
            first: Whether it is tried before all others; otherwise after them.

        Raises:
            UsageError: it is no ``Rule``.
        """
        added = (_checked(rule, self.name),)
        with self._lock:
            self._rules = added + self._rules if first else self._rules + added

    def start(self, ctx: Context, bus: EventBus) -> None:  # noqa: ARG002 - a contract's word
        """Get ready. The child of a fork makes a lock of its own: the one it has may be held by nobody."""
        if self._pid != os.getpid():
            self._lock, self._pid = threading.Lock(), os.getpid()
        self._bus = bus

    def stop(self, ctx: Context) -> None:  # noqa: ARG002 - a contract's word
        """Let go of the bus. The rules stay."""
        self._bus = None

    def by_rules(self, state: RouteState) -> RouteDecision | None:
        """What the first rule says that holds; None if none does. A rule that fails hides no other."""
        for number, rule in enumerate(self._rules, 1):
            if not rule.speaks_of(state):
                continue
            strange = [name for name in rule.to if name not in state.candidates]
            if strange:
                self._count(strays=1)
                if rule.source:
                    # Somebody means this very step, and is mistaken. A rule for any step may well mean another.
                    choice = ", ".join(map(repr, state.candidates))
                    problem = f"it names {', '.join(map(repr, strange))}; there are {choice}"
                    self.tell(state, RULE_STRAY, **_about(number, rule, problem))
                continue
            try:
                holds = rule.holds(state)
            except BaseException as error:  # a rule must not hide the next one, whatever it raises
                self._count(failed=1, error=f"{rule}: {words(error)}")
                self.tell(state, RULE_FAILED, **_about(number, rule, words(error)))
                continue
            if holds:
                self._count(matched=1)
                reason = rule.reason or f"rule {number}: {rule.condition}"
                return RouteDecision(rule.to, reason, "expression", dict.fromkeys(rule.to, 1.0))
        return None

    def tell(self, state: RouteState, event_type: str, **payload: object) -> None:
        """Emit an event in the stream of the execution. Its ``path`` is the branch point's."""
        if self._bus is not None:
            with suppress(Exception):  # whatever is wrong with the bus, a route is wanted
                self._bus.emit(state.execution_id, event_type, self.name, {"path": state.path, **payload})

    def _count(self, *, matched: int = 0, failed: int = 0, strays: int = 0, error: str = "") -> None:
        with self._lock:
            now = self._counts
            self._counts = RuleCounts(
                now.matched + matched, now.failed + failed, now.strays + strays, error or now.last_error
            )


def _about(number: int, rule: Rule, problem: str) -> Mapping[str, object]:
    return {"rule": number, "when": rule.condition, "to": list(rule.to), "problem": problem}


def _checked(rule: object, router: str) -> Rule:
    if not isinstance(rule, Rule):
        raise UsageError(f"a rule of router {router!r} must be a Rule, not {rule!r}")
    return rule


def confidence(value: object, router: str) -> float:
    """``value`` as the least confidence of a router.

    Raises:
        UsageError: it is no number from 0 to 1.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise UsageError(f"confidence_min of router {router!r} must be a number from 0 to 1, not {value!r}")
    return float(value)


def words(error: BaseException) -> str:
    """An exception in a few words, whatever its own methods do."""
    try:
        message = str(error)[:_LONGEST]
    except BaseException:
        message = "<its message cannot be shown>"
    return f"{type(error).__name__}: {message}" if message else type(error).__name__
