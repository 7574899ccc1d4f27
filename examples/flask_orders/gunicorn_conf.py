"""What gunicorn is told, with ``--preload`` and without: a worker starts the Runtime as it begins, and closes it as it
ends, after its last request. See ``app``."""

from typing import Any

graceful_timeout = 30
timeout = 60  # a worker that ends gives no sign of life for as long as its steps take


def post_worker_init(_: Any) -> None:
    """A worker has begun: from now on it goes on with what others leave, whether or not it is asked for anything."""
    from examples.flask_orders.app import runtime  # not before the worker is there, unless it was preloaded

    runtime.start()


def worker_exit(_server: Any, _worker: Any) -> None:
    """A worker ends: steps that run may end, and what follows is left to the next worker."""
    from examples.flask_orders.app import runtime

    runtime.close(timeout=25)
