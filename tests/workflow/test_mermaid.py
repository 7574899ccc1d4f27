"""The drawing: what each kind of step looks like, and that no name gets out of its label."""

import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ares.workflow import StepSpec, Workflow, mermaid
from ares.workflow.mermaid import escape

#: Machines that run tests are loaded: no example is too slow.
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def nothing() -> None: ...


def test_steps_are_boxes_and_values_are_arrows() -> None:
    wf = Workflow("w")
    wf.step(lambda: 1, id="a")
    wf.step(lambda a: a, id="b")
    wf.add(StepSpec("c", nothing, depends_on=["b"]))

    assert mermaid(wf.graph()) == (
        'flowchart TD\n    n0["a"]\n    n1["b"]\n    n2["c"]\n    n0 --> n1\n    n1 -.-> n2\n'
    )


def test_maps_are_stacked_points_are_diamonds_and_branches_are_labelled() -> None:
    wf = Workflow("w")
    wf.step(lambda: [1], id="a")
    wf.add(StepSpec("each", lambda item: item, map_over="a"))
    wf.add(StepSpec("point", lambda each: each, branches=["fix"]))
    wf.add(StepSpec("fix", nothing, depends_on=["point"], condition=lambda: True))
    wf.add(StepSpec("clean", nothing, depends_on=["fix"], trigger="always", name="Clean up"))
    wf.add(StepSpec("judge", agent_type="critic"))

    drawn = mermaid(wf.graph())

    assert 'n1@{ shape: st-rect, label: "each · for each of a" }' in drawn
    assert 'n2{"point"}' in drawn
    assert "n2 -. branch .-> n3" in drawn
    assert 'n3["fix · if"]' in drawn
    assert 'n4["Clean up (clean) · always"]' in drawn
    assert 'n5["judge · agent critic"]' in drawn


def test_sub_workflows_are_frames_within_frames() -> None:
    inner, middle, wf = Workflow("inner"), Workflow("middle"), Workflow("w")
    inner.step(nothing, id="x")
    middle.add(StepSpec("i", workflow=inner))
    middle.add(StepSpec("j", nothing, depends_on=["i"]))
    wf.add(StepSpec("m", workflow=middle))
    wf.add(StepSpec("last", nothing, depends_on=["m"]))

    assert mermaid(wf.graph()) == (
        "flowchart TD\n"
        '    subgraph n0["m"]\n'
        '        subgraph n0_0["i"]\n'
        '            n0_0_0["x"]\n'
        "        end\n"
        '        n0_1["j"]\n'
        "        n0_0 -.-> n0_1\n"
        "    end\n"
        '    n1["last"]\n'
        "    n0 -.-> n1\n"
    )


def test_an_empty_workflow_is_an_empty_drawing() -> None:
    assert mermaid(Workflow("w").graph()) == "flowchart TD\n"


HOSTILE = [
    '"]; n9["x',
    "<script>alert(1)</script>",
    "a\nb",
    "\x1b[2J\x1b[31m",
    "end",
    "`md`",
    "a;b",
    "#quot;",
    "%% comment",
    "\\n",
    "click n0 href",
    "\u202eevil",
    "\u2028",
    "\ud800",
    "&lt;",
    "{{{",
]


@pytest.mark.case("C048")
@pytest.mark.parametrize("name", HOSTILE)
def test_no_name_gets_out_of_its_label(name: str) -> None:
    wf = Workflow("w")
    wf.add(StepSpec("s", agent_type=name, name=name))

    lines = mermaid(wf.graph()).splitlines()

    assert len(lines) == 2
    assert re.fullmatch(r'    n0\["[^"<>&`;\\{}\[\]|%]*(#\d+;[^"<>&`;\\{}\[\]|%]*)*"\]', lines[1])
    lines[1].encode("utf-8")


@patient
@given(st.text())
def test_escaped_text_is_printable_and_holds_no_markup(text: str) -> None:
    escaped = escape(text)

    assert escaped.isprintable()
    assert not set('"<>&`\\{}[]|%\n') & set(escaped)
    assert re.sub(r"#\d+;", "", escaped).count("#") == 0
    assert ";" not in re.sub(r"#\d+;", "", escaped)
    escaped.encode("utf-8")
