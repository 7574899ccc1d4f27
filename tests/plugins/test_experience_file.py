"""The file of an ``ExperienceMemory``: bounded, shared, and no walk's trouble whatever is wrong with it."""

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ares import Runtime
from ares.errors import StoreError
from ares.plugins import ExperienceMemory, _own_file, experience
from ares.records import ExecutionStatus
from tests.engine.helpers import Gate, Task, eventually
from tests.engine.test_fork import in_child
from tests.plugins.experiences import advice_of, always, at, crossing, given, running, say
from tests.plugins.routing import alone

Make = Callable[..., Runtime]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "experience.db"


@pytest.fixture
def learned(path: Path) -> Path:
    """A file with two experiences."""
    with Runtime(plugins=[ExperienceMemory(path), always()]) as rt:
        for _ in range(2):
            rt.run(crossing(), given()).raise_for_status()
    return path


def open_at(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None, timeout=10)


@pytest.fixture
def locked(learned: Path) -> Iterator[sqlite3.Connection]:
    """Somebody who holds its lock."""
    connection = open_at(learned)
    connection.execute("BEGIN IMMEDIATE")
    yield connection
    connection.close()


# --- bounded ---------------------------------------------------------------------------------------------------------


def test_the_oldest_experiences_go_first(runtime: Make, path: Path) -> None:
    memory = ExperienceMemory(path, max_entries=5)
    rt = runtime(plugins=[memory, always()])
    for number in range(9):
        rt.run(crossing(), given("early" if number < 5 else "late")).raise_for_status()

    assert memory.size() == 5
    assert advice_of(rt, at("early")) == {}
    assert advice_of(rt, at("late")) == {"right": pytest.approx(5 / 6, abs=0.01)}
    rt.close()
    with open_at(path) as connection:
        connection.execute("INSERT INTO found(found, rank) VALUES ('integrity-check', 1)")
    connection.close()


def test_decisions_of_executions_that_never_end_are_bounded_too(path: Path) -> None:
    memory = running(ExperienceMemory(path, max_entries=5))
    for number in range(9):
        say(memory, at(execution_id=f"e{number}"))

    assert memory._experiences.open_executions(100) == [f"e{number}" for number in (8, 7, 6, 5, 4)]
    memory.stop(alone())


def test_it_does_not_grow_where_experiences_come_and_go(path: Path) -> None:
    memory = running(ExperienceMemory(path, max_entries=20))
    file = memory._experiences
    sizes = []
    for number in range(300):
        say(memory, at(f"text {number} " + "word " * 50, execution_id=f"e{number}"))
        asked, _ = file.asked_in(f"e{number}")
        file.learn(f"e{number}", 0, asked, {each.number: "left" for each in asked}, 1.0)
        sizes.append(path.stat().st_size + Path(f"{path}-wal").stat().st_size)

    assert memory.size() == 20
    assert max(sizes[150:]) <= 1.05 * max(sizes[:150])
    memory.stop(alone())


# --- a file that is none ---------------------------------------------------------------------------------------------


def text(path: Path) -> str:
    path.write_text("what I did on my holidays\n" * 100)
    return "the file is not an SQLite database"


def foreign(path: Path) -> str:
    with open_at(path) as connection:
        connection.execute("CREATE TABLE recipes (name TEXT)")
    connection.close()
    return "another program, not what an ExperienceMemory learned"


def store(path: Path) -> str:
    with Runtime(path) as rt:
        rt.run(crossing(), given())
    return "another program, not what an ExperienceMemory learned"


