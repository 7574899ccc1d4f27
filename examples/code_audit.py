"""Audits a tree of Python code: its lines, its functions, and how complex each of them is.

    ares run examples/code_audit.py --store audit.db --input root=src --input report=audit.md --input threshold=15

Without inputs it audits the standard library of the running interpreter. The workflow finds the files, measures each
(one that cannot be measured becomes a line of the report, never the end of the run), branches on whether a function is
above the threshold, and writes a Markdown report. The same tree gives the same bytes.

Three inputs ask for more:

- ``wanted=50``: rounds lower the threshold until at least so many functions are above it.
- ``publish_to=public/audit.md``: a human is asked, and only after a Yes the report is published there. The command ends
  with exit code 3 meanwhile; ``ares answer ID publish --approve`` in any terminal, then ``ares resume``.
- ``layout=by_function`` or ``layout=by_file``: how the functions are listed. Without it, router plugins decide, as in
  ``learning_audit.py``; where there are none, it is by function.

``complexity`` is McCabe's cyclomatic complexity, counted as radon counts it; ``_DECISIONS`` is the whole table. ``loc``
is the number of lines as ``str.splitlines`` sees them, which is radon's ``loc`` too. How a function is counted:

- Its body counts, its decorators, defaults and annotations do not.
- A function inside a function is a function of its own; nothing of it counts for the one around it.
- A lambda is part of the function that holds it. What an ``assert`` checks is not looked into.
- ``with``, ``finally``, the guard of a ``case`` and ``except*`` add nothing.
- A class inside a function is not looked into, neither for that function nor for its own methods.
"""

import ast
import io
import os
import re
import sysconfig
import threading
import tokenize
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, TypedDict

from ares import Input, ItemFailure, Loop, StepContext, StepSpec, Workflow
from ares.errors import RecordedError

WORST = 20
NOT_OURS = frozenset({"site-packages", "dist-packages", "__pycache__"})


# --- measuring one file: plain functions, no workflow ------------------------------------------


class Figures(TypedDict):
    """What is known of one file. Small, because one of these is journaled for every file."""

    path: str
    loc: int
    functions: dict[str, int]
    """The complexity of each function, under its dotted name and the line of its ``def``: ``{"Reader.read:41": 7}``."""


class Hotspot(TypedDict):
    """One function that is above the threshold."""

    where: str
    name: str
    complexity: int


class UnparsableError(ValueError):
    """A file that this interpreter would not compile; says the line and the problem."""


_Function = ast.FunctionDef | ast.AsyncFunctionDef
_DECISIONS: dict[type[ast.AST], Callable[[Any], int]] = {
    ast.If: lambda _: 1,  # an elif is an if inside the else
    ast.IfExp: lambda _: 1,
    ast.For: lambda loop: 1 + bool(loop.orelse),
    ast.AsyncFor: lambda loop: 1 + bool(loop.orelse),
    ast.While: lambda loop: 1 + bool(loop.orelse),
    ast.Try: lambda block: len(block.handlers) + bool(block.orelse),
    ast.BoolOp: lambda operation: len(operation.values) - 1,
    ast.comprehension: lambda clause: 1 + len(clause.ifs),
    ast.Assert: lambda _: 1,
    ast.Match: lambda match: len(match.cases) - any(_catches_all(case.pattern) for case in match.cases),
}
_LEAVES = (ast.Name, ast.Constant, ast.Assert, ast.expr_context, ast.operator, ast.cmpop)


def measure_file(path: Path, name: str) -> Figures:
    """The figures of the file at ``path``, which the report will call ``name``.

    Raises ``UnparsableError`` for what the compiler would refuse, ``OSError`` for what cannot be read.
    """
    text, tree = parse(path.read_bytes())
    functions = {f"{function}:{line}": complexity for function, line, complexity in functions_in(tree)}
    return Figures(path=name, loc=len(text.splitlines()), functions=functions)


