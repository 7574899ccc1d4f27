"""``ares show --routes`` and ``ares routes replay``: how choices came about, and what another router would choose."""

import os
import re
import shutil
import signal
import sqlite3
import stat
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from ares import Approve, Context, Event, Goto, Plugin, RouteEntry, Runtime, StepResult, StepSpec, Workflow
from ares.cli.decided import Route, routes_of, say_routes
from ares.cli.screen import Screen
from tests.cli import crossings
from tests.cli.command import Ended, finish, forked, start, wait_until

CROSSINGS = Path(__file__).with_name("crossings.py")


def named(name: str) -> str:
    return f"{CROSSINGS}:{name}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a few executions."""
    made = tmp_path_factory.mktemp("routes")
    with crossings.runtime(str(made / "a.db")) as runtime:
        runtime.run(crossings.workflow, {"score": 0.9}, execution_id="high")
        runtime.run(crossings.workflow, {"score": 0.5, "way": "right"}, execution_id="own")
        runtime.run(crossings.workflow, {"score": 0.1, "way": "lost"}, execution_id="lost")
    # Under the name that the class has for a command.
    assert forked("run", named("knows"), "--store", "a.db", "--id", "typed", cwd=made).code == 1
    return made


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


class Asking:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, *words: str) -> Ended:
        return forked(*words, "--store", "a.db", cwd=self.folder)

    def replay(self, *words: str, target: str = str(CROSSINGS), code: int = 0) -> Any:
        ended = self("routes", "replay", target, "--json", *words)
        assert (ended.code, ended.err) == (code, ""), ended
        return ended.document

    def refused(self, *words: str, target: str = str(CROSSINGS)) -> str:
        """The one line of a command that was refused before anything was asked."""
        ended = self("routes", "replay", target, *words)
        assert ended.code == 2, ended
        assert ended.out == ""
        [line] = ended.said
        return line


@pytest.fixture
def asking(folder: Path) -> Asking:
    return Asking(folder)


def verdicts(document: Any) -> list[tuple[str, str, str, Any]]:
    return [
        (execution["execution_id"], each["path"], each["verdict"], each["now"] and each["now"]["targets"])
        for execution in document["executions"]
        for each in execution["decisions"]
    ]


# --- show --routes ------------------------------------------------------------------------------------------------


def test_every_decision_is_listed_with_its_candidates_their_scores_and_who_abstained(asking: Asking) -> None:
    ended = asking("show", "high", "--routes")

    lines = ended.out[ended.out.index("ROUTES") :].splitlines()
    assert [line.partition("  (20")[0] for line in lines] == [
        "ROUTES",
        "  judge -> accept",
        "    decided by expression: above 0.8",
        "    candidates accept 1, review 0, reject 0",
        "  choose -> left",
        "    decided by expression: nobody said",
        "    candidates left 1, right 0",
    ]


def test_a_decision_of_the_step_itself_has_the_branches_that_were_skipped_for_it(asking: Asking) -> None:
    [_, decision] = asking("show", "own", "--routes", "--json").document["routes"]

    assert decision.pop("time").endswith("+00:00")
    assert decision.pop("seq") > 1
    assert decision == {
        "path": "choose",
        "round": 1,
        "targets": ["right"],
        "source": "step",
        "reason": None,
        "candidates": ["right", "left"],
        "scores": {},
        "abstained": [],
        "error": None,
    }


def test_where_there_is_no_route_the_error_says_why_and_what_was_permitted(asking: Asking) -> None:
    shown = asking("show", "lost", "--routes")
    [_, decision] = asking("show", "lost", "--routes", "--json").document["routes"]

    assert "  choose -> no route  (20" in shown.out
    assert (
        "    error      RouteError: step 'choose': no route: expression abstained; permitted: 'left', 'right'\n"
        in shown.out
    )
    assert decision["targets"] is None
    assert "expression abstained" in decision["error"]


def test_without_the_option_no_routes_are_shown(asking: Asking) -> None:
    assert "ROUTES" not in asking("show", "high").out
    assert "routes" not in asking("show", "high", "--json").document


