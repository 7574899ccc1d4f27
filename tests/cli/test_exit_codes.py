from collections.abc import Sequence
from pathlib import Path

import pytest
import typer

from ares.cli.exits import code_of_error, code_of_status, message_of
from ares.errors import (
    DefinitionError,
    ExecutionBusyError,
    ExecutionExistsError,
    LeaseLostError,
    SerializationError,
    StoreError,
    WorkflowChangedError,
)
from ares.records import ExecutionStatus
from tests.cli.command import Ended, ares, ares_each, flow, forked

#: What each case runs, its exit code, and what its one line or its document says: a status, or of an error the type.
CASES: dict[str, tuple[Sequence[str], int, str]] = {
    "completes": (["run", flow("completes"), "--store", "a.db"], 0, "COMPLETED"),
    "fails": (["run", flow("fails"), "--store", "a.db", "--id", "failed-{n}"], 1, "FAILED"),
    "times out": (["run", flow("lasts"), "--store", "a.db", "--timeout", "0.2"], 1, "FAILED"),
    "step times out": (["run", flow("hangs"), "--store", "a.db"], 1, "FAILED"),
    "is cancelled": (
        ["run", flow("cancels"), "--store", "a.db", "--id", "cancelled-{n}", "-i", "store=a.db"],
        4,
        "CANCELLED",
    ),
    "resume of a failed one": (["resume", "failed-{n}", flow("fails"), "--store", "a.db"], 1, "FAILED"),
    "resume of a cancelled one": (["resume", "cancelled-{n}", flow("cancels"), "--store", "a.db"], 4, "CANCELLED"),
    "id that exists": (["run", flow("fails"), "--store", "a.db", "--id", "failed-{n}"], 2, "ExecutionExistsError"),
    "other workflow": (["resume", "failed-{n}", flow("hangs"), "--store", "a.db"], 2, "ExecutionConflictError"),
    "unknown id": (["resume", "nobody", flow("fails"), "--store", "a.db"], 2, "ExecutionNotFoundError"),
    "unknown id to show": (["show", "nobody", "--store", "a.db"], 2, "ExecutionNotFoundError"),
    "unknown id to cancel": (["cancel", "nobody", "--store", "a.db"], 2, "ExecutionNotFoundError"),
    "cancel of what has ended": (["cancel", "failed-{n}", "--store", "a.db"], 2, "UsageError"),
    "cancel of what is cancelled": (["cancel", "cancelled-{n}", "--store", "a.db"], 0, "CANCELLED"),
    "bad file": (["run", "broken.py", "--store", "a.db"], 2, "UsageError"),
    "missing file": (["run", "nowhere.py", "--store", "a.db"], 2, "UsageError"),
    "no workflow": (["run", flow("number"), "--store", "a.db"], 2, "UsageError"),
    "definition error": (["run", flow("undefined"), "--store", "new.db"], 2, "DefinitionError"),
    "bad input": (["run", flow("completes"), "--store", "new.db", "-i", "n=abc"], 2, "UsageError"),
    "unknown input": (["run", flow("completes"), "--store", "new.db", "-i", "m=1"], 2, "InputError"),
    "bad id": (["run", flow("completes"), "--store", "new.db", "--id", "a\nb"], 2, "UsageError"),
    "missing store": (["list", "--store", "new.db"], 2, "UsageError"),
    "no store named": (["list"], 2, "UsageError"),
    "store in process": (["show", "x", "--store", ":memory:"], 2, "UsageError"),
    "store of another kind": (["list", "--store", "mysql://db"], 2, "UsageError"),
    "server that is not there": (["list", "--store", "postgresql://127.0.0.1:1/db"], 1, "StoreError"),
    "foreign store": (["list", "--store", "broken.py"], 1, "StoreError"),
    "store that is a folder": (["list", "--store", "."], 1, "StoreError"),
    "store in no folder": (["run", flow("completes"), "--store", "none/a.db"], 1, "StoreError"),
    "unknown option": (["list", "--bogus"], 2, ""),
    "unknown command": (["bogus"], 2, ""),
    "missing argument": (["run"], 2, ""),
    "bad option value": (["prune", "--older-than", "soon", "--store", "a.db"], 2, "UsageError"),
}
#: Those that run in processes of their own from first to last; they come first, and leave behind what others need.
_WHOLE = frozenset({"completes", "fails", "times out", "is cancelled", "unknown id", "bad file", "missing argument"})


def commands(names: Sequence[str]) -> dict[str, Sequence[str]]:
    found: dict[str, Sequence[str]] = {}
    for name in names:
        for form in ("text", "json"):
            words = [word.replace("{n}", form) for word in CASES[name][0]]
            found[f"{name}, {form}"] = [*words, "--json"] if form == "json" else words
    return found


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ended]:
    folder = tmp_path_factory.mktemp("exit_codes")
    (folder / "broken.py").write_text("x = = 1\n" + "# long enough for the head of a database\n" * 40)
    found = ares_each(commands([name for name in CASES if name in _WHOLE]), cwd=folder)
    rest = commands([name for name in CASES if name not in _WHOLE])
    found.update({name: forked(*words, cwd=folder) for name, words in rest.items()})
    assert not (folder / "new.db").exists(), "a command that could not run made a store"
    return found


@pytest.mark.parametrize("name", CASES)
@pytest.mark.case("C054")
def test_the_exit_code_says_how_it_went(outcomes: dict[str, Ended], name: str) -> None:
    _, code, word = CASES[name]
    ended = outcomes[f"{name}, text"]

    assert ended.code == code, ended
    assert "Traceback" not in ended.err
    if word.isupper():
        assert word.lower() in (ended.err + ended.out).lower()
    else:
        assert len(ended.said) == 1, "an error is one line"
        assert ended.said[0].startswith("ares: ")
        assert ended.out == ""


