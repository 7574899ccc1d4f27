"""The file that StrategyEvolution learns into: over sessions, among processes, after kills, and when it is no good."""

import fcntl
import json
import os
import shutil
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from ares import Runtime, Workflow
from ares.errors import UsageError
from ares.plugins import EvolutionRouter, StrategyEvolution, _study, _study_file
from ares.plugins._study_file import StudyFile
from tests.engine.helpers import Child, seconds_since
from tests.engine.test_fork import in_child
from tests.plugins.strategic import FAILED, Played, hint
from tests.stores.children import as_nobody

Make = Callable[..., Runtime]

#: A process that plays: its own file name, how many executions, and whether it is to be killed in one.
PLAYER = """
    import os, sys
    from pathlib import Path
    from tests.plugins.strategic import Played

    played = Played(Path(sys.argv[1]), seed=int(sys.argv[2]))
    print("ready", flush=True)
    for _ in range(int(sys.argv[3])):
        played.run(lambda recommended: recommended.preferred_agent == "b")
    if sys.argv[4:]:
        played.ask("never told")
        print("asked", flush=True)
        os.kill(os.getpid(), 9)
    print(played.total())
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "strategy.study"


def always(_: Any) -> bool:
    return True


def states(path: Path) -> list[str]:
    """The states of all trials in a file, as Optuna itself reads it."""
    import optuna
    from optuna.storages.journal import JournalFileBackend

    storage = optuna.storages.JournalStorage(JournalFileBackend(str(path)))
    return [trial.state.name for study in storage.get_all_studies() for trial in trials(storage, study.study_name)]


def trials(storage: Any, name: str = "w/choose") -> Any:
    return storage.get_all_trials(storage.get_study_id_from_name(name))


# --- over sessions ---------------------------------------------------------------------------------------------------


def test_what_was_learnt_is_known_in_the_next_session(path: Path) -> None:
    played = Played(path)
    for _ in range(20):
        played.run(lambda it: it.preferred_agent == "c")
    before = played.plugin.standings("w", "choose")

    played.reopen()

    assert played.plugin.standings("w", "choose") == ()
    played.ask("first")
    assert played.plugin.standings("w", "choose") == before


def test_an_agent_that_is_gone_is_forgotten_and_a_new_one_is_tried(path: Path) -> None:
    old = Played(path, ["a", "b"])
    for _ in range(20):
        old.run(lambda it: it.preferred_agent == "a")
    of_b = old.runs()["b"]

    new = Played(path, ["b", "c"])
    new.ask("first")
    assert new.runs() == {"b": of_b, "c": 0}
    for _ in range(30):
        new.run(lambda it: it.preferred_agent == "c")

    assert new.plugin.standings("w", "choose")[0].agent == "c"
    assert Played(path, ["a", "b"]).ask().preferred_agent in "ab"


def test_parameters_may_change_between_sessions_and_what_is_known_of_the_agent_stays(path: Path) -> None:
    for agents in (
        {"a": {}},
        {"a": {"heat": (0.0, 1.0)}},
        {"a": {"heat": (5.0, 6.0), "tone": ["flat", "warm"]}},
        {"a": {"heat": (1, 3), "tone": ["wild"]}},
        {"a": {"heat": ["low", "high"]}},
    ):
        played = Played(path, agents)
        for _ in range(12):
            assert hint(played.run(always)).keys() == agents["a"].keys()

    assert played.runs() == {"a": 60}


def test_the_file_is_read_by_optuna_itself(path: Path) -> None:
    import optuna
    from optuna.storages.journal import JournalFileBackend

    played = Played(path, {"a": {"heat": (0.0, 1.0)}})
    recommended = played.ask("e7", round=2)
    played.end("e7", FAILED, round=2, duration=2.5, tool_count=4)

    storage = optuna.storages.JournalStorage(JournalFileBackend(str(path)))
    study = optuna.study.Study("w/choose", storage)
    [trial] = study.trials
    assert trial.params == {"agent": "a", "a/heat": hint(recommended)["heat"]}
    assert trial.values == [0.0, 2.5, 4.0]
    assert (trial.user_attrs["execution"], trial.user_attrs["round"]) == ("e7", 2)
    assert [each.name for each in study.directions] == ["MAXIMIZE", "MINIMIZE", "MINIMIZE"]
    assert study.user_attrs["ares.objectives"] == ["success", "duration", "cost"]


def test_odd_names_are_names_like_others(path: Path) -> None:
    names = ["agent", "a/b", "ü\n", "../x", "a" * 5_000]
    played = Played(path, {name: {"agent": (1, 2), "x/y": ["z"]} for name in names})
    for _ in range(20):
        assert hint(played.run(always)).keys() == {"agent", "x/y"}

    assert played.total() == 20


def test_a_study_of_somebody_else_in_the_same_file_is_left_alone(path: Path) -> None:
    import optuna
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    storage = optuna.storages.JournalStorage(JournalFileBackend(str(path)))
    theirs = optuna.create_study(storage=storage, study_name="theirs")
    theirs.tell(theirs.ask(), 1.0)
    optuna.create_study(storage=storage, study_name="w/taken")

    played = Played(path)
    played.run(always)

    with pytest.raises(UsageError, match=r"study 'w/taken' in .*strategy.study.* has other objectives"):
        played.ask(step_id="taken")
    assert len(theirs.trials) == 1


# --- among processes -------------------------------------------------------------------------------------------------


def test_plugins_on_one_file_learn_from_each_other(path: Path) -> None:
    one, other = Played(path, seed=1), Played(path, seed=2)
    for _ in range(10):
        one.run(always)
        other.run(always)

    one.ask("last"), other.ask("last")
    assert one.runs() == other.runs()
    assert one.total() == 20


def test_many_processes_write_one_file_and_lose_nothing(path: Path) -> None:
    with ExitStack() as stack:
        children = [stack.enter_context(Child(PLAYER, str(path), str(seed), "40")) for seed in range(2)]
        for child in children:
            child.result()

    assert states(path) == ["COMPLETE"] * 80
    last = Played(path)
    last.ask("last")
    assert last.total() == 80


def test_a_process_that_is_killed_in_the_middle_leaves_no_trial_open(path: Path) -> None:
    with Child(PLAYER, str(path), "1", "5", "and die") as child:
        assert child.finish()[0] == -signal.SIGKILL

    assert states(path) == ["COMPLETE"] * 5
    played = Played(path)
    played.run(always)
    assert played.total() == 6


def test_half_a_line_of_a_process_that_was_killed_is_cut_off(path: Path) -> None:
    played = Played(path)
    for _ in range(3):
        played.run(always)
    with path.open("ab") as file:
        file.write(b'{"op_code":4,"worker_id":"killed')

    played.run(always)
    new = Played(path)
    new.run(always)

    assert states(path) == ["COMPLETE"] * 5
    assert new.total() == 5


def test_a_lock_ends_with_the_process_that_held_it(path: Path) -> None:
    played = Played(path)
    played.run(always)
    program = """
        import fcntl, os, sys
        file = os.open(sys.argv[1], os.O_RDWR)
        fcntl.flock(file, fcntl.LOCK_EX)
        print("locked", flush=True)
        os.kill(os.getpid(), 9)
    """
    with Child(program, str(path)) as child:
        assert child.hear() == "locked"
        child.finish()

    begun = time.monotonic()
    played.run(always)
    assert seconds_since(begun) < 2


def test_a_lock_that_is_held_for_ever_is_waited_for_in_vain_and_the_run_is_known_all_the_same(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_study_file, "_PATIENCE", 0.05)
    played = Played(path)
    played.run(always)
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)

        with pytest.raises(TimeoutError, match=r"another process keeps the study file .* locked"):
            played.run(always)

    played.run(always)
    assert played.total() == 3
    assert (played.plugin.counts.learnt, played.plugin.counts.failed) == (2, 1)
    assert states(path) == ["COMPLETE"] * 2


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_after_a_fork_both_processes_go_on(path: Path) -> None:
    played = Played(path)
    for _ in range(3):
        played.run(always)

    def in_the_child() -> int:
        played.plugin.start(None, None)  # type: ignore[arg-type]
        played.run(always)
        return played.total()

    assert in_child(in_the_child) == "4"
    played.run(always)
    assert played.total() == 5


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_runtime_that_is_used_on_both_sides_of_a_fork_learns_on_both(runtime: Make, path: Path) -> None:
    wf = Workflow("w")
    wf.step(lambda: None, id="choose", branches=["one", "two"])
    wf.step(lambda choose: 1, id="one")
    wf.step(lambda choose: 2, id="two")
    plugin = StrategyEvolution(path, ["a", "b"])
    rt = runtime(plugins=[plugin, EvolutionRouter({"a": "one", "b": "two"})])
    rt.run(wf).raise_for_status()

    def in_the_child() -> str:
        return str(rt.run(wf).raise_for_status().status)

    assert in_child(in_the_child) == "'COMPLETED'"
    rt.run(wf).raise_for_status()
    assert sum(each.runs for each in plugin.standings("w", "choose")) == 3


# --- a file that grows -----------------------------------------------------------------------------------------------


def test_old_trials_are_left_out_of_the_file_and_whoever_has_it_open_notices(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_study, "_KEPT", 20)
    one, other = Played(path, window=10, seed=1), Played(path, window=10, seed=2)
    other.run(always)
    path.chmod(0o640)
    first = path.stat().st_ino

    for _ in range(150):
        one.run(always)
    other.run(always)

    assert path.stat().st_ino != first
    assert path.stat().st_mode & 0o777 == 0o640
    assert 20 <= len(states(path)) <= 4 * 20 + 10
    assert one.total() == other.total() == 10
    one.ask("last")
    assert one.runs() == other.runs()
    assert sorted(path.parent.iterdir()) == [path]


def test_no_run_is_lost_when_processes_write_while_others_leave_out_what_is_old(path: Path) -> None:
    program = "from ares.plugins import _study\n_study._KEPT = 100\n_study._SLACK = 1\n" + _dedented(PLAYER)
    with ExitStack() as stack:
        children = [stack.enter_context(Child(program, str(path), str(seed), "80")) for seed in range(2)]
        for child in children:
            child.result()

    assert set(states(path)) == {"COMPLETE"}
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    ids = [line["user_attrs"]["id"] for line in lines if line["op_code"] == 4]
    assert len(set(ids)) == len(ids) >= 100


def _dedented(program: str) -> str:
    import textwrap

    return textwrap.dedent(program)


def test_a_file_left_over_by_one_who_was_killed_while_rewriting_is_no_obstacle(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_study, "_KEPT", 5)
    left = path.with_name(path.name + ".new")
    left.write_bytes(b"half of someth")
    played = Played(path, window=5)

    for _ in range(60):
        played.run(always)

    assert not left.exists()
    assert len(states(path)) < 60


def test_a_file_that_is_removed_is_made_anew_and_what_comes_is_in_it(path: Path) -> None:
    played = Played(path)
    for _ in range(5):
        played.run(always)
    path.unlink()

    played.run(always)

    assert states(path) == ["COMPLETE"]
    assert played.ask("last").preferred_agent in "abc"


# --- a file that is no good ------------------------------------------------------------------------------------------


def text(path: Path) -> None:
    path.write_text("Dear Ann,\nhow are you?\n")


def text_without_an_end(path: Path) -> None:
    path.write_text("Dear Ann")


def other_json(path: Path) -> None:
    path.write_text('{"event": "login"}\n')


def json_of_no_object(path: Path) -> None:
    path.write_text("[1, 2]\n")


def deep_json(path: Path) -> None:
    path.write_text("[" * 100_000 + "\n")


def binary(path: Path) -> None:
    path.write_bytes(bytes(range(256)) * 10)


def database(path: Path) -> None:
    with closing(sqlite3.connect(path)) as made:
        made.execute("CREATE TABLE people (name TEXT)")


def senseless(path: Path) -> None:
    path.write_text('{"op_code":4,"worker_id":"x"}\n')


def strange_operation(path: Path) -> None:
    path.write_text('{"op_code":99,"worker_id":"x"}\n')


@pytest.mark.parametrize(
    "make",
    [
        text, text_without_an_end, other_json, json_of_no_object, deep_json, binary, database, senseless,
        strange_operation,
    ],
)  # fmt: skip
def test_a_file_of_something_else_is_refused_by_name_and_not_touched(path: Path, make: Callable[[Path], None]) -> None:
    make(path)
    before = path.read_bytes()

    with pytest.raises(UsageError, match="is no study file, or is broken") as raised:
        Played(path)

    assert str(path) in str(raised.value)
    assert path.read_bytes() == before


def test_a_broken_line_is_named_by_its_number(path: Path) -> None:
    played = Played(path)
    played.run(always)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], b"\xff\xfe\n", *lines[2:]]))

    with pytest.raises(UsageError, match="broken in line 3: "):
        Played(path)


def test_a_file_that_breaks_while_it_is_used_makes_no_answer_and_no_harm(path: Path, runtime: Make) -> None:
    wf = Workflow("w")
    wf.step(lambda: None, id="choose", branches=["one"])
    wf.step(lambda choose: 1, id="one")
    rt = runtime(plugins=[StrategyEvolution(path, ["a"], ttl=0), EvolutionRouter({"a": "one"})])
    rt.run(wf).raise_for_status()
    with path.open("ab") as file:
        file.write(b"nonsense\n")

    result = rt.run(wf, execution_id="e")

    assert result.status == "FAILED"  # no router had an answer
    assert "broken in line" in str(rt.health()["strategy"].last_error)


@pytest.mark.parametrize(("place", "problem"), [("no/such", "cannot be opened"), (".", "cannot be opened")])
def test_a_place_where_no_file_can_be_is_named(tmp_path: Path, place: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem) as raised:
        Played(tmp_path / place)

    assert str(tmp_path) in str(raised.value)


def test_a_pipe_is_no_file_and_is_not_waited_for(path: Path) -> None:
    os.mkfifo(path)

    with pytest.raises(UsageError, match="is no regular file"):
        Played(path)


@pytest.fixture
def shared() -> Iterator[Path]:
    """A place that other users can reach."""
    folder = Path("/tmp") / f"ares-strategy-{os.getpid()}-{time.monotonic_ns()}"
    folder.mkdir()
    yield folder / "strategy.study"
    shutil.rmtree(folder)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_file_that_may_only_be_read_is_named(shared: Path) -> None:
    Played(shared).run(always)
    shared.chmod(0o444)
    shared.parent.chmod(0o755)

    def work() -> None:
        with pytest.raises(UsageError, match=f"{shared}.* cannot be opened for writing"):
            StudyFile(str(shared)).open()

    as_nobody(work)


def test_when_the_disk_is_full_what_was_half_written_is_taken_back_and_the_run_is_known(path: Path) -> None:
    program = """
        import os, resource, sys
        from pathlib import Path
        from tests.plugins.strategic import Played

        path = Path(sys.argv[1])
        played = Played(path)
        played.run(lambda it: True)
        size = path.stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, resource.RLIM_INFINITY))
        try:
            played.run(lambda it: True)
        except OSError as error:
            print(type(error).__name__)
        assert path.stat().st_size == size
        assert played.total() == 2, played.total()
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        played.run(lambda it: True)
        assert played.total() == 3, played.total()
    """
    with Child(program, str(path)) as child:
        assert child.result().strip() == "OSError"
    assert states(path) == ["COMPLETE"] * 2