def test_inside_elements_too_the_candidates_are_the_branches_that_were_skipped_for_it() -> None:
    child = Workflow("child", inputs={"item": str})
    child.step(lambda item: Goto(item, value=1), id="choose", branches=["left", "right", "up"])
    for way in ("left", "right", "up"):
        child.step(lambda: None, id=way, depends_on=["choose"])
    child.step(lambda left: None, id="behind")  # skipped for the same reason, and no branch
    parent = Workflow("parent")
    parent.step(lambda: ["left", "up"], id="all")
    parent.add(StepSpec("each", workflow=child, map_over="all", inputs={"item": "item"}))
    with Runtime() as runtime:
        runtime.run(parent, execution_id="e").raise_for_status()
        edges = runtime.checkpoint("e").dag_edges

        found = routes_of(runtime.stored_events("e"), edges)

    assert {route.path: (route.candidates[0], set(route.candidates)) for route in found} == {
        "each[0]/choose": ("left", {"left", "right", "up"}),
        "each[1]/choose": ("up", {"left", "right", "up"}),
    }


def test_rounds_that_waited_for_a_human_are_shown_and_replayed_each_with_what_it_was_told(tmp_path: Path) -> None:
    with Runtime(tmp_path / "a.db", plugins=[crossings.climber]) as runtime:
        result = runtime.run(crossings.asking, execution_id="e")
        while result.interrupts:
            [question] = result.interrupts
            runtime.answer(question, Approve("up" if question.round == 2 else "?"))
            result = runtime.resume("e", crossings.asking)
        runtime.resume("e", crossings.asking, rerun=["turn"])  # asks again in the last round
        runtime.cancel("e")
        runtime.resume("e", crossings.asking)

    asking = Asking(tmp_path)
    shown = asking("show", "e", "--routes", "--json").document["routes"]
    same, other = (asking.replay("--router", named(router), target=named("asking")) for router in ("climber", "higher"))

    places = [
        (path, r)
        for outer, inside in ((1, "inside"), (2, "inside#2"), (3, "inside#3"))
        for path, r in (("turn", outer), (f"{inside}/turn", 1), (f"{inside}/turn", 2))
    ]
    assert [(each["path"], each["round"]) for each in shown] == places
    ways = ["up", "up", "up", "up", "up", "up", "down", "up", "up"]
    assert [each["targets"] for each in shown] == [[way] for way in ways]
    assert all(sorted(each["candidates"]) == ["down", "up"] for each in shown)
    assert [verdict for _, _, verdict, _ in verdicts(same)] == ["same"] * 9
    decisions = other["executions"][0]["decisions"]
    assert [(each["path"], each["round"]) for each in decisions] == places
    assert {(each["missing"], *each["uncertain"]) for each in decisions} == {(None,)}
    changed = [(each["path"], each["round"], each["now"]["targets"]) for each in decisions if each["verdict"] != "same"]
    assert changed == [("turn", 3, ["up"])]  # at level 2 by then


def test_what_a_plugin_recorded_of_routes_is_no_decision() -> None:
    class Clerk(Plugin):
        name = "clerk"

        def after_step(self, ctx: Context, execution_id: str, result: StepResult) -> None:
            ctx.record(RouteEntry("a", "a", ("b",), "made up", "clerk", datetime.now(UTC)))

    workflow = Workflow("w")
    workflow.step(lambda: None, id="a")
    with Runtime(plugins=[Clerk()]) as runtime:
        runtime.run(workflow, execution_id="e").raise_for_status()
        events = list(runtime.stored_events("e"))

    assert "route.decided" in [event.type for event in events]
    assert routes_of(events, ()) == []


