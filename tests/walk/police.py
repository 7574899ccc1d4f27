"""Reads a journal, fact by fact, and knows what must never stand in one. Independent of the walk and of its state.

What a step ended as is ``reference``'s business; this is about what happened on the way: nothing begins too early,
after a stop, or twice; no map runs more elements at once than it may; no at_most_once body runs again while nobody
knows whether it took effect; nothing runs on before a human has answered, and nobody is asked twice.
"""

from collections.abc import Iterable, Iterator

from ares.questions import AnswerAction, Cause, OnReject
from ares.walk import facts as f
from ares.workflow import Delivery, Graph, Node, OnItemFailure, Trigger
from tests.walk.script import Script

FINAL = ("COMPLETED", "FAILED", "SKIPPED")


class Forbidden(AssertionError):
    """A fact that must not follow those before it."""


class Police:
    """What the facts so far say of each path."""

    def __init__(self, graph: Graph, script: Script | None = None) -> None:
        self.graph = graph
        self.script = script
        self.status: dict[str, str] = {}
        self.attempts: dict[str, int] = {}
        self.unknown: set[str] = set()
        #: Per map, the elements that take a place.
        self.holding: dict[str, set[str]] = {}
        self.cancelled = False
        #: Prefixes whose time is up; empty for the execution's own.
        self.overdue: set[str] = set()
        self.ended = False
        self.number = 0
        #: What is open, by path.
        self.questions: dict[str, f.Asked] = {}
        #: By path and key, which fact answered; and which fact made a path forget its answers.
        self.answers: dict[str, dict[str, int]] = {}
        self.fresh: dict[str, int] = {}
        #: The present round of each scope that is not in its first, by prefix; those after which another may come.
        self.rounds: dict[str, int] = {}
        self.goes_on: set[str] = set()

    def read(self, facts: Iterable[f.Fact]) -> None:
        """Raise ``Forbidden`` at the first fact that must not be."""
        for number, fact in enumerate(facts):
            self.number = number
            try:
                self._see(fact)
            except AssertionError as error:
                raise Forbidden(f"fact {number}, {fact}: {error}") from error

    # --- where a path lies -----------------------------------------------------------------------

    def _nodes(self, path: str) -> Iterator[tuple[str, Graph, Node]]:
        """Each step on a path, outermost first: the prefix it lies in, its graph, its node."""
        graph, prefix = self.graph, ""
        for segment in path.split("/"):
            node = graph.nodes[graph.by_id[segment.partition("[")[0].partition("#")[0]]]
            yield prefix, graph, node
            prefix += segment + "/"
            if node.child is not None:
                graph = node.child

    def _inside(self, path: str) -> str:
        """The prefix of what lies in a step or element."""
        round_ = self.rounds.get(path[: path.rfind("/") + 1], 1)
        return f"{path}/" if round_ == 1 else f"{path}#{round_}/"

    def _round_ends(self, fact: f.RoundEnded) -> None:
        prefix = fact.path + "/" if fact.path else ""
        assert fact.round == self.rounds.get(prefix, 1), "it is in another round"
        here = {p: s for p, s in self.status.items() if _lies_in(p, prefix)}
        assert all(s in (*FINAL, "UNROUTED") for s in here.values()), f"{here} have not all ended"
        if fact.again:
            assert not {"FAILED", "UNROUTED"} & set(here.values()), "it failed"
            stops = self._stops(prefix + next(iter(here)).removeprefix(prefix)) if here else set()
            always = [p for p in here if not self._stops(p)]
            assert not stops or always, f"it was to stop: {stops}"
            self.goes_on.add(prefix)

    def _round_begins(self, fact: f.RoundStarted) -> None:
        prefix = fact.path + "/" if fact.path else ""
        assert prefix in self.goes_on, "nobody said that there is another round"
        assert fact.round == self.rounds.get(prefix, 1) + 1, "it is not the next round"
        for path in [p for p in {*self.status, *self.attempts} if p.startswith(prefix)]:
            self.status.pop(path, None)
            self.attempts.pop(path, None)
        self.unknown = {p for p in self.unknown if not p.startswith(prefix)}
        assert not any(p.startswith(prefix) for p in self.questions), "a question of the round before is open"
        self.answers = {p: a for p, a in self.answers.items() if not p.startswith(prefix)}
        self.holding = {p: h for p, h in self.holding.items() if not p.startswith(prefix)}
        self.rounds = {p: r for p, r in self.rounds.items() if not p.startswith(prefix)}
        self.overdue = {p for p in self.overdue if p == prefix or not p.startswith(prefix)}
        self.goes_on = {p for p in self.goes_on if not p.startswith(prefix)}
        self.rounds[prefix] = fact.round

    def _stops(self, path: str) -> set[str]:
        """Why a path must not begin now."""
        stops: set[str] = set()
        for prefix, graph, node in self._nodes(path):
            if prefix in self.overdue:
                stops.add("timeout")
            if not prefix and self.cancelled:
                stops.add("cancelled")
            broken = [p for p, s in self.status.items() if s in ("FAILED", "UNROUTED") and _lies_in(p, prefix)]
            if graph.workflow.fail_fast and broken:
                stops.add("fail_fast")
            if node.spec.trigger is Trigger.ALWAYS:
                stops.clear()
        return stops

    # --- facts -----------------------------------------------------------------------------------

    def _see(self, fact: f.Fact) -> None:  # noqa: C901, PLR0912  # a case a fact
        if isinstance(fact, f.InstanceFact):
            assert fact.round == self.rounds.get(fact.path[: fact.path.rfind("/") + 1], 1), "it is in another round"
        match fact:
            case f.RoundEnded():
                self._round_ends(fact)
            case f.RoundStarted():
                self._round_begins(fact)
            case f.Asked() | f.Answered() | f.Continued():
                self._talk(fact)
            case f.Started():
                self._begins(fact.path, fact.attempt)
                self.status[fact.path] = "RUNNING"
            case f.Opened():
                self._begins(fact.path, fact.attempt)
                self.status[fact.path] = "OPEN"
                self.overdue.discard(self._inside(fact.path))
                self._set_back(fact.set_back)
            case f.Checked():
                assert self.status.get(fact.path, "PENDING") == "PENDING", "it has begun"
                self._deps_are_final(fact.path)
            case f.Succeeded() | f.Completed():
                targets = getattr(fact, "targets", None)
                self._has_heard(fact.path, in_body=self.status[fact.path] == "RUNNING")
                *_, (_, _, node) = self._nodes(fact.path)
                asks = bool(node.branches) and targets is None and not fact.path.endswith("]")
                self._ends(fact.path, "ROUTING" if asks else "COMPLETED")
                self.unknown.discard(fact.path)
            case f.Failed():
                self._fails(fact)
            case f.Skipped():
                self._skips(fact)
                self._ends(fact.path, "SKIPPED")
            case f.Routed() | f.Unrouted():
                assert self.status[fact.path] == "ROUTING"
                self.status[fact.path] = "COMPLETED" if isinstance(fact, f.Routed) else "UNROUTED"
            case f.CancelRequested():
                self.cancelled = True
            case f.DeadlinePassed():
                self.overdue.add(self._inside(fact.path) if fact.path else "")
            case f.Interrupted():
                self._cut(fact.in_flight)
            case f.Resumed():
                self._resumes(fact)
            case f.Ended():
                assert not self.ended, "it had ended"
                open_ones = [p for p, s in self.status.items() if s not in (*FINAL, "PENDING", "UNROUTED")]
                assert not open_ones, f"{open_ones} had not"
                self.ended = True

    def _begins(self, path: str, attempt: int) -> None:
        status = self.status.get(path, "PENDING")
        assert status in ("PENDING", "RETRYING"), f"it was {status}"
        assert attempt == self.attempts.get(path, 0) + 1, f"after attempt {self.attempts.get(path, 0)}"
        assert path not in self.unknown, "nobody knows whether it took effect"
        *_, (prefix, _, node) = self._nodes(path)
        stops = self._stops(path)
        body_goes_on = status == "RETRYING" and node.child is None
        assert not (stops - {"fail_fast"} if body_goes_on else stops), f"it was to stop: {stops}"
        if path.endswith("]"):
            self._element_begins(path, prefix + node.id, node, status)
        else:
            self._deps_are_final(path)
            self._has_heard(path)
        self.attempts[path] = attempt

    # --- questions -------------------------------------------------------------------------------

    def _talk(self, fact: f.Asked | f.Answered | f.Continued) -> None:
        path, status = fact.path, self.status.get(fact.path, "PENDING")
        assert fact.attempt == self.attempts.get(path, 0), f"in attempt {self.attempts.get(path, 0)}"
        if isinstance(fact, f.Asked):
            self._asks(fact, status)
            self._ends(path, "WAITING")
            self.questions[path] = fact
        elif isinstance(fact, f.Answered):
            assert status == "WAITING", f"it was {status}"
            self._hears(fact, self.questions.pop(path))
        else:
            assert status == "ANSWERED", f"it was {status}"
            assert not self._stops(path) - {"fail_fast"}, "it was to stop"
            *_, (prefix, _, node) = self._nodes(path)
            if path.endswith("]"):
                self._element_begins(path, prefix + node.id, node, status)
            self.status[path] = "RUNNING"

    def _asks(self, fact: f.Asked, status: str) -> None:
        *_, (_, _, node) = self._nodes(fact.path)
        once = node.spec.delivery is Delivery.AT_MOST_ONCE
        assert fact.key not in self.answers.get(fact.path, {}), "it has an answer"
        match fact.cause:
            case Cause.BEFORE:
                assert status == "PENDING", f"it was {status}"
                assert node.spec.interrupt == fact.message
                assert not fact.path.endswith("]"), "its map has asked"
                assert not self._stops(fact.path), "it was to stop"
                self._deps_are_final(fact.path)
            case Cause.BODY:
                assert status == "RUNNING", f"it was {status}"
                assert not once, "its body cannot run again"
            case Cause.OUTCOME:
                assert status == "RECONCILING", f"it was {status}"
                assert fact.path in self.unknown, "it is known"
                assert once, "it may run twice"
                assert node.reconcile is None, "that can say so"
                assert not self._stops(fact.path) - {"fail_fast"}, "it was to stop"

    def _hears(self, fact: f.Answered, asked: f.Asked) -> None:
        assert (fact.key, fact.epoch) == (asked.key, asked.epoch), f"{asked} was asked"
        is_no = fact.action is AnswerAction.REJECT and asked.on_reject is OnReject.SKIP
        if is_no:
            self.status[fact.path] = "REJECTED"
        elif fact.action is AnswerAction.RUN_AGAIN:
            assert asked.cause is Cause.OUTCOME, "it has not run"
            self.status[fact.path] = "PENDING"
            self.unknown.discard(fact.path)
        else:
            self.status[fact.path] = {"before": "PENDING", "body": "ANSWERED", "outcome": "TOLD"}[asked.cause]
            if asked.cause is not Cause.OUTCOME:
                self.answers.setdefault(fact.path, {})[fact.key] = self.number

    def _has_heard(self, path: str, *, in_body: bool = False) -> None:
        """All that a step asks has been answered, before it begins or before its body ends."""
        *_, (_, graph, node) = self._nodes(path)
        heard = self.answers.get(path, {}).keys()
        if node.spec.interrupt is not None and not path.endswith("]"):
            assert "" in heard, "nobody let it begin"
        if in_body and self.script is not None:
            asks = self.script.plans[f"{graph.workflow.id}/{node.id}"].asks
            assert heard >= {str(n) for n in range(len(asks))}, f"it heard only {set(heard)}"

    def _skips(self, fact: f.Skipped) -> None:
        status = self.status.get(fact.path, "PENDING")
        match status:
            case "REJECTED" | "OPEN":
                assert fact.reason is f.SkipReason.REJECTED, "it has begun"
                assert not fact.origin, "it was itself rejected"
            case "WAITING":
                assert self.questions.pop(fact.path).cause is Cause.BEFORE, "it has begun"
                assert str(fact.reason) in self._stops(fact.path), "it was not to stop"
            case _:
                assert status == "PENDING", f"it was {status}"
                assert fact.reason is not f.SkipReason.REJECTED or fact.origin, "nobody said No"
        self._deps_are_final(fact.path)

    def _forgets(self, path: str) -> None:
        """What a path that is set back was answered before it, or what it lies in, was made fresh, is gone."""
        ends = [n for n, c in enumerate(path) if c in "/[#"] + [len(path)]
        last = max((self.fresh.get(path[:n], -1) for n in ends), default=-1)
        kept = {key: number for key, number in self.answers.get(path, {}).items() if number > last}
        self.answers[path] = kept

    # --- ends ------------------------------------------------------------------------------------

    def _element_begins(self, path: str, owner: str, node: Node, status: str) -> None:
        assert self.status[owner] == "OPEN", "its map is not open"
        if node.spec.on_item_failure is OnItemFailure.FAIL and status == "PENDING":
            broken = [
                p
                for p, s in self.status.items()
                if s == "FAILED" and p.startswith(owner + "[") and "/" not in p[len(owner) :]
            ]
            assert not broken, f"{broken} had failed"
        holding = self.holding.setdefault(owner, set())
        holding.add(path)
        limit = node.spec.max_concurrency
        assert limit is None or len(holding) <= limit, f"{holding} run at once"

    def _deps_are_final(self, path: str) -> None:
        *_, (prefix, graph, node) = self._nodes(path)
        for dep in graph.ids(node.deps):
            status = self.status.get(prefix + dep)
            assert status in (*FINAL, "UNROUTED"), f"{dep} is {status}"

    def _ends(self, path: str, status: str) -> None:
        self.status[path] = status
        if path.endswith("]"):
            self.holding.get(path[: path.rindex("[")], set()).discard(path)

    def _fails(self, fact: f.Failed) -> None:
        *_, (_, _, node) = self._nodes(fact.path)
        was_rejected = self.status.get(fact.path) == "REJECTED" or self.status.get(fact.path) == "OPEN"
        assert was_rejected or fact.error.type_name != "StepRejectedError", "nobody said No"
        assert self.status.get(fact.path) != "REJECTED" or fact.error.type_name == "StepRejectedError", "a No is a No"
        if self.questions.pop(fact.path, None) is not None:
            assert self._stops(fact.path), "it was not to stop"
        if fact.after is f.After.RECONCILE:
            self.status[fact.path] = "RECONCILING"
            self.unknown.add(fact.path)
            return
        self._ends(fact.path, "FAILED" if fact.after is f.After.FINAL else "RETRYING")
        if fact.unknown:
            assert node.spec.delivery is Delivery.AT_MOST_ONCE
            self.unknown.add(fact.path)
        else:
            self.unknown.discard(fact.path)

    # --- what is taken back --------------------------------------------------------------------------

    def _cut(self, paths: Iterable[str]) -> None:
        for path in paths:
            assert self.status[path] == "RUNNING"
            self.attempts[path] -= 1
            *_, (_, _, node) = self._nodes(path)
            if node.spec.delivery is Delivery.AT_MOST_ONCE:
                self.status[path] = "RECONCILING"
                self.unknown.add(path)
            else:
                self._ends(path, "PENDING")

    def _resumes(self, fact: f.Resumed) -> None:
        self._cut(fact.in_flight)
        assert "RUNNING" not in self.status.values(), "something runs on"
        if fact.reopened:
            self.cancelled = False
        if fact.reopened or self.ended:
            self.overdue.discard("")
        self.ended = False
        self._set_back(fact.set_back)

    def _set_back(self, entries: Iterable[f.SetBack]) -> None:
        for entry in entries:
            path = entry.path
            if entry.route:
                assert self.status[path] in ("UNROUTED", "COMPLETED")
                self.status[path] = "ROUTING"
                continue
            lies_in = path + "/", path + "[", path + "#"
            inside = [p for p in self.status if p.startswith(lies_in)]
            if entry.redo:
                self.rounds = {p: r for p, r in self.rounds.items() if not p.startswith(lies_in)}
                self.goes_on = {p for p in self.goes_on if not p.startswith(lies_in)}
            if entry.fresh:
                self.fresh[path] = self.number
                elements = {p for p in self.unknown if p.startswith(path + "[") and "/" not in p[len(path) :]}
                self.unknown -= {path} | (elements if entry.redo else set())
            for each in inside if entry.redo else [p for p in inside if self._is_failed_element(p, path)]:
                self._forget(each)
            self._forget(path)

    def _is_failed_element(self, path: str, owner: str) -> bool:
        return path.startswith(owner + "[") and "/" not in path[len(owner) :] and self.status[path] == "FAILED"

    def _forget(self, path: str) -> None:
        self._ends(path, "PENDING")
        self.attempts.pop(path, None)
        self.questions.pop(path, None)
        self._forgets(path)


def _lies_in(path: str, prefix: str) -> bool:
    """Whether a path is a step of a scope, and no element."""
    return path.startswith(prefix) and "/" not in path[len(prefix) :] and not path.endswith("]")