def newer(path: Path) -> str:
    with open_at(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    return "written by a newer ares (format 99, this one knows 1)"


def robbed(path: Path) -> str:
    with open_at(path) as connection:
        connection.execute("DROP TABLE experiences")
    connection.close()
    return "the file is damaged"


def torn(path: Path) -> str:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    return "the file is damaged"


def scratched(path: Path) -> str:
    content = bytearray(path.read_bytes())
    for page in range(1, len(content) // 4096):
        content[page * 4096 : page * 4096 + 100] = b"\xff" * 100
    path.write_bytes(content)
    return "the file is damaged"


def folder(path: Path) -> str:
    path.unlink()
    path.mkdir()
    return "this is a folder, not a database"


def homeless(path: Path) -> str:
    path.unlink()
    path.parent.rename(path.parent.with_name("moved"))
    return "there is no folder"


def read_only(path: Path) -> str:
    if os.geteuid() == 0:
        pytest.skip("root may write everything")
    path.chmod(0o444)
    return "the file is read-only for this process"


@pytest.mark.parametrize(
    "spoil",
    [text, foreign, store, newer, robbed, torn, scratched, folder, homeless, read_only],
    ids=lambda f: f.__name__,
)
def test_a_file_that_cannot_be_used_is_named_with_the_cause_left_alone_and_done_without(
    runtime: Make, learned: Path, spoil: Callable[[Path], str]
) -> None:
    if spoil in (text, foreign, store):
        learned.unlink()
    cause = spoil(learned)
    before = learned.read_bytes() if learned.is_file() else None
    rt = runtime(plugins=[ExperienceMemory(learned), always()])

    result = rt.run(crossing(), given()).raise_for_status()

    [warning] = result.warnings
    assert str(learned) in warning
    assert cause in warning
    assert rt.health()["experience"].state.value == "failed"
    rt.close()
    assert before == (learned.read_bytes() if learned.is_file() else None)


@pytest.mark.usefixtures("locked")
def test_a_file_that_somebody_keeps_locked_is_given_up_soon(
    runtime: Make, learned: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_own_file, "_AT_START", 0.2)
    rt = runtime(plugins=[ExperienceMemory(learned), always()])
    began = time.monotonic()

    [warning] = rt.run(crossing(), given()).raise_for_status().warnings

    assert time.monotonic() - began < 8
    assert f"{learned}: locked by another connection for more than 0.2 s" in warning


# --- trouble on the way ----------------------------------------------------------------------------------------------


def test_a_file_that_is_locked_for_a_while_holds_up_no_walk_and_all_is_learned_later(
    runtime: Make, learned: Path
) -> None:
    memory = ExperienceMemory(learned)
    rt = runtime(plugins=[memory, always()])
    rt.start()
    thief = open_at(learned)
    thief.execute("BEGIN IMMEDIATE")
    began = time.monotonic()

    results = [rt.run(crossing(), given()) for _ in range(2)]

    assert time.monotonic() - began < 5
    assert [result.status for result in results] == ["COMPLETED", "COMPLETED"]
    assert all(len(result.warnings) == 1 and "locked by another connection" in result.warnings[0] for result in results)
    assert memory.size() == 2  # reading goes on
    thief.execute("ROLLBACK")
    thief.close()
    assert rt.run(crossing(), given()).warnings == ()
    eventually(lambda: memory.size() == 5)
    assert memory.counts.unwritten == 0


def test_what_waits_for_a_lock_is_bounded_counted_and_written_at_the_end(
    learned: Path, locked: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked.execute("COMMIT")
    monkeypatch.setattr(experience, "_MOST_UNWRITTEN", 10)
    memory = running(ExperienceMemory(learned))
    locked.execute("BEGIN IMMEDIATE")
    began = time.monotonic()

    for number in range(30):
        assert say(memory, at(execution_id=f"e{number}")) == {"right": 0.75}

    assert time.monotonic() - began < 3  # one of them waited for the lock
    assert memory.counts.unwritten == 20
    assert "locked by another connection" in memory.counts.last_error
    locked.execute("COMMIT")
    memory.stop(alone())
    running(memory)
    assert memory._experiences.open_executions(100) == [f"e{number}" for number in range(29, 19, -1)]
    memory.stop(alone())


def test_a_file_that_is_taken_away_is_missed(runtime: Make, learned: Path) -> None:
    rt = runtime(plugins=[ExperienceMemory(learned), always()])
    rt.start()
    learned.unlink()

    result = rt.run(crossing(), given())

    assert result.status is ExecutionStatus.COMPLETED
    assert any(f"{learned}: the file was taken away or replaced" in warning for warning in result.warnings)
    assert not learned.exists()


def test_what_is_damaged_on_the_way_costs_advice_and_no_run(runtime: Make, learned: Path) -> None:
    rt = runtime(plugins=[ExperienceMemory(learned), always()])
    rt.start()
    with open_at(learned) as connection:
        connection.execute("DROP TABLE experiences")
    connection.close()

    result = rt.run(crossing(), given()).raise_for_status()

    assert any("the file is damaged" in warning for warning in result.warnings)


def test_stop_lets_go_of_the_file_and_start_finds_it_again(learned: Path) -> None:
    memory = running(ExperienceMemory(learned))
    memory.stop(alone())
    with pytest.raises(StoreError, match="it is not open"):
        memory.size()

    learned.rename(learned.with_name("away"))
    learned.with_name("away").rename(learned)

    assert running(memory).size() == 2
    memory.stop(alone())


def test_a_file_has_no_word_of_what_was_seen(runtime: Make, path: Path) -> None:
    rt = runtime(plugins=[ExperienceMemory(path), always()])
    rt.run(crossing(), given({"password": "hunter2"})).raise_for_status()
    rt.close()

    content = path.read_bytes().lower()
    assert b"right" in content
    assert not any(word in content for word in (b"hunter2", b"password", b"colour"))


# --- forks -----------------------------------------------------------------------------------------------------------

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
#: Python 3.12 and newer warn of what these tests are about.
of_forks = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


@needs_fork
@of_forks
def test_a_memory_works_after_a_fork_in_the_child_as_in_the_parent(
    runtime: Make, store: str | None, path: Path
) -> None:
    memory = ExperienceMemory(path)
    rt = runtime(store, plugins=[memory, always()])
    rt.run(crossing(), given()).raise_for_status()

    def child() -> tuple[object, ...]:
        result = rt.run(crossing(), given())
        return result.status.value, result.warnings, memory.size()

    assert in_child(child) == "('COMPLETED', (), 2)"
    assert rt.run(crossing(), given()).warnings == ()
    assert (memory.size(), advice_of(rt, at())) == (3, {"right": pytest.approx(0.8)})


@needs_fork
@of_forks
def test_a_child_that_starts_nothing_is_refused_and_harms_nobody(path: Path) -> None:
    memory = running(ExperienceMemory(path))

    assert "it was opened before a fork" in in_child(memory.size)
    assert memory.size() == 0
    memory.stop(alone())


@needs_fork
@of_forks
def test_a_fork_while_the_file_is_busy_for_long_leaves_the_child_without_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_own_file, "_FORK", 0.05)
    memory = running(ExperienceMemory(path))
    file = memory._experiences._file
    busy, go_on = Gate(), Gate()

    def hold(connection: sqlite3.Connection) -> None:
        busy.open()
        go_on.wait()

    holder = Task(file.read, hold)
    busy.wait()
    said = in_child(lambda: running(memory))
    go_on.open()

    assert "this process was forked while a thread was busy with the file" in said
    holder.result()
    assert memory.size() == 0
    memory.stop(alone())
