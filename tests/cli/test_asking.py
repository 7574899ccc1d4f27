"""``ares questions`` and ``ares answer``: a human at a second terminal."""

import json
from pathlib import Path

import pytest

from tests.cli.command import Ended, ares, finish, flow, forked, lines_of, start, wait_until


def asked(tmp_path: Path, name: str = "asks", id: str = "x") -> tuple[Path, Ended]:
    """A run that came to its questions."""
    store = tmp_path / "a.db"
    marks = f"marks={tmp_path / 'marks'}"
    return store, forked("run", flow(name), "--store", store, "--id", id, "-i", marks, cwd=tmp_path)


def say(store: Path, *words: str, id: str = "x") -> Ended:
    return forked("answer", id, *words, "--store", store, cwd=store.parent)


def open_questions(store: Path, *words: str) -> list[tuple[str, str, str]]:
    found = forked("questions", *words, "--store", store, "--json", cwd=store.parent).document["questions"]
    return [(each["execution_id"], each["path"], each["key"]) for each in found]


def test_a_run_that_waits_ends_with_3_and_says_what_it_asks_and_how_to_go_on(tmp_path: Path) -> None:
    store, ran = asked(tmp_path)

    assert ran.code == 3
    assert "ares: publish asks: Publish it?" in ran.said
    assert "ares: price asks: How much?\\nIn euros." in ran.said
    assert any(line.startswith("ares: waiting in ") for line in ran.said)
    assert f"ares: answer with: ares answer --approve --store {store} x STEP" in ran.said
    assert f"ares: go on with: ares resume --store {store} x {flow('asks')}" in ran.said


def test_what_is_said_of_an_answer_names_the_store_and_protects_an_id_that_begins_with_a_dash(tmp_path: Path) -> None:
    store = tmp_path / "a b.db"
    ran = forked("run", flow("asks"), "--store", store, "--id=-x", "-i", f"marks={tmp_path / 'marks'}", cwd=tmp_path)

    said = forked("answer", "--approve", "--store", store, "--", "-x", "publish", cwd=tmp_path)

    assert f"ares: answer with: ares answer --approve --store '{store}' -- -x STEP" in ran.said
    assert said.said == [f"ares: 1 more open: ares questions --store '{store}' -- -x"]


def test_its_json_has_the_questions(tmp_path: Path) -> None:
    store, _ = asked(tmp_path)

    ran = forked("resume", "x", flow("asks"), "--store", store, "--json", cwd=tmp_path)

    assert ran.code == 3
    assert ran.document["status"] == "WAITING"
    assert [(each["path"], each["message"]) for each in ran.document["questions"]] == [
        ("publish", "Publish it?"),
        ("price", "How much?\nIn euros."),
    ]
    assert ran.document["questions"][1]["payload"] == {"upper": 10}


def test_questions_lists_those_of_all_executions_or_of_one(tmp_path: Path) -> None:
    store, _ = asked(tmp_path)
    asked(tmp_path, id="y")

    assert open_questions(store) == [
        ("x", "publish", ""),
        ("x", "price", "amount"),
        ("y", "publish", ""),
        ("y", "price", "amount"),
    ]
    assert open_questions(store, "y") == [("y", "publish", ""), ("y", "price", "amount")]
    shown = forked("questions", "y", "--store", store, cwd=tmp_path).out.splitlines()
    assert shown[0].split() == ["ID", "STEP", "KEY", "ASKED", "AGO", "QUESTION"]
    assert shown[2].endswith("How much?\\nIn euros.  {'upper': 10}")


def test_answers_are_carried_out_by_the_next_resume(tmp_path: Path) -> None:
    store, _ = asked(tmp_path)

    first = say(store, "price", "--approve", "--data", '{"amount": 7}', "--feedback", "fair")
    second = say(store, "publish", "--approve")

    assert (first.code, second.code) == (0, 0)
    assert first.out == "x: answer recorded; nobody walks it now, the next resume carries it out\n"
    assert open_questions(store) == []
    ended = forked("resume", "x", flow("asks"), "--store", store, "--json", cwd=tmp_path)
    assert ended.code == 0
    assert ended.document["outputs"]["publish"] == "a report, published"
    assert ended.document["outputs"]["price"] == {"amount": 7}
    assert lines_of(tmp_path / "marks") == ["draft"]


