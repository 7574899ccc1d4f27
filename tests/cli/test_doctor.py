"""``ares doctor``: what is wrong with a host, a store, a target."""

import os
import shutil
import signal
import sqlite3
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs
import pytest

from ares import ExecutionStatus, ExecutionSummary, Runtime
from ares.cli.doctor import host, programs, stores
from ares.cli.doctor.finding import Finding
from ares.cli.trial import Trial, try_out
from ares.plugin import Plugin
from tests.cli.command import Ended, finish, flow, forked, lines_of, start, wait_until

GIB = 2**30


def found(ended: Ended) -> Mapping[str, Any]:
    """The findings of a document by their checks, the last one of each."""
    return {each["check"]: each for each in ended.document["findings"]}


def levels(ended: Ended) -> dict[str, str]:
    return {check: each["level"] for check, each in found(ended).items()}


# --- disks ----------------------------------------------------------------------------------------------------

MOUNTS = r"""/dev/vda / ext4 rw,relatime 0 0
proc /proc proc rw 0 0
server:/export /srv/data nfs4 rw,vers=4.2 0 0
//server/share /mnt/my\040share cifs rw 0 0
tmpfs /srv/data/fast tmpfs rw 0 0
me@host:/ /home/me/remote fuse.sshfs rw 0 0
drvfs /mnt/c 9p rw,aname=drvfs 0 0
/dev/vdb /over ext4 rw 0 0
server:/over /over nfs rw 0 0
"""


@pytest.mark.parametrize(
    ("file", "mount", "level"),
    [
        ("/var/lib/a.db", ("/", "ext4"), "ok"),
        ("/srv/data/a.db", ("/srv/data", "nfs4"), "warn"),
        ("/srv/database/a.db", ("/", "ext4"), "ok"),
        ("/srv/data/fast/a.db", ("/srv/data/fast", "tmpfs"), "ok"),
        ("/mnt/my share/a.db", ("/mnt/my share", "cifs"), "warn"),
        ("/home/me/remote/a.db", ("/home/me/remote", "fuse.sshfs"), "warn"),
        ("/mnt/c/a.db", ("/mnt/c", "9p"), "warn"),
        ("/over/a.db", ("/over", "nfs"), "warn"),
    ],
)
def test_a_disk_that_other_machines_may_write_is_found(file: str, mount: tuple[str, str], level: str) -> None:
    finding = host.disk(MOUNTS, file)

    assert host.mount_of(MOUNTS, file) == mount
    assert finding.level == level
    assert mount[1] in finding.what


@pytest.mark.skipif(not Path("/proc/self/mounts").exists(), reason="/proc tells of mounts")
def test_the_mounts_of_this_machine_can_be_read(tmp_path: Path) -> None:
    (finding,) = host.look_at_disk(str(tmp_path / "a.db"))

    assert tmp_path.is_relative_to(host.mount_of(Path("/proc/self/mounts").read_text(), os.path.realpath(tmp_path))[0])
    assert "unknown" not in finding.what


@pytest.mark.parametrize(
    ("free", "total", "level"),
    [
        (0, GIB, "fail"),
        (63 * 2**20, 1000 * GIB, "fail"),
        (GIB, 100 * GIB, "warn"),
        (GIB, 4 * GIB, "ok"),
        (30 * GIB, 1000 * GIB, "ok"),
    ],
)
def test_a_disk_that_is_full_or_nearly_is_found(free: int, total: int, level: str) -> None:
    assert host.space(free, total).level == level


# --- threads --------------------------------------------------------------------------------------------------


