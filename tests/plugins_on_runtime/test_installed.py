"""``Runtime(plugins="installed")``: the plugins that installed distributions offer."""

import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ares import EventFilter, Runtime, Workflow
from ares.bus.health import PluginState
from ares.errors import RegistrationError, UsageError
from ares.runtime.installed import installed_plugins
from tests.plugins_on_runtime.strangers import WITNESS, install, witness

Make = Callable[..., Runtime]

_NUMBERS = itertools.count()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of the search path, whose modules are forgotten afterwards."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    yield folder
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture
def module() -> str:
    """A name that no module has yet."""
    return f"strange_{next(_NUMBERS)}"


def flow() -> Workflow:
    wf = Workflow("w")
    wf.step(lambda: 1, id="a")
    return wf


def refusal(make: Callable[[], Any]) -> RegistrationError:
    with pytest.raises(RegistrationError) as caught:
        make()
    return caught.value


def test_they_are_found_and_live_on_the_bus(site: Path, module: str, runtime: Make) -> None:
    witness(site, "ares-witness", "witness", module)
    rt = runtime(plugins="installed")
    seen = rt.bus.subscribe(EventFilter(types=["witness.saw"]))

    result = rt.run(flow()).raise_for_status()

    delivery = seen.get(10)
    assert delivery is not None
    assert (delivery.event.stream_id, delivery.event.payload) == (result.execution_id, {"path": "a"})


def test_they_come_in_the_order_of_their_names_whatever_the_order_of_the_search_path(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runtime: Make
) -> None:
    monkeypatch.syspath_prepend(tmp_path / "before")
    for folder, distribution, name in [
        (site, "Zebra_plugins", "zebra"),
        (site, "ares-b", "b"),
        (tmp_path / "before", "ares-c", "c"),
    ]:
        witness(folder, distribution, name, f"order_{name}")
    both = {"second": "order_two:Second", "first": "order_two:First"}
    code = "from ares import Plugin\nclass First(Plugin): name = 'a1'\nclass Second(Plugin): name = 'a2'\n"
    install(site, "Ares.A", both, order_two=code)

    assert list(runtime(plugins="installed").health()) == ["a1", "a2", "b", "c", "zebra"]


def test_a_function_without_arguments_may_make_one(site: Path, module: str, runtime: Make) -> None:
    made = f"def make():\n    return Witness()\n{WITNESS.format(name='made').replace(chr(10) + '    ', chr(10))}"
    install(site, "ares-made", {"made": f"{module}:make"}, **{module: made})

    assert list(runtime(plugins="installed").health()) == ["made"]


def test_each_runtime_has_plugins_of_its_own(site: Path, module: str, runtime: Make) -> None:
    witness(site, "ares-witness", "witness", module)

    one, other = (runtime(plugins="installed").bus.plugins for _ in range(2))

    assert one[0] is not other[0]


def test_looking_what_there_is_imports_nothing(site: Path, module: str) -> None:
    witness(site, "ares-witness", "witness", module, "2.5")

    (found,) = installed_plugins()

    assert (found.name, found.distribution, found.version) == ("witness", "ares-witness", "2.5")
    assert found.target == f"{module}:Witness"
    assert module not in sys.modules


def test_nothing_is_looked_for_unless_it_is_asked_for(site: Path, module: str, runtime: Make) -> None:
    witness(site, "ares-witness", "witness", module)

    assert list(runtime().health()) == []


def test_with_none_installed_there_are_none(runtime: Make) -> None:
    assert list(runtime(plugins="installed").health()) == []


def test_a_distribution_that_is_there_twice_counts_once_the_first_on_the_path(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    witness(tmp_path / "old", "ares-witness", "witness", module, "1.0")
    monkeypatch.syspath_prepend(tmp_path / "old")
    witness(site, "Ares_Witness", "witness", module, "2.0")
    monkeypatch.syspath_prepend(site)

    assert [each.version for each in installed_plugins()] == ["2.0"]


def test_one_of_the_name_of_a_built_in_one_is_instead_of_it(
    site: Path, module: str, tmp_path: Path, runtime: Make
) -> None:
    witness(site, "ares-own-tool", "tool", module)

    rt = runtime(tmp_path / "ares.db", plugins="installed")

    assert [type(each).__module__ for each in rt.bus.plugins if each.name == "tool"] == [module]


@pytest.mark.parametrize("text", ["", "Installed", "all", "checkpoint"])
def test_another_text_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="'installed'"):
        Runtime(plugins=text)  # type: ignore[arg-type]  # that is what it is about


# --- that cannot be made --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "cause"),
    [
        ("import no_such_module_at_all", "ModuleNotFoundError: No module named 'no_such_module_at_all'"),
        ("def broken(:", "SyntaxError: "),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("x = 1", "AttributeError: "),
        ("class E(Exception):\n    def __str__(self): return 1 / 0\nraise E", "E: <its message cannot be shown>"),
    ],
)
def test_one_that_cannot_be_imported_is_refused_naming_distribution_entry_point_and_cause(
    site: Path, module: str, code: str, cause: str
) -> None:
    install(site, "ares-broken", {"odd": f"{module}:Odd"}, "0.3", **{module: code})

    error = refusal(lambda: Runtime(plugins="installed"))

    assert error.plugin == "odd"
    told = f"plugin 'odd': entry point 'odd' ({module}:Odd) of ares-broken 0.3 cannot be imported: {cause}"
    assert str(error).startswith(told)
    assert error.__cause__ is not None


