"""What the command shows of a loop."""

from pathlib import Path

from ares import Runtime
from ares.cli.display import round_of
from ares.records import Progress
from tests.cli import flows
from tests.cli.command import forked


def test_show_and_events_tell_the_rounds(tmp_path: Path) -> None:
    with Runtime(tmp_path / "a.db") as runtime:
        runtime.run(flows.loops, execution_id="e")

    shown = forked("show", "e", "--store", "a.db", cwd=tmp_path).out.splitlines()
    document = forked("show", "e", "--json", "--store", "a.db", cwd=tmp_path).document
    events = forked("events", "e", "--store", "a.db", cwd=tmp_path).out

    assert "round      3 (until)" in shown
    assert any(line.startswith("inside#3/try_it (round 2)") for line in shown)
    assert (document["round"], document["exit_reason"]) == (3, "until")
    assert {step["path"]: step["round"] for step in document["steps"]} == {"inside": 3, "inside#3/try_it": 2}
    assert events.count("round.started") == 2 + 3
    assert events.count("round.completed") == 3 + 6


def test_progress_names_the_round_from_the_second_on() -> None:
    assert round_of(Progress(0, 2, (), {}, 1)) == ""
    assert round_of(Progress(0, 2, (), {}, 1_000)) == " of round 1,000"
