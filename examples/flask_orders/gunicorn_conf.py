"""What gunicorn is told, with ``--preload`` and without: a worker opens the Runtime as it begins, and closes it as it
ends, after its last request. See ``app``."""

import threading
from typing import Any

from ares.errors import RuntimeClosedError, StoreError

graceful_timeout = 30


def post_worker_init(_: Any) -> None:
    """A worker has begun: it looks each second for what others have left."""
    from examples.flask_orders.app import runtime  # not before the worker is there, unless it was preloaded

    def recover() -> None:
        pause = threading.Event()
        while True:
            try:
                runtime.recover()
            except RuntimeClosedError:
                return
            except StoreError:
                pass  # perhaps next time
            pause.wait(1)

    runtime.start()
    threading.Thread(target=recover, name="recover", daemon=True).start()


def worker_exit(_server: Any, _worker: Any) -> None:
    """A worker ends: steps that run may end, what follows is left to the next worker."""
    from examples.flask_orders.app import runtime

    runtime.close(timeout=10)
