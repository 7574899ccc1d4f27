"""What is behind the context of an attempt that is over: nothing."""

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from ares.errors import AttemptEnded


def logger_for(execution_id: str, path: str) -> Any:
    """A loguru logger that names an execution and a step."""
    from loguru import logger

    return logger.bind(execution_id=execution_id, step=path)


class EndedPort:
    """What is behind the context of an attempt that is over."""

    def __init__(self, execution_id: str, path: str, ends_at: float | None) -> None:
        self._execution_id = execution_id
        self._path = path
        self._ends_at = ends_at

    def deadline(self) -> float | None:
        """See ``AttemptPort``."""
        return self._ends_at

    def is_cancelled(self) -> bool:
        """See ``AttemptPort``."""
        return True

    def variables(self) -> NoReturn:
        """See ``AttemptPort``."""
        raise AttemptEnded(self._path)

    def upstream(self) -> NoReturn:
        """See ``AttemptPort``."""
        raise AttemptEnded(self._path)

    def idempotency_key(self, key: str | None) -> NoReturn:  # noqa: ARG002 - a contract's word
        """See ``AttemptPort``."""
        raise AttemptEnded(self._path)

    def set(self, name: str, value: Any) -> NoReturn:  # noqa: ARG002 - a contract's word
        """See ``AttemptPort``."""
        raise AttemptEnded(self._path)

    def once(self, key: str, fn: Callable[[], Any]) -> NoReturn:  # noqa: ARG002 - a contract's word
        """See ``AttemptPort``."""
        raise AttemptEnded(self._path)

    def tool(
        self,
        name: str,  # noqa: ARG002 - a contract's word
        fn: Callable[..., Any],  # noqa: ARG002 - a contract's word
        args: tuple[Any, ...],  # noqa: ARG002 - a contract's word
        kwargs: dict[str, Any],  # noqa: ARG002 - a contract's word
    ) -> NoReturn:
        """See ``AttemptPort``."""
        raise AttemptEnded(self._path)

    def interrupt(
        self,
        key: str,  # noqa: ARG002 - a contract's word
        message: str,  # noqa: ARG002 - a contract's word
        payload: Any,  # noqa: ARG002 - a contract's word
        on_reject: str,  # noqa: ARG002 - a contract's word
    ) -> NoReturn:
        """See ``AttemptPort``."""
        raise AttemptEnded(self._path)

    def emit(self, event_type: str, payload: Mapping[str, Any]) -> NoReturn:  # noqa: ARG002 - a contract's word
        """See ``AttemptPort``."""
        raise AttemptEnded(self._path)

    def progress(self, done: float, total: float | None) -> NoReturn:  # noqa: ARG002 - a contract's word
        """See ``AttemptPort``."""
        raise AttemptEnded(self._path)

    def logger(self) -> Any:
        """See ``AttemptPort``."""
        return logger_for(self._execution_id, self._path)
