"""An application that logs with ``logging``, configured by ``dictConfig``, before or after it has met ares."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.command import environment
from tests.examples.programs import ROOT, Program

#: They start programs that import much.
pytestmark = pytest.mark.timeout(180)


def test_what_is_said_in_steps_comes_into_the_applications_log(tmp_path: Path) -> None:
    with Program([ROOT / "examples" / "standard_logging.py", "app.log"], tmp_path) as program:
        assert program.finish() == 0, program.said

    log = (tmp_path / "app.log").read_text().splitlines()
    assert log[:2] == ["INFO shop [- -] begins", "INFO __main__ [morning greet] greets"]
    assert program.said == ""  # nothing besides, by loguru's own handler


def test_what_ares_says_comes_as_the_application_formats_it(tmp_path: Path) -> None:
    said = run(
        tmp_path,
        """
        import threading
        from pathlib import Path
        from examples.standard_logging import configure_logging, workflow
        from ares import Runtime
        configure_logging("app.log")
        def fail(execution):
            secret = "hunter2"
            raise ValueError("in a callback")
        with Runtime() as runtime:
            runtime.run(workflow, execution_id="morning").raise_for_status()
            runtime.submit(workflow).add_done_callback(fail)
            for _ in range(200):
                if "ValueError: in a callback" in Path("app.log").read_text():
                    break
                threading.Event().wait(0.1)
        """,
    )

    log = (tmp_path / "app.log").read_text()
    assert said == ""
    assert "WARNING ares.engine.notices [- -] execution morning: step 'listen' did not end in time" in log
    assert "ERROR ares.engine.notices [- -] a done-callback of execution" in log
    assert log.count("ValueError: in a callback") == 1
    assert "hunter2" not in log


def test_ares_changes_nothing_of_the_hosts_logging(tmp_path: Path) -> None:
    said = run(
        tmp_path,
        """
        import logging, logging.config, sys, threading, warnings
        from loguru import logger
        logging.config.dictConfig({"version": 1, "root": {"level": "DEBUG"}, "loggers": {"shop": {"level": "INFO"}}})
        hosts = [logging.getLogger(), logging.getLogger("shop"), logging.getLogger("ares")]
        def state():
            of_hosts = [(each.level, each.handlers[:], each.filters[:], each.disabled) for each in hosts]
            of_all = (logging.root.manager.disable, logging.getLoggerClass(), logging.getLogRecordFactory(),
                      logging.raiseExceptions, logging.lastResort, logging.getLevelName(25))
            return of_hosts, of_all, str(logger), sys.excepthook, threading.excepthook, warnings.showwarning
        before = state()
        from ares import Runtime, Workflow
        wf = Workflow("w")
        wf.step(lambda: threading.Event().wait(0.3), id="a", timeout=0.02)
        with Runtime("ares.db") as runtime:
            runtime.run(wf)
            runtime.submit(wf).wait()
        assert state() == before, (before, state())
        """,
    )

    assert said == ""


def run(folder: Path, program: str) -> str:
    """What a program says that ends well."""
    lines = "\n".join(line[8:] for line in program.splitlines())
    ended = subprocess.run(
        [sys.executable, "-c", lines],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout + ended.stderr
