"""The suites of ``ares.testing`` find what is wrong with a plugin, and nothing else."""

import os
import re
import subprocess
import sys
from collections import defaultdict
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import pytest

from tests.testing import broken

ROOT = Path(__file__).parents[2]
SUITES = {name: each for name, each in vars(broken).items() if name.startswith("Test")}


@cache
def failed() -> dict[str, set[str]]:
    """The tests that failed, by suite: all of them are run once, in a process of their own."""
    options = [
        "-q",
        "-rfE",
        "-p",
        "no:randomly",
        "-p",
        "no:cacheprovider",
        "--tb=no",
        "--durations=5",
        "-c",
        "/dev/null",
    ]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "--rootdir", str(ROOT), str(Path(broken.__file__))],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert ran.returncode == 1, ran.stdout + ran.stderr
    found = defaultdict(set)
    for suite, test in re.findall(r"^(?:FAILED|ERROR) \S+?::(\w+)::test_(\w+)", ran.stdout, re.MULTILINE):
        found[suite].add(test)
    return found


@pytest.mark.parametrize("name", SUITES)
def test_a_suite_fails_where_the_plugin_is_wrong_and_nowhere_else(name: str) -> None:
    fails, expected = failed()[name], getattr(SUITES[name], "fails", frozenset())

    assert {test for test in fails if not any(fnmatch(test, each) for each in expected)} == set()
    assert {each for each in expected if not any(fnmatch(test, each) for test in fails)} == set()


def test_an_author_who_forgot_the_fixture_is_told_what_is_missing() -> None:
    assert "it_can_live_on_a_bus" in failed()["TestNothing"]