def test_on_a_terminal_it_is_the_same_in_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    event = Event("1", 1, "e", "route.failed", "step", {}, datetime(2026, 1, 2, tzinfo=UTC))
    route = Route(1, event, "child/[bold]choose", 2, None, error="RouteError: no\x1b[2J route")
    plain, coloured = StringIO(), Terminal()

    say_routes(Screen(plain), [route])
    say_routes(Screen(coloured), [route])

    assert plain.getvalue() == (
        "ROUTES\n"
        "  child/[bold]choose, round 2 -> no route  (2026-01-02 00:00:00Z)\n"
        "    error      RouteError: no\\x1b[2J route\n"
    )
    assert "\x1b[31mno route\x1b[0m" in coloured.getvalue()
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured.getvalue()) == plain.getvalue()


def test_reasons_of_routers_reach_a_terminal_as_text(asking: Asking) -> None:
    shown = asking("show", "lost", "--routes").out

    assert "decided by expression: not\\x1b[31m good" in shown
    assert all(line.isprintable() for line in shown.splitlines())


# --- the same and another -----------------------------------------------------------------------------------------


def test_the_same_router_changes_nothing(asking: Asking) -> None:
    document = asking.replay("--router", named("router"))

    assert document["totals"] == {
        "executions": 3,
        "decisions": 6,
        "same": 5,
        "changed": 0,
        "kept": 1,
        "unknown": 0,
        "with_problems": 0,
    }
    assert verdicts(document) == [
        ("lost", "judge", "same", ["reject"]),
        ("lost", "choose", "same", None),
        ("own", "judge", "same", ["review"]),
        ("own", "choose", "kept", None),
        ("high", "judge", "same", ["accept"]),
        ("high", "choose", "same", ["left"]),
    ]
    assert document["routers"] == ["expression"]


def test_another_router_shows_which_choices_would_change(asking: Asking) -> None:
    document = asking.replay("--router", named("severe"), "--changed")

    assert document["totals"]["changed"] == 1
    assert verdicts(document) == [("own", "choose", "kept", None), ("high", "judge", "changed", ["review"])]
    [changed] = document["executions"][2]["decisions"]
    assert (changed["then"]["targets"], changed["then"]["reason"]) == (["accept"], "above 0.8")
    assert (changed["now"]["source"], changed["now"]["scores"]) == (
        "expression",
        {"accept": 0.0, "review": 1.0, "reject": 0.0},
    )


def test_for_people_each_choice_is_a_line_and_the_totals_come_last(asking: Asking) -> None:
    ended = asking("routes", "replay", str(CROSSINGS), "--router", named("severe"))

    assert (ended.code, ended.err) == (0, "")
    assert ended.out.splitlines() == [
        "execution lost",
        "  same     judge -> reject",
        "  same     choose -> no route",
        "execution own",
        "  same     judge -> review",
        "  kept     choose -> right: the step decided itself",
        "execution high",
        "  changed  judge -> accept, now review",
        "    then       by expression: above 0.8",
        "    now        by expression: rule 2: <lambda>",
        "  same     choose -> left",
        "6 choices in 3 executions: 4 same, 1 changed, 1 kept, 0 unknown",
    ]


def test_a_list_of_plugins_has_its_peers_and_may_be_made_by_a_function(asking: Asking) -> None:
    document = asking.replay("--router", named("remembering"), "--id", "high")

    assert verdicts(document) == [("high", "judge", "changed", ["reject"]), ("high", "choose", "changed", ["right"])]
    assert document["executions"][0]["decisions"][0]["now"]["reason"] == "it went well"
    assert document["routers"] == ["memory-router"]


def test_executions_can_be_named_or_counted(asking: Asking) -> None:
    both = asking.replay("--router", named("router"), "--id", "high", "--id", "lost", "--id", "high")
    newest = asking.replay("--router", named("router"), "--limit", "1")

    assert [each["execution_id"] for each in both["executions"]] == ["high", "lost"]
    assert [each["execution_id"] for each in newest["executions"]] == ["lost"]


def test_a_workflow_without_executions_has_no_choices(asking: Asking) -> None:
    ended = asking("routes", "replay", f"{CROSSINGS.with_name('flows.py')}:fails", "--router", named("router"))

    assert (ended.code, ended.out) == (0, "0 choices in 0 executions: 0 same, 0 changed, 0 kept, 0 unknown\n")


