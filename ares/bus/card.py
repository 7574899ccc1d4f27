"""What a bus knows of a plugin: read once, checked in full, before the plugin is let in.

Whatever is wrong is a ``RegistrationError`` that names the plugin and what is wrong; nothing is guessed and nothing is
put off until the first call.
"""

import inspect
import math
from collections.abc import Callable, Iterable
from typing import Any, Final

import attrs

from ares.bus.call import describe
from ares.errors import RegistrationError
from ares.events import EventFilter
from ares.plugin.capabilities import PROTOCOLS, Capability
from ares.plugin.verdicts import HookPolicy

#: What makes a plugin a plugin, and the methods that are called wherever they are found, with their parameters.
_LIFECYCLE: Final = {"start": ("ctx", "bus"), "stop": ("ctx",)}
_HOOKS: Final = {
    "before_step": ("ctx", "execution_id", "step"),
    "after_step": ("ctx", "execution_id", "result"),
    "before_execution": ("ctx", "execution"),
    "after_execution": ("ctx", "outcome"),
    "on_event": ("ctx", "delivery"),
}
#: The methods that a capability promises. Without the capability they are the plugin's own business.
_PROMISED: Final = {
    "route": ("ctx", "state"),
    "advise_route": ("ctx", "state"),
    "recommend": ("ctx", "state"),
    "record_outcome": ("ctx", "outcome"),
    "should_recover": ("ctx", "failure", "state"),
    "should_execute_round": ("ctx", "next_round", "state"),
    "on_round_end": ("ctx", "round", "state"),
}
_LONGEST_NAME: Final = 200
_DEFAULT_BUFFER: Final = 64


@attrs.frozen
class Card:
    """A plugin's particulars. ``hooks`` are the optional methods that it has; ``timeout`` is seconds."""

    plugin: Any
    name: str
    capabilities: frozenset[Capability]
    hooks: frozenset[str]
    policy: HookPolicy
    runs_after: tuple[str, ...]
    runs_before: tuple[str, ...]
    is_required: bool
    per_item: bool
    timeout: float | None
    subscribes_to: EventFilter | None
    buffer: int

    @property
    def intercepts(self) -> bool:
        """Whether it decides about steps."""
        return self.policy is HookPolicy.INTERCEPT


def read(plugin: object) -> Card:
    """Look at a plugin.

    Raises:
        RegistrationError: it cannot live on a bus.
    """
    if plugin is None:
        raise RegistrationError("", "None is no plugin")
    if isinstance(plugin, type):
        raise RegistrationError(plugin.__name__, "is a class; register an instance of it")
    name = _name(plugin)
    reader = _Reader(plugin, name)
    hooks = reader.hooks()
    policy = reader.policy()
    if policy is HookPolicy.INTERCEPT and "before_step" not in hooks:
        raise reader.refusal("hook_policy is INTERCEPT, but it has no before_step to intercept with")
    return Card(
        plugin=plugin,
        name=name,
        capabilities=reader.capabilities(),
        hooks=hooks,
        policy=policy,
        runs_after=reader.names("runs_after"),
        runs_before=reader.names("runs_before"),
        # The bus must never do without a plugin that decides about access.
        is_required=reader.flag("required") or policy is HookPolicy.INTERCEPT,
        per_item=reader.flag("per_item"),
        timeout=reader.timeout(),
        subscribes_to=reader.filter() if "on_event" in hooks else None,
        buffer=reader.buffer() if "on_event" in hooks else 0,
    )


def _name(plugin: object) -> str:
    kind = type(plugin).__name__
    try:
        name: object = plugin.name  # type: ignore[attr-defined]  # whatever it is, it is looked at
    except Exception as error:
        raise RegistrationError(kind, f"has no name: {describe(error)}") from error
    if not isinstance(name, str) or not name.strip():
        raise RegistrationError(kind, f"has no name: a non-empty str is expected, not {name!r}")
    if len(name) > _LONGEST_NAME or not name.isprintable():
        raise RegistrationError(
            name[:_LONGEST_NAME], f"its name is over {_LONGEST_NAME} characters or has control ones"
        )
    return str(name)


