"""The expression router: rules in order, conditions that can do no harm, and what is said of those that are wrong."""

import inspect
import json
import os
import threading
import warnings
from collections.abc import Callable
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ares import ExecutionStatus, Runtime, StepSpec, Workflow
from ares.bus import PluginBus
from ares.errors import UsageError
from ares.plugin import Capability
from ares.plugin.engine_bus import Stages
from ares.plugins import ExpressionRouter, Rule, rules_from
from ares.plugins import _expressions as expressions
from tests.bus.players import Log
from tests.engine.helpers import Child, Task, events_of
from tests.plugins.routing import Heard, alone, at, crossing, decision_of, routed

Make = Callable[..., Runtime]
NewBus = Callable[..., PluginBus]


def holds(condition: Any, output: Any = None, /, **variables: Any) -> bool:
    return Rule(condition, "left").holds(at(output, **variables))


def fails(_output: Any, _variables: Any) -> bool:
    raise ValueError("boom")


def exits(_output: Any, _variables: Any) -> bool:
    raise SystemExit(3)


# --- deciding ----------------------------------------------------------------------------------------------------


def test_the_first_rule_that_holds_decides_and_the_journal_says_why(runtime: Make, store: str | None) -> None:
    rules = [
        Rule("output.score > 0.9", "right"),
        Rule("variables.colour == 'red'", "left", reason="red goes left"),
        Rule("True", "middle"),
    ]
    rt = runtime(store, plugins=[ExpressionRouter(rules)])

    result = rt.run(crossing(lambda: {"score": 0.5}), execution_id="e").raise_for_status()

    assert result.output("join") == ["left"]
    found = routed(events_of(rt, "e"))
    assert (found["targets"], found["source"], found["reason"]) == (["left"], "expression", "red goes left")
    assert found["scores"] == {"left": 1.0, "middle": 0.0, "right": 0.0}


def test_where_no_rule_holds_the_router_has_no_answer(runtime: Make, store: str | None) -> None:
    rt = runtime(store, plugins=[ExpressionRouter([Rule("output == 'there'", "left")])])

    result = rt.run(crossing(on_no_route="none"), execution_id="e")

    assert result.status is ExecutionStatus.COMPLETED
    assert list(result.outputs) == ["choose"]
    assert ExpressionRouter().route(alone(), at()) is None


def test_a_condition_may_be_a_callable_of_output_and_variables(new_bus: NewBus) -> None:
    seen = Log()

    def condition(output: Any, variables: Any) -> bool:
        seen.add((output, dict(variables)))
        return True

    bus = new_bus(ExpressionRouter([Rule(condition, "left")]))

    decision = decision_of(bus, at("here", colour="red"))

    assert (decision.targets, decision.reason) == (("left",), "rule 1: condition")
    assert seen.lines == [("here", {"colour": "red"})]


def test_a_rule_may_take_several_branches(new_bus: NewBus) -> None:
    bus = new_bus(ExpressionRouter([Rule("True", ["left", "right"])]))

    decision = decision_of(bus, at())

    assert (decision.targets, decision.scores) == (("left", "right"), {"left": 1.0, "right": 1.0})


@pytest.mark.parametrize("source", ["choose", "sub/choose"])
def test_a_rule_speaks_of_a_step_by_its_id_or_its_path(new_bus: NewBus, source: str) -> None:
    bus = new_bus(ExpressionRouter([Rule("True", "left", source), Rule("True", "right")]))

    assert decision_of(bus, at(path="sub/choose")).targets == ("left",)
    assert decision_of(bus, at(path="other")).targets == ("right",)


def test_rules_decide_in_a_sub_workflow(runtime: Make) -> None:
    wf = Workflow("parent")
    wf.add(StepSpec("sub", workflow=crossing()))
    rt = runtime(plugins=[ExpressionRouter([Rule("output == 'here'", "middle", "sub/choose")])])

    assert rt.run(wf).raise_for_status().output("sub") == {"join": ["middle"]}


