"""No password of a store's address is ever shown."""

from pathlib import Path

import pytest

from ares.cli.concealing import Concealed, without_password
from tests.cli.command import flow, forked

SECRET = "geheim"
URL = f"postgresql://me:{SECRET}@db.example/ares"
SHOWN = "postgresql://me@db.example/ares"


@pytest.mark.parametrize(
    ("store", "shown"),
    [
        (URL, SHOWN),
        ("postgresql://me@h:5432/db?options=-c%20a=b", "postgresql://me@h:5432/db?options=-c%20a=b"),
        ("postgresql://h:5432,g:5433/db", "postgresql://h:5432,g:5433/db"),
        ("postgresql://[::1]:5432/db", "postgresql://[::1]:5432/db"),
        (f"postgresql://me:{SECRET}@[::1]:5432/db", "postgresql://me@[::1]:5432/db"),
        (f"postgresql:///db?host=/run&password={SECRET}", "postgresql:///db?host=/run"),
        (f"postgresql://h/db?pass%77ord={SECRET}&sslmode=require", "postgresql://h/db?sslmode=require"),
        (f"postgresql://h/db?sslpassword={SECRET}", "postgresql://h/db"),
        (f"host=h password={SECRET} user=me", "host=h password=*** user=me"),
        (f"host=h PASSWORD = 'a {SECRET}' user=me", "host=h PASSWORD = *** user=me"),
        # Passwords that should have been escaped.
        (f"postgresql://me:a/{SECRET}@h/db", "postgresql://me@h/db"),
        (f"postgresql://me:a@{SECRET}@h/db", "postgresql://me@h/db"),
        (f"postgresql://me:a?{SECRET}@h/db", "postgresql://me@h/db"),
        (f"postgresql://me:1?x={SECRET}@h/db", "postgresql://me@h/db"),
        (f"postgresql://me:1#{SECRET}@h/db", "postgresql://me@h/db"),
        (f"postgresql://me:{SECRET}", "postgresql://me"),
        (f"postgresql://me:{SECRET}/db", "postgresql://me/db"),
        # What is no address at all stays.
        ("a.db", "a.db"),
        ("C:/x@y:z.db", "C:/x@y:z.db"),
    ],
)
def test_of_an_address_all_but_the_password_is_shown(store: str, shown: str) -> None:
    assert without_password(store) == shown
    assert without_password(shown) == shown


def test_whoever_echoes_an_address_or_its_parts_shows_no_password() -> None:
    concealed = Concealed(["list", f"--store={URL}"])

    assert concealed.text(f"cannot reach {URL}: no") == f"cannot reach {SHOWN}: no"
    assert concealed.text(f"'me:{SECRET}@h'") == "'me:***@h'"
    assert concealed.text(f"password={SECRET} host=h") == "password=*** host=h"
    assert concealed.document({URL: [URL, 1, None], "n": {"a": URL}}) == {SHOWN: [SHOWN, 1, None], "n": {"a": SHOWN}}


def test_a_password_is_masked_escaped_and_as_a_driver_unescapes_it() -> None:
    concealed = Concealed(["postgresql://me:a%2Fb@h/db"])

    assert concealed.text("me:a/b@h and me:a%2Fb@h") == "me:***@h and me:***@h"
    assert Concealed(["postgresql:///?password=a%2Fb"]).text("password=a/b user=me") == "password=*** user=me"
    assert Concealed([f"host=h password='{SECRET}'"]).text(f"host=h password={SECRET}") == "host=h password=***"


def test_other_words_of_a_command_line_are_shown_as_they_are() -> None:
    concealed = Concealed(["run", "flow.py", "-i", "url=http://me:x@h/", "--store", "a.db", "--id=x"])

    assert not concealed
    assert concealed.document({"url": "http://me:x@h/"}) == {"url": "http://me:x@h/"}


# --- the command ----------------------------------------------------------------------------------------------

ECHOES = """
from ares import Runtime, Workflow
import ares
from loguru import logger

workflow = Workflow("w")


@workflow.step
def show(ctx):
    return STORE


def runtime(store):
    global STORE
    STORE = store
    if MODE == "raises":
        raise OSError(f"cannot reach {store}")
    return Runtime()
"""


def target(folder: Path, mode: str) -> Path:
    file = folder / f"{mode}.py"
    file.write_text(f"MODE = {mode!r}\n{ECHOES}")
    return file


def test_no_command_shows_the_password_whatever_becomes_of_the_store(tmp_path: Path) -> None:
    raises, runs = target(tmp_path, "raises"), target(tmp_path, "runs")
    lines = [
        ["list"], ["show", "x"], ["events", "x"], ["watch", "x"], ["questions"], ["cancel", "x"], ["plugins"],
        ["answer", "x", "s", "--approve"], ["prune", "--older-than", "1d"], ["doctor"], ["doctor", runs],
        ["run", flow("completes")], ["resume", "x", flow("completes")], ["recover", flow("completes")],
        ["run", raises], ["recover", raises], ["resume", "x", raises], ["run", runs], ["--debug", "run", raises],
        ["-vv", "run", runs],
    ]  # fmt: skip
    for number, words in enumerate(lines):
        by_option = forked(*words, "--store", URL, *["--json"] * (number % 2), cwd=tmp_path)

        assert SECRET not in by_option.out + by_option.err, (words, by_option)
        assert by_option.out or by_option.err
    by_variable = forked("run", runs, "--json", cwd=tmp_path, ARES_STORE=URL)
    assert by_variable.document["outputs"] == {"show": SHOWN}


def test_a_url_in_the_wrong_place_shows_no_password_either(tmp_path: Path) -> None:
    ended = forked("list", URL, cwd=tmp_path)

    assert ended.code == 2
    assert len(ended.said) == 1
    assert f"({SHOWN})" in ended.err


def test_a_target_is_given_the_url_as_it_is_and_the_command_that_goes_on_has_no_password(tmp_path: Path) -> None:
    runs = target(tmp_path, "runs")
    runs.write_text(
        runs.read_text().replace("return STORE", "assert STORE == 'URL'; 1 / 0").replace("'URL'", repr(URL))
    )

    ended = forked("run", runs, "--id", "x", "--store", URL, cwd=tmp_path)

    assert ended.code == 1
    assert "ZeroDivisionError" in ended.err
    assert ended.said[-1] == f"ares: go on with: ares resume --store {SHOWN} x {runs}"


def test_a_connection_string_without_a_scheme_is_no_file_and_shows_no_password(tmp_path: Path) -> None:
    ended = forked("list", "--store", f"host=h password={SECRET}", cwd=tmp_path)

    assert (ended.code, ended.err) == (2, "ares: there is no store host=h password=***\n")