def group(folder: Path, most: str, used: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pids.max").write_text(f"{most}\n")
    (folder / "pids.current").write_text(f"{used}\n")


def test_the_limits_of_all_control_groups_above_a_process_are_read(tmp_path: Path) -> None:
    group(tmp_path / "system.slice" / "app.service", "100", 7)
    group(tmp_path / "system.slice", "max", 50)
    group(tmp_path / "pids" / "docker" / "abc", "64", 60)

    second = list(host.cgroup_limits("0::/system.slice/app.service\n", tmp_path))
    first = list(host.cgroup_limits("8:pids:/docker/abc\n7:cpu,cpuacct:/\n1:name=systemd:/\n", tmp_path))

    assert [(each.most, each.used, each.room) for each in second] == [(100, 7, 93)]
    assert second[0].name == str(tmp_path / "system.slice" / "app.service" / "pids.max")
    assert [(each.most, each.used, each.room) for each in first] == [(64, 60, 4)]


def test_in_a_container_that_shows_the_path_of_the_host_the_limit_at_the_top_counts(tmp_path: Path) -> None:
    group(tmp_path, "32", 1)

    assert [each.most for each in host.cgroup_limits("0::/docker/abcdef\n", tmp_path)] == [32]


def test_too_little_room_for_the_threads_of_a_runtime_is_a_failure() -> None:
    limits = [host.Limit("ulimit -u", 1_000, 990), host.Limit("pids.max", 100_000, 5)]

    finding = host.threads(limits, workers=32, plugins=4)

    assert finding.level == "fail"
    assert finding.what == ("a Runtime may need 44 threads; ulimit -u allows 1,000, of which 990 are used")
    assert finding.todo == "raise ulimit -u, or lower max_workers (32)"
    assert host.threads(limits[1:], workers=32, plugins=4).level == "ok"
    assert host.threads([], workers=32, plugins=4).level == "ok"


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="/proc tells of threads")
def test_the_threads_of_a_user_are_counted_in_proc() -> None:
    assert host.threads_of_user(Path("/proc"), os.getuid()) >= 1
    assert host.threads_of_user(Path("/proc"), 4_000_000_000) == 0


# --- versions -------------------------------------------------------------------------------------------------


def test_optional_packages_are_those_of_extras_for_users() -> None:
    wanted = [
        "attrs>=23.2",
        'simpleeval<2,>=1.0.8; extra == "expressions"',
        "psycopg[binary,pool]>=3.2 ; extra == 'postgres'",
        'pytest>=8.2; extra == "test"',
        'dask>=2026.8; extra == "bench"',
    ]

    assert host.optional_packages(wanted) == {"simpleeval": "expressions", "psycopg": "postgres"}
    assert host.version_of("pykka").startswith("4.")
    assert host.version_of("no-such-distribution") == "not installed"


# --- executions -----------------------------------------------------------------------------------------------


def summary(id_: str, status: str, **changes: Any) -> ExecutionSummary:
    now = datetime.now(UTC)
    made = ExecutionSummary(id_, "w", "", ExecutionStatus(status), None, {}, now, now, None, "", "")
    return attrs.evolve(made, **changes)


def test_only_what_could_go_on_is_stuck() -> None:
    fine = [
        summary("walked", "RUNNING", owner="pid 1"),
        summary("asks", "WAITING"),
        summary("answered and walked", "WAITING", owner="pid 1", requests=1),
        summary("nested", "INTERRUPTED", parent_id="walked"),
        summary("failed", "FAILED"),
        summary("completed", "COMPLETED"),
    ]
    left = [summary("killed", "INTERRUPTED"), summary("never begun", "PENDING")]
    answered = [summary("answered", "WAITING", requests=1)]

    assert [each.level for each in stores.stuck(fine)] == ["ok"]
    found = list(stores.stuck([*fine, *left, *answered]))
    assert [each.level for each in found] == ["warn", "warn"]
    assert found[0].what == "2 executions whose process is gone, left by it: killed, never begun"
    assert found[1].what == "1 execution with answers or a cancel in that nobody carries out: answered"


def test_of_many_only_the_first_are_named() -> None:
    (finding,) = stores.stuck([summary(f"x{number}", "INTERRUPTED") for number in range(1_000)])

    assert finding.what.endswith("x0, x1, x2, x3, x4 and 995 more")


def test_an_owner_without_a_sign_is_named_with_what_it_walks() -> None:
    quiet = [summary(each, "RUNNING", owner="pid 5 on host b", silent_for=3_600.0) for each in "xy"]
    heard = summary("z", "RUNNING", owner="pid 6 on host a", silent_for=2.0)

    (finding,) = stores.silent([*quiet, heard])

    assert finding.level == "warn"
    assert finding.what == "pid 5 on host b walks x, y, and has given no sign for 1 h 00 min 00 s"
    assert [each.level for each in stores.silent([heard])] == ["ok"]


# --- plugins --------------------------------------------------------------------------------------------------


class Audit(Plugin):
    name = "audit"
    required = False

    def before_step(self, ctx: Any, execution_id: str, step: Any) -> None:
        pass


class Broken(Audit):
    name = "broken"

    def start(self, ctx: Any, bus: Any) -> None:
        raise OSError("no disk")


def trial(*plugins: Plugin) -> Trial:
    return try_out(Runtime(plugins=plugins))


