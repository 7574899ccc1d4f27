"""How the writes of several steps to one variable become one value. None of these changes the old value."""

import operator
from collections.abc import Callable, Sequence
from functools import reduce
from itertools import chain
from typing import Any, Final

Reducer = Callable[[Any, Any], Any]


def _append(old: Any, new: Any) -> Any:
    return old + [new]  # noqa: RUF005  # a list or an error: unpacking would make a list of a str's letters


def _extend(old: Any, new: Any) -> Any:
    return old + list(new)


def _merge(old: Any, new: Any) -> Any:
    return {**old, **new}


#: The reducers that can be asked for by name.
NAMED: Final[dict[str, Reducer]] = {
    "append": _append,
    "extend": _extend,
    "add": operator.add,
    "merge": _merge,
}


def _merge_all(old: Any, values: Sequence[Any]) -> Any:
    merged = {**old}
    for value in values:
        merged.update({**value})
    return merged


#: Those that copy what was there: many writes at once, the same as one after another and not quadratic.
_AT_ONCE: Final[dict[str, Callable[[Any, Sequence[Any]], Any]]] = {
    "append": lambda old, values: old + list(values),
    "extend": lambda old, values: old + list(chain.from_iterable(values)),
    "merge": _merge_all,
}


def combine(reducer: Reducer | str | None, old: Any, values: Sequence[Any]) -> Any:
    """Give what a variable is after some writes, at least one.

    Args:
        reducer: the variable's: a function, a name in ``NAMED``, or None: the last write counts.
        old: what it was.
        values: the writes, in their order.

    Raises:
        Exception: whatever the reducer raises.
    """
    if reducer is None:
        return values[-1]
    if not isinstance(reducer, str):
        return reduce(reducer, values, old)
    at_once = _AT_ONCE.get(reducer)
    return reduce(NAMED[reducer], values, old) if at_once is None else at_once(old, values)
