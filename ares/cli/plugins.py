"""The command ``plugins``: who lives on the bus of a Runtime, how each is, and in which order they are called.

To know that, the plugins are started and stopped again. Without a target they are the built-in ones, on a store that is
thrown away.
"""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ares.bus.health import PluginHealth, PluginState
from ares.bus.hooks import HookOrder
from ares.cli.exits import ExitCode
from ares.cli.session import Session
from ares.cli.store import existing_store
from ares.cli.target import load
from ares.runtime import Runtime

#: Seconds that the plugins have to stop.
_STOP_SECONDS = 5.0

_STYLES = {PluginState.RUNNING: "green", PluginState.FAILED: "red", PluginState.STOPPED: ""}


def plugins(session: Session, target: str | None, store: str | None) -> int:
    """Show the plugins of the Runtime that runs a target. The exit code is 1 if one of them does not start."""
    with tempfile.TemporaryDirectory(prefix="ares-plugins-") as folder:
        place = existing_store(store) if store else str(Path(folder) / "ares.db")
        runtime = Runtime(place) if target is None else load(target).runtime(place)
        try:
            try:
                runtime.start()
                problem = ""
            except ExceptionGroup as error:
                problem = str(error)
            health, order = runtime.health(), runtime.bus.hook_order()
        finally:
            runtime.close(_STOP_SECONDS)
    session.document = _document(health, order, problem)
    if not session.as_json:
        _say(session, health, order, problem)
    is_well = not problem and all(each.state is PluginState.RUNNING for each in health.values())
    return 0 if is_well else ExitCode.FAILED


def _say(session: Session, health: Mapping[str, PluginHealth], order: HookOrder, problem: str) -> None:
    out = session.out
    if not health:
        out.line("no plugins")
        return
    rows = [
        (name, _capabilities(each), (str(each.state), _STYLES.get(each.state, "yellow")), each.last_error)
        for name, each in health.items()
    ]
    out.table(("PLUGIN", "CAPABILITIES", "STATE", ""), rows)
    lines = _order_lines(order)
    if lines:
        out.line()
        out.table(("CALL", "ORDER"), lines)
    if problem:
        session.note(problem)


def _capabilities(health: PluginHealth) -> str:
    return ", ".join(sorted(health.capabilities))


def _order_lines(order: HookOrder) -> list[Sequence[str]]:
    split = (line.partition(": ") for line in str(order).splitlines())
    return [(call, names) for call, _, names in split]


def _document(health: Mapping[str, PluginHealth], order: HookOrder, problem: str) -> dict[str, Any]:
    document: dict[str, Any] = {
        "plugins": [
            {
                "name": name,
                "capabilities": sorted(each.capabilities),
                "state": str(each.state),
                "last_error": each.last_error,
            }
            for name, each in health.items()
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
