"""The steps of an execution as its journal names them: a tree of paths, and where each of them stands.

Knows how paths lie in one another (``audit[3]/parse`` in ``audit[3]`` in ``audit``) and what a set-back, a cut or a
changed definition takes away. Knows of a workflow only the nodes that a journal keeps. Pure, and without recursion: a
tree is as deep as sub-workflows are nested, which nobody limits.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from ares.records import ErrorInfo, StepState, StepStatus
from ares.walk.facts import Asked, SetBack
from ares.walk.instance import inside_of

#: (path, digest, dependencies), as ``Created.nodes``.
Nodes = tuple[tuple[str, str, tuple[str, ...]], ...]

#: What a path has beside the ids in it: indices of elements, and the rounds that sub-workflow steps are in.
_INDEX = re.compile(r"\[[0-9]+\]|#[0-9]+")


class Step:
    """One instance: a step, a map element or a child step."""

    __slots__ = (
        "asked_seq",
        "attempts",
        "duration",
        "elements",
        "error",
        "inside",
        "is_under_way",
        "length",
        "output",
        "path",
        "question",
        "reason",
        "round",
        "status",
        "writes",
    )

    def __init__(self, path: str) -> None:
        self.path = path
        self.round = 1
        #: Of a map that opened: how many elements it has; and those that ever began, by index.
        self.length: int | None = None
        self.elements: dict[int, Step] = {}
        #: Of a sub-workflow that opened: its steps, by id.
        self.inside: dict[str, Step] = {}
        self.reset()

    def reset(self) -> None:
        """Forget all but what lies inside it."""
        self.status = StepStatus.PENDING
        #: Whether an attempt began and has not ended.
        self.is_under_way = False
        self.attempts = 0
        self.reason = ""
        self.error: ErrorInfo | None = None
        #: What it asks while it waits for an answer, and when that was asked, in nanoseconds since the epoch.
        self.question: tuple[Asked, int] | None = None
        #: The number of the entry that asked it.
        self.asked_seq = 0
        self.output: Any = None
        self.duration = 0.0
        #: Of a map element: what it writes when the map completes.
        self.writes: tuple[tuple[str, Any], ...] = ()

    @property
    def name(self) -> str:
        """The last part of its path."""
        return name_of(self.path)

    @property
    def is_listed(self) -> bool:
        """Whether a checkpoint shows it: an element that has not begun is one of many that nobody has written down."""
        return self.status is not StepStatus.PENDING or not self.path.endswith("]")

    def parts(self) -> list["Step"]:
        """What lies directly in it, in order."""
        return [*(self.elements[i] for i in sorted(self.elements)), *self.inside.values()]

    def state(self) -> StepState:
        """What a checkpoint keeps of it."""
        return StepState(
            self.path,
            self.round,
            self.status,
            self.attempts,
            self.reason,
            self.error,
            self.output,
            self.duration,
        )


class _Inside(NamedTuple):
    """The steps that a definition has inside a sub-workflow step, and those whose outputs are its output."""

    names: tuple[str, ...]
    sinks: frozenset[str]


class Steps:
    """All steps of one execution, by path."""

    def __init__(self) -> None:
        self.nodes: Nodes = ()
        #: Those of the workflow itself, in definition order.
        self.top: dict[str, Step] = {}
        self._by_path: dict[str, Step] = {}
        #: By the path of the sub-workflow step without map indices.
        self._insides: dict[str, _Inside] = {}

    def __contains__(self, step: Step) -> bool:
        return self._by_path.get(step.path) is step

    def find(self, path: str) -> Step | None:
        """The step at a path, if it was heard of."""
        return self._by_path.get(path)

    def at(self, path: str) -> Step:
        """The step at a path; made, with those it lies in, if this is the first that is heard of it."""
        step = self._by_path.get(path)
        if step is not None:
            return step
        made = step = self._by_path[path] = Step(path)
        while True:
            owner_path, index, name = _split(made.path)
            if not owner_path:
                self.top[name] = made
                return step
            owner = self._by_path.get(owner_path)
            is_new = owner is None
            if owner is None:
                owner = self._by_path[owner_path] = Step(owner_path)
            if index is None:
                owner.inside[name] = made
            else:
                owner.elements[index] = made
            if not is_new:
                return step
            made = owner

    def listed(self) -> Iterator[Step]:
        """Every step that a checkpoint shows, what lies in it behind it."""
        left = list(reversed(self.top.values()))
        while left:
            step = left.pop()
            if step.is_listed:
                yield step
            left += reversed(step.parts())

    def unfolded(self) -> Iterator[Step]:
        """Every step that may move: all that it lies in has begun, and not ended."""
        left = list(reversed(self.top.values()))
        while left:
            step = left.pop()
            yield step
            if step.status is StepStatus.RUNNING:
                left += reversed(step.parts())

    # --- what definitions say ------------------------------------------------------------------------------------

    def define(self, nodes: Nodes) -> None:
        """The steps are these from now on: new ones are PENDING, those that are gone are dropped."""
        self.nodes = nodes
        self._insides = _insides_of(nodes)
        names = [path for path, _, _ in nodes if "/" not in path]
        for gone in self.top.keys() - set(names):
            self._drop(self.top[gone])
        round_ = _round_of(self.top.values())
        self.top = {name: self._by_path.get(name) or Step(name) for name in names}
        self._by_path.update(self.top)
        for step in self.top.values():
            step.round = round_
        for step in [step for step in self._by_path.values() if step.inside]:
            if step in self:
                self.open(step)

    def open(self, step: Step) -> None:
        """A sub-workflow has the steps that its definition has now, if the journal names them."""
        known = self._insides.get(_INDEX.sub("", step.path))
        if known is None:
            return
        round_ = _round_of(step.inside.values())
        for gone in step.inside.keys() - set(known.names):
            self._drop(step.inside.pop(gone))
        for name in known.names:
            self.at(f"{inside_of(step.path, step.round)}{name}").round = round_

    def output_inside(self, step: Step) -> dict[str, Any]:
        """The output of a sub-workflow step: that of its sinks, or of all that completed where sinks are not known."""
        known = self._insides.get(_INDEX.sub("", step.path))
        if known is not None:
            return {name: part.output for name, part in step.inside.items() if name in known.sinks}
        return {name: part.output for name, part in step.inside.items() if part.status is StepStatus.COMPLETED}

    def turn(self, path: str, round: int) -> None:
        """The steps of the execution, or those inside of what the path of a scope names, begin another round."""
        steps = list((self.at(_owner_of(path)).inside if path else self.top).values())
        for step in steps:
            self.forget_inside(step)
            step.reset()
            step.round = round

    # --- what is taken back --------------------------------------------------------------------------------------

    def cut(self, paths: Iterable[str]) -> None:
        """Attempts that ended with their process or their run count as not begun."""
        for path in paths:
            step = self._by_path.get(path)
            if step is not None and step.is_under_way:
                step.status = StepStatus.PENDING
                step.is_under_way = False
                step.attempts -= 1

    def set_back(self, entries: Iterable[SetBack]) -> bool:
        """Undo steps; whether any was, apart from its route."""
        is_any = False
        for entry in entries:
            step = self._by_path.get(entry.path)
            if step is None:
                continue
            if entry.route:
                step.error = None  # what it did stands, its route is asked again
                continue
            is_any = True
            step.reset()
            if entry.redo:
                self.forget_inside(step)
                continue
            for element in step.elements.values():
                if element.status is StepStatus.FAILED:
                    element.reset()
        return is_any

    def forget_inside(self, step: Step) -> None:
        """Drop what a step had done inside: elements, child steps, and theirs."""
        left = step.parts()
        while left:
            part = left.pop()
            del self._by_path[part.path]
            left += part.parts()
        step.elements = {}
        step.inside = {}
        step.length = None

    def _drop(self, step: Step) -> None:
        self.forget_inside(step)
        del self._by_path[step.path]


def _round_of(steps: Iterable[Step]) -> int:
    """The round that the steps of one workflow are in; the first while there are none."""
    return max((step.round for step in steps), default=1)


def name_of(path: str) -> str:
    """The last part of a path: a step's id, with its index if it is an element."""
    return path.rpartition("/")[2]


def _split(path: str) -> tuple[str, int | None, str]:
    """Path of the step that it lies in (empty for none), index in it if it is an element, name in it otherwise."""
    if path.endswith("]"):
        owner, _, index = path[:-1].rpartition("[")
        return owner, int(index), ""
    owner, _, name = path.rpartition("/")
    return _owner_of(owner), None, name


def _owner_of(path: str) -> str:
    """The path of the step whose scope has this one: without the round that the step is in."""
    owner, mark, _ = path.rpartition("#")
    return path if "/" in path[len(owner) :] or not mark else owner


def _insides_of(nodes: Nodes) -> dict[str, _Inside]:
    names: dict[str, list[str]] = {}
    has_dependents: set[str] = set()
    for path, _, deps in nodes:
        parent, _, name = path.rpartition("/")
        if parent:
            names.setdefault(parent, []).append(name)
            has_dependents.update(deps)
    return {
        parent: _Inside(tuple(inside), frozenset(n for n in inside if f"{parent}/{n}" not in has_dependents))
        for parent, inside in names.items()
    }
