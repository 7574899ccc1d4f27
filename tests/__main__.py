"""Everything that has to hold before a change goes in: ``python -m tests [PYTEST ARGUMENT]...``.

Lint, format, types, layers, then the tests. Every check runs, whatever the one before it said; the exit code is 0 only
when all of them passed.
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from time import monotonic

ROOT = Path(__file__).resolve().parent.parent
TOOLS = Path(sys.executable).parent

#: Tests that hold times against each other, or take a second for long: nothing runs beside them.
ALONE = (
    "tests/bus/test_bus_exit.py",
    "tests/bus/test_call_time.py",
    "tests/engine/test_close.py",
    "tests/engine/test_imports.py",
    "tests/engine/test_memory.py",
    "tests/engine/test_signals.py",
    "tests/engine/test_timeouts.py",
    "tests/plugins_on_runtime/test_observers.py",
    "tests/test_postbox.py",
    "tests/walk/test_scale.py",
)


def checks(pytest_arguments: Sequence[str]) -> dict[str, list[str]]:
    """Each check's name and command, in the order they run."""
    pytest = [sys.executable, "-m", "pytest"]
    tests = {
        "tests that may run side by side": [*pytest, "-n", "3", *(f"--ignore={path}" for path in ALONE)],
        "tests that run alone": [*pytest, *ALONE],
    }
    return {
        "lint": [sys.executable, "-m", "ruff", "check", "."],
        "format": [sys.executable, "-m", "ruff", "format", "--check", "."],
        "types": [sys.executable, "-m", "mypy"],
        "layers": [str(TOOLS / "lint-imports")],
        **(tests if not pytest_arguments else {"tests": [*pytest, *pytest_arguments]}),
    }


def main(pytest_arguments: Sequence[str]) -> int:
    """Runs all checks and says which failed; returns the exit code."""
    failed = []
    for name, command in checks(pytest_arguments).items():
        print(f"== {name}", flush=True)
        begun = monotonic()
        if subprocess.run(command, cwd=ROOT, check=False).returncode:
            failed.append(name)
        print(f"== {name}: {'FAILED' if name in failed else 'passed'} in {monotonic() - begun:.1f} s", flush=True)
    print(f"failed: {', '.join(failed)}" if failed else "all checks passed", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
