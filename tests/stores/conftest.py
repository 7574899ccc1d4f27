"""The stores that lie outside of a process, which is what several processes can share."""

from pathlib import Path

import pytest


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """What names a store that is not there yet."""
    return str(tmp_path / "a.db" if request.param == "sqlite" else request.getfixturevalue("postgres"))