# --- what goes wrong meanwhile ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("router", "problem"),
    [
        ("raises", "ZeroDivisionError: division by zero"),
        ("stray", "names 'nowhere'"),
        ("fails_rule", "router.rule_failed of 'expression'"),
    ],
)
def test_a_router_that_fails_has_no_answer_and_the_problem_stands_beside_the_choice(
    asking: Asking, router: str, problem: str
) -> None:
    document = asking.replay("--router", named(router), "--id", "high")

    asked = document["executions"][0]["decisions"][1]
    assert (asked["verdict"], asked["now"]["targets"]) == ("changed", None)
    assert "abstained" in asked["now"]["error"]
    [told] = asked["now"]["problems"]
    assert problem in told
    said = asking("routes", "replay", str(CROSSINGS), "--router", named(router), "--id", "high").out
    assert f"    problem    {told}\n" in said
    assert "; with problems: " in said.splitlines()[-1]


def test_a_router_that_hangs_costs_its_timeout_once(asking: Asking) -> None:
    document = asking.replay("--router", named("hangs"), "--timeout", "0.2", "--id", "high")

    first, second = document["executions"][0]["decisions"]
    assert "route gave no answer in 0.2 s" in first["now"]["problems"][0]
    assert "still hangs" in second["now"]["problems"][0]
    assert first["verdict"] == second["verdict"] == "changed"
    assert document["totals"]["with_problems"] == 2


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_ctrl_c_ends_it_while_a_router_hangs(folder: Path, tmp_path: Path) -> None:
    shutil.copy(folder / "a.db", tmp_path)
    words = ("routes", "replay", CROSSINGS, "--router", named("leaves_a_mark"), "--store", "a.db")
    process = start(*words, cwd=tmp_path)
    wait_until((tmp_path / "asked").exists, "the router to be asked")

    process.send_signal(signal.SIGINT)
    began = time.monotonic()
    ended = finish(process)

    assert (ended.code, ended.out, ended.said) == (130, "", ["ares: interrupted"])
    assert time.monotonic() - began < 3.0


def test_a_plugin_that_does_not_start_ends_the_command(asking: Asking) -> None:
    ended = asking("routes", "replay", str(CROSSINGS), "--router", named("unstarted"))

    assert (ended.code, ended.out) == (1, "")
    assert ended.said == ["ares: plugin 'odd': start raised OSError: no disk"]


def test_a_value_whose_class_is_gone_is_named_and_counted(asking: Asking) -> None:
    ended = asking("routes", "replay", named("forgot"), "--router", named("go"))
    knows = asking.replay("--router", named("go"), target=named("knows"))

    assert ended.code == 0
    assert "  unknown  find -> no route: its output holds what cannot be loaded: {" in ended.out
    assert "Finding" in ended.out
    assert ended.out.endswith("0 same, 0 changed, 0 kept, 1 unknown\n")
    assert verdicts(knows) == [("typed", "find", "changed", ["go"])]


def test_a_journal_that_is_damaged_is_named_the_others_are_replayed_and_the_exit_code_is_1(
    folder: Path, tmp_path: Path
) -> None:
    shutil.copy(folder / "a.db", tmp_path)
    with sqlite3.connect(tmp_path / "a.db") as connection:
        connection.execute("UPDATE entries SET body = '{' WHERE body LIKE '%above 0.8%'")
    connection.close()
    asking = Asking(tmp_path)

    document = asking.replay("--router", named("router"), code=1)
    ended = asking("routes", "replay", str(CROSSINGS), "--router", named("router"), "--id", "high")

    assert document["totals"]["decisions"] == 4
    assert document["executions"][2]["problem"]["type"] == "SerializationError"
    assert ended.code == 1
    assert "its journal cannot be read any further: SerializationError: journal entry 'routed'" in ended.out


