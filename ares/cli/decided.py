"""``show --routes``: every decision at a branch point, as the journal tells it, without the workflow.

The candidates are those that have a score: all of them, where router plugins decided. Where they did not, the journal
does not list them; then they are the branches that were taken, and those that were skipped because they were not.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from ares.cli.documents import jsonable
from ares.cli.screen import Part, Screen
from ares.cli.text import instant, long
from ares.events import Event, EventType
from ares.walk.facts import SkipReason


@attrs.define(eq=False)
class Route:
    """One decision. ``targets`` is None where there is no route, and ``error`` says why."""

    seq: int
    event: Event
    path: str
    round: int
    targets: Sequence[str] | None
    source: str = ""
    reason: str = ""
    scores: Mapping[str, float] = attrs.field(factory=dict)
    abstained: Sequence[str] = ()
    error: str = ""
    #: Of those without scores, what was not taken.
    passed_over: list[str] = attrs.field(factory=list)

    @property
    def candidates(self) -> list[str]:
        """All that could have been taken, as far as it is known."""
        return list(self.scores) or [*(self.targets or ()), *self.passed_over]

    @property
    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "seq": self.seq,
            "time": self.event.timestamp.isoformat(),
            "path": self.path,
            "round": self.round,
            "targets": None if self.targets is None else list(self.targets),
            "source": self.source or None,
            "reason": self.reason or None,
            "candidates": self.candidates,
            "scores": jsonable(self.scores),
            "abstained": list(self.abstained),
            "error": self.error or None,
        }


def routes_of(events: Iterable[Event], edges: Iterable[tuple[str, str]]) -> list[Route]:
    """The decisions among the events of an execution, in order.

    Args:
        events: all of them.
        edges: which step depends on which: (from, to).
    """
    direct = set(edges)
    found: list[Route] = []
    #: The last decision of each branch point.
    last: dict[str, Route] = {}
    for event in events:
        route = _route(event)
        if route is not None:
            found.append(route)
            last[route.path] = route
        elif event.type == EventType.STEP_SKIPPED:
            _pass_over(event.payload, last, direct)
    return found


def _route(event: Event) -> Route | None:
    told = event.payload
    match event.type:
        # What a plugin recorded as a RouteEntry has the same type, and no scores.
        case EventType.ROUTE_DECIDED if "scores" in told:
            more = {name: told[name] for name in ("targets", "source", "reason", "scores", "abstained")}
        case EventType.ROUTE_FAILED:
            more = {"targets": None, "error": told["error"]}
        case EventType.STEP_COMPLETED if told.get("targets") is not None:
            more = {"targets": told["targets"], "source": "step"}
        case _:
            return None
    return Route(event.seq or 0, event, told["path"], told["round"], **more)


def _pass_over(told: Mapping[str, Any], last: Mapping[str, Route], direct: set[tuple[str, str]]) -> None:
    """A step was skipped: if that is a branch that was not taken, its branch point had one candidate more."""
    reason, _, origin = told["reason"].partition(": ")
    path = told["path"]
    prefix = path[: path.rfind("/") + 1]
    route = last.get(prefix + origin)
    if reason != SkipReason.NOT_TAKEN or route is None or (_plain(route.path), _plain(path)) not in direct:
        return
    name = path[len(prefix) :]
    if name not in route.passed_over:
        route.passed_over.append(name)


def _plain(path: str) -> str:
    """The path of a step in the definition: without the elements and rounds that it lies in."""
    return "/".join(part.partition("[")[0].partition("#")[0] for part in path.split("/"))


# --- for people ---------------------------------------------------------------------------------------------------


def say_routes(out: Screen, routes: Sequence[Route]) -> None:
    """Print decisions, a few lines each."""
    out.line(("ROUTES", "bold") if routes else "no routes")
    for route in routes:
        when = f"  ({instant(route.event.timestamp)})"
        out.line("  ", *heading(route.path, route.round), " -> ", taken(route.targets), when)
        for name, said in _details(route):
            out.line(f"    {name:<11}", *said)


def _details(route: Route) -> Iterator[tuple[str, Sequence[Part]]]:
    if route.error:
        yield "error", [long(route.error)]
        return
    yield "decided by", [route.source, f": {long(route.reason)}" if route.reason else ""]
    yield "candidates", [long(", ".join(_scored(name, route.scores) for name in route.candidates))]
    if route.abstained:
        yield "abstained", [long(", ".join(route.abstained))]


def _scored(name: str, scores: Mapping[str, float]) -> str:
    return f"{name} {scores[name]:.3g}" if name in scores else name


def heading(path: str, round: int) -> Sequence[Part]:
    """A branch point, in its round if that is not the first."""
    return [(path, "bold"), f", round {round}" if round > 1 else ""]


def taken(targets: Sequence[str] | None) -> Part:
    """What was taken: the branches, none, or that there is no route."""
    if targets is None:
        return "no route", "red"
    return long(", ".join(targets)) or "none"
