"""The nursery's own side: a process that imports, forks and reaps, and does nothing else."""

import importlib
import importlib.util
import os
import socket
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from ares.testing.processes import Line

#: Seconds that it waits for orders: a session of tests.
_PATIENCE = 86_400.0


def serve() -> None:
    """Carry out orders until the other side is gone. ``sys.argv``: the address of the line, the search path, modules
    to import first."""
    address, preload = sys.argv[1], sys.argv[3:]
    for module in preload:
        importlib.import_module(module)
    line = Line(_connected(address))
    while (order := line.hear(_PATIENCE)) is not None:
        if "reap" in order:
            _, status = os.waitpid(order["reap"], 0)
            line.say([order["number"], os.waitstatus_to_exitcode(status)])
            continue
        try:
            function = _found(**order["fork"])
        except Exception:
            line.say([order["number"], f"{order['fork']} cannot be imported\n{traceback.format_exc()}"])
            continue
        pid = os.fork()
        if pid == 0:
            line.close()
            _live(function, address, order)
            return  # and to the end of the process, as every program goes
        line.say([order["number"], pid])
    line.close()


def _connected(address: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(address)
    return connection


def _live(function: Callable[..., Any], address: str, order: dict[str, Any]) -> None:
    with Path(order["errors"]).open("wb") as errors:
        os.dup2(errors.fileno(), 1)
        os.dup2(errors.fileno(), 2)
    line = Line(_connected(address))
    try:
        line.send("returned", function(line, *order["args"], **order["kwargs"]))
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        raise SystemExit(1) from None


def _found(module: str, file: str, name: str) -> Callable[..., Any]:
    """A function of a module, which is loaded from its file where that is not what the name leads to: pytest may have
    its own ways to import test modules."""
    function: Callable[..., Any] = getattr(_module(module, file), name)
    return function


def _module(module: str, file: str) -> ModuleType:
    found = sys.modules.get(module)
    if found is None:
        try:
            found = importlib.import_module(module)
        except ModuleNotFoundError as error:
            if not f"{module}.".startswith(f"{error.name}."):
                raise
    if found is not None and (not file or getattr(found, "__file__", None) == file):
        return found
    spec = importlib.util.spec_from_file_location(module, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is no Python file")
    made = sys.modules[module] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made
