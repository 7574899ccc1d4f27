"""A property that is computed when it is first asked for, and kept with its object."""

from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, overload

T = TypeVar("T")


class kept(Generic[T]):  # noqa: N801 - it is used like ``property``
    """As ``functools.cached_property``, but without a lock.

    That of Python 3.11 has one, for all objects of a class together, and holds it while the value is computed: a child
    that is forked meanwhile would wait for it for ever. Here two threads may both compute the value, which is the same.
    """

    def __init__(self, fn: Callable[[Any], T]) -> None:
        self._fn = fn
        self._name = fn.__name__
        self.__doc__ = fn.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...

    @overload
    def __get__(self, instance: object, owner: type) -> T: ...

    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            return self
        return instance.__dict__.setdefault(self._name, self._fn(instance))