# --- what is refused ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("router", "line"),
    [
        ("severes", "crossings.py has no 'severes'; did you mean 'severe'?"),
        ("number", "crossings.py:number is an int, not a router: a plugin with the capability 'router'"),
        ("nobody", "crossings.py:nobody is a Diary, not a router"),
        ("Odd", "plugin 'Odd': is a class; register an instance of it"),
        ("broken", "crossings.py:broken: calling it without arguments raised KeyError: 'no rules'"),
        ("takes_one", "crossings.py:takes_one: calling it without arguments raised TypeError"),
        ("twice", "plugin 'expression': is the name of another plugin on this bus"),
    ],
)
def test_what_is_no_router_is_refused_in_one_line(asking: Asking, router: str, line: str) -> None:
    said = asking.refused("--router", named(router))

    assert line in said


def test_a_file_that_is_not_there_or_does_not_load_is_refused(asking: Asking, tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("router = 1 / 0\n")

    assert asking.refused("--router", "none.py") == "ares: there is no file none.py"
    assert "bad.py:1: ZeroDivisionError" in asking.refused("--router", str(tmp_path / "bad.py"))
    assert asking.refused().startswith("ares: Missing option '--router'")


def test_executions_that_are_not_there_are_refused_before_the_first_is_replayed(asking: Asking) -> None:
    router = ("--router", named("router"))

    assert asking.refused(*router, "--id", "high", "--id", "nobody") == "ares: no execution 'nobody' in a.db"
    assert "another workflow, 'typed'" in asking.refused(*router, "--id", "typed")
    assert "control characters" in asking.refused(*router, "--id", "a\nb")
    assert asking.refused(*router, "--timeout", "soon").startswith("ares: 'soon' is no span of time")


def test_a_workflow_that_cannot_run_is_refused_and_not_its_executions(asking: Asking, tmp_path: Path) -> None:
    (tmp_path / "agents.py").write_text(
        "from ares import StepSpec, Workflow\n"
        "workflow = Workflow('crossings')\n"
        "workflow.add(StepSpec('judge', agent_type='critic'))\n"
    )

    said = asking.refused("--router", named("router"), target=str(tmp_path / "agents.py"))

    assert "agent_type 'critic' is not registered" in said


def test_a_store_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    ended = forked("routes", "replay", CROSSINGS, "--router", named("router"), "--store", "none.db", cwd=tmp_path)

    assert (ended.code, ended.said) == (2, ["ares: there is no store none.db"])
    assert list(tmp_path.iterdir()) == []


def test_alone_the_group_says_what_there_is(asking: Asking) -> None:
    shown = forked("routes", "--help", cwd=asking.folder)
    alone = forked("routes", cwd=asking.folder)

    assert shown.code == 0
    assert "replay" in shown.out
    assert (alone.code, alone.said) == (2, ["ares: Missing command; see: ares routes --help"])


# --- the file -----------------------------------------------------------------------------------------------------


def test_replaying_leaves_no_trace_in_the_folder(folder: Path, tmp_path: Path) -> None:
    shutil.copy(folder / "a.db", tmp_path)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}

    Asking(tmp_path).replay("--router", named("remembering"))

    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


@pytest.fixture
def locked(folder: Path, tmp_path: Path) -> Iterator[Path]:
    shutil.copy(folder / "a.db", tmp_path)
    (tmp_path / "a.db").chmod(stat.S_IRUSR)
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    yield tmp_path
    tmp_path.chmod(stat.S_IRWXU)


def test_a_file_that_cannot_be_written_can_be_replayed(locked: Path) -> None:
    assert Asking(locked).replay("--router", named("router"))["totals"]["same"] == 5


def test_an_execution_that_is_walked_meanwhile_is_not_touched(folder: Path, tmp_path: Path) -> None:
    shutil.copy(folder / "a.db", tmp_path)
    with crossings.runtime(str(tmp_path / "a.db")) as runtime:
        runtime.start()

        Asking(tmp_path).replay("--router", named("router"))

        assert runtime.run(crossings.workflow, {"score": 0.9}).output(crossings.judge) == {"score": 0.9}