def test_plugins_that_start_and_stop_are_named_in_the_order_of_their_calls() -> None:
    found = list(programs.look_at_plugins(trial(Audit())))

    assert [each.level for each in found] == ["ok", "ok"]
    assert "audit" in found[0].what
    assert "before_step: audit" in found[1].what


def test_a_plugin_that_does_not_start_is_a_failure_and_hides_no_other() -> None:
    found = list(programs.look_at_plugins(trial(Audit(), Broken())))

    assert [each.level for each in found][:2] == ["fail", "ok"]
    assert found[0].what == "broken is failed: plugin 'broken': start raised OSError: no disk"
    assert "audit" in found[1].what


def test_a_plugin_that_does_not_stop_is_a_failure() -> None:
    tried = trial(Audit())
    health = tried.stopped["audit"]
    hangs = attrs.evolve(health, state=programs.PluginState.ABANDONED, last_error="it did not stop in time")

    (finding, *_) = programs.look_at_plugins(attrs.evolve(tried, stopped={**tried.stopped, "audit": hangs}))

    assert finding.what == "audit is abandoned after the stop: it did not stop in time"


# --- the command ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the store "a.db"."""
    folder = tmp_path_factory.mktemp("doctor")
    assert forked("run", flow("completes"), "--store", "a.db", "--id", "done", cwd=folder).code == 0
    return folder


def test_all_is_well_with_a_good_store_and_a_good_target_and_nothing_changes(folder: Path) -> None:
    before = {file.name: file.read_bytes() for file in folder.iterdir()}

    ended = forked("doctor", flow("completes"), "--store", "a.db", "--json", cwd=folder)

    assert ended.code == 0
    assert set(levels(ended).values()) <= {"ok"}, ended.document
    assert {*levels(ended)} >= {
        *("versions", "store", "writable", "space", "stuck", "owners", "workflow", "import", "patched", "plugins"),
        "threads",
    }
    assert "CPython" in found(ended)["versions"]["what"]
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before


def test_without_a_store_or_a_target_the_host_is_looked_at(tmp_path: Path) -> None:
    ended = forked("doctor", cwd=tmp_path)

    assert ended.code == 0
    assert [line.split()[1] for line in ended.out.splitlines() if line[0] != " "] == ["versions", "store", "threads"]
    assert "warn store " in ended.out
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_is_not_there_is_a_failure_and_is_not_made(tmp_path: Path) -> None:
    ended = forked("doctor", "--store", "a.db", cwd=tmp_path)

    assert ended.code == 1
    assert "fail store     there is no file a.db\n" in ended.out
    assert list(tmp_path.iterdir()) == []


def set_version(store: Path, version: int) -> None:
    with closing(sqlite3.connect(store)) as connection:
        connection.execute(f"PRAGMA user_version = {version}")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


@pytest.mark.parametrize(
    ("version", "said"), [(99, "was written by a newer ares (format 99"), (1, "has the older format 1")]
)
def test_a_store_of_another_format_is_a_failure_and_is_not_migrated(
    folder: Path, tmp_path: Path, version: int, said: str
) -> None:
    shutil.copy(folder / "a.db", tmp_path)
    set_version(tmp_path / "a.db", version)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}

    ended = forked("doctor", flow("completes"), "--store", "a.db", "--json", cwd=tmp_path)

    assert ended.code == 1
    assert found(ended)["store"]["level"] == "fail"
    assert said in found(ended)["store"]["what"]
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


