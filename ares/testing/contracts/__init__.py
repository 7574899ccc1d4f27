"""Suites of tests that hold for every plugin, and every store, whoever wrote it.

An author subclasses one in a test module of theirs, and gives it a fixture that makes the thing; pytest does the rest.
The plugins and stores of ares pass the same suites.
"""

from ares.testing.contracts._capabilities import EvolutionContract, LoopContract, MemoryContract, RecoveryContract
from ares.testing.contracts._plugin import PluginContract
from ares.testing.contracts._router import RouterContract
from ares.testing.contracts._store import StoreContract

__all__ = [
    "EvolutionContract",
    "LoopContract",
    "MemoryContract",
    "PluginContract",
    "RecoveryContract",
    "RouterContract",
    "StoreContract",
]
