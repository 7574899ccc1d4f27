"""What every store must do, as ``ares.testing`` has it for authors of stores, and what it is made with."""

from ares.testing.contracts import StoreContract
from ares.testing.contracts._store_base import add, alive, gone, new, rows, seqs

__all__ = ["StoreContract", "add", "alive", "gone", "new", "rows", "seqs"]
