"""What the tests of the examples share: the service that the examples talk to."""

from collections.abc import Iterator

import pytest

from tests.examples.partner import Partner


@pytest.fixture
def partner() -> Iterator[Partner]:
    """Hears of each effect of an example."""
    made = Partner()
    yield made
    made.close()
