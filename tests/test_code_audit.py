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
def test_the_figures_of_the_whole_standard_library_equal_radons() -> None:
    names = code_audit.discover(STDLIB)
    workers = os.cpu_count() or 1

    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        found = [each for file in pool.map(differences_from_radon, names, chunksize=16) for each in file]

    assert len(names) > 500
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
