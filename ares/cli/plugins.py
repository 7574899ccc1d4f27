"""The command ``plugins``: who lives on the bus of a Runtime, how each is, and in which order they are called.

To know that, the plugins are started and stopped again. Without a target they are the built-in ones, with
``--installed`` also those of installed distributions, on a store that is thrown away.
"""

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

import ares
from ares.bus.health import PluginHealth, PluginState
from ares.bus.hooks import HookOrder
from ares.cli.exits import ExitCode
from ares.cli.session import Session
from ares.cli.store import existing_store
from ares.cli.target import load
from ares.cli.trial import try_out
from ares.errors import RegistrationError, UsageError
from ares.plugin import RuntimePlugin
from ares.runtime import Runtime
from ares.runtime.installed import InstalledPlugin, installed_plugins

#: What is shown of a plugin that there is none of, because it could not be made.
_NOT_MADE = "not loaded"
_STYLES = {str(PluginState.RUNNING): "green", str(PluginState.FAILED): "red", _NOT_MADE: "red"}

#: A distribution and its version; empty where a plugin belongs to none.
_Origin = tuple[str, str]
_OF_ARES: _Origin = ("ares-workflow", ares.__version__)


@attrs.frozen
class _Line:
    """What is shown of one plugin."""

    name: str
    origin: _Origin
    capabilities: tuple[str, ...]
    state: str
    problem: str


@attrs.define
class _Made:
    """The plugins of distributions that could be made, and those that could not."""

    plugins: list[RuntimePlugin] = attrs.field(factory=list)
    #: By the plugin's own name.
    origins: dict[str, _Origin] = attrs.field(factory=dict)
    broken: list[_Line] = attrs.field(factory=list)


def plugins(session: Session, target: str | None, store: str | None, *, installed: bool = False) -> int:
    """Show the plugins of the Runtime that runs a target, or ``installed`` ones beside the built-in ones.

    Returns:
        The exit code: 1 if one of them cannot be made or does not start.
    """
    if installed and target is not None:
        raise UsageError(f"--installed: which plugins {target} has, it decides itself; leave out one of the two")
    found = installed_plugins() if target is None else ()
    made = _make(found) if installed else _Made()
    with tempfile.TemporaryDirectory(prefix="ares-plugins-") as folder:
        place = existing_store(store) if store else str(Path(folder) / "ares.db")
        runtime = Runtime(place, plugins=made.plugins) if target is None else load(target).runtime(place)
        tried = try_out(runtime)
    origins = _origins(dict(zip(tried.health, runtime.bus.plugins, strict=True)), made.origins)
    lines = [*(_line(each, origins[name]) for name, each in tried.health.items()), *made.broken]
    session.document = _document(lines, tried.order, tried.problem)
    if not session.as_json:
        _say(session, lines, tried.order, tried.problem)
        if found and not installed:
            session.note(f"installed, and shown with --installed: {', '.join(each.name for each in found)}")
    is_well = not tried.problem and all(each.state == PluginState.RUNNING for each in lines)
    return 0 if is_well else ExitCode.FAILED


# --- where they come from -------------------------------------------------------------------------------------------


def _make(found: Iterable[InstalledPlugin]) -> _Made:
    made = _Made()
    for each in found:
        origin = (each.distribution, each.version)
        try:
            plugin = each.make()
        except RegistrationError as error:
            made.broken.append(_Line(each.name, origin, (), _NOT_MADE, str(error)))
            continue
        twin = made.origins.get(plugin.name)
        if twin is not None:
            problem = f"{each} makes plugin {plugin.name!r}, which {' '.join(twin)} does, too"
            made.broken.append(_Line(each.name, origin, (), _NOT_MADE, problem))
            continue
        made.plugins.append(plugin)
        made.origins[plugin.name] = origin
    return made


def _origins(plugins: Mapping[str, RuntimePlugin], known: Mapping[str, _Origin]) -> dict[str, _Origin]:
    """By each plugin's name, its distribution: that of the module which defines it, if it is not known better."""
    packages = {name: type(plugin).__module__.partition(".")[0] for name, plugin in plugins.items()}
    distributions = _distributions({each for name, each in packages.items() if name not in known} - {"ares"})
    distributions["ares"] = _OF_ARES
    return {name: known.get(name) or distributions.get(each, ("", "")) for name, each in packages.items()}


def _distributions(packages: set[str]) -> dict[str, _Origin]:
    """Which distributions some packages come from, as far as they come from any."""
    if not packages:
        return {}
    from importlib.metadata import packages_distributions, version

    named = packages_distributions()
    return {package: (named[package][0], version(named[package][0])) for package in packages if named.get(package)}


# --- how it is shown ------------------------------------------------------------------------------------------------


def _line(health: PluginHealth, origin: _Origin) -> _Line:
    capabilities = tuple(sorted(health.capabilities))
    return _Line(health.name, origin, capabilities, str(health.state), health.last_error)


def _say(session: Session, lines: Sequence[_Line], order: HookOrder, problem: str) -> None:
    out = session.out
    if not lines:
        out.line("no plugins")
        return
    rows = [
        (
            line.name,
            " ".join(line.origin).strip(),
            ", ".join(line.capabilities),
            (line.state, _STYLES.get(line.state, "" if line.state == PluginState.STOPPED else "yellow")),
            line.problem,
        )
        for line in lines
    ]
    out.table(("PLUGIN", "VERSION", "CAPABILITIES", "STATE", ""), rows)
    calls = _order_lines(order)
    if calls:
        out.line()
        out.table(("CALL", "ORDER"), calls)
    if problem:
        session.note(problem)


def _order_lines(order: HookOrder) -> list[Sequence[str]]:
    split = (line.partition(": ") for line in str(order).splitlines())
    return [(call, names) for call, _, names in split]


def _document(lines: Sequence[_Line], order: HookOrder, problem: str) -> dict[str, Any]:
    document: dict[str, Any] = {
        "plugins": [
            {
                "name": line.name,
                "distribution": line.origin[0],
                "version": line.origin[1],
                "capabilities": list(line.capabilities),
                "state": line.state,
                "last_error": line.problem,
            }
            for line in lines
        ],
        "hook_order": {
            "intercept": list(order.interceptors),
            **{hook: [list(wave) for wave in waves] for hook, waves in order.waves.items()},
            "route": list(order.routers),
            "should_recover": list(order.recovery),
            "should_execute_round": list(order.loop),
        },
    }
    if problem:
        document["problem"] = problem
    return document