def parse(source: bytes) -> tuple[str, ast.Module]:
    """The text and the tree of ``source``, decoded as its own encoding declaration (PEP 263) says."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(source).readline)
        text = io.TextIOWrapper(io.BytesIO(source), encoding).read()
        _silence_the_parser()
        return text, ast.parse(text, _PARSED_AS)
    except SyntaxError as error:
        raise UnparsableError(f"line {error.lineno}: {error.msg}" if error.lineno else error.msg) from error
    except (RecursionError, MemoryError) as error:
        raise UnparsableError("nested too deeply") from error
    except ValueError as error:  # bytes that are not in the declared encoding, or null bytes
        raise UnparsableError(str(error)) from error


def functions_in(tree: ast.Module) -> list[tuple[str, int, int]]:
    """Dotted name, line and complexity of every function in ``tree``, in the order of the file.

    Works off lists instead of calling itself: expressions nest deeper than the interpreter's stack.
    """
    found = []
    scopes: list[tuple[str, ast.Module | ast.ClassDef | _Function]] = [("", tree)]
    while scopes:
        name, scope = scopes.pop()
        is_function = isinstance(scope, _Function)
        complexity = 1
        nodes: list[ast.AST] = list(scope.body)
        while nodes:
            node = nodes.pop()
            if isinstance(node, ast.ClassDef | _Function):
                if not (is_function and isinstance(node, ast.ClassDef)):
                    scopes.append((f"{name}.{node.name}" if name else node.name, node))
                continue
            decisions = _DECISIONS.get(type(node))
            if decisions is not None:
                complexity += decisions(node)
            if not isinstance(node, _LEAVES):
                nodes.extend(ast.iter_child_nodes(node))
        if isinstance(scope, _Function):
            found.append((name, scope.lineno, complexity))
    return sorted(found, key=lambda function: function[1])


def _catches_all(pattern: ast.pattern) -> bool:
    """Whether it is ``case _`` or ``case name``, which stands for the else."""
    return isinstance(pattern, ast.MatchAs) and pattern.pattern is None


# The parser warns (of invalid escapes, say) through the process-wide filters, and where they say "error" it refuses the
# file. `warnings.catch_warnings` swaps those filters for all threads and is not safe with several; a filter for a file
# name that nobody else uses is, and touches no warning but ours. It stays, and has to be the first to be heard.
_PARSED_AS = "<code_audit>"
_IS_PARSED_AS = re.escape(_PARSED_AS)
_installing = threading.Lock()


def _silence_the_parser() -> None:
    with _installing:
        first = warnings.filters[0] if warnings.filters else None
        if first is None or getattr(first[3], "pattern", None) != _IS_PARSED_AS:
            warnings.filterwarnings("ignore", module=_IS_PARSED_AS)


# --- the workflow ------------------------------------------------------------------------------

workflow = Workflow(
    "code_audit",
    version="2",
    inputs={
        "root": Input(Path, default=Path(sysconfig.get_path("stdlib"))),
        "report": Input(Path, default=Path("code_audit.md")),
        "threshold": Input(int, default=10),
        "wanted": Input(int, default=0),
        "layout": Input(Literal["by_function", "by_file"] | None, default=None),
        "publish_to": Input(Path | None, default=None),
        # When given, each measuring adds a line to this file: whoever counts them sees what was measured twice.
        "effects": Input(Path | None, default=None),
    },
)


@workflow.step
def discover(root: Path) -> list[str]:
    """The Python files below ``root``, as paths relative to it, without what was installed there."""
    if not root.is_dir():
        raise NotADirectoryError(f"{root} is not a directory")
    files = (path for path in root.rglob("*.py") if path.is_file())
    names = (path.relative_to(root) for path in files)
    return sorted(name.as_posix() for name in names if NOT_OURS.isdisjoint(name.parts))


@workflow.step(map_over=discover, max_concurrency=4, on_item_failure="collect")
def measure(item: str, root: Path, effects: Path | None) -> Figures:
    """The figures of one file. The interpreter parses one at a time, so more workers would only wait."""
    if effects is not None:
        _append(effects, item)
    return measure_file(root / item, item)


@workflow.step
def totals(measure: list[Figures | ItemFailure]) -> dict[str, int | float]:
    """The sums over all files, under the words the report uses."""
    measured = [figures for figures in measure if not isinstance(figures, ItemFailure)]
    complexities = [complexity for figures in measured for complexity in figures["functions"].values()]
    return {
        "files": len(measure),
        "files not measured": len(measure) - len(measured),
        "lines": sum(figures["loc"] for figures in measured),
        "functions": len(complexities),
        "mean complexity": round(sum(complexities) / len(complexities), 2) if complexities else 0.0,
    }


def is_enough(enough: bool) -> bool:
    """Whether the round that ended was the last."""
    return enough


# What a round is to learn from the one before is a variable: the threshold that was too high, and whether it was not.
tightening = Workflow(
    "tightening",
    inputs={"measure": list, "threshold": int, "wanted": int},
    variables={"limit": None, "enough": False},
    loop=Loop(until=is_enough),
)


@tightening.step(writes=("limit", "enough"))
def lower(
    ctx: StepContext, measure: list[Figures | ItemFailure], threshold: int, wanted: int, limit: int | None
) -> int:
    """The threshold of this round: first the one that was asked for, then the next that lets more functions through.

    So each round finds at least one function more, and there are no more than ``wanted`` beside the first.
    """
    complexities = [hotspot["complexity"] for hotspot in _each_function(measure)]
    if limit is not None:
        threshold = max(complexity for complexity in complexities if complexity <= limit) - 1
    above = sum(complexity > threshold for complexity in complexities)
    ctx.set("limit", threshold)
    ctx.set("enough", above >= min(wanted, len(complexities)))
    return threshold


# It has its inputs by their names: what was measured is handed on as it is, and not journaled again.
workflow.add(StepSpec("tighten", workflow=tightening))


def which_way(hotspots: list[Hotspot]) -> str:
    """The branch that tells the reader what was found."""
    return "worst" if hotspots else "all_clear"


@workflow.step(branches=("worst", "all_clear"), router=which_way)
def hotspots(measure: list[Figures | ItemFailure], tighten: dict[str, int]) -> list[Hotspot]:
    """The functions above the threshold, the most complex first."""
    above = [hotspot for hotspot in _each_function(measure) if hotspot["complexity"] > tighten["lower"]]
    return sorted(above, key=lambda hotspot: -hotspot["complexity"])  # stable: as found among equals


def as_asked(layout: str | None) -> str | None:
    """The layout that was asked for; None leaves it to the router plugins."""
    return layout


@workflow.step(branches=("by_function", "by_file"), router=as_asked, on_no_route="all")
def worst(hotspots: list[Hotspot]) -> dict[str, int]:
    """What is to be laid out, in figures that a router can go by. Where nobody decides, both layouts are made."""
    return {"functions": len(hotspots), "files": len({_file(each) for each in hotspots})}


@workflow.step(depends_on=[worst])
def by_function(hotspots: list[Hotspot], tighten: dict[str, int]) -> str:
    """The report's section on the most complex functions, a row each."""
    rows = [f"| {each['complexity']} | {_cell(each['name'])} | {_cell(each['where'])} |" for each in hotspots[:WORST]]
    opening = f"{_count(len(hotspots), 'function')} above {tighten['lower']}; the most complex ({len(rows)}):"
    return "\n".join([opening, "", "| complexity | function | where |", "| ---: | --- | --- |", *rows])


