"""The front door: what is behind it, and what is refused by name because it is not built yet."""

import ast
import inspect
import pickle  # noqa: TID251 - that exceptions pickle is promised
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

import ares
from ares import Runtime, StepSpec, Workflow, errors
from ares.errors import AresError, NotBuiltError, UsageError

PROMISED = {
    # what a user writes
    "Workflow", "StepSpec", "StepDefaults", "StepContext", "Input", "Goto", "Loop", "RetryPolicy", "RecoveryPolicy",
    "RecoveryStrategy", "Trigger", "Delivery", "OnItemFailure", "OnNoRoute", "ItemFailure", "SkipReason", "register",
    # what a human is asked, and says
    "Interrupt", "Question", "Approve", "Reject", "RunAgain", "Answer",
    # what runs it
    "Runtime", "Recovery", "Execution", "WorkflowResult", "Durability", "StepsOn",
    # what is seen of it
    "Step", "StepResult", "StepStatus", "ExecutionStatus", "ExecutionSummary", "ExperienceCheckpoint", "ErrorInfo",
    "Progress", "Event", "EventFilter", "EventType", "mermaid",
    # what a plugin is made of, and what it is told
    "Plugin", "Capability", "Context", "HookPolicy", "HookResult", "HookAction", "RouteState", "RouteDecision",
    "RouteAdvice", "ExecutionState", "ExecutionOutcome", "RuntimeRecommendation", "StepFailure", "RouteEntry",
    "ToolEntry", "MemoryEntry", "InterruptEntry", "LoopEntry", "ErrorEntry", "ScoringSignal",
    "__version__",
}  # fmt: skip


def test_every_promised_name_is_exported_and_no_other() -> None:
    assert set(ares.__all__) == PROMISED


def test_the_exported_names_are_sorted_once_each_and_there() -> None:
    assert ares.__all__ == sorted(set(ares.__all__))
    assert [name for name in ares.__all__ if not hasattr(ares, name)] == []


def test_the_front_door_defines_nothing_but_how_its_names_are_found() -> None:
    source = ast.parse(Path(ares.__file__).read_text())

    defined = [n.name for n in source.body if isinstance(n, ast.FunctionDef | ast.ClassDef)]
    assert defined == ["__getattr__", "__dir__"]


def test_each_name_is_found_where_type_checkers_are_told() -> None:
    source = ast.parse(Path(ares.__file__).read_text())
    (checked,) = [n for n in source.body if isinstance(n, ast.If)]
    told = {name.name: n.module for n in checked.body if isinstance(n, ast.ImportFrom) for name in n.names}

    assert told == ares._HOME_OF  # type: ignore[attr-defined]  # what is looked at here is nobody else's business
    assert set(told) | {"__version__"} == set(ares.__all__)


def test_importing_brings_nothing_that_was_not_asked_for() -> None:
    program = """
        import sys
        import ares
        assert not [name for name in sys.modules if name.startswith("ares.")], sys.modules
        assert issubclass(ares.errors.StoreError, Exception)
        assert "ares.engine" not in sys.modules
        assert set(ares.__all__) <= set(dir(ares))
        ares.Runtime
        assert "ares.engine" in sys.modules
    """
    subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], check=True, timeout=60, cwd=Path(ares.__file__).parents[1]
    )


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'ares' has no attribute 'nothing'"):
        ares.nothing  # type: ignore[attr-defined]  # noqa: B018


def test_every_exported_class_and_function_says_what_it_is_for() -> None:
    named = {name: getattr(ares, name) for name in ares.__all__ if name != "__version__"}

    assert [name for name, each in named.items() if not inspect.getdoc(each)] == []


def test_every_public_method_of_the_facade_says_what_it_does() -> None:
    for cls in (ares.Runtime, ares.Execution, ares.Workflow, ares.WorkflowResult, ares.StepContext):
        methods = {
            n: m for n, m in vars(cls).items() if not n.startswith("_") and (callable(m) or isinstance(m, property))
        }
        assert [n for n, m in methods.items() if not inspect.getdoc(m)] == [], cls


def test_ares_is_typed_and_versioned() -> None:
    assert (Path(ares.__file__).parent / "py.typed").exists()
    assert ares.__version__.count(".") == 2


# --- exceptions --------------------------------------------------------------------------------------


def exceptions() -> list[type[BaseException]]:
    own = [e for e in vars(errors).values() if isinstance(e, type) and issubclass(e, BaseException)]
    return [e for e in own if e.__module__ == "ares.errors"]


def made(kind: type[BaseException]) -> BaseException:
    """One of a kind, with something in each of its fields."""
    fields = getattr(kind, "__attrs_attrs__", ())
    values: dict[str, Any] = {"str": "text", "float": 1.5, "int": 2, "tuple[str, ...]": ("a", "b")}
    return kind(*(values.get(str(f.type).replace("<class '", "").replace("'>", ""), "text") for f in fields))


@pytest.mark.parametrize("kind", exceptions(), ids=lambda kind: kind.__name__)
def test_every_exception_pickles_with_its_fields_and_has_a_sentence(kind: type[BaseException]) -> None:
    error = made(kind)

    copy = pickle.loads(pickle.dumps(error))

    assert type(copy) is kind
    assert str(copy) == str(error)
    assert {f.name: getattr(copy, f.name) for f in getattr(kind, "__attrs_attrs__", ())} == {
        f.name: getattr(error, f.name) for f in getattr(kind, "__attrs_attrs__", ())
    }
    assert inspect.getdoc(kind)


def test_the_exceptions_are_one_tree_but_for_what_steps_raise() -> None:
    outside = {e.__name__ for e in exceptions() if not issubclass(e, AresError)}

    assert outside == {"RetryAfter", "NotDone", "AttemptEnded", "StepParked", "InjectedPanic"}
    for unwinds in (errors.AttemptEnded, errors.StepParked):
        assert not issubclass(unwinds, Exception)
    for misuse in (errors.QuestionNotFoundError, errors.QuestionAnsweredError):
        assert issubclass(misuse, errors.UsageError)
    assert issubclass(errors.StepRejectedError, errors.StepError)
    assert issubclass(errors.StepTimeoutError, TimeoutError)
    assert issubclass(errors.ExecutionTimeoutError, TimeoutError)


def test_every_exception_stands_in_the_tree_of_the_docstring() -> None:
    assert errors.__doc__ is not None
    assert [e.__name__ for e in exceptions() if e.__name__ not in errors.__doc__] == []


# --- not built yet -----------------------------------------------------------------------------------


def body() -> None:
    raise AssertionError("nothing may run")


@pytest.mark.parametrize(
    ("feature", "options"),
    [("executor", {"executor": "process"})],
)
def test_a_step_option_that_is_not_built_yet_is_refused_by_name(feature: str, options: dict[str, Any]) -> None:
    wf = Workflow("w")
    wf.add(StepSpec("body", body, **options))

    for act in (wf.validate, lambda: Runtime().run(wf), lambda: Runtime().submit(wf)):
        with pytest.raises(NotBuiltError) as raised:
            act()
        assert raised.value.feature == feature
        assert "body" in raised.value.where
        assert feature in str(raised.value)


def test_a_store_that_there_is_not_is_refused_by_its_scheme_and_without_its_password() -> None:
    with pytest.raises(UsageError, match=r"there is no store for mysql://") as raised:
        Runtime("mysql://me:secret@localhost/ares")

    assert "secret" not in str(raised.value)


def test_what_is_empty_is_not_refused() -> None:
    Runtime(plugins=[], interrupt_handler=None).close()
