"""The main job: its figures are radon's, and its report is the same for the same tree."""

import ast
import multiprocessing
import os
import re
import sysconfig
import threading
import tokenize
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
from radon.complexity import add_inner_blocks, cc_visit
from radon.raw import analyze

import ares
from ares.errors import RecordedError
from examples import code_audit
from tests.cli.command import ROOT, Ended, finish, forked, lines_of, start, wait_until
from tests.cli.command import ares as command
from tests.sampling import some

AUDIT = ROOT / "examples" / "code_audit.py"
STDLIB = Path(sysconfig.get_path("stdlib"))


# --- against radon, on the whole standard library ----------------------------------------------


def differences_from_radon(name: str) -> list[str]:
    """What we say of one file of the standard library and radon does not, or the other way round."""
    path = STDLIB / name
    try:
        figures = code_audit.measure_file(path, name)
    except code_audit.UnparsableError:
        return [] if radon_refuses(path) else [f"{name}: radon parses it"]
    with tokenize.open(path) as file:
        text = file.read()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        blocks = [block for block in add_inner_blocks(cc_visit(text)) if block.letter != "C"]
        ours = figures["functions"].items()
        theirs = {(f"{block.name.rpartition('.')[2]}:{block.lineno}", block.complexity) for block in blocks}
        found = [f"{name}: {each}" for each in {(key.rpartition(".")[2], value) for key, value in ours} ^ theirs]
        if len(ours) != len(blocks):
            found.append(f"{name}: {len(ours)} functions, radon has {len(blocks)}")
        if not has_a_long_expression(text) and loc_by_radon(text) not in {figures["loc"], None}:
            found.append(f"{name}: loc is {figures['loc']}")
    return found


def radon_refuses(path: Path) -> bool:
    try:
        with tokenize.open(path) as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            cc_visit(file.read())
    except (SyntaxError, ValueError):
        return True
    return False


def has_a_long_expression(text: str) -> bool:
    """radon's ``analyze`` needs time that grows with the square of an expression's lines: minutes for big tables."""
    return any(
        node.end_lineno is not None and node.end_lineno - node.lineno > 60
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.expr)
    )


def loc_by_radon(text: str) -> int | None:
    """``None`` where radon's ``analyze``, which takes a file line by line, refuses a file that is legal as a whole."""
    try:
        return int(analyze(text).loc)
    except SyntaxError:
        return None


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_figures_of_the_standard_library_equal_radons() -> None:
    names = some(code_audit.discover(STDLIB), one_in=8)
    workers = os.cpu_count() or 1

    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        found = [each for file in pool.map(differences_from_radon, names, chunksize=16) for each in file]

    assert len(names) > 100
    assert found == []


# --- the counting, construct by construct ------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "complexity"),
    [
        ("pass", 1),
        ("if a: pass", 2),
        ("if a: pass\n    elif b: pass\n    else: pass", 3),
        ("return a if b else c", 2),
        ("for x in a: pass", 2),
        ("for x in a: pass\n    else: pass", 3),
        ("while a: pass\n    else: pass", 3),
        ("try: pass\n    except A: pass\n    except B: pass\n    else: pass\n    finally: pass", 4),
        ("try: pass\n    except* A: pass", 1),
        ("with a: pass", 1),
        ("return a and b and c or d", 4),
        ("return [x for x in a if x if not x for y in x]", 5),
        ("return {x: y async for x, y in a}", 2),
        ("assert a", 2),
        ("assert a and b, [x for x in c if x]", 2),
        ("return lambda x: x or y", 2),
        ("match a:\n        case 1: pass\n        case 2 if b and c: pass", 4),
        ("match a:\n        case 1: pass\n        case _: pass", 2),
        ("match a:\n        case _: pass", 1),
        ("def g(): return a or b\n    return g", 1),
        ("class C:\n        def g(self): return a or b\n    return a or b", 2),
    ],
)
def test_every_construct_counts_what_it_counts_for_radon(body: str, complexity: int) -> None:
    source = f"async def f(p=a or b):\n    {body}\n"

    ours = {name: count for name, _, count in code_audit.functions_in(ast.parse(source))}

    assert ours["f"] == complexity
    assert ours["f"] == next(block.complexity for block in cc_visit(source) if block.name == "f")