@pytest.mark.parametrize("content", [b"", b"no database at all, but long enough to have the head of one" * 20])
def test_a_file_that_is_no_store_is_a_failure(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.db").write_bytes(content)

    ended = forked("doctor", "--store", "a.db", "--json", cwd=tmp_path)

    assert ended.code == 1
    assert levels(ended)["store"] == "fail"
    assert (tmp_path / "a.db").read_bytes() == content


#: Looks at a file as a user who may not write it.
STRANGER = """
import os, sys
from ares.cli.doctor import stores
if os.getuid() == 0:
    os.setuid(65534)  # no mode of a file keeps root from writing
print([str(each.level) for each in stores.look_at_file(sys.argv[1])])
"""


@pytest.mark.skipif(os.name == "nt", reason="modes of files as POSIX has them")
def test_a_file_that_cannot_be_written_is_a_failure(folder: Path, tmp_path: Path) -> None:
    shutil.copy(folder / "a.db", tmp_path)
    tmp_path.chmod(0o500)

    ended = finish(start(tmp_path / "a.db", cwd=tmp_path, program=("-c", STRANGER)))
    tmp_path.chmod(0o700)

    assert (ended.out, ended.err) == ("['fail']\n", "")


def test_what_a_killed_process_left_and_what_was_answered_is_a_warning(tmp_path: Path) -> None:
    unless = f"unless={tmp_path / 'never'}"
    crashed = forked("run", flow("crashes"), "--store", "a.db", "--id", "left", "-i", unless, cwd=tmp_path)
    assert crashed.code == -signal.SIGKILL
    forked("run", flow("asks"), "--store", "a.db", "--id", "asks", "-i", f"marks={tmp_path / 'm'}", cwd=tmp_path)
    asked = forked("doctor", "--store", "a.db", cwd=tmp_path)
    forked("answer", "asks", "publish", "--approve", "--store", "a.db", cwd=tmp_path)

    answered = forked("doctor", "--store", "a.db", cwd=tmp_path)

    assert (asked.code, answered.code) == (0, 0)
    assert asked.out.count("warn stuck ") == 1
    assert "left by it: left\n" in asked.out
    assert "nobody carries out: asks\n" in answered.out


def test_an_owner_of_another_machine_that_is_silent_is_a_warning(tmp_path: Path) -> None:
    inputs = ("-i", f"marks={tmp_path / 'marks'}", "-i", f"go={tmp_path / 'go'}")
    live: subprocess.Popen[str] = start("run", flow("alone"), "--store", "a.db", "--id", "x", *inputs, cwd=tmp_path)
    wait_until(lambda: lines_of(tmp_path / "marks"), "the step to run")
    well = forked("doctor", "--store", "a.db", "--json", cwd=tmp_path)
    live.kill()
    finish(live)
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection, connection:
        connection.execute("UPDATE leases SET machine = 'another', boot = 'another', host = 'far', beaten_at = 0")

    ended = forked("doctor", "--store", "a.db", "--json", cwd=tmp_path)

    assert levels(well)["owners"] == "ok"
    assert levels(ended) | {"owners": "warn", "stuck": "ok"} == levels(ended)
    assert f"pid {live.pid} on host far walks x" in found(ended)["owners"]["what"]


TARGET = """
import threading
from ares import Runtime, Workflow
workflow = Workflow("w")
workflow.step(lambda: 1, id="a")
"""


def examined(folder: Path, more: str) -> Ended:
    (folder / "program.py").write_text(TARGET + more)
    return forked("doctor", "program.py", "--json", cwd=folder)


def test_threads_that_importing_a_target_starts_are_a_warning(tmp_path: Path) -> None:
    ended = examined(
        tmp_path,
        "threading.Thread(target=threading.Event().wait, args=(60,), name='poller', daemon=True).start()\n"
        "started = Runtime('own.db')\nstarted.start()\n",
    )

    finding = found(ended)["import"]
    assert ended.code == 0
    assert finding["level"] == "warn"
    assert "poller" in finding["what"]
    assert "ares-" in finding["what"]
    assert "start it where it runs" in finding["todo"]


def test_threads_that_gevent_patched_are_a_failure_and_no_runtime_is_started_on_them(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(f"from gevent import monkey\nmonkey.patch_all()\n{TARGET}")

    ended = finish(start("doctor", "program.py", "--json", cwd=tmp_path, PYTHONWARNINGS="default"))

    assert ended.code == 1
    assert found(ended)["patched"]["level"] == "fail"
    assert "gevent" in found(ended)["patched"]["what"]
    assert "plugins" not in found(ended)


def test_a_target_whose_runtime_cannot_be_made_or_started_is_a_failure(tmp_path: Path) -> None:
    raises = examined(tmp_path, "def runtime(store):\n    raise OSError('no disk')\n")

    assert raises.code == 1
    assert found(raises)["plugins"]["what"].endswith("of program.py raised OSError: no disk")


def test_a_definition_that_cannot_run_is_a_failure(tmp_path: Path) -> None:
    ended = examined(tmp_path, "workflow.step(lambda nothing: 1, id='b')\n")

    assert ended.code == 1
    assert "nothing" in found(ended)["workflow"]["what"]


def test_a_check_that_itself_fails_stops_no_other() -> None:
    from ares.cli.doctor import _found

    def breaks() -> Iterator[Finding]:
        raise OSError("no such device")

    (finding,) = _found(breaks)

    assert (finding.level, finding.what) == ("fail", "it could not be looked at: OSError: no such device")
