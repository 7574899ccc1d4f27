"""A bus, and a real journal behind it, as small as can be."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bus.conftest import gate, new_bus
from tests.plugins.keeper import Keeper

__all__ = ["gate", "new_bus"]


@pytest.fixture
def keeper(tmp_path: Path) -> Iterator[Keeper]:
    """Keeps executions in a file."""
    made = Keeper(tmp_path / "ares.db")
    yield made
    made.close()