@pytest.mark.parametrize("name", CASES)
@pytest.mark.case("C054")
def test_with_json_stdout_is_one_document(outcomes: dict[str, Ended], name: str) -> None:
    _, code, word = CASES[name]
    ended = outcomes[f"{name}, json"]

    assert ended.code == code, ended
    assert ended.out.count("\n") == 1
    document = ended.document
    assert "ares: " not in ended.err
    assert "Traceback" not in ended.err
    if word.isupper():
        assert document["status"] == word
        assert bool(document.get("error")) is (word == "FAILED")
    else:
        assert word in ("", document["error"]["type"])
        assert document["error"]["exit_code"] == code
        assert document["error"]["message"]


def test_what_steps_print_goes_to_stderr_beside_a_document(outcomes: dict[str, Ended]) -> None:
    assert outcomes["completes, json"].err == "a step prints this\n"
    assert "a step prints this\n" in outcomes["completes, text"].out


def test_the_outputs_of_the_last_steps_go_to_stdout(outcomes: dict[str, Ended]) -> None:
    assert outcomes["completes, text"].out.splitlines()[-1] == f"report: {Path('/reports/4.md')}"
    assert outcomes["completes, json"].document["outputs"]["report"] == str(Path("/reports/4.md"))
    assert outcomes["completes, json"].document["collected"] == {"double": 1}


def test_a_failed_run_says_what_failed_and_how_to_go_on(outcomes: dict[str, Ended]) -> None:
    said = outcomes["fails, text"].said

    assert "ares: bad: ValueError: no good" in said
    assert said[-1] == f"ares: go on with: ares resume --store a.db failed-text {flow('fails')}"
    document = outcomes["fails, json"].document
    assert document["failures"] == [{"path": "bad", "type": "ValueError", "message": "no good"}]
    assert document["error"] == {"type": "ValueError", "message": "no good"}
    assert document["resume"] == f"ares resume --store a.db failed-json {flow('fails')}"


def test_a_cancelled_run_says_how_to_reopen_it(outcomes: dict[str, Ended]) -> None:
    said = outcomes["is cancelled, text"].said

    assert said[-1].startswith("ares: go on with: ares resume --reopen --store a.db cancelled-text ")


def test_a_run_or_step_that_took_too_long_says_so(outcomes: dict[str, Ended]) -> None:
    assert any("ExecutionTimeoutError: " in line for line in outcomes["times out, text"].said)
    assert any("StepTimeoutError: " in line for line in outcomes["step times out, text"].said)


def test_errors_are_said_in_the_words_of_the_command(outcomes: dict[str, Ended]) -> None:
    said = {name: outcomes[f"{name}, text"].err for name in CASES}

    assert "--if-exists resume goes on with it" in said["id that exists"]
    assert "broken.py:1: SyntaxError: invalid syntax" in said["bad file"]
    assert said["bad input"] == "ares: input 'n': 'abc' is no int\n"
    assert "unknown inputs 'm'; permitted: 'n'" in said["unknown input"]
    assert said["missing store"] == "ares: there is no store new.db\n"
    assert "--store or ARES_STORE" in said["no store named"]
    assert "--bogus" in said["unknown option"]
    assert "ares list --help" in said["unknown option"]
    assert "'soon' is no span of time" in said["bad option value"]
    assert "broken.py" in said["foreign store"]


def test_debug_shows_the_traceback_beside_the_line(tmp_path: Path) -> None:
    ended = ares("--debug", "list", "--store", "none.db", cwd=tmp_path)

    assert ended.code == 2
    assert ended.said[0] == "Traceback (most recent call last):"
    assert ended.said[-1] == "ares: there is no store none.db"


def test_without_a_command_help_is_shown_and_the_code_is_usage(tmp_path: Path) -> None:
    ended = ares(cwd=tmp_path)

    assert ended.code == 2
    assert "Usage: ares" in ended.out
    assert ended.err == ""


# --- without a process ----------------------------------------------------------------------------------------


@pytest.mark.case("C054")
def test_zero_is_only_for_completed() -> None:
    codes = {status: code_of_status(status) for status in ExecutionStatus}

    assert [status for status, code in codes.items() if code == 0] == [ExecutionStatus.COMPLETED]
    assert codes[ExecutionStatus.WAITING] == 3
    assert codes[ExecutionStatus.CANCELLED] == 4
    assert codes[ExecutionStatus.FAILED] == 1


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (DefinitionError("w", "a cycle"), 2),
        (ExecutionBusyError("x", "somebody"), 2),
        (typer.BadParameter("no"), 2),
        (StoreError("a.db", "the disk is full", "x"), 1),
        (LeaseLostError("a.db", "taken over"), 1),
        (SerializationError("no"), 1),
        (RuntimeError("a defect"), 1),
    ],
)
def test_whose_fault_an_error_is_decides_the_code(error: Exception, code: int) -> None:
    assert code_of_error(error) == code


def test_library_words_become_options() -> None:
    assert message_of(ExecutionExistsError("x", "FAILED")) == (
        "execution 'x' exists already (FAILED); --if-exists resume goes on with it"
    )
    assert message_of(WorkflowChangedError("x", added=("a", "b"))).endswith(
        "added 'a', 'b'; resume with the old one, or pass --accept-changes"
    )
    assert message_of(StoreError("a.db", "the disk is full", "x")).endswith("; it can be resumed")
    assert message_of(RuntimeError("odd")) == "unexpected RuntimeError: odd (--debug shows where)"