def test_a_no_skips_the_step_and_the_run_completes(tmp_path: Path) -> None:
    store, _ = asked(tmp_path)
    say(store, "publish", "--reject", "--feedback", "not yet")
    say(store, "price", "--approve")

    ended = forked("resume", "x", flow("asks"), "--store", store, cwd=tmp_path)

    assert ended.code == 0
    assert "ares: publish was rejected" in ended.said


def test_an_unknown_outcome_is_asked_about_and_can_be_run_again(tmp_path: Path) -> None:
    store, ran = asked(tmp_path, "pays")
    assert ran.code == 3
    assert open_questions(store) == [("x", "pay", "outcome")]

    said = say(store, "pay", "--run-again", "--feedback", "the bank has nothing")

    assert said.code == 0
    ended = forked("resume", "x", flow("pays"), "--store", store, cwd=tmp_path)
    assert (ended.code, ended.out) == (0, "pay: paid\n")
    assert lines_of(tmp_path / "marks") == ["pay", "pay"]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["publish"], "say one of --approve, --reject and --run-again"),
        (["publish", "--approve", "--reject"], "say one of --approve, --reject and --run-again"),
        (["price", "--approve", "--data", "{"], "--data is no JSON: "),
        (["price", "--approve", "--data", "[" * 100_000], "--data is no JSON: "),
        (["publish", "--run-again", "--data", "1"], "--data goes with --approve or --reject"),
        (["publish", "--run-again"], "RunAgain answers whether an at_most_once step took effect"),
        (["draft", "--approve"], "step 'draft' of execution 'x' has no open question"),
        (["price", "--approve", "--key", "colour"], "step 'price' of execution 'x' has no open question 'colour'"),
        (["nosuch", "--approve"], "step 'nosuch' of execution 'x' has no open question"),
    ],
)
def test_what_is_no_answer_is_one_line_and_changes_nothing(tmp_path: Path, words: list[str], problem: str) -> None:
    store, _ = asked(tmp_path)

    said = say(store, *words)

    assert said.code == 2
    assert len(said.said) == 1
    assert problem in said.err
    assert open_questions(store) == [("x", "publish", ""), ("x", "price", "amount")]


def test_an_answer_for_an_execution_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    store, _ = asked(tmp_path)

    said = say(store, "publish", "--approve", id="nobody")

    assert said.code == 2
    assert "nobody" in said.err


def test_the_first_answer_counts(tmp_path: Path) -> None:
    store, _ = asked(tmp_path)
    say(store, "publish", "--approve")

    again = say(store, "publish", "--reject")

    assert again.code == 2
    assert "the question of step 'publish' of execution 'x' is answered already" in again.err


def test_answers_from_a_second_terminal_reach_a_program_that_goes_on_walking(tmp_path: Path) -> None:
    store = tmp_path / "a.db"
    program = tmp_path / "service.py"
    program.write_text(
        "import sys, threading\n"
        "from tests.cli.flows import asks\n"
        "from ares import Runtime\n"
        "from pathlib import Path\n"
        "with Runtime(sys.argv[1]) as runtime:\n"
        "    execution = runtime.submit(asks, {'marks': Path(sys.argv[2])}, execution_id='x')\n"
        "    while not execution.result(30).status.is_final:\n"
        "        threading.Event().wait(0.02)\n"
        "    print(execution.result().outputs['publish'])\n"
    )
    service = start(store, tmp_path / "marks", cwd=tmp_path, program=(str(program),))
    try:
        wait_until(lambda: store.exists() and len(open_questions(store)) == 2, "both questions")

        first = say(store, "price", "--approve", "--data", json.dumps(3))
        assert "which walks it, goes on at once" in first.out
        say(store, "publish", "--approve")

        ended = finish(service)
    finally:
        service.kill()
    assert (ended.code, ended.out) == (0, "a report, published\n")


def test_help_names_both_commands(tmp_path: Path) -> None:
    shown = ares("--help", cwd=tmp_path)

    assert "questions" in shown.out
    assert "answer" in shown.out
