"""The other side of the examples: a service that hears of each effect, and lets it wait."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.examples.programs import PATIENCE


class Partner:
    """An HTTP service on a free port that keeps what it was told: path, text and idempotency key, in order.

    What is held gets its answer when it is let go: all that comes to a path (``"mail"``), or one text (``"mail Ann"``).
    """

    def __init__(self) -> None:
        self._lock = threading.Condition()
        self._heard: list[tuple[str, str, str]] = []
        self._held: set[str] = set()
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), name="partner", daemon=True)
        self._thread.start()

    def heard(self, path: str) -> list[str]:
        """The texts that came to a path."""
        with self._lock:
            return [text for where, text, _ in self._heard if where == path]

    def repeated(self, path: str) -> dict[str, int]:
        """The texts that came to a path more than once, and how often."""
        return {text: count for text, count in Counter(self.heard(path)).items() if count > 1}

    def keys(self, path: str) -> set[str]:
        """Under which idempotency keys."""
        with self._lock:
            return {key for where, _, key in self._heard if where == path}

    def wait_for(self, path: str, count: int = 1, timeout: float = PATIENCE) -> None:
        """Until so many messages came to a path."""
        with self._lock:
            has_come = self._lock.wait_for(lambda: sum(w == path for w, _, _ in self._heard) >= count, timeout)
        assert has_come, f"{path} was told {self.heard(path)} within {timeout:g} s"

    @contextmanager
    def holding(self, what: str) -> Iterator[None]:
        """Whoever tells this path something, or this text, waits meanwhile."""
        with self._lock:
            self._held.add(what)
        try:
            yield
        finally:
            with self._lock:
                self._held.discard(what)
                self._lock.notify_all()

    def hear(self, path: str, text: str, key: str) -> None:
        with self._lock:
            self._heard.append((path, text, key))
            self._lock.notify_all()
            self._lock.wait_for(lambda: self._held.isdisjoint((path, f"{path} {text}")), 2 * PATIENCE)

    def close(self) -> None:
        with self._lock:
            self._held.clear()
            self._lock.notify_all()
        self._server.shutdown()
        self._thread.join(PATIENCE)
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = False  # so that closing waits for them
    request_queue_size = 128

    def handle_error(self, *_: Any) -> None:
        """Those who ask are killed while they wait; that is what the tests are about."""


def _handler(partner: Partner) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            text = self.rfile.read(int(self.headers["Content-Length"])).decode()
            partner.hear(self.path.strip("/"), text, self.headers.get("Idempotency-Key", ""))
            answer = f"done: {text}".encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: Any) -> None:
            """The tests read what it keeps."""

    return Handler
