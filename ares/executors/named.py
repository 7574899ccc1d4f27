"""The executors of a Runtime by name, in whichever process uses them."""

import os
import weakref
from collections.abc import Collection, Mapping
from concurrent.futures import Executor

from ares.executors.place import Factory, Place
from ares.remote.errand import Errand
from ares.remote.marks import Folder
from ares.remote.protocol import Watch
from ares.remote.returned import Returned


class NamedExecutors:
    """See ``ares.remote.protocol.Executors``. The child of a fork makes its own.

    Args:
        given: each an executor of the caller's, who shuts it down, or what makes one, which is shut down here.
    """

    def __init__(self, given: Mapping[str, Executor | Factory]) -> None:
        self._folder = Folder()
        self._places = {name: Place(name, each, self._folder) for name, each in given.items()}
        #: What a parent of this process had: never used and never closed here, nor collected.
        self._inherited: list[object] = []
        if given:
            _all.add(self)

    @property
    def names(self) -> Collection[str]:
        """Which there are."""
        return self._places.keys()

    @property
    def were_used(self) -> bool:
        """Whether any of them was, in this process."""
        return any(place.was_used for place in self._places.values())

    def can_stop(self, name: str) -> bool:
        """See ``Executors``."""
        return self._places[name].can_stop

    def run(self, errand: Errand, watch: Watch) -> Returned:
        """See ``Executors``."""
        return self._places[errand.executor].run(errand, watch)

    def close(self) -> None:
        """Stop what is under way, and shut down what was made here. Takes a few seconds at most."""
        for place in self._places.values():
            place.close()
        self._folder.remove()

    def renew(self) -> None:
        """In the child of a fork."""
        self._inherited.append((self._places, self._folder))
        self._folder = Folder()
        self._places = {name: place.renewed(self._folder) for name, place in self._places.items()}


_all: "weakref.WeakSet[NamedExecutors]" = weakref.WeakSet()


def _in_child() -> None:
    for each in list(_all):
        each.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
