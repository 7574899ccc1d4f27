"""The thread of a Runtime that recovers by itself: at its start, and then again and again until it is stopped."""

import threading
from collections.abc import Callable

from ares.engine.notices import notices
from ares.errors import RuntimeClosedError
from ares.postbox import Latch
from ares.runtime.recovery import Recovery


class Recovering:
    """Calls ``recover`` every so often, on a thread of its own.

    Args:
        recover: takes up what nobody walks.
        interval: seconds from one call to the next.
        name: of the store.
        on_warning: told once when nothing can be recovered, until that is possible again.
    """

    def __init__(
        self, recover: Callable[[], Recovery], interval: float, name: str, on_warning: Callable[[str], None]
    ) -> None:
        self._recover = recover
        self._interval = interval
        self._on_warning = on_warning
        self._is_over = Latch()
        self._is_in_trouble = False
        #: What was told of executions that cannot be taken up, by their ids.
        self._told: dict[str, str] = {}
        self._thread = threading.Thread(target=self._run, name=f"ares-recovery {name}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def end(self) -> None:
        """Take up nothing more."""
        self._is_over.set()

    def join(self, timeout: float) -> None:
        """Wait for what it is just doing, at most ``timeout`` seconds."""
        if self._thread is not threading.current_thread():
            self._thread.join(timeout)

    def _run(self) -> None:
        while not self._is_over.is_set():
            try:
                self._tell(self._recover())
                self._is_in_trouble = False
            except RuntimeClosedError:
                return
            except Exception as error:  # the thread is needed for as long as the Runtime lives
                if not self._is_in_trouble:
                    self._on_warning(f"nothing can be recovered at present: {error}")
                self._is_in_trouble = True
            self._is_over.wait(self._interval)

    def _tell(self, recovery: Recovery) -> None:
        """Log what went wrong with single executions, each trouble once."""
        told = {id_: f"{type(error).__name__}: {error}" for id_, error in recovery.errors.items()}
        for id_, problem in told.items():
            if self._told.get(id_) != problem:
                notices.say("WARNING", "execution {} cannot be recovered: {}", id_, problem)
        self._told = told
