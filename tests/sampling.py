"""A part of what could be tried, another one in each run."""

import random
from collections.abc import Sequence
from typing import TypeVar

from hypothesis import settings

T = TypeVar("T")


def some(all_: Sequence[T], one_in: int) -> list[T]:
    """One of ``one_in``, evenly, from a random one on; all of them with ``--hypothesis-profile=thorough``."""
    is_thorough = settings().max_examples > settings.get_profile("ares").max_examples
    return list(all_) if is_thorough else list(all_[random.randrange(one_in) :: one_in])