@workflow.step(depends_on=[worst])
def by_file(hotspots: list[Hotspot], tighten: dict[str, int]) -> str:
    """The same, with a row for each file that has some; those with the most come first."""
    files: dict[str, list[int]] = {}
    for each in hotspots:
        files.setdefault(_file(each), []).append(each["complexity"])
    most = sorted(files.items(), key=lambda file: -len(file[1]))[:WORST]  # stable: the most complex first
    rows = [f"| {len(found)} | {max(found)} | {_cell(file)} |" for file, found in most]
    many = f"{_count(len(hotspots), 'function')} above {tighten['lower']} in {_count(len(files), 'file')}"
    opening = f"{many}; the files with the most ({len(rows)}):"
    return "\n".join([opening, "", "| functions | most complex | file |", "| ---: | ---: | --- |", *rows])


@workflow.step
def all_clear(hotspots: list[Hotspot], tighten: dict[str, int]) -> str:  # noqa: ARG001 - a branch depends on its branch point
    """The report's section on the most complex functions when none is above the threshold."""
    return f"No function above {tighten['lower']}."


@workflow.step
def draft(
    root: Path,
    totals: dict[str, int | float],
    measure: list[Figures | ItemFailure],
    by_function: str | None,
    by_file: str | None,
    all_clear: str | None,
) -> str:
    """The report. Of two layouts that nobody chose between, the first is taken."""
    failures = [f"- {_code(str(each.item))}: {_reason(each)}" for each in measure if isinstance(each, ItemFailure)]
    lines = [
        "# Code audit",
        "",
        _code(str(root)),
        "",
        "| total | |",
        "| --- | ---: |",
        *(f"| {what} | {figure} |" for what, figure in totals.items()),
        "",
        "## Worst functions",
        "",
        by_function or by_file or all_clear or "",
        "",
        "## Files not measured",
        "",
        *(failures or ["None."]),
    ]
    return "\n".join(lines) + "\n"


