"""An application whose log is the standard library's, and what ares has to say in it.

    python standard_logging.py app.log

ares logs with loguru and says nothing until it is asked to. One call asks it, and hands all that it says to the loggers
of the ``logging`` module, under the names of the modules that say it.
"""

import logging
import logging.config
import sys
import threading
from typing import TYPE_CHECKING

from loguru import logger

from ares import RetryPolicy, Runtime, StepContext, Workflow

if TYPE_CHECKING:
    from loguru import Message

workflow = Workflow("greet", version="1")


@workflow.step(timeout=0.05, retry=RetryPolicy(max_attempts=2, initial_delay=0))
def listen(ctx: StepContext) -> str:
    """Hangs the first time, which ares has something to say about."""
    if ctx.attempt == 1:
        threading.Event().wait(1)
    return "hello"


@workflow.step
def greet(ctx: StepContext, listen: str) -> str:
    """``ctx.logger`` knows execution and step."""
    ctx.logger.info("greets")
    return listen


def configure_logging(file: str) -> None:
    """As many applications do it, and the bridge."""
    logging.config.dictConfig(
        {
            "version": 1,
            "formatters": {
                "lines": {
                    "()": "logging.Formatter",
                    "fmt": "%(levelname)s %(name)s [%(execution_id)s %(step)s] %(message)s",
                    "defaults": {"execution_id": "-", "step": "-"},
                }
            },
            "handlers": {"file": {"class": "logging.FileHandler", "filename": file, "formatter": "lines"}},
            "root": {"level": "INFO", "handlers": ["file"]},
            "loggers": {"ares": {"level": "WARNING"}},
        }
    )
    # In the place of loguru's own handler, which writes to stderr and puts the values of variables into tracebacks.
    logger.configure(handlers=[{"sink": to_logging, "diagnose": False}], activation=[("ares", True)])


def to_logging(message: "Message") -> None:
    """A sink of loguru's that hands on to ``logging``, with ``execution_id`` and ``step`` where they are known."""
    said = message.record
    error = said["exception"] and said["exception"].value
    logging.getLogger(said["name"]).log(said["level"].no, said["message"], exc_info=error, extra=said["extra"])


if __name__ == "__main__":
    configure_logging(sys.argv[1])
    logging.getLogger("shop").info("begins")
    with Runtime() as runtime:
        runtime.run(workflow, execution_id="morning").raise_for_status()
