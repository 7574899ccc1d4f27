"""Which process a lease belongs to, and whether that one is certainly gone."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import attrs
import pytest

from ares.journal import owner as owners
from ares.journal.owner import describe, is_gone, this_process
from ares.journal.protocol import Owner

ROOT = Path(__file__).resolve().parents[2]

TELL = """
import json, sys
import attrs
from ares.journal.owner import this_process
print(json.dumps(attrs.asdict(this_process())), flush=True)
sys.stdin.read()
"""


def child() -> tuple[subprocess.Popen[str], Owner]:
    """A living process of its own, and what it says of itself."""
    import json

    process = subprocess.Popen(
        [sys.executable, "-c", TELL],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stdout is not None
    return process, Owner(**json.loads(process.stdout.readline()))


def test_this_process_is_not_gone_and_says_who_it_is() -> None:
    me = this_process()

    assert not is_gone(me)
    assert me == this_process()
    assert describe(me) == f"pid {os.getpid()} on host {me.host}"


@pytest.mark.case("C033")
def test_a_killed_process_is_gone_even_while_it_is_a_zombie() -> None:
    process, owner = child()
    assert not is_gone(owner)

    process.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # dead, and not yet collected

    assert is_gone(owner)
    process.communicate()
    assert is_gone(owner)


@pytest.mark.case("C033")
def test_a_pid_that_was_reused_is_not_the_owner() -> None:
    process, owner = child()
    try:
        assert not is_gone(owner)
        assert is_gone(attrs.evolve(owner, started="1"))
    finally:
        process.communicate()


@pytest.mark.case("C033")
def test_an_earlier_boot_of_the_same_machine_is_gone() -> None:
    assert is_gone(attrs.evolve(this_process(), boot="00000000-0000-0000-0000-000000000000"))


@pytest.mark.parametrize(
    "changes",
    [
        {"machine": "another", "boot": "another"},
        {"host": "another", "boot": "another"},  # a container of the same image on another machine
        {"machine": "", "boot": "another"},
        {"pid_namespace": "pid:[1]", "pid": 999_999},
        {"pid": 0},
        {"pid": -1},
        {"pid": 2**70},
        {"started": ""},
    ],
)
def test_what_cannot_be_told_is_not_gone(changes: dict[str, object]) -> None:
    assert not is_gone(attrs.evolve(this_process(), **changes))


def test_another_containers_machine_id_does_not_matter_within_one_boot() -> None:
    process, owner = child()
    process.communicate()

    assert is_gone(attrs.evolve(owner, machine="another", host="another"))


def test_another_users_process_is_seen() -> None:
    process, owner = child()
    try:
        pid = os.fork()
        if pid == 0:
            os.setuid(65534)
            os._exit(7 if is_gone(owner) else 0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    finally:
        process.communicate()


def test_a_forked_child_is_another_owner() -> None:
    pid = os.fork()
    if pid == 0:
        me = this_process()
        os._exit(0 if me.pid == os.getpid() and not is_gone(me) else 7)

    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


class TestWithoutProc:
    """As on a system that has no /proc: less can be told, and never that a live owner is dead."""

    @pytest.fixture(autouse=True)
    def _no_proc(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(owners, "_boot", lambda: "")
        monkeypatch.setattr(owners, "_stat", lambda process: None)
        monkeypatch.setattr(owners, "_proc_is_ours", lambda: False)
        monkeypatch.setattr(owners, "_namespaces", lambda pid: "")
        monkeypatch.setattr(owners.sys, "platform", "darwin")

    def test_a_live_process_is_not_gone(self) -> None:
        assert not is_gone(this_process())

    def test_a_pid_that_nobody_has_is_gone(self) -> None:
        process, owner = child()
        owner = attrs.evolve(owner, boot="", pid_namespace="", started="")
        assert not is_gone(owner)

        process.communicate()

        assert is_gone(owner)

    def test_on_another_machine_nothing_can_be_told(self) -> None:
        assert not is_gone(attrs.evolve(this_process(), machine="another", pid=999_999))

    def test_on_windows_nobody_is_gone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(owners.sys, "platform", "win32")

        assert not is_gone(attrs.evolve(this_process(), pid=999_999))

    def test_on_linux_a_process_without_proc_is_not_gone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(owners.sys, "platform", "linux")

        assert not is_gone(attrs.evolve(this_process(), pid=999_999))


def test_a_machine_without_an_id_is_known_by_its_network_card(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owners, "_read", lambda path: "uninitialized")
    monkeypatch.setattr(owners.uuid, "getnode", lambda: 0x001122334455)
    assert owners._machine.__wrapped__() == "node-001122334455"

    monkeypatch.setattr(owners.uuid, "getnode", lambda: 1 << 40 | 5)
    assert owners._machine.__wrapped__() == ""