def test_rules_are_added_while_it_runs_from_any_thread(new_bus: NewBus) -> None:
    router = ExpressionRouter()
    bus = new_bus(router)
    assert bus.route("e", at()) == (None, ("expression",))

    Task(router.add_rule, Rule("True", "right")).result()
    assert decision_of(bus, at()).targets == ("right",)
    Task(router.add_rule, Rule("True", "left"), first=True).result()
    assert decision_of(bus, at()).targets == ("left",)

    tasks = [Task(router.add_rule, Rule("True", "middle")) for _ in range(20)]
    for task in tasks:
        task.result()
    assert len(router.rules) == 22


def test_one_rule_is_judged_by_many_threads_at_once() -> None:
    rule = Rule("any(item.n == variables.wanted for item in output)", "left")
    begin = threading.Barrier(8, timeout=20)

    def judge(wanted: int) -> list[bool]:
        begin.wait()
        return [rule.holds(at([{"n": n} for n in range(5)], wanted=wanted)) for _ in range(50)]

    tasks = [Task(judge, wanted) for wanted in range(8)]

    assert [set(task.result()) for task in tasks] == [{wanted < 5} for wanted in range(8)]


def test_it_is_a_router_without_hooks(new_bus: NewBus) -> None:
    bus = new_bus(ExpressionRouter(name="rules", timeout=1.0))

    assert [ref.name for ref in bus.plugins_by_cap(Capability.ROUTER)] == ["rules"]
    assert bus.stages == Stages(has_routers=True)


# --- rules that are wrong when they are made --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("1 +", "does not parse"),
        ("", "does not parse"),
        ("a; b", "does not parse"),
        ("x = 1", "does not parse"),
        ("import os", "does not parse"),
        ("output\0", "does not parse"),
        ("(" * 400 + "1" + ")" * 400, "does not parse"),
        ("not " * 60 + "True", "nested too deep"),
        ("True or " * 200 + "True", "over 1000 characters"),
        ("output.__class__", "'__class__' is private"),
        ("output._secret", "'_secret' is private"),
        ("output._secret()", "'_secret' is private"),
        ("().__class__.__base__.__subclasses__()", "private"),
        ("'{0.__class__}'.format(output)", "may not call 'format'"),
        ("output.delete()", "may not call 'delete'"),
        ("open('/etc/passwd')", "may not call 'open'"),
        ("eval('1')", "may not call 'eval'"),
        ("__import__('os')", "may not call '__import__'"),
        ("getattr(output, 'x')", "may not call 'getattr'"),
        ("output()", "may not call 'output'"),
        ("output[0]()", "may not call output[0]"),
        ("_field(output, '_x')", "may not call '_field'"),
        ("max(output, key=len)", "'max' may not be given key"),
        ("max(*output)", "Starred is not permitted"),
        ("max(**output)", "may not be given None"),
        ("{**output}", "** is not permitted"),
        ("len", "there is no 'len'"),
        ("scroe > 1", "there is no 'scroe'"),
        ("lambda: 1", "a lambda is not permitted"),
        ("(x := 1)", "an assignment is not permitted"),
        ("[1 for output.x in variables]", "an assignment is not permitted"),
        ("[output for output in variables]", "gives 'output' another meaning"),
        ("[1 async for x in output]", "async"),
        ("f'{output}'", "a format string is not permitted"),
        ("output @ output", "MatMult is not permitted"),
        ("1 << output", "LShift is not permitted"),
        ("...", "Ellipsis is no text"),
        ("b'x' in output", "is no text"),
        ("9 ** 9 ** 9 > output", "a power of over"),
        ("((9 ** 64) ** 64) ** 64 > output", "a power of over"),
        ("output ** 100000", "the power 100000 is too high"),
        ("'x' * 1000000000", "only numbers are multiplied"),
        ("'%1000000000d' % 1", "% of a text"),
        ("output and 1 / 0", "1 / 0 fails whatever it is given"),
        ("round(5, -1000000000)", "over 100 digits"),
        ("sum([[1]], [])", "fails whatever it is given"),
    ],
)
def test_an_expression_that_is_none_or_reaches_too_far_is_refused_with_the_rule(expression: str, problem: str) -> None:
    with pytest.raises(UsageError) as caught:
        Rule(expression, "left")

    assert problem in str(caught.value)
    assert str(caught.value).startswith(f"rule {expression!r} -> 'left': ")


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"when": 7}, "must be an expression or a callable, not 7"),
        ({"when": True}, "must be an expression or a callable, not True"),
        ({"when": lambda output: True}, "must take (output, variables)"),
        ({"to": ""}, "names no branch"),
        ({"to": ()}, "names no branch"),
        ({"to": ["left", 7]}, "to must be text"),
        ({"to": None}, "to must be text"),
        ({"source": None}, "source must be text"),
        ({"reason": 7}, "reason must be text"),
    ],
)
def test_a_rule_that_can_never_work_is_refused(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match="rule ") as caught:
        Rule(**{"when": "True", "to": "left", **fields})

    assert problem in str(caught.value)


