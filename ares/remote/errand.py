"""A body on its way to an executor: packed here, so that what cannot go is found before anything is sent."""

import importlib.util
import pickle  # noqa: TID251 - executors take and give pickles; nothing of it is journaled
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import attrs

from ares.errors import SerializationError
from ares.records import Step
from ares.walk.judge import type_name


class ContextHere:
    """Stands among the arguments where the context goes, which is made there."""


@attrs.frozen
class View:
    """What the context of a body shows there.

    Attributes:
        execution_id: the execution it belongs to.
        step: what runs, its mappings as dicts.
        metadata: of the run.
        variables: as they were when the step became ready.
        writes: the names that ``ctx.set`` takes.
        timeout: seconds that the body has, from when it begins.
        born: which of its instances this is, for idempotency keys.
    """

    execution_id: str
    step: Step
    metadata: Mapping[str, str]
    variables: Mapping[str, Any]
    writes: tuple[str, ...]
    timeout: float | None
    born: int


@attrs.frozen
class Load:
    """What is sent."""

    path: str
    executor: str
    fn: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    view: View | None


@attrs.frozen
class Errand:
    """A body that is to run on an executor.

    Attributes:
        load: what is sent.
        timeout: seconds that it has, from when it begins.
        may_repeat: whether it may be run again where nobody knows how far it came.
    """

    load: Load
    timeout: float | None = None
    may_repeat: bool = True

    @property
    def path(self) -> str:
        """Of its step."""
        return self.load.path

    @property
    def executor(self) -> str:
        """The name of where it runs."""
        return self.load.executor

    def packed(self, *, knows_main: bool) -> bytes:
        """Its load, as bytes.

        Args:
            knows_main: whether ``__main__`` is the same module there; else what it defines is sent along, by
                cloudpickle if that is installed.

        Raises:
            SerializationError: something in it cannot be pickled; says what.
        """
        by_value = _by_value()
        try:
            packed = pickle.dumps(self.load, _PROTOCOL)
        except Exception as error:
            if by_value is not None:
                try:
                    return by_value(self.load)
                except Exception as worse:
                    raise self._refused(by_value, worse) from worse
            raise self._refused(_plain, error) from error
        if not knows_main and by_value is not None and b"__main__" in packed:
            return by_value(self.load)
        return packed

    def _refused(self, pack: Callable[[Any], bytes], error: Exception) -> SerializationError:
        """Says which part of the load it is."""
        what, kind, reason = "its call", "", error
        for name, part in self._parts():
            try:
                pack(part)
            except Exception as found:
                what, kind, reason = name, type_name(type(part)), found
                break
        where = f"{what} of step {self.path!r} on its way to executor {self.executor!r}"
        return SerializationError(f"cannot be pickled: {type(reason).__name__}: {reason}", "", kind, where)

    def _parts(self) -> Iterator[tuple[str, Any]]:
        load = self.load
        yield f"the function {getattr(load.fn, '__qualname__', load.fn)!s}", load.fn
        for number, value in enumerate(load.args):
            yield f"argument {number + 1}", value
        for name, value in load.kwargs.items():
            yield f"argument {name!r}", value
        if load.view is not None:
            for name, value in load.view.step.inputs.items():
                yield f"input {name!r}", value
            for name, value in load.view.variables.items():
                yield f"variable {name!r}", value
            yield "the metadata", load.view.step.metadata


_PROTOCOL: Final = pickle.HIGHEST_PROTOCOL


def _plain(value: Any) -> bytes:
    return pickle.dumps(value, _PROTOCOL)


def _by_value() -> Callable[[Any], bytes] | None:
    """The pickler that takes functions without a module, too, if there is one."""
    if importlib.util.find_spec("cloudpickle") is None:
        return None
    import cloudpickle

    dumps: Callable[[Any], bytes] = cloudpickle.dumps
    return dumps
