"""The command ``routes replay``: what another router would have decided in past executions.

The store is only read; the router is asked on a bus of its own, as in a walk, but nothing runs and no hook is called.
Each choice is asked about as it stood then: an answer that differs changes nothing about those that came after it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import Any

import attrs

from ares.bus import PluginBus
from ares.cli.decided import heading, taken
from ares.cli.documents import error_document, jsonable
from ares.cli.exits import ExitCode, said
from ares.cli.screen import Part
from ares.cli.session import Session
from ares.cli.store import existing_store
from ares.cli.target import described, load, load_object
from ares.cli.text import counted, long
from ares.engine.decisions import Choice, Decider, Decision
from ares.errors import AresError, DefinitionError, ExecutionConflictError, UsageError
from ares.events import EventFilter
from ares.plugin import Capability
from ares.records import ExecutionSummary
from ares.runtime import Runtime
from ares.runtime.checks import check_id
from ares.workflow import Workflow

#: Seconds that one answer may take, and that the plugins have to stop: in good order, and after a Ctrl-C.
_ANSWER_SECONDS = 30.0
_STOP_SECONDS = 5.0
_CUT_SECONDS = 0.2
#: Events of routers that wait to be looked at after an answer; of more, the last are lost.
_EVENTS = 1_000


@attrs.frozen
class Replay:
    """What ``ares routes replay`` is asked for. ``timeout`` in seconds."""

    target: str
    router: str
    execution_ids: tuple[str, ...]
    limit: int | None
    only_changed: bool
    timeout: float | None
    store: str | None


class Verdict(StrEnum):
    """What became of a choice."""

    SAME = "same"
    CHANGED = "changed"
    #: It was not for router plugins to make.
    KEPT = "kept"
    #: It cannot be rebuilt.
    UNKNOWN = "unknown"


@attrs.frozen
class _Compared:
    """A choice then and now. What was asked about is not kept: each has a history as long as there were choices."""

    decision: Decision
    verdict: Verdict
    now: Choice | None = None


@attrs.define(eq=False)
class _Execution:
    """One execution, and what became of its choices. ``problem`` is why its journal could not be read to the end."""

    summary: ExecutionSummary
    compared: list[_Compared] = attrs.field(factory=list)
    problem: BaseException | None = None

    @property
    def has_changed(self) -> bool:
        """Whether the workflow is another one since any of its choices."""
        return any(not each.decision.is_same_workflow for each in self.compared)


def replay(session: Session, wanted: Replay) -> int:
    """Ask a router about past choices. The exit code is 1 if the journal of an execution cannot be read."""
    store = existing_store(wanted.store)
    program = load(wanted.target)
    workflow = program.workflow
    workflow.validate()
    plugins = _plugins(wanted.router)
    runtime = program.runtime(store)
    summaries = _summaries(runtime, workflow, wanted)
    found = []
    with _hosted(plugins, wanted) as asker:
        for summary in summaries:
            found.append(_compare(runtime, workflow, summary, asker))
            if not session.as_json:
                _say(session, found[-1], only_changed=wanted.only_changed)
        routers = asker.bus.hook_order().routers
    totals = _totals(found)
    session.document = {
        "workflow_id": workflow.id,
        "routers": list(routers),
        "executions": [_document(each, only_changed=wanted.only_changed) for each in found],
        "totals": totals,
    }
    if not session.as_json:
        _say_totals(session, totals)
    return ExitCode.FAILED if any(each.problem is not None for each in found) else 0


def _summaries(runtime: Runtime, workflow: Workflow, wanted: Replay) -> list[ExecutionSummary]:
    """The executions that are meant; all that are named are looked for before the first is replayed."""
    for execution_id in wanted.execution_ids:
        check_id(execution_id)
    if not wanted.execution_ids:
        return list(runtime.executions(workflow_id=workflow.id, limit=wanted.limit))
    named = [runtime.summary(execution_id) for execution_id in dict.fromkeys(wanted.execution_ids)]
    for each in named:
        if each.workflow_id != workflow.id:
            raise ExecutionConflictError(each.execution_id, f"another workflow, {each.workflow_id!r}")
    return named[: wanted.limit]


def _totals(found: Sequence[_Execution]) -> dict[str, int]:
    compared = [each for execution in found for each in execution.compared]
    verdicts = Counter(each.verdict for each in compared)
    return {
        "executions": len(found),
        "decisions": len(compared),
        **{str(verdict): verdicts[verdict] for verdict in Verdict},
        "with_problems": sum(each.now is not None and bool(each.now.problems) for each in compared),
    }


# --- the router ---------------------------------------------------------------------------------------------------


def _plugins(target: str) -> list[Any]:
    """The plugins that ``--router`` names: one, a list of them, or what a function makes."""
    found = load_object(target, "router")
    if not isinstance(found, type) and callable(found) and not hasattr(found, "route"):
        try:
            found = found()
        except (Exception, SystemExit) as error:
            raise UsageError(f"--router {target}: calling it without arguments raised {said(error)}") from error
    plugins = list(found) if isinstance(found, list | tuple) else [found]
    if not any(Capability.ROUTER in _capabilities(plugin) for plugin in plugins):
        raise UsageError(
            f"--router {target} is {described(found)}, not a router: a plugin with the capability 'router', "
            "a list of plugins with one in it, or a function that makes either"
        )
    return plugins


def _capabilities(plugin: object) -> Sequence[object]:
    try:
        found = getattr(plugin, "capabilities", ())
        return tuple(found) if isinstance(found, Iterable) else ()
    except Exception:
        return ()  # whatever it is, it is no router


class _Port:
    """An ``ExecutionPort`` of what is not walked any more: what plugins record is kept nowhere."""

    def __init__(self, metadata: Mapping[str, str]) -> None:
        self.metadata = metadata

    def record(self, writer: str, entry: Any) -> None:
        """Nothing is written."""


class _Asker:
    """Asks the routers of a bus, and hears what they say went wrong."""

    def __init__(self, bus: PluginBus) -> None:
        self.bus = bus
        self._events = bus.subscribe(EventFilter(), buffer=_EVENTS)

    def compared(self, decision: Decision) -> _Compared:
        """What became of a choice."""
        told = attrs.evolve(decision, state=None, instance=None)
        if decision.decider is not Decider.ROUTERS:
            return _Compared(told, Verdict.KEPT)
        if decision.state is None:
            return _Compared(told, Verdict.UNKNOWN)
        self._heard()
        now = decision.ask(self.bus)
        now = attrs.evolve(now, problems=(*now.problems, *self._heard()))
        verdict = Verdict.SAME if now.takes_as(decision.then) else Verdict.CHANGED
        return _Compared(told, verdict, now)

    def _heard(self) -> list[str]:
        """The problems that were told since the last time. Those of plugins with the bus are its own warnings."""
        found = []
        while self._events.pending:
            delivery = self._events.get(0)
            event = None if delivery is None else delivery.event
            if event is not None and "problem" in event.payload and not event.type.startswith("plugin."):
                about = {name: value for name, value in event.payload.items() if name not in ("path", "problem")}
                told = ", ".join(f"{name} {value}" for name, value in about.items())
                found.append(f"{event.type} of {event.module!r} ({told}): {event.payload['problem']}")
        return found


@contextmanager
def _hosted(plugins: Sequence[Any], wanted: Replay) -> Iterator[_Asker]:
    bus = PluginBus(name="replay", timeout=wanted.timeout or _ANSWER_SECONDS)
    bus.register(*plugins)
    seconds = _STOP_SECONDS
    try:
        try:
            bus.start()
        except ExceptionGroup as group:
            # What remains would decide without it, which is not what was asked for.
            raise group.exceptions[0] from group
        yield _Asker(bus)
    except KeyboardInterrupt:
        seconds = _CUT_SECONDS
        raise
    finally:
        bus.stop(seconds)


def _compare(runtime: Runtime, workflow: Workflow, summary: ExecutionSummary, asker: _Asker) -> _Execution:
    found = _Execution(summary)
    asker.bus.open_execution(summary.execution_id, _Port(summary.metadata))
    try:
        for decision in runtime.decisions(summary.execution_id, workflow):
            found.compared.append(asker.compared(decision))
    except DefinitionError:
        raise  # the same for every execution
    except AresError as error:
        found.problem = error
    finally:
        asker.bus.close_execution(summary.execution_id)
    return found


# --- for people ---------------------------------------------------------------------------------------------------

_STYLES = {Verdict.SAME: "green", Verdict.CHANGED: "bold yellow", Verdict.KEPT: "dim", Verdict.UNKNOWN: "red"}
_KEPT = {
    Decider.STEP: "the step decided itself",
    Decider.OWN_ROUTER: "the step's own router was asked",
    Decider.NOBODY: "nobody was asked",
}


def _say(session: Session, execution: _Execution, *, only_changed: bool) -> None:
    out = session.out
    listed = [each for each in execution.compared if not (only_changed and each.verdict is Verdict.SAME)]
    if not listed and execution.problem is None:
        return
    note = ", of a workflow that has changed since" if execution.has_changed else ""
    out.line(("execution ", ""), (execution.summary.execution_id, "bold"), note)
    for each in listed:
        decision, verdict = each.decision, each.verdict
        line: list[Part] = ["  ", (f"{verdict:<9}", _STYLES[verdict]), *heading(decision.path, decision.round), " -> "]
        out.line(*line, taken(decision.then.targets), *_remark(each))
        for name, text in _details(each):
            out.line(f"    {name:<11}", text)
    if execution.problem is not None:
        out.line("  ", (f"its journal cannot be read any further: {long(said(execution.problem))}", "red"))


def _say_totals(session: Session, totals: Mapping[str, int]) -> None:
    choices, executions = counted(totals["decisions"], "choice"), counted(totals["executions"], "execution")
    verdicts = ", ".join(f"{totals[verdict]:,} {verdict}" for verdict in Verdict)
    problems = f"; with problems: {totals['with_problems']:,}" if totals["with_problems"] else ""
    session.out.line((f"{choices} in {executions}: {verdicts}{problems}", "bold"))


def _remark(each: _Compared) -> list[Part]:
    match each.verdict:
        case Verdict.CHANGED if each.now is not None:
            return [", now ", taken(each.now.targets)]
        case Verdict.KEPT:
            return [f": {_KEPT[each.decision.decider]}"]
        case Verdict.UNKNOWN:
            return [f": {long(each.decision.missing)}"]
        case _:
            return []


def _details(each: _Compared) -> Iterator[tuple[str, str]]:
    if each.now is None:
        return
    if each.verdict is Verdict.CHANGED:
        yield "then", _by(each.decision.then)
        yield "now", _by(each.now)
    if each.decision.uncertain:
        yield "uncertain", f"{', '.join(each.decision.uncertain)}: changed while it was decided, by steps beside it"
    for problem in each.now.problems:
        yield "problem", long(problem)


def _by(choice: Choice) -> str:
    if choice.targets is None:
        return long(choice.error)
    asked = f"; {', '.join(choice.abstained)} abstained" if choice.abstained else ""
    return long(f"by {choice.source}{f': {choice.reason}' if choice.reason else ''}{asked}")


# --- for machines -------------------------------------------------------------------------------------------------


def _document(execution: _Execution, *, only_changed: bool) -> dict[str, Any]:
    problem = execution.problem
    return {
        "execution_id": execution.summary.execution_id,
        "has_changed": execution.has_changed,
        "problem": None if problem is None else error_document(problem),
        "decisions": [
            _compared_document(each)
            for each in execution.compared
            if not (only_changed and each.verdict is Verdict.SAME)
        ],
    }


def _compared_document(each: _Compared) -> dict[str, Any]:
    decision = each.decision
    return {
        "seq": decision.seq,
        "time": decision.at.isoformat(),
        "path": decision.path,
        "round": decision.round,
        "verdict": str(each.verdict),
        "decider": str(decision.decider),
        "missing": decision.missing or None,
        "uncertain": list(decision.uncertain),
        "then": _choice_document(decision.then),
        "now": None if each.now is None else _choice_document(each.now),
    }


def _choice_document(choice: Choice) -> dict[str, Any]:
    return {
        "targets": None if choice.targets is None else list(choice.targets),
        "source": choice.source or None,
        "reason": choice.reason or None,
        "scores": jsonable(choice.scores),
        "abstained": list(choice.abstained),
        "error": choice.error or None,
        "problems": list(choice.problems),
    }
