"""The one table that is kept of a run, made of its JSON and of nothing else: nobody types a figure."""

import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.report import markdown

_HEAD = ["what, or what / what it stands beside", "median", "lowest-highest", "at most", "verdict"]
_READING = (
    "`python -m benchmarks --results benchmarks/RESULTS.md` has written this. Without a unit a figure is a ratio: ares"
    " divided by what it stands beside, both measured in one round of this run. Lowest and highest are of the rounds:"
    " that is the spread."
)


def text(run: dict[str, Any]) -> str:
    """The page that is kept.

    Args:
        run: A run as ``Report.figures`` has it.
    """
    rows = [_HEAD, *_targets(run), *_cells(run), *_growth(run), *_plugins(run)]
    return "\n\n".join(("# Results", _READING, _facts(run), markdown(rows))) + "\n"


def _facts(run: dict[str, Any]) -> str:
    usage, versions = run["usage"], run["versions"]
    lines = [f"- {name}: {value}" for name, value in run["machine"].items()]
    lines.append("- versions: " + ", ".join(f"{name} {number}" for name, number in versions.items()))
    lines += [f"- left out: {name}: {reason}" for name, reason in run["absent"].items()]
    lines.append(
        f"- {usage['minutes']:.0f} minutes, {_rounds(run)} rounds; others used {usage['others']:.0%} of the processors"
        f" meanwhile, the host's other guests {usage['stolen']:.0%}"
    )
    return "\n".join(lines)


def _rounds(run: dict[str, Any]) -> int:
    """The most that anything was measured."""
    figures = [cell["seconds"].get("ares", []) for cell in run["cells"]] + [each["ours"] for each in run["bus"]]
    return max(map(len, figures), default=0)


# --- the rows ------------------------------------------------------------------------------------------------


def _targets(run: dict[str, Any]) -> Iterator[list[str]]:
    for each in run["targets"]:
        if each["figure"] is None:
            figures = ["", ""]
        else:
            figures = [f"{each['figure']:.2f}{each['unit']}", f"{each['low']:.2f}-{each['high']:.2f}"]
        yield [each["what"], *figures, f"{each['target']:g}{each['unit']}", each["verdict"]]


def _cells(run: dict[str, Any]) -> Iterator[list[str]]:
    for cell in run["cells"]:
        ours = cell["seconds"].get("ares", [])
        yield _in_us(f"{cell['what']}: a step", ours)
        for label, theirs in cell["seconds"].items():
            # Those before and after are averaged under the name without it.
            if label != "ares" and not label.endswith((", before", ", after")):
                yield _ratio(f"{cell['what']} / {label}", ours, theirs)


def _growth(run: dict[str, Any]) -> Iterator[list[str]]:
    for line in run["growth"]:
        if line["label"] != "ares":
            continue
        points: dict[int, list[dict[str, float]]] = {}
        for point in (point for each in line["rounds"] for point in each):
            points.setdefault(point["count"], []).append(point)
        for count, found in points.items():
            what = f"a step of {count:,}, {'durable' if line['is_stored'] else 'no store'}"
            yield _in_us(what, [point["seconds"] for point in found])
            if line["is_stored"]:
                yield _row(f"{what}: of file", [point["bytes"] for point in found], 0, " B")


def _plugins(run: dict[str, Any]) -> Iterator[list[str]]:
    for each in run["bus"]:
        yield _in_us(each["what"], each["ours"], digits=2)
        if each["most"] is None:  # with a target it stands above
            yield _ratio(f"{each['what']} / {each['beside']}", each["ours"], each["theirs"])


def _ratio(what: str, ours: Sequence[float], theirs: Sequence[float]) -> list[str]:
    return _row(what, [mine / other for mine, other in zip(ours, theirs, strict=False)])


def _in_us(what: str, seconds: Sequence[float], digits: int = 0) -> list[str]:
    return _row(what, [each * 1e6 for each in seconds], digits, " us")


def _row(what: str, figures: Sequence[float], digits: int = 2, unit: str = "") -> list[str]:
    if not figures:
        return [what, "", "", "", "not measured"]
    middle, low, high = statistics.median(figures), min(figures), max(figures)
    return [what, f"{middle:,.{digits}f}{unit}", f"{low:,.{digits}f}-{high:,.{digits}f}", "", ""]
