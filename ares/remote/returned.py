"""What comes back from an executor: plain text and bytes, so that it can always be read, whatever is in the bytes."""

import pickle  # noqa: TID251 - executors take and give pickles; nothing of it is journaled
from typing import Any, Final

import attrs

from ares.errors import RemoteError, SerializationError
from ares.walk.judge import describe, type_name

#: What comes back of a body that was not to begin any more.
NOT_BEGUN: Final = b""

#: How much of a remote traceback is told, the last of it: the frames at home come after it.
_LONGEST_TRACE = 16_000


class RemoteTraceback(Exception):
    """The frames that an exception had where it was raised, as text. The cause of what is raised at home."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}" if self.args else ""


@attrs.frozen
class Returned:
    """What a body came to.

    Attributes:
        value: pickled: its output and its writes; or nothing.
        error: pickled: what it raised; or nothing.
        type_name: of what it raised.
        message: of what it raised.
        traceback: its frames there.
        problem: why nothing could be brought back.
    """

    value: bytes = b""
    error: bytes = b""
    type_name: str = ""
    message: str = ""
    traceback: str = ""
    problem: str = ""

    @classmethod
    def of_value(cls, value: Any, writes: dict[str, Any]) -> "Returned":
        """There: the body has returned. Never raises, but for what asks to end the thread."""
        try:
            return cls(pickle.dumps((value, writes), pickle.HIGHEST_PROTOCOL))
        except Exception as error:
            culprit = f"its output, a {type_name(type(value))},"
            for name, written in writes.items():
                if not _is_sound(written):
                    culprit = f"what it wrote to variable {name!r}"
            return cls(problem=f"{culprit} cannot be pickled: {type(error).__name__}: {error}")

    @classmethod
    def of_error(cls, error: BaseException, traceback: str) -> "Returned":
        """There: the body has raised."""
        info = describe(error)
        said = (info.type_name, info.message, traceback[-_LONGEST_TRACE:])
        try:
            packed = pickle.dumps(error, pickle.HIGHEST_PROTOCOL)
            if type(pickle.loads(packed)) is type(error):  # noqa: S301 - its own bytes
                return cls(b"", packed, *said)
            problem = "it does not come out of a pickle as it went in"
        except Exception as inner:
            problem = f"{type(inner).__name__}: {inner}"
        return cls(b"", b"", *said, problem)

    def open(self, path: str, executor: str) -> tuple[Any, dict[str, Any]]:
        """At home: the output and the writes of the body of a step.

        Raises:
            BaseException: what the body raised, as the type that it was, with its frames as the cause.
            RemoteError: it raised what cannot be brought back.
            SerializationError: what it returned cannot be.
        """
        if self.type_name:
            raise self._exception(path, executor) from RemoteTraceback(self.traceback)
        problem = self.problem
        if not problem:
            try:
                value, writes = pickle.loads(self.value)  # noqa: S301 - from a worker of the program's own
            except Exception as error:
                problem = f"its output cannot be loaded: {type(error).__name__}: {error}"
            else:
                return value, writes
        raise SerializationError(problem, "", "", f"step {path!r} on executor {executor!r}")

    def _exception(self, path: str, executor: str) -> BaseException:
        problem = self.problem
        if not problem:
            try:
                error = pickle.loads(self.error)  # noqa: S301 - from a worker of the program's own
            except Exception as inner:
                problem = f"{type(inner).__name__}: {inner}"
            else:
                if isinstance(error, BaseException):
                    return error
                problem = f"it is a {type_name(type(error))} now"
        return RemoteError(path, executor, self.type_name, self.message, problem)


def read(packed: bytes) -> Returned | None:
    """At home: what ``perform`` gave back; None where the body was not to begin any more."""
    if packed == NOT_BEGUN:
        return None
    found = pickle.loads(packed)  # noqa: S301 - from a worker of the program's own
    assert isinstance(found, Returned)
    return found


def _is_sound(value: Any) -> bool:
    try:
        pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    except Exception:
        return False
    return True


__all__ = ["NOT_BEGUN", "RemoteTraceback", "Returned", "read"]
