"""What ``import ares`` costs, and what it does not do."""

import json

import pytest

from tests.engine.helpers import Child


@pytest.mark.case("C052")
def test_importing_takes_less_than_three_tenths_of_a_second() -> None:
    program = """
        import time
        begun = time.process_time()  # of this process alone, however busy the machine is
        import ares
        print(time.process_time() - begun)
    """
    took = []
    for _ in range(5):
        with Child(program) as child:
            took.append(float(child.result()))

    assert min(took) < 0.3, took


@pytest.mark.case("C052")
def test_importing_pulls_in_nothing_heavy_or_optional_and_starts_nothing() -> None:
    program = """
        import json, os, sys, threading
        opened = []
        sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" else None)
        environ = []
        class Spy(dict):
            def __getitem__(self, name):
                environ.append(name)
                return super().__getitem__(name)
            def get(self, name, default=None):
                environ.append(name)
                return super().get(name, default)
        before = set(sys.modules)
        import ares
        own = [f for f in opened if not f.endswith((".py", ".pyc", ".so")) and "__pycache__" not in f]
        print(json.dumps({
            "modules": sorted({m.partition(".")[0] for m in set(sys.modules) - before}),
            "threads": [t.name for t in threading.enumerate()],
            "files": own,
        }))
    """
    with Child(program) as child:
        found = json.loads(child.result())

    heavy = {
        "typer", "click", "rich", "sqlite3", "pykka", "psycopg", "dask", "distributed", "numpy", "pandas",
        "django", "flask", "optuna", "sqlalchemy", "simpleeval", "pydantic", "cattrs", "yaml", "pytest", "hypothesis",
    }  # fmt: skip
    assert heavy & set(found["modules"]) == set()
    assert found["threads"] == ["MainThread"]
    assert [f for f in found["files"] if "loguru" not in f and not f.startswith(("/etc/", "/usr/share/zoneinfo"))] == []


def test_importing_leaves_the_application_as_it_was() -> None:
    program = """
        import os, signal, sys, threading, logging
        before = (
            sys.getrecursionlimit(), sys.getswitchinterval(), signal.getsignal(signal.SIGINT),
            signal.getsignal(signal.SIGTERM), threading.excepthook, sys.excepthook, list(logging.getLogger().handlers),
            dict(os.environ),
        )
        from loguru import logger
        handlers = dict(logger._core.handlers)
        import ares
        with ares.Runtime() as rt:
            wf = ares.Workflow("w")
            wf.step(lambda: 1, id="a")
            rt.run(wf).raise_for_status()
        after = (
            sys.getrecursionlimit(), sys.getswitchinterval(), signal.getsignal(signal.SIGINT),
            signal.getsignal(signal.SIGTERM), threading.excepthook, sys.excepthook, list(logging.getLogger().handlers),
            dict(os.environ),
        )
        print(before == after, handlers == dict(logger._core.handlers))
    """
    with Child(program) as child:
        assert child.result().split() == ["True", "True"]


def test_the_sqlite_store_is_imported_when_it_is_used() -> None:
    program = """
        import sys, tempfile, os
        import ares
        ares.Runtime().close()
        assert "sqlite3" not in sys.modules
        ares.Runtime(os.path.join(tempfile.mkdtemp(), "x.db")).close()
        assert "sqlite3" in sys.modules
    """
    with Child(program) as child:
        assert child.result() == ""


def test_the_environment_is_not_read() -> None:
    """``ARES_STORE`` is the command line's alone."""
    program = """
        import os
        os.environ["ARES_STORE"] = "/nowhere/at/all.db"
        import ares
        with ares.Runtime() as rt:
            print(rt)
    """
    with Child(program) as child:
        assert child.result().strip() == "<Runtime :memory:>"
