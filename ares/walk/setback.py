"""What a resume or a retry sets back: which steps run again, and what they forget. Pure; changes nothing by itself.

What failed, was cut short, or was skipped because of it goes back, with everything downstream; so does whatever the
caller names in ``rerun``. A step that goes back for its own sake keeps what it had finished inside: completed elements,
completed child steps. One that lies downstream of another is done again as a whole, since its inputs may change.

What failed *inside* a step that goes back is set back when that step opens again (``failed_inside``), by the fact that
says so: only then is it known that it opens.
"""

from collections.abc import Iterable, Iterator

from ares.errors import UsageError
from ares.walk.facts import REOPENED, SetBack
from ares.walk.instance import Instance, Scope, starts_inside
from ares.walk.parts import DONE
from ares.walk.state import State
from ares.walk.table import Phase
from ares.workflow.policies import Delivery, OnItemFailure

ITEM_FAILURES = "item_failures"


def failed_inside(scope: Scope) -> tuple[SetBack, ...]:
    """What a sub-workflow step that opens again runs again: its failed and blocked steps, and what follows them.

    An at_most_once step that completed stays: nobody named it.
    """
    entries = _of_scope(scope, (), (), (), failed=True)
    return tuple(e for e in entries if not e.redo or not holds_done_once(scope, e.path))


def holds_done_once(scope: Scope, path: str) -> bool:
    """Whether a step did, or holds what did, what must not be done twice: then it stays although what it depends on is
    tried again."""
    return any(_is_done_once(instance) for instance in _with_inside(scope, path))


def plan(state: State, rerun: str | Iterable[str], *, failed: bool) -> tuple[SetBack, ...]:
    """What a resume sets back.

    Args:
        state: as the journal left it.
        rerun: ids or paths of steps and elements, or ``"item_failures"`` for the failures that maps collected. With
            an element that is named, those of its map that failed run again, too.
        failed: whether what failed goes back, beside what ``rerun`` names.

    Raises:
        UsageError: a path that is no step of this execution, or a completed at_most_once step that would run again
            and is not named itself.
    """
    found = _Plan(state)
    if rerun == ITEM_FAILURES:
        found.name_item_failures()
    else:
        for path in (rerun,) if isinstance(rerun, str) else tuple(rerun):
            found.name(path)
    entries = found.entries(failed=failed)
    found.check_at_most_once(entries)
    return tuple(entries)


class _Plan:
    """What a caller named, step by step and where it lies."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._paths: set[str] = set()
        self._named: dict[Scope, set[int]] = {}
        #: Steps that go back because something inside them does.
        self._kept: dict[Scope, set[int]] = {}
        #: Maps whose failed elements are named.
        self._items: dict[Scope, set[int]] = {}
        self._elements: dict[str, SetBack] = {}

    def name(self, path: str) -> None:
        self._paths.add(path)
        if path.endswith("]"):
            base, _, index = path[:-1].rpartition("[")
            owner = self._state.find(base)
            is_index = index.isdecimal() and index == str(int(index))
            if owner is None or owner.parts is None or not is_index or int(index) >= owner.parts.length:
                raise UsageError(f"rerun names {path!r}, which is no element of this execution")
            self._elements[path] = SetBack(path, redo=True, fresh=True)
            self._keep(owner)
            return
        instance = self._state.find(path)
        if instance is None:
            raise UsageError(f"rerun names {path!r}, which is no step of this execution")
        self._named.setdefault(instance.scope, set()).add(instance.node.index)
        if instance.scope.owner is not None:
            self._keep(instance.scope.owner)

    def name_item_failures(self) -> None:
        for scope in self._state.root.all():
            for instance in scope.instances:
                collects = instance.node.spec.on_item_failure is OnItemFailure.COLLECT
                if collects and instance.parts is not None and instance.parts.failed:
                    self._items.setdefault(scope, set()).add(instance.node.index)
                    self._keep(instance)

    def _keep(self, instance: Instance) -> None:
        """Set a step back that keeps what it finished inside, and with it those it lies in."""
        at: Instance | None = instance
        while at is not None:
            if at.index is not None:
                self._elements.setdefault(at.path, SetBack(at.path))
            self._kept.setdefault(at.scope, set()).add(at.node.index)
            at = at.scope.owner

    def entries(self, *, failed: bool) -> list[SetBack]:
        out = list(self._elements.values())
        nothing: set[int] = set()
        for scope in self._state.root.all():
            named, kept = self._named.get(scope, nothing), self._kept.get(scope, nothing)
            if scope is self._state.root or named or kept:
                at_root = failed and scope is self._state.root
                out += _of_scope(scope, named, kept, self._items.get(scope, nothing), failed=at_root)
        return out

    def check_at_most_once(self, entries: list[SetBack]) -> None:
        """Refuse what would do again, unnamed, what may be done once: now, or when what goes back opens again."""
        left = [(self._state.scopes[e.path[: e.path.rfind("/") + 1]], e) for e in entries]
        for scope, entry in left:  # grows as it goes
            if not entry.redo:
                opening = _directly_inside(scope, entry.path)
                left += [(inner, e) for inner in opening for e in _of_scope(inner, (), (), (), failed=True)]
                continue
            for instance in _with_inside(scope, entry.path):
                if _is_done_once(instance) and instance.path not in self._paths:
                    raise UsageError(
                        f"step {instance.path!r} is at_most_once and completed, and would run again: "
                        f"name it in rerun, too"
                    )


def _of_scope(
    scope: Scope, named: Iterable[int], kept: Iterable[int], items: Iterable[int], *, failed: bool
) -> list[SetBack]:
    """What goes back in one scope, in definition order."""
    named, seeds, items = set(named), set(kept), set(items)
    routes: set[int] = set()
    for instance in scope.instances if failed else ():
        # What is open was left by an execution that stopped half-way, with steps in it that are skipped.
        if instance.phase in (Phase.FAILED, Phase.OPEN) or instance.reason in REOPENED:
            seeds.add(instance.node.index)
        elif instance.unrouted is not None:
            routes.add(instance.node.index)
    below = scope.graph.reach(seeds | named)
    out = []
    for instance in scope.instances:
        i = instance.node.index
        # Its key is what a reconcile finds an effect by: as long as that is asked, it stays.
        forgets = instance.is_always and not instance.unknown
        if i in named or i in below:
            out.append(SetBack(instance.path, redo=True, fresh=i in named or forgets))
        elif i in seeds:
            out.append(SetBack(instance.path, fresh=i in items or forgets))
        elif i in routes:
            out.append(SetBack(instance.path, route=True))
    return out


def _with_inside(scope: Scope, path: str) -> Iterator[Instance]:
    """A step or element, and every step inside it."""
    for inner in _directly_inside(scope, path):
        for each in inner.all():
            yield from each.instances
    if not path.endswith("]"):
        yield scope.instances[scope.graph.by_id[path[len(scope.prefix) :]]]


def _directly_inside(scope: Scope, path: str) -> list[Scope]:
    """The scopes of a step or element: its child's, or those of its elements."""
    starts = starts_inside(path)
    return [inner for prefix, inner in scope.inside.items() if prefix.startswith(starts)]


def _is_done_once(instance: Instance) -> bool:
    """Whether an at_most_once step did all or some of what it must not do twice."""
    if instance.node.spec.delivery is not Delivery.AT_MOST_ONCE:
        return False
    is_done = instance.phase in (Phase.COMPLETED, Phase.ROUTING)
    return is_done or (instance.parts is not None and DONE in instance.parts.states)
