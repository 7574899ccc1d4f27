"""Orders over HTTP: Flask under gunicorn, and workflows that outlive the worker that began them.

    gunicorn -c examples/flask_orders/gunicorn_conf.py --workers 2 --threads 4 examples.flask_orders.app:app
    gunicorn -c examples/flask_orders/gunicorn_conf.py --workers 4 --preload examples.flask_orders.app:app

    POST /quotes           {"amount": 80}      runs to its end while the client waits
    PUT  /orders/7         {"amount": 80}      an order, under the name that the client gives it: sent twice, it is one
    GET  /orders/7                             how far it is, what it asks, what came of it
    POST /orders/7/answer  {"approved": true}  answers what it asks, through whichever worker

Reload it (SIGHUP) or stop it (SIGTERM) whenever you like: what was ordered and is not done is gone on with by the next
worker. The warehouse is another service (``ORDERS_WAREHOUSE``), told by idempotency keys what it has heard before.
"""

import os
from contextlib import suppress
from typing import Any
from urllib.request import Request, urlopen

from flask import Flask, current_app, request

from ares import Approve, Reject, Runtime, StepContext, Workflow
from ares.errors import (
    ExecutionBusyError,
    ExecutionConflictError,
    ExecutionNotFoundError,
    QuestionNotFoundError,
    UsageError,
)

app = Flask(__name__)
app.config.update(WAREHOUSE="http://127.0.0.1:8001", LIMIT=1000)
app.config.from_prefixed_env("ORDERS")

Answered = tuple[dict[str, Any], int]

# --- the workflows -----------------------------------------------------------------------------

quote = Workflow("quote", version="1", inputs={"amount": int})
order = Workflow("order", version="1", inputs={"amount": int})


@quote.step
def price(amount: int) -> float:
    """What so many pieces cost; the configuration is there, because each step runs in an application context."""
    return amount * (0.9 if amount > current_app.config["LIMIT"] else 1.0)


@order.step
def reserve(ctx: StepContext, amount: int) -> str:
    """Has the goods put aside."""
    return _tell_warehouse("reserve", amount, ctx)


@order.step
def approve(ctx: StepContext, amount: int, reserve: str) -> bool:  # noqa: ARG001 - a parameter is a dependency
    """Asks a human about large orders. No thread waits for the answer."""
    if amount > current_app.config["LIMIT"]:
        ctx.interrupt("credit", f"Ship {amount} pieces on credit?")
    return True


@order.step(depends_on=[approve])
def ship(ctx: StepContext, amount: int) -> str:
    """Has them sent."""
    return _tell_warehouse("ship", amount, ctx)


def _tell_warehouse(what: str, amount: int, ctx: StepContext) -> str:
    headers = {"Idempotency-Key": ctx.idempotency_key}
    message = Request(f"{current_app.config['WAREHOUSE']}/{what}", f"{ctx.execution_id} {amount}".encode(), headers)
    with urlopen(message, timeout=60) as said:
        return str(said.read().decode())


# Nothing starts here: each worker opens the store and makes its threads for itself, before or after a fork.
runtime = Runtime(
    os.environ.get("ORDERS_STORE", "orders.db"),
    workflows=[order],  # what may be gone on with
    recover_interval=1,  # seconds from one look for what others have left to the next
    around_step=lambda _: app.app_context(),
)

# --- the requests ------------------------------------------------------------------------------


@app.post("/quotes")
def ask_for_a_quote() -> dict[str, Any]:
    """Runs to the end, steps on this very thread."""
    result = runtime.run(quote, request.get_json()).raise_for_status()
    return {"price": result.output(price), "worker": os.getpid()}


@app.put("/orders/<name>")
def place(name: str) -> Answered:
    """Once this has answered, the order is in the store and will be done, whatever becomes of this worker."""
    with suppress(ExecutionBusyError):  # it was placed before, and is under way, here or in another worker
        runtime.submit(order, request.get_json(), execution_id=name, if_exists="resume")
    return look(name), 202


@app.get("/orders/<name>")
def look(name: str) -> dict[str, Any]:
    """From the store, so each worker can tell."""
    execution = runtime.execution(name)
    questions = [question.message for question in runtime.questions(name)]
    outputs = execution.result().outputs if execution.status == "COMPLETED" else {}
    return {"status": execution.status, "questions": questions, "outputs": outputs, "worker": os.getpid()}


@app.post("/orders/<name>/answer")
def answer(name: str) -> Answered:
    """Whoever walks the order goes on with it, or the first who finds that nobody does."""
    runtime.answer(name, Approve() if request.get_json()["approved"] else Reject("not on credit"), step=approve)
    return look(name), 202


@app.errorhandler(UsageError)
def refuse(error: UsageError) -> Answered:
    """What ares refuses says why: no such order, another one of that name, inputs that do not fit, nothing asked."""
    missing = isinstance(error, ExecutionNotFoundError | QuestionNotFoundError)
    return {"error": str(error)}, 404 if missing else 409 if isinstance(error, ExecutionConflictError) else 400