def test_methods_inner_classes_and_closures_are_functions_of_their_own_under_dotted_names() -> None:
    source = """
if True:
    class Outer:
        @decorated(a or b)
        def method(self):
            def closure(): return a or b
            class Local:
                def not_looked_into(self): pass
        class Inner:
            async def method(self): pass
def plain(): pass
"""
    assert code_audit.functions_in(ast.parse(source)) == [
        ("Outer.method", 5, 1),
        ("Outer.method.closure", 6, 2),
        ("Outer.Inner.method", 10, 1),
        ("plain", 11, 1),
    ]


def test_an_expression_deeper_than_the_stack_is_measured() -> None:
    tree = ast.parse("def f(): return a")
    function = tree.body[0]
    assert isinstance(function, ast.FunctionDef)
    value: ast.expr = ast.Name("a")
    for _ in range(10_000):
        value = ast.IfExp(ast.Name("b"), value, ast.Name("c"))
    function.body = [ast.Return(value)]

    assert code_audit.functions_in(tree) == [("f", 1, 10_001)]


# --- reading files -----------------------------------------------------------------------------


def test_a_file_is_decoded_as_its_declaration_says() -> None:
    text, _ = code_audit.parse("# coding: latin-1\nname = 'é'\r\n".encode("latin-1"))

    assert text == "# coding: latin-1\nname = 'é'\n"


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (b"\n\nx = = 1\n", "line 3: invalid syntax"),
        (b"# coding: nonsense\n", "unknown encoding: nonsense"),
        (b"# coding: latin-1\nx = '\xe9'\n\x00", "null bytes"),
        (b"# coding: utf-8\n\n\n'\xe9'\n", "can't decode byte 0xe9"),
        (b"x" + b"(" * 100_000, "too many nested parentheses"),
    ],
)
def test_a_file_that_the_compiler_refuses_says_why(source: bytes, reason: str) -> None:
    with pytest.raises(code_audit.UnparsableError, match=re.escape(reason)):
        code_audit.parse(source)