def test_a_condition_that_nobody_would_run_is_refused() -> None:
    async def later(output: Any, variables: Any) -> bool:
        return True

    def lazily(output: Any, variables: Any) -> Any:
        yield True

    for condition in (later, lazily):
        with pytest.raises(UsageError, match="nobody would run"):
            Rule(condition, "left")


def test_a_router_takes_rules_and_nothing_else() -> None:
    with pytest.raises(UsageError, match="a rule of router 'expression' must be a Rule, not"):
        ExpressionRouter([("True", "left")])  # type: ignore[list-item]
    with pytest.raises(UsageError, match="must be a Rule"):
        ExpressionRouter().add_rule("True")  # type: ignore[arg-type]


PIECES = st.sampled_from([
    *("output", "variables", "9", "99999", "'a'", "None", "True", "len", "str", "max", "any", "get", "items", "format"),
    *("_x", ".x", "__class__", ".", ",", ":", "(", ")", "[", "]", "{", "}", "=", "==", "<", "+", "-", "*", "/", "%"),
    *("**", "@", "<<", ":=", "...", "and", "or", "not", "is", "if", "else", "for", "in", "lambda"),
])  # fmt: skip


@given(st.lists(PIECES, max_size=12).map(" ".join) | st.text(max_size=40))
def test_whatever_is_written_is_a_rule_or_is_refused(text: str) -> None:
    try:
        rule = Rule(text, "left")
    except UsageError:
        return
    router = ExpressionRouter([rule])

    router.route(alone(), at({"x": 1}, x=2))

    assert router.rule_counts.matched + router.rule_counts.failed in (0, 1)


# --- what an expression can say -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "output", "expected"),
    [
        ("output.score > 0.8", {"score": 0.9}, True),
        ("output.score > 0.8", SimpleNamespace(score=0.5), False),
        ("output['items'][0] == 'a'", {"items": ["a"]}, True),
        ("output.items == 3", {"items": 3}, True),
        ("0 < output <= 10 and output % 2 == 0", 4, True),
        ("variables.colour in ('red', 'blue')", None, True),
        ("variables.get('shape', 'none').upper() == 'NONE'", None, True),
        ("output is None", None, True),
        ("not output", [], True),
        ("output.lower().startswith('err')", "ERROR: disk", True),
        ("any(item.size > 2 for item in output)", [{"size": 1}, {"size": 3}], True),
        ("[k for k, v in output.items() if v] == ['b']", {"a": 0, "b": 1}, True),
        ("max(output, default=0) == 0", [], True),
        ("sorted(output, reverse=True)[:2] == [3, 2]", [1, 2, 3], True),
        ("sum(output) / len(output) >= 2", [1, 2, 3], True),
        ("'high' == ('high' if output > 1 else 'low')", 2, True),
        ("output.year == 2020", date(2020, 1, 1), True),
        ("output ** 2 == 9", 3, True),
        ("{'a': output}['a'] == 1", 1, True),
        ("  True ", None, True),
        ("[row for row in output if row.bad] == []", [{"bad": 0, "data": [0] * 2_000}], True),
        ("[row.data for row in output] != []", [{"data": [0] * 2_000}], True),
        ("[x + 1 for x in output] == [2]", [1], True),
        ("str(round(output, 1)) == '1.2'", 1.23, True),
        ("len([x for row in output for x in row]) == 4", [[1, 2], [3, 4]], True),
    ],
)
def test_what_an_expression_can_say(expression: str, output: Any, expected: bool) -> None:
    assert holds(expression, output, colour="red") is expected


def test_an_output_that_holds_itself_or_is_long_is_not_searched() -> None:
    loop: list[Any] = [list(range(100_000))]
    loop.append(loop)

    assert holds("len(output) == 2", loop)


