"""One picture: what a step costs against how many there are. The only module that needs matplotlib."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from benchmarks.growth import Line

#: A library has the same colour in every panel.
_COLOURS = {"ares": "C0", "LangGraph": "C1", "DBOS": "C2", "Burr": "C3", "Dask": "C4"}


def draw(lines: Sequence[Line], path: Path, note: str) -> None:
    """Microseconds a step at growing lengths of a chain, without a store and durable; bytes beside them."""
    figure = Figure(figsize=(13, 4.8), layout="constrained")
    panels = figure.subplots(1, 3)
    _panel(panels[0], [line for line in lines if not line.is_stored], "no store", "microseconds a step", of=1)
    _panel(panels[1], [line for line in lines if line.is_stored], "durable", "microseconds a step", of=1)
    _panel(panels[2], [line for line in lines if line.is_stored], "durable", "bytes of file a step", of=2)
    figure.suptitle(f"A chain of n trivial steps. {note}", fontsize=10)
    figure.savefig(path, dpi=110)


def _panel(panel: object, lines: Sequence[Line], title: str, unit: str, *, of: int) -> None:
    scale = 1e6 if of == 1 else 1.0
    for line in lines:
        points = line.medians()
        if points:
            panel.plot(
                [point[0] for point in points],
                [point[of] * scale for point in points],
                marker="o",
                label=line.label,
                color=_COLOURS.get(line.label),
                linewidth=2.5 if line.label == "ares" else 1.2,
            )
    panel.set(xscale="log", yscale="log", xlabel="n", ylabel=unit, title=title)
    panel.grid(visible=True, which="both", alpha=0.25)
    panel.legend(fontsize=8)
