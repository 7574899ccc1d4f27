"""Executors for tests, and Runtimes on them."""

import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ares import Runtime, StepSpec, Workflow, WorkflowResult

#: Forked, because that takes a few milliseconds.
forks: Callable[[], Executor] = partial(ProcessPoolExecutor, 2, mp_context=multiprocessing.get_context("fork"))
single_fork: Callable[[], Executor] = partial(ProcessPoolExecutor, 1, mp_context=multiprocessing.get_context("fork"))


@pytest.fixture(scope="module")
def shared() -> Iterator[Runtime]:
    """A Runtime with a pool, for tests that break neither."""
    with Runtime(executors={"cpu": forks}) as rt:
        yield rt


@pytest.fixture
def effects(tmp_path: Path) -> Path:
    """Where bodies leave notes."""
    return tmp_path / "effects"


def away(body: Callable[..., Any], inputs: dict[str, Any] | None = None, **options: Any) -> Workflow:
    """One step, ``body``, on the executor ``cpu``."""
    given = inputs or {}
    wf = Workflow("away", inputs=dict.fromkeys(given, object), variables={"total": 0})
    wf.add(StepSpec("body", body, **{"executor": "cpu", **options}))
    return wf


def run(rt: Runtime, body: Callable[..., Any], inputs: dict[str, Any] | None = None, **options: Any) -> WorkflowResult:
    """The result of a workflow of one step."""
    return rt.run(away(body, inputs, **options), inputs)


def lines(file: Path) -> list[str]:
    return file.read_text().split() if file.exists() else []
