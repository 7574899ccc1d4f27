"""Photos that Celery tasks publish: the queue says that it is to be done, the journal how far it is.

    celery -A examples.celery_photos worker --concurrency 4
    celery -A examples.celery_photos call examples.celery_photos.publish --args '["cat.jpg"]'

A task is acknowledged when it is done, so one whose process dies is delivered again; the workflow in it then goes on
where it was. The execution's id says what is done, not who asked: asked twice, or delivered twice, it is done once.

The broker here is a folder, which needs no server; with another one, only ``broker`` and its options change.
"""

import os
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from celery import Celery
from celery.signals import worker_process_init, worker_process_shutdown

from ares import Runtime, StepContext, Workflow
from ares.errors import ExecutionBusyError

FOLDER = Path(os.environ.get("PHOTOS_FOLDER", "photos"))
SERVICE = os.environ.get("PHOTOS_SERVICE", "http://127.0.0.1:8001")
QUEUE = FOLDER / "queue"
QUEUE.mkdir(parents=True, exist_ok=True)

app = Celery("photos", broker="filesystem://")
app.conf.update(
    broker_transport_options={
        "data_folder_in": str(QUEUE),
        "data_folder_out": str(QUEUE),
        "control_folder": str(FOLDER / "control"),
        "polling_interval": 0.1,
    },
    broker_connection_retry_on_startup=True,
    task_ignore_result=True,
    worker_lost_wait=1.0,  # seconds until the task of a process that died is delivered again
    worker_prefetch_multiplier=1,
)

# --- the workflow ------------------------------------------------------------------------------

photo = Workflow("photo", version="1", inputs={"name": str})


@photo.step
def shrink(ctx: StepContext, name: str) -> str:
    """Has a smaller picture made."""
    return _tell("shrink", name, ctx)


@photo.step(depends_on=[shrink])
def show(ctx: StepContext, name: str) -> str:
    """Has it shown."""
    return _tell("show", name, ctx)


def _tell(what: str, name: str, ctx: StepContext) -> str:
    headers = {"Idempotency-Key": ctx.idempotency_key}
    with urlopen(Request(f"{SERVICE}/{what}", name.encode(), headers), timeout=60) as said:
        return str(said.read().decode())


# --- the worker --------------------------------------------------------------------------------

# Made before the worker forks its processes; each of them opens the store and makes threads of its own.
runtime = Runtime(FOLDER / "photos.db", workflows=[photo], recover_interval=5)


@app.task(
    acks_late=True,
    reject_on_worker_lost=True,  # deliver it again when the process died
    autoretry_for=(ExecutionBusyError,),  # another process is at it: look again later
    default_retry_delay=1,
    max_retries=None,
)
def publish(name: str) -> None:
    """Publishes a photo. A failed step fails the task, with the step's own exception as the cause."""
    runtime.run(photo, {"name": name}, execution_id=f"photo-{name}", if_exists="resume").raise_for_status()


@worker_process_init.connect
def begin(**_: Any) -> None:
    """A process has begun: it goes on with what others leave, whether or not the queue still knows of it."""
    runtime.start()


@worker_process_shutdown.connect
def end(**_: Any) -> None:
    """A process ends. Celery has waited for its tasks, and leaves without Python's own clean-up."""
    runtime.close()
