"""How the writes of several steps to one variable become one value. None of these changes the old value."""

import operator
from collections.abc import Callable
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