class _Reader:
    """Reads one attribute after another, and says what is wrong with it."""

    def __init__(self, plugin: object, name: str) -> None:
        self._plugin = plugin
        self._name = name

    def refusal(self, problem: str) -> RegistrationError:
        return RegistrationError(self._name, problem)

    def attribute(self, attribute: str, default: Any) -> Any:
        try:
            return getattr(self._plugin, attribute, default)
        except Exception as error:
            raise self.refusal(f"{attribute} cannot be read: {describe(error)}") from error

    def hooks(self) -> frozenset[str]:
        for method, parameters in _LIFECYCLE.items():
            if not self._has(method, parameters):
                raise self.refusal(f"has no method {_form(method, parameters)}; ares.Plugin brings one")
        found = frozenset(method for method, parameters in _HOOKS.items() if self._has(method, parameters))
        if "on_event" not in found and isinstance(self.attribute("subscribes_to", None), EventFilter):
            raise self.refusal(f"has subscribes_to but no method {_form('on_event', _HOOKS['on_event'])}")
        return found

    def _has(self, method: str, parameters: tuple[str, ...]) -> bool:
        value = self.attribute(method, None)
        if value is None:
            return False
        self._check(method, parameters, value)
        return True

    def _check(self, method: str, parameters: tuple[str, ...], value: Any) -> None:
        expected = _form(method, parameters)
        if not callable(value):
            raise self.refusal(f"{method} is no method; {expected} is expected")
        if _is_lazy(value):
            raise self.refusal(f"{method} is async or a generator, which nobody would run; a plain method is expected")
        try:
            signature = inspect.signature(value)
        except (ValueError, TypeError):
            return  # of C, or hidden: only calling it will tell
        try:
            signature.bind(*parameters)
        except TypeError as error:
            raise self.refusal(f"{expected} is expected, but it has {method}{signature}: {error}") from None

    def capabilities(self) -> frozenset[Capability]:
        value = self.attribute("capabilities", None)
        if value is None or isinstance(value, str) or not isinstance(value, Iterable):
            raise self.refusal(f"capabilities must be a frozenset of Capability, not {value!r}")
        found = set()
        for item in value:
            try:
                found.add(Capability(item))
            except ValueError:
                known = ", ".join(Capability)
                raise self.refusal(f"{item!r} is no capability; there are {known}") from None
        for capability in sorted(found):
            for method in PROTOCOLS.get(capability, ()):
                if not self._has(method, _PROMISED[method]):
                    form = _form(method, _PROMISED[method])
                    raise self.refusal(f"has capability {capability.value!r} but no method {form}")
        return frozenset(found)

    def policy(self) -> HookPolicy:
        value = self.attribute("hook_policy", HookPolicy.OBSERVE)
        try:
            return HookPolicy(value)
        except ValueError:
            raise self.refusal(f"hook_policy must be one of {', '.join(HookPolicy)}, not {value!r}") from None

    def names(self, attribute: str) -> tuple[str, ...]:
        value = self.attribute(attribute, ())
        names = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, Iterable) else (None,)
        if not all(isinstance(name, str) for name in names):
            raise self.refusal(f"{attribute} must be names of plugins or capabilities, not {value!r}")
        return tuple(str(name) for name in names)

    def flag(self, attribute: str) -> bool:
        value = self.attribute(attribute, False)
        if not isinstance(value, bool):
            raise self.refusal(f"{attribute} must be True or False, not {value!r}")
        return value

    def timeout(self) -> float | None:
        value = self.attribute("timeout", None)
        return None if value is None else positive_seconds(value, lambda problem: self.refusal(f"timeout {problem}"))

    def filter(self) -> EventFilter:
        value = self.attribute("subscribes_to", None)
        if not isinstance(value, EventFilter):
            raise self.refusal(f"has on_event, so subscribes_to must be an EventFilter, not {value!r}")
        problem = problem_of(value)
        if problem:
            raise self.refusal(f"subscribes_to: {problem}")
        return value

    def buffer(self) -> int:
        value = self.attribute("buffer", _DEFAULT_BUFFER)
        return buffer_size(value, lambda problem: self.refusal(f"buffer {problem}"))


def _form(method: str, parameters: tuple[str, ...]) -> str:
    return f"{method}({', '.join(parameters)})"


def buffer_size(value: object, refusal: Callable[[str], Exception]) -> int:
    """``value`` as a number of events; raises what ``refusal`` makes of the problem."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise refusal(f"must be a number of events from 1, not {value!r}")
    return value


def positive_seconds(value: object, refusal: Callable[[str], Exception]) -> float:
    """``value`` as seconds; raises what ``refusal`` makes of the problem."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
        raise refusal(f"must be seconds, more than 0, not {value!r}")
    return float(value)


def problem_of(filter: EventFilter) -> str:
    """Why an event filter can select nothing; "" when it can."""
    types: Iterable[object] = sorted(filter.types, key=str)
    streams: Iterable[object] = filter.stream_ids
    for event_type in types:
        if not isinstance(event_type, str) or "." not in event_type.strip("."):
            return f"{event_type!r} is no event type, which is a dotted name; types takes a collection of them"
    for stream_id in streams:
        if not isinstance(stream_id, str) or not stream_id:
            return f"{stream_id!r} is no stream's id"
    return ""


def _is_lazy(value: Any) -> bool:
    function = getattr(value, "__func__", value)
    return (
        inspect.iscoroutinefunction(function)
        or inspect.isgeneratorfunction(function)
        or inspect.isasyncgenfunction(function)
    )