def test_warnings_of_the_parser_reach_nobody_even_from_many_threads() -> None:
    source = b"x = '\\d'\ny = 1if x else 2\n"  # an invalid escape, and a number that runs into a keyword
    failures: list[BaseException] = []

    def parse_often() -> None:
        try:
            for _ in range(50):
                code_audit.parse(source)
        except BaseException as error:
            failures.append(error)

    with warnings.catch_warnings(record=True) as heard:
        code_audit.parse(source)
        warnings.simplefilter("error")  # goes before what the audit has put there
        code_audit.parse(source)
        warnings.simplefilter("always")
        threads = [threading.Thread(target=parse_often, name=f"parse-{number}") for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert failures == []
    assert heard == []


# --- the report --------------------------------------------------------------------------------


def test_a_failure_reads_the_same_in_this_process_and_after_a_resume() -> None:
    error = code_audit.UnparsableError("line 3: invalid\n syntax")
    recorded = RecordedError(type_name="UnparsableError", message=str(error))

    reasons = {code_audit._reason(ares.ItemFailure(index=0, item="a.py", error=each)) for each in (error, recorded)}

    assert reasons == {"line 3: invalid syntax"}


# --- the whole job -----------------------------------------------------------------------------


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    for name, source in {
        "plain.py": "def plain():\n    return 1\n",
        "package/busy.py": "class Busy:\n    def work(self, a, b, c):\n        return a and b and c\n",
        "package/broken.py": "def broken(:\n",
        "package/odd|name`.py": "def odd(a):\n    while a:\n        if a: return\n",
        "package/data.txt": "def not_python(:\n",
        "site-packages/other.py": "def somebody_elses(): pass\n",
        "package/__pycache__/stale.py": "def stale(): pass\n",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(source)
    return root


@pytest.fixture
def runtime() -> Iterator[ares.Runtime]:
    with ares.Runtime() as runtime:
        yield runtime


def test_the_audit_of_a_small_tree_reports_totals_hotspots_and_failures(
    runtime: ares.Runtime, tree: Path, tmp_path: Path
) -> None:
    inputs = {"root": tree, "report": tmp_path / "out" / "report.md", "threshold": 2}

    result = runtime.run(code_audit.workflow, inputs=inputs).raise_for_status()

    assert result.output(code_audit.discover) == [
        "package/broken.py",
        "package/busy.py",
        "package/odd|name`.py",
        "plain.py",
    ]
    assert result.output(code_audit.write_report) == tmp_path / "out" / "report.md"
    assert result.outputs["totals"] == {
        "files": 4,
        "files not measured": 1,
        "lines": 8,
        "functions": 3,
        "mean complexity": 2.33,
    }
    text = (tmp_path / "out" / "report.md").read_text()
    assert "2 functions above 2; the most complex (2):" in text
    assert "| 3 | `Busy.work` | `package/busy.py:2` |\n| 3 | `odd` | `package/odd\\|name?.py:1` |" in text
    assert re.search(r"^- `package/broken\.py`: line 1: .+$", text, re.MULTILINE)
    assert list((tmp_path / "out").iterdir()) == [tmp_path / "out" / "report.md"]


def test_only_the_branch_that_the_threshold_asks_for_is_taken(
    runtime: ares.Runtime, tree: Path, tmp_path: Path
) -> None:
    for threshold, taken, other in ((2, "worst", "all_clear"), (3, "all_clear", "worst")):
        inputs = {"root": tree, "report": tmp_path / "report.md", "threshold": threshold}

        result = runtime.run(code_audit.workflow, inputs=inputs).raise_for_status()

        assert taken in result.outputs
        assert other not in result.outputs
    assert "No function above 3." in (tmp_path / "report.md").read_text()


def test_the_same_tree_gives_the_same_bytes(runtime: ares.Runtime, tree: Path, tmp_path: Path) -> None:
    reports = [tmp_path / "first.md", tmp_path / "second.md"]

    for report in reports:
        runtime.run(code_audit.workflow, inputs={"root": tree, "report": report}).raise_for_status()

    assert reports[0].read_bytes() == reports[1].read_bytes()


def test_a_tree_without_python_is_reported_as_such(runtime: ares.Runtime, tmp_path: Path) -> None:
    inputs = {"root": tmp_path, "report": tmp_path / "report.md"}

    runtime.run(code_audit.workflow, inputs=inputs).raise_for_status()

    text = (tmp_path / "report.md").read_text()
    assert "| files | 0 |" in text
    assert "No function above 10." in text


def test_each_measuring_leaves_a_line_in_the_effects_file(runtime: ares.Runtime, tree: Path, tmp_path: Path) -> None:
    effects = tmp_path / "effects"
    inputs = {"root": tree, "report": tmp_path / "report.md", "effects": effects}

    result = runtime.run(code_audit.workflow, inputs=inputs).raise_for_status()

    assert sorted(effects.read_text().splitlines()) == result.outputs["discover"]


def test_a_root_that_is_no_directory_fails_the_run_by_name(runtime: ares.Runtime, tmp_path: Path) -> None:
    inputs = {"root": tmp_path / "nowhere", "report": tmp_path / "report.md"}

    result = runtime.run(code_audit.workflow, inputs=inputs)

    assert result.status == "FAILED"
    assert "nowhere is not a directory" in str(result.error)


def test_without_more_inputs_the_report_is_what_it_always_was_and_nobody_is_asked(
    runtime: ares.Runtime, tree: Path, tmp_path: Path
) -> None:
    (tree / "package" / "broken.py").unlink()
    inputs = {"root": tree, "report": tmp_path / "report.md", "threshold": 2}

    result = runtime.run(code_audit.workflow, inputs=inputs).raise_for_status()

    assert (
        (tmp_path / "report.md").read_text()
        == f"""# Code audit

`{tree}`

| total | |
| --- | ---: |
| files | 3 |
| files not measured | 0 |
| lines | 8 |
| functions | 3 |
| mean complexity | 2.33 |

## Worst functions

2 functions above 2; the most complex (2):

| complexity | function | where |
| ---: | --- | --- |
| 3 | `Busy.work` | `package/busy.py:2` |
| 3 | `odd` | `package/odd\\|name?.py:1` |

## Files not measured

None.
"""
    )
    assert result.steps["tighten/lower"].round == 1
    assert result.steps["publish"].reason == "condition"


# --- rounds that lower the threshold -----------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "limits", "above"),
    [
        (0, [10], 0),
        (1, [10, 2], 2),
        (3, [10, 2, 0], 3),
        (99, [10, 2, 0], 3),
    ],
)
def test_rounds_lower_the_threshold_until_enough_functions_are_above_it(
    runtime: ares.Runtime, tree: Path, tmp_path: Path, wanted: int, limits: list[int], above: int
) -> None:
    inputs = {"root": tree, "report": tmp_path / "report.md", "wanted": wanted}

    result = runtime.run(code_audit.workflow, inputs=inputs, execution_id="audit").raise_for_status()

    ended = [each for each in runtime.execution("audit").events() if each.type == "step.completed"]
    rounds = [each.payload["output"] for each in ended if each.payload.get("path") == "tighten/lower"]
    assert rounds == limits
    assert len(result.outputs["hotspots"]) == above
    assert f" above {limits[-1]}" in (tmp_path / "report.md").read_text()


def test_the_rounds_end_when_a_variable_says_enough(runtime: ares.Runtime) -> None:
    measured = [code_audit.Figures(path="a.py", loc=9, functions={f"f:{each}": each for each in (2, 3, 5, 8)})]
    inputs = {"measure": measured, "threshold": 1_000_000, "wanted": 3}

    result = runtime.run(code_audit.tightening, inputs=inputs, execution_id="rounds").raise_for_status()

    history = runtime.checkpoint("rounds").loop_history
    assert [(each.round, each.exit_reason) for each in history] == [(1, ""), (2, ""), (3, ""), (4, "until")]
    assert result.variables == {"limit": 2, "enough": True}


# --- two layouts -------------------------------------------------------------------------------


def test_the_functions_are_listed_as_was_asked(runtime: ares.Runtime, tree: Path, tmp_path: Path) -> None:
    inputs = {"root": tree, "report": tmp_path / "report.md", "threshold": 0, "layout": "by_file"}

    result = runtime.run(code_audit.workflow, inputs=inputs).raise_for_status()

    text = (tmp_path / "report.md").read_text()
    assert "3 functions above 0 in 3 files; the files with the most (3):" in text
    assert "| 1 | 3 | `package/busy.py` |" in text
    assert result.steps["by_function"].reason == "not_taken: worst"


def test_where_nobody_decides_both_layouts_are_made_and_the_first_is_taken(
    runtime: ares.Runtime, tree: Path, tmp_path: Path
) -> None:
    inputs = {"root": tree, "report": tmp_path / "report.md", "threshold": 0}

    result = runtime.run(code_audit.workflow, inputs=inputs).raise_for_status()

    assert {"by_function", "by_file"} <= result.outputs.keys()
    assert result.outputs["by_function"] in (tmp_path / "report.md").read_text()


# --- published after a Yes ---------------------------------------------------------------------


def begin(tree: Path, tmp_path: Path) -> Ended:
    """A run by the command line, up to its question."""
    words = ["--store", "audit.db", "--id", "x", "-i", f"root={tree}", "-i", "publish_to=public/audit.md"]
    return forked("run", AUDIT, *words, cwd=tmp_path)


def test_a_run_that_is_to_publish_ends_with_3_and_has_published_nothing(tree: Path, tmp_path: Path) -> None:
    ended = begin(tree, tmp_path)

    assert ended.code == 3
    assert f"ares: publish asks: Publish code_audit.md as {tmp_path / 'public' / 'audit.md'}?" in ended.said
    assert (tmp_path / "code_audit.md").exists()
    assert not (tmp_path / "public").exists()
    [question] = forked("questions", "--store", "audit.db", "--json", cwd=tmp_path).document["questions"]
    assert question["payload"]["functions"] == 3


def test_a_report_is_published_after_a_yes_from_another_process_though_the_first_was_killed(
    tree: Path, tmp_path: Path
) -> None:
    program = tmp_path / "service.py"
    program.write_text(
        "import sys, threading\n"
        "from pathlib import Path\n"
        "from ares import Runtime\n"
        "from examples.code_audit import workflow\n"
        "root, effects, place = map(Path, sys.argv[1:])\n"
        "with Runtime('audit.db') as runtime:\n"
        "    inputs = {'root': root, 'effects': effects, 'publish_to': place}\n"
        "    runtime.submit(workflow, inputs, execution_id='x').wait(40)\n"
        "    Path('rests').touch()\n"
        "    threading.Event().wait(40)\n"
    )
    service = start(tree, "effects", "public/audit.md", cwd=tmp_path, program=(str(program),))
    try:
        wait_until((tmp_path / "rests").exists, "the question")
    finally:
        service.kill()
        finish(service)
    report = (tmp_path / "code_audit.md").read_bytes()
    (tmp_path / "code_audit.md").write_text("what somebody else wrote meanwhile")

    said = command("answer", "x", "publish", "--approve", "--store", "audit.db", cwd=tmp_path)
    went_on = forked("resume", "x", AUDIT, "--store", tmp_path / "audit.db", cwd=tree)

    assert said.code == 0, said.err
    assert went_on.code == 0, went_on.err
    assert f"publish: {tmp_path / 'public' / 'audit.md'}" in went_on.out.splitlines()
    assert (tmp_path / "public" / "audit.md").read_bytes() == report
    assert sorted(lines_of(tmp_path / "effects")) == code_audit.discover(tree)  # nothing was measured twice


def test_a_yes_is_kept_when_publishing_fails(runtime: ares.Runtime, tree: Path, tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    inputs = {"root": tree, "report": tmp_path / "report.md", "publish_to": place}
    [question] = runtime.run(code_audit.workflow, inputs=inputs, execution_id="x").interrupts
    runtime.answer(question, ares.Approve())

    failed = runtime.resume("x", code_audit.workflow)
    place.rmdir()
    result = runtime.resume("x", code_audit.workflow).raise_for_status()

    assert isinstance(failed.error, IsADirectoryError)
    assert result.output(code_audit.publish) == place
    assert place.read_bytes() == (tmp_path / "report.md").read_bytes()


def test_after_a_no_the_report_stays_where_it_is_and_the_run_completes(tree: Path, tmp_path: Path) -> None:
    begin(tree, tmp_path)

    forked("answer", "x", "publish", "--reject", "--feedback", "not yet", "--store", "audit.db", cwd=tmp_path)
    went_on = forked("resume", "x", AUDIT, "--store", "audit.db", cwd=tmp_path)

    assert went_on.code == 0
    assert "ares: publish was rejected" in went_on.said
    assert went_on.out == f"write_report: {tmp_path / 'code_audit.md'}\n"
    assert not (tmp_path / "public").exists()
