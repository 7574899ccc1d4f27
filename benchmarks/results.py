"""The one table that is kept of a run, made of its JSON and of nothing else: nobody types a figure."""

import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.report import markdown

_HEAD = ["what", "ares", "beside", "median", "lowest-highest", "at most", "verdict"]
_READING = (
    "`python -m benchmarks --results benchmarks/RESULTS.md` has written this. *ares* is the median of what an operation"
    " (of a workflow: a step) takes. What follows is, without a unit, ares divided by what it stands beside, both"
    " measured in one round of this run: the median of the rounds, and the lowest and the highest, which is the spread."
    " The targets come first."
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
    missing = (f"- not measured: {label}: {why}" for cell in run["cells"] for label, why in cell["missing"].items())
    lines += dict.fromkeys(missing)
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
        what, _, beside = each["what"].partition(" / ")
        figures = ["", ""]
        if each["figure"] is not None:
            figures = [f"{each['figure']:.2f}{each['unit']}", f"{each['low']:.2f}-{each['high']:.2f}"]
        yield [what, "", beside, *figures, f"{each['target']:g}{each['unit']}", each["verdict"]]


def _cells(run: dict[str, Any]) -> Iterator[list[str]]:
    for cell in run["cells"]:
        for label, theirs in cell["seconds"].items():
            # A comma is in the names of other ways of using a library, and of a limit before and after.
            if label != "ares" and "," not in label:
                yield _ratio(cell["what"], cell["seconds"].get("ares", []), label, theirs)


def _growth(run: dict[str, Any]) -> Iterator[list[str]]:
    for line in run["growth"]:
        if line["label"] != "ares":
            continue
        points: dict[int, list[dict[str, float]]] = {}
        for point in (point for each in line["rounds"] for point in each):
            points.setdefault(point["count"], []).append(point)
        for count, found in points.items():
            what = f"chain of {count:,}, {'durable' if line['is_stored'] else 'no store'}"
            micros = [point["seconds"] * 1e6 for point in found]
            yield [
                what,
                f"{statistics.median(micros):,.0f} us",
                "",
                "",
                f"{min(micros):,.0f}-{max(micros):,.0f} us",
                "",
                "",
            ]
            if line["is_stored"]:
                sizes = [point["bytes"] for point in found]
                yield [
                    f"{what}, of file",
                    f"{statistics.median(sizes):,.0f} B",
                    "",
                    "",
                    f"{min(sizes):,.0f}-{max(sizes):,.0f} B",
                    "",
                    "",
                ]


def _plugins(run: dict[str, Any]) -> Iterator[list[str]]:
    for each in run["bus"]:
        yield _ratio(each["what"], each["ours"], each["beside"], each["theirs"], each["missing"])


def _ratio(what: str, ours: Sequence[float], beside: str, theirs: Sequence[float], missing: str = "") -> list[str]:
    micros = f"{statistics.median(ours) * 1e6:,.{0 if max(ours) > 1e-4 else 2}f} us" if ours else ""
    ratios = [mine / other for mine, other in zip(ours, theirs, strict=False)]
    if not ratios:
        return [what, micros, beside, "", "", "", missing or "not measured"]
    return [what, micros, beside, f"{statistics.median(ratios):.2f}", f"{min(ratios):.2f}-{max(ratios):.2f}", "", ""]
