"""The process ends when its own work is done, whatever plugins are doing. Each test is a program of its own."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

PROLOGUE = """
import sys, threading, time
from ares.bus import PluginBus
from ares.events import EventFilter
from ares.plugin import Plugin
from ares.records import Step, StepStatus

STEP = Step("s", "s", "s", None, 1, "s", "", StepStatus.RUNNING, 1, {}, {}, None)
HOUR = threading.Event()

class Stuck(Plugin):
    name = "stuck"
    timeout = 0.2
    place = ""
    subscribes_to = EventFilter(types=["a.b"])

    def at(self, place):
        if place == self.place:
            HOUR.wait(3600)

    def start(self, ctx, bus): self.at("start")
    def stop(self, ctx): self.at("stop")
    def before_step(self, ctx, execution_id, step): self.at("before_step")
    def on_event(self, ctx, delivery): self.at("on_event")

bus = PluginBus(timeout=30)
"""


def run(program: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", PROLOGUE + program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )


def seconds_after_work(done: "subprocess.CompletedProcess[str]", ended_at: float) -> float:
    return ended_at - float(done.stdout.split()[-1])


@pytest.mark.parametrize("place", ["start", "before_step", "on_event", "stop"])
@pytest.mark.parametrize("stops", [True, False])
def test_a_plugin_that_sleeps_for_an_hour_does_not_keep_the_process(place: str, stops: bool) -> None:
    program = f"""
plugin = Stuck()
plugin.place = {place!r}
bus.register(plugin)
try:
    bus.start()
except ExceptionGroup:
    pass
bus.emit("e", "a.b", "test")
bus.before_step("e", STEP)
if {stops!r}:
    bus.stop()
print("worked", time.time())
"""
    done = run(program)

    ended_at = time.time()
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout.startswith("worked")
    assert seconds_after_work(done, ended_at) < 2


def test_making_a_bus_starts_no_thread() -> None:
    done = run("""
bus.register(Stuck())
bus.subscribe(EventFilter())
bus.emit("e", "a.b", "test")
print(threading.active_count())
""")

    assert done.stdout == "1\n", done.stderr


def test_a_bus_can_be_renewed_in_the_child_of_a_fork() -> None:
    done = run("""
import os, warnings
warnings.simplefilter("ignore")
class Fine(Plugin):
    name = "fine"
    def before_step(self, ctx, execution_id, step): print("before", os.getpid() == PARENT, flush=True)
PARENT = os.getpid()
bus.register(Fine())
bus.start()
bus.before_step("e", STEP)
child = os.fork()
if child == 0:
    again = bus.renewed()
    again.start()
    again.before_step("e", STEP)
    again.stop()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
bus.before_step("e", STEP)
bus.stop()
""")

    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:3] == ["before True", "before False", "before True"]


def test_a_hail_of_ctrl_c_breaks_nothing() -> None:
    """The main thread is interrupted wherever it happens to be, hundreds of times; everybody else goes on."""
    done = run("""
import signal
from ares.plugin import Capability
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job begins with it ignored

class Fine(Plugin):
    name = "fine"
    capabilities = frozenset({Capability.TOOL})
    subscribes_to = EventFilter(types=["a.b"])
    def before_step(self, ctx, execution_id, step): pass
    def on_event(self, ctx, delivery): pass
    def echo(self, ctx, x): return x

bus.register(Fine())
bus.start()
ref = bus.plugins_by_cap("tool")[0]
over = threading.Event()
other = [0]

def work():
    while not over.is_set():
        assert ref.call("echo", 5) == 5
        bus.emit("e", "a.b", "other")
        bus.before_step("e", STEP)
        other[0] += 1

def hail():
    main = threading.main_thread().ident
    for _ in range(400):
        signal.pthread_kill(main, signal.SIGINT)
        over.wait(0.003)
    over.set()

threads = [threading.Thread(target=fn) for fn in (work, work, hail)]
interrupted = 0
while not threads[0].ident:
    try:
        for thread in threads: thread.ident or thread.start()
    except KeyboardInterrupt:
        interrupted += 1
subscription = None
while not over.is_set():
    try:
        subscription = subscription or bus.subscribe(EventFilter(types=["a.b"]), buffer=4)
        bus.before_step("e", STEP)
        bus.emit("e", "a.b", "main")
        assert ref.call("echo", 7) == 7
        subscription.get()
    except KeyboardInterrupt:
        interrupted += 1
signal.signal(signal.SIGINT, signal.SIG_IGN)
for thread in threads:
    thread.join(10)
    assert not thread.is_alive()
assert other[0] > 0
ready = bus.subscribe(EventFilter(types=["c.d"]))
bus.emit("e", "c.d", "main")
assert ready.get(5) is not None
assert ref.call("echo", 9) == 9
counts = subscription.counts()
assert counts.matched == counts.delivered + counts.dropped + counts.pending
assert bus.stop() == ()
health = bus.health()["fine"]
assert (health.state, health.errors, health.timeouts, health.mailbox_depth) == ("stopped", 0, 0, 0), health
print(interrupted)
""")

    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 100
