"""What a store raised, as the error of one execution."""

from ares.errors import LeaseLostError, StoreError


def afresh(error: StoreError, execution_id: str | None = None) -> StoreError:
    """A new exception that says the same as ``error``, of one execution if need be.

    One exception that is raised again and again, on many threads, would collect all their frames.
    """
    kind = LeaseLostError if isinstance(error, LeaseLostError) else StoreError
    new = kind(error.store, error.problem, error.execution_id if execution_id is None else execution_id)
    new.__cause__ = error.__cause__
    return new


def failure_of(store: str, execution_id: str, error: BaseException) -> StoreError:
    """The failure of one execution's append, whatever the store raised or answered."""
    if isinstance(error, StoreError):
        return error if error.execution_id == execution_id else afresh(error, execution_id)
    failure = StoreError(store, f"the store failed: {error!r}", execution_id)
    failure.__cause__ = error
    return failure