@pytest.mark.parametrize(
    ("expression", "output"),
    [
        ("output.missing", {}),
        ("output.missing", SimpleNamespace()),
        ("output.pop", [1]),
        ("output.delete", SimpleNamespace(delete=lambda: pytest.fail("it was called"))),
        ("output.get('x')", SimpleNamespace(get=lambda _: pytest.fail("it was called"))),
        ("variables.colour > 1", None),
        ("output ** 1000 > 0", 10**100),
        ("output ** output", "a"),
        ("output * output", 1 << 9_000),
        ("output * 1000", "abc"),
        ("output % 1", "%1000000000d"),
        ("output + output", "x" * 60_000),
        ("[x for x in output]", range(1_000_000)),
        ("1 / output", 0),
        ("round(1, output)", -(10**9)),
        ("sum([output], [])", [1]),
        ("str(output)", [1]),
        ("[sorted(output) for x in output]", list(range(5_000))),
        ("[output[:] for x in output]", list(range(5_000))),
        ("[output + output for x in output]", "x" * 5_000),
        ("output.gi_frame", (x for x in ())),
        ("output.f_globals", inspect.currentframe()),
        ("output.path", os),
        ("output.os", SimpleNamespace(os=os)),
    ],
)
def test_what_goes_wrong_in_an_evaluation_is_a_rule_that_failed(expression: str, output: Any) -> None:
    router = ExpressionRouter([Rule(expression, "left"), Rule("True", "right")])

    decision = router.route(alone(), at(output, colour="red"))

    assert decision is not None
    assert decision.targets == ("right",)
    assert (router.rule_counts.failed, router.rule_counts.matched) == (1, 1)


def test_a_method_is_the_plain_types_own_and_not_the_values() -> None:
    class Trap(dict[str, int]):
        def get(self, *_args: Any) -> Any:
            pytest.fail("it was called")

    assert holds("output.get('a') == 1", Trap(a=1))


# --- rules that are wrong when they are judged ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("condition", "words"),
    [(fails, "ValueError: boom"), (exits, "SystemExit: 3"), ("output.missing > 1", "KeyError: 'missing'")],
)
def test_a_condition_that_fails_hides_no_other_and_is_told(new_bus: NewBus, condition: Any, words: str) -> None:
    router = ExpressionRouter([Rule(condition, "left"), Rule("True", "right")])
    bus = new_bus(router)
    heard = Heard(bus, "router.rule_failed")

    assert decision_of(bus, at({})).targets == ("right",)

    [(stream, told)] = heard()
    assert (stream, told["path"], told["rule"], told["to"]) == ("e", "choose", 1, ["left"])
    assert told["problem"] == words
    assert router.rule_counts.failed == 1
    assert words in router.rule_counts.last_error
    assert bus.health()["expression"].errors == 0


def test_a_failed_condition_is_told_to_those_who_listen_to_the_execution(runtime: Make, store: str | None) -> None:
    rt = runtime(store, plugins=[ExpressionRouter([Rule(fails, "left"), Rule("True", "right")])])
    heard = Heard(rt.bus, "router.rule_failed")

    result = rt.run(crossing(), execution_id="e").raise_for_status()

    assert result.output("join") == ["right"]
    assert [(stream, told["when"]) for stream, told in heard()] == [("e", "fails")]


def test_a_rule_for_this_step_that_names_no_branch_of_it_is_passed_over_and_told(new_bus: NewBus) -> None:
    seen = Log()
    strays = [Rule(lambda output, variables: seen.add("judged") or True, "rigth", "choose"), Rule("True", "elsewhere")]
    router = ExpressionRouter([*strays, Rule("True", "right")])
    bus = new_bus(router)
    heard = Heard(bus, "router.rule_stray")

    assert decision_of(bus, at()).targets == ("right",)

    [(_, told)] = heard()  # one for any step may well mean another one
    assert (told["rule"], told["to"]) == (1, ["rigth"])
    assert told["problem"] == "it names 'rigth'; there are 'left', 'middle', 'right'"
    assert router.rule_counts.strays == 2
    assert seen.lines == []