@pytest.mark.parametrize(
    ("code", "cause"),
    [
        ("def Odd(): raise OSError('no disk')", "makes no plugin: OSError: no disk"),
        ("def Odd(size): return size", "makes no plugin: TypeError: "),
        ("def Odd(): raise SystemExit", "makes no plugin: SystemExit"),
        ("Odd = 7", "names a int; a class, or a function without arguments, is expected"),
        ("def Odd(): pass", "makes a plugin that cannot live on a bus: None is no plugin"),
        ("def Odd(): return dict", "makes a plugin that cannot live on a bus: plugin 'dict': is a class"),
        ("class Odd: name = 'odd'", "makes a plugin that cannot live on a bus: plugin 'odd': has no method start("),
    ],
)  # fmt: skip
def test_one_that_makes_no_plugin_is_refused_likewise(site: Path, module: str, code: str, cause: str) -> None:
    install(site, "ares-broken", {"odd": f"{module}:Odd"}, **{module: code})

    error = refusal(lambda: Runtime(plugins="installed"))

    assert f"of ares-broken 1.0 {cause}" in str(error)


@pytest.mark.parametrize(
    ("capability", "method"),
    [("router", "route(ctx, state)"), ("memory", "advise_route(ctx, state)"), ("loop", "should_execute_round(")],
)
def test_one_that_claims_a_capability_whose_protocol_it_lacks_is_refused_naming_the_method(
    site: Path, module: str, capability: str, method: str
) -> None:
    code = f"from ares import Plugin\nclass Odd(Plugin):\n    name = 'odd'\n    capabilities = {{'{capability}'}}\n"
    install(site, "ares-hollow", {"hollow": f"{module}:Odd"}, **{module: code})

    error = refusal(lambda: Runtime(plugins="installed"))

    assert f"plugin 'odd': has capability '{capability}' but no method {method}" in str(error)
    assert "entry point 'hollow'" in str(error)
    assert "ares-hollow 1.0" in str(error)


def test_two_that_call_themselves_the_same_are_refused(site: Path) -> None:
    witness(site, "ares-one", "twin", "twin_one")
    witness(site, "ares-two", "twin", "twin_two")

    assert refusal(lambda: Runtime(plugins="installed")).plugin == "twin"


def test_a_target_that_is_none_is_refused(site: Path) -> None:
    install(site, "ares-broken", {"odd": "not a target!"})

    error = refusal(lambda: Runtime(plugins="installed"))

    assert "entry point 'odd' (not a target!) of ares-broken 1.0 cannot be imported" in str(error)


def test_ctrl_c_while_one_is_imported_is_nobodys_failure(site: Path, module: str) -> None:
    install(site, "ares-slow", {"slow": f"{module}:Slow"}, **{module: "raise KeyboardInterrupt"})

    with pytest.raises(KeyboardInterrupt):
        Runtime(plugins="installed")


def test_metadata_that_cannot_be_read_are_named(site: Path) -> None:
    info = install(site, "ares-torn", {})
    info.joinpath("entry_points.txt").write_bytes(b"\xff\xfe\x00[ares.plugins]\n\xff")

    with pytest.raises(UsageError, match=r"cannot tell which plugins are installed: .*ares_torn-1\.0\.dist-info"):
        Runtime(plugins="installed")


def test_a_distribution_without_a_name_can_offer_one_all_the_same(site: Path, module: str, runtime: Make) -> None:
    info = witness(site, "ares-nameless", "witness", module)
    info.joinpath("METADATA").unlink()

    assert list(runtime(plugins="installed").health()) == ["witness"]


# --- that do not start ------------------------------------------------------------------------------------------------

FAILS_TO_START = """
    from ares import Plugin

    class Late(Plugin):
        name = "late"
        required = {required}

        def start(self, ctx, bus):
            raise OSError("no disk")
"""


def test_one_that_does_not_start_is_named_and_gone_on_without(site: Path, module: str, runtime: Make) -> None:
    install(site, "ares-late", {"late": f"{module}:Late"}, **{module: FAILS_TO_START.format(required=False)})
    rt = runtime(plugins="installed")

    result = rt.run(flow()).raise_for_status()

    assert rt.health()["late"].state is PluginState.FAILED
    assert any("plugin 'late': start raised OSError: no disk" in warning for warning in result.warnings)


def test_one_that_does_not_start_and_is_required_keeps_the_runtime_from_starting(
    site: Path, module: str, runtime: Make
) -> None:
    install(site, "ares-late", {"late": f"{module}:Late"}, **{module: FAILS_TO_START.format(required=True)})

    with pytest.raises(ExceptionGroup, match="required plugin 'late' did not start"):
        runtime(plugins="installed").start()
