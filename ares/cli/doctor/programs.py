"""What a target does to the process that imports it, and how the plugins of its Runtime do."""

import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType

import attrs

from ares.bus.health import PluginState
from ares.cli.doctor.finding import Finding, fail, ok, warn
from ares.cli.target import Program, load
from ares.cli.text import counted
from ares.cli.trial import Trial, try_out
from ares.errors import AresError

#: How many threads are named.
_NAMED = 5


@attrs.frozen
class Imported:
    """A target, and what importing it left in the process."""

    program: Program
    #: The names of threads that it started.
    threads: Sequence[str]
    #: How many more there are of libraries that are no Python.
    natives: int
    #: What made another kind of threads of them: "gevent", "eventlet" or nothing.
    patched_by: str


def import_target(target: str) -> Imported:
    """Import a target, as the commands that run it do.

    Raises:
        UsageError: there is no such thing, or it cannot be loaded.
    """
    before, natives = frozenset(threading.enumerate()), _native_threads()
    program = load(target)
    started = [each.name for each in threading.enumerate() if each not in before]
    more = max(0, _native_threads() - natives - len(started))
    return Imported(program, started, more, patched_by(sys.modules))


def _native_threads() -> int:
    try:
        return sum(1 for _ in Path("/proc/self/task").iterdir())
    except OSError:
        return 0


def patched_by(modules: Mapping[str, ModuleType]) -> str:
    """Which of the loaded modules replaced threads by something else; empty for none."""
    gevent, eventlet = modules.get("gevent.monkey"), modules.get("eventlet.patcher")
    if gevent is not None and gevent.is_module_patched("threading"):
        return "gevent"
    return "eventlet" if eventlet is not None and eventlet.is_monkey_patched("thread") else ""


def look_at_import(imported: Imported) -> Iterator[Finding]:
    """Threads that are there before anybody forks."""
    names, natives = imported.threads, imported.natives
    if not names and not natives:
        yield ok("importing it starts no thread")
        return
    said = [f"{counted(len(names), 'thread')} ({_listed(names)})"] if names else []
    said += [f"{counted(natives, 'thread')} of libraries"] if natives else []
    todo = (
        "start nothing at import: a process that is forked afterwards (gunicorn --preload, Celery) has no such thread"
    )
    if any(name.startswith("ares-") for name in names):
        todo += "; make the Runtime there, and start it where it runs"
    yield warn(f"importing it starts {' and '.join(said)}", todo)


def look_at_patches(imported: Imported) -> Iterator[Finding]:
    """Whether threads are threads."""
    if not imported.patched_by:
        yield ok("threads are threads: neither gevent nor eventlet has patched them")
        return
    yield fail(
        f"importing it has {imported.patched_by} patch threads, after ares was loaded: the command would hang",
        "patch before anything else is imported, and not in the target; better use workers that are threads or "
        "processes, since patched ones share one processor, and a step that computes stops them all",
    )


def look_at_workflow(imported: Imported) -> Iterator[Finding]:
    """Whether it can run."""
    workflow = imported.program.workflow
    try:
        graph = workflow.validate()
    except AresError as error:
        yield fail(str(error), "correct the definition")
    else:
        yield ok(f"{workflow.id!r} is valid: {counted(len(graph.nodes), 'step')}")


# --- plugins --------------------------------------------------------------------------------------------------


def try_plugins(imported: Imported) -> tuple[int, Trial]:
    """How many workers the Runtime of a target has, and how it starts and stops, on a store that is thrown away.

    Raises:
        AresError: it cannot be made, or its plugins cannot be ordered.
    """
    with tempfile.TemporaryDirectory(prefix="ares-doctor-", ignore_cleanup_errors=True) as folder:
        runtime = imported.program.runtime(str(Path(folder) / "ares.db"))
        return runtime.max_workers, try_out(runtime)


def look_at_plugins(trial: Trial) -> Iterator[Finding]:
    """How each does, and in which order they are called."""
    well = []
    for name, health in trial.health.items():
        end = trial.stopped[name].state
        if health.state is not PluginState.RUNNING:
            yield fail(f"{name} is {health.state}: {health.last_error}", "ares plugins TARGET shows all of them")
        elif end is not PluginState.STOPPED:
            yield fail(f"{name} is {end} after the stop: {trial.stopped[name].last_error}", "let it stop in time")
        else:
            well.append(name)
    if trial.problem:
        yield fail(trial.problem, "the Runtime does not start like this")
    yield ok(f"{_listed(well, len(well)) or 'none'} start and stop")
    if order := str(trial.order):
        yield ok(f"called in this order: {'; '.join(order.splitlines())}")


def _listed(names: Sequence[str], most: int = _NAMED) -> str:
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more:,} more" if more > 0 else "")
