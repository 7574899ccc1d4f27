"""The thread that hears at once what the server has to tell. Whoever relies on it looks for himself, too, only later.

A notification may be lost: with the connection, or in a pooler between here and the server. So it is a hint to look,
and a new connection is one, too, because nobody knows what was missed.
"""

import selectors
import socket
import threading
from collections.abc import Callable

import psycopg

from ares.errors import StoreError
from ares.stores.postgres._server import Connection, Server

#: Seconds after which a connection that says nothing is asked whether it is there, and between two tries for a new one.
_SILENCE = 30.0
_PAUSE = 1.0
#: Seconds that ``stop`` waits: a thread that is in the middle of connecting ends by itself.
_LAST_WAIT = 2.0


class Listener:
    """Listens on one channel, from ``start`` to ``stop``.

    Args:
        server: Where; opened.
        channel: What the notifications go by.
        on_notification: Called on the listener's thread with what was told; must be short and not raise. With an empty
            text after each new connection.
    """

    def __init__(self, server: Server, channel: str, on_notification: Callable[[str], object]) -> None:
        self._server = server
        self._channel = channel
        self._on_notification = on_notification
        self._stopping = False
        #: Whoever stops it hangs up on one end, which wakes the thread at the other.
        self._here, self._there = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name=f"ares-postgres-listener {server.name}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, within two seconds whatever the server does."""
        self._stopping = True
        self._there.close()
        if self._thread.ident is not None:
            self._thread.join(_LAST_WAIT)

    def _run(self) -> None:
        with self._here:
            while not self._stopping:
                try:
                    connection = self._server.connect()
                except StoreError:
                    self._wait(None, _PAUSE)
                    continue
                try:
                    self._listen(connection)
                except (psycopg.Error, OSError):
                    self._wait(None, _PAUSE)
                finally:
                    connection.close()

    def _listen(self, connection: Connection) -> None:
        connection.execute(f"LISTEN {self._channel}".encode())
        self._on_notification("")
        while not self._stopping:
            if not self._wait(connection, _SILENCE):
                connection.execute(b"SELECT 1")
            connection.pgconn.consume_input()
            while (notification := connection.pgconn.notifies()) is not None:
                self._on_notification(notification.extra.decode())

    def _wait(self, connection: Connection | None, seconds: float) -> bool:
        """Wait for the connection to say something, or for the end; whether there is either."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._here, selectors.EVENT_READ)
            if connection is not None:
                selector.register(connection, selectors.EVENT_READ)
            return bool(selector.select(seconds))