@workflow.step
def write_report(report: Path, draft: str) -> Path:
    """Writes the report and returns where it is. Its reader sees the old one or the new one, never a part."""
    return _replace(report.absolute(), draft)


def is_to_be_published(publish_to: Path | None) -> bool:
    """Whether there is anything to ask."""
    return publish_to is not None


@workflow.step(condition=is_to_be_published)
def publish(ctx: StepContext, draft: str, report: Path, publish_to: Path, totals: dict[str, int | float]) -> Path:
    """Publishes the report once a human said Yes. It is the text that there was when the question was asked, whatever
    became of the file since, and the place that the question named, wherever the run is resumed.
    """
    place = ctx.once("place", publish_to.absolute)
    ctx.interrupt("publish", f"Publish {report} as {place}?", totals)
    return _replace(place, draft)


# --- small helpers -----------------------------------------------------------------------------


def _each_function(measured: list[Figures | ItemFailure]) -> Iterator[Hotspot]:
    for figures in measured:
        if isinstance(figures, ItemFailure):
            continue
        for function, complexity in figures["functions"].items():
            name, _, line = function.rpartition(":")
            yield Hotspot(where=f"{figures['path']}:{line}", name=name, complexity=complexity)


def _file(hotspot: Hotspot) -> str:
    return hotspot["where"].rpartition(":")[0]


def _reason(failure: ItemFailure) -> str:
    """Why it failed, in one line; the same whether it failed in this process or in one before a resume."""
    error = failure.error
    text = error.message if isinstance(error, RecordedError) else str(error)
    return " ".join(text.split())


def _code(text: str) -> str:
    """``text`` as Markdown code on one line, whatever a file name may hold."""
    return "`" + "".join(char if char.isprintable() and char != "`" else "?" for char in text) + "`"


def _cell(text: str) -> str:
    return _code(text).replace("|", r"\|")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _append(file: Path, line: str) -> None:
    with file.open("ab", buffering=0) as effects:
        effects.write(line.encode(errors="surrogateescape") + b"\n")
        os.fsync(effects.fileno())


def _replace(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f".{file.name}.part")
    with part.open("w", encoding="utf-8", errors="backslashreplace", newline="\n") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    return part.replace(file)
