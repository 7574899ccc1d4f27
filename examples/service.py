"""A service of many threads and one Runtime, for clients that come again.

    python service.py parcels.db 8002 http://127.0.0.1:8001

A client sends a line, ``NAME WEIGHT``, and gets one back when the parcel is on its way. Each connection has a thread,
and ``run`` walks on it. SIGTERM ends the service within seconds: steps that run may end, and a client that still waits
hears ``later``, or is cut off. The next start goes on with all that was left, and a client that sends the same line
again is told what came of it.
"""

import signal
import sys
from socketserver import StreamRequestHandler, ThreadingTCPServer
from typing import Any
from urllib.request import Request, urlopen

from ares import Runtime, StepContext, Workflow
from ares.errors import ExecutionBusyError, RuntimeClosedError, UsageError

parcel = Workflow("parcel", version="1", inputs={"carrier": str, "weight": int})


@parcel.step
def label(ctx: StepContext, carrier: str, weight: int) -> str:
    """Has a label printed."""
    return _tell(ctx, carrier, weight)


@parcel.step(depends_on=[label])
def hand_over(ctx: StepContext, carrier: str, weight: int) -> str:
    """Has it fetched."""
    return _tell(ctx, carrier, weight)


def _tell(ctx: StepContext, carrier: str, weight: int) -> str:
    headers = {"Idempotency-Key": ctx.idempotency_key}
    message = f"{ctx.execution_id} {weight}".encode()
    with urlopen(Request(f"{carrier}/{ctx.step.step_id}", message, headers), timeout=60) as said:
        return str(said.read().decode())


class Service(ThreadingTCPServer):
    """Listens; one Runtime for all its connections."""

    allow_reuse_address = True
    daemon_threads = True  # a client that only listens keeps nobody from ending
    request_queue_size = 128

    def __init__(self, runtime: Runtime, port: int, carrier: str) -> None:
        super().__init__(("127.0.0.1", port), Connection)
        self.runtime = runtime
        self.carrier = carrier

    def send(self, name: str, weight: int) -> str:
        """What the client is told."""
        inputs = {"carrier": self.carrier, "weight": weight}
        try:
            result = self.runtime.run(parcel, inputs, execution_id=name, if_exists="resume")
        except (ExecutionBusyError, RuntimeClosedError):
            return "later"
        return str(result.error or result.output(hand_over))


class Connection(StreamRequestHandler):
    """One client, on a thread of its own."""

    server: Service

    def handle(self) -> None:
        """Answers line by line."""
        for line in self.rfile:
            name, _, weight = line.decode().partition(" ")
            try:
                said = self.server.send(name, int(weight))
            except (UsageError, ValueError) as error:
                said = f"refused: {error}"
            self.wfile.write(f"{said}\n".encode())


def main(store: str, port: int, carrier: str) -> None:
    """Serves until SIGTERM or Ctrl-C."""

    def end(*_: Any) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it is ending
        raise SystemExit

    signal.signal(signal.SIGTERM, end)
    runtime = Runtime(store, workflows=[parcel])
    with Service(runtime, port, carrier) as service:
        try:
            left = runtime.recover()
            print(f"goes on with {len(left)}, listens on {service.server_address[1]}", flush=True)
            service.serve_forever()
        finally:
            runtime.close(timeout=10)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