@pytest.mark.case("C007")
def test_a_rule_with_a_typing_error_leaves_the_execution_with_an_error_that_names_the_branches(runtime: Make) -> None:
    router = ExpressionRouter([Rule("True", "rigth", "choose")])

    result = runtime(plugins=[router]).run(crossing())

    assert result.status is ExecutionStatus.FAILED
    assert all(name in str(result.error) for name in ("'left'", "'middle'", "'right'"))
    assert [path for path, step in result.steps.items() if step.status == "COMPLETED"] == ["choose"]
    assert router.rule_counts.strays == 1


# --- rules from a file ------------------------------------------------------------------------------------------------


def test_rules_come_from_a_file_in_its_order(tmp_path: Path, new_bus: NewBus) -> None:
    file = tmp_path / "rules.json"
    file.write_text(
        json.dumps(
            [
                {"when": "output.score > 0.8", "to": "left", "source": "choose", "reason": "good"},
                {"when": "True", "to": ["middle", "right"]},
            ]
        )
    )
    rules = rules_from(file)

    assert rules == (Rule("output.score > 0.8", "left", "choose", "good"), Rule("True", ("middle", "right")))
    bus = new_bus(ExpressionRouter(rules))
    assert decision_of(bus, at({"score": 1})).reason == "good"
    assert decision_of(bus, at({"score": 0})).targets == ("middle", "right")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (None, "FileNotFoundError"),
        ("[", "JSONDecodeError"),
        ("\xff", "UnicodeDecodeError"),
        ("{}", "must hold a list of rules"),
        ("[7]", "rule 1: must be an object, not 7"),
        ('[{"when": "True", "to": "a"}, {"to": "b"}]', "rule 2: has no 'when'; there are when, to, source, reason"),
        ('[{"when": "True", "to": "a", "then": "b"}]', "rule 1: has 'then', which no rule has"),
        ('[{"when": "True", "when": "False", "to": "a"}]', "a key twice"),
        ('[{"when": true, "to": "a"}]', "rule 1: when must be an expression in a text, not True"),
        ('[{"when": "True", "to": 7}]', "rule 1: rule 'True' -> 7: to must be text"),
        ('[{"when": "open(1)", "to": "a"}]', "rule 1: rule 'open(1)' -> 'a': it may not call 'open'"),
    ],
)
def test_a_file_that_holds_no_rules_is_refused_by_name_and_number(
    tmp_path: Path, text: str | None, problem: str
) -> None:
    file = tmp_path / "rules.json"
    if text is not None:
        file.write_text(text, "latin-1")

    with pytest.raises(UsageError) as caught:
        rules_from(file)

    assert problem in str(caught.value)
    assert "rules.json" in str(caught.value)


# --- the library that evaluates ---------------------------------------------------------------------------------------


def test_without_simpleeval_an_expression_is_refused_and_callables_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "simpleeval", None)
    expressions._evaluator.cache_clear()
    try:
        with pytest.raises(UsageError, match=r"pip install 'ares-workflow\[expressions\]'"):
            Rule("True", "left")
        assert Rule(lambda output, variables: True, "left").holds(at())
    finally:
        expressions._evaluator.cache_clear()


def test_an_evaluation_leaves_the_warnings_of_the_process_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = Rule("[n for n in output if n > 1] == [2]", "left")

    def fail(*_args: Any, **_kwargs: Any) -> None:
        pytest.fail("it changed the filters, which all threads share")

    monkeypatch.setattr(warnings, "catch_warnings", fail)

    assert rule.holds(at([1, 2]))


def test_simpleeval_is_imported_with_the_first_expression() -> None:
    program = """
        import sys
        import ares
        from ares.plugins import CheckpointPlugin
        print("ares.plugins._rules" in sys.modules)
        from ares.plugins import ExpressionRouter, Rule
        ExpressionRouter([Rule(lambda output, variables: True, "left")])
        print("simpleeval" in sys.modules)
        Rule("True", "left")
        print("simpleeval" in sys.modules)
    """
    with Child(program) as child:
        assert child.result().split() == ["False", "False", "True"]


def test_what_is_exported_late_is_there_and_nothing_else() -> None:
    import ares.plugins

    assert ares.plugins.__all__ == sorted(set(ares.plugins.__all__), key=lambda name: (name[0].islower(), name))
    assert all(getattr(ares.plugins, name) for name in ares.plugins.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        ares.plugins.Nothing  # noqa: B018 - that it is not there is what is tested
