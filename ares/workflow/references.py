"""Which step a reference means: an id stands for itself, a function for the step that runs it.

Functions are known by identity and never marked: the same function may be a step of two workflows, or two steps of
one, and then only an id can say which is meant.
"""

from collections.abc import Collection, Iterator
from types import MethodType

from ares.workflow.binding import called
from ares.workflow.checks import did_you_mean, listed
from ares.workflow.spec import StepRef, StepSpec


def _key(fn: object) -> object:
    # Each access to a method makes another object, which is gone again at once, so that its id may come back.
    return (id(fn.__self__), id(fn.__func__)) if isinstance(fn, MethodType) else id(fn)


def _unwrapped(fn: object) -> Iterator[object]:
    """Give ``fn``, then what it wraps: another decorator may stand above ``@wf.step``."""
    seen: set[int] = set()
    while fn is not None and id(fn) not in seen:
        seen.add(id(fn))
        yield fn
        fn = getattr(fn, "__wrapped__", None)


class References:
    """The functions of one workflow's steps."""

    def __init__(self) -> None:
        # The function is kept so that its key stays its own.
        self._ids: dict[object, tuple[object, dict[str, None]]] = {}

    def add(self, fn: object, step_id: str) -> None:
        """Note that ``fn`` stands for the step."""
        self._ids.setdefault(_key(fn), (fn, {}))[1][step_id] = None

    def include(self, other: "References") -> None:
        """Take over all that ``other`` knows."""
        for fn, ids in other._ids.values():  # noqa: SLF001  # of its own class
            for step_id in ids:
                self.add(fn, step_id)

    def resolve(self, ref: StepRef, steps: Collection[str]) -> tuple[str, str]:
        """Find the id that ``ref`` means.

        Args:
            ref: an id, a step's function or a spec.
            steps: the ids there are.

        Returns:
            The id and no problem, or no id and the problem as words.
        """
        name = ref.id if isinstance(ref, StepSpec) else ref
        if isinstance(name, str):
            if name in steps:
                return name, ""
            return "", f"there is no step {name!r}{did_you_mean(name, steps)}"
        for fn in _unwrapped(name):
            ids = self._ids.get(_key(fn), (None, ()))[1]
            if len(ids) > 1:
                return "", f"the function {called(ref)} is the steps {listed(ids)}: name one by its id"
            for step_id in ids:
                return step_id, ""
        return "", f"the function {called(ref)} is no step of this workflow"
