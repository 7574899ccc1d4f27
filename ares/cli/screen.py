"""Lines for people, on a terminal or in a file.

Every text that comes here is made harmless here, so no caller can forget to. Styles never come from data: a part of a
line is a text, or a text with the name of its style, and neither is ever read as markup.
"""

import shutil
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, TextIO

from ares.cli.concealing import Concealed
from ares.cli.text import plain

if TYPE_CHECKING:
    from rich.console import Console

#: A text, or a text and its style.
Part = str | tuple[str, str]

_GAP = "  "


class Screen:
    """Prints lines to a stream; in colours when that is a terminal, which ``NO_COLOR`` and ``TERM`` may forbid."""

    def __init__(self, stream: TextIO, concealed: Concealed | None = None) -> None:
        self.stream = stream
        self._concealed = concealed or Concealed()
        self.is_terminal = stream.isatty()

    @cached_property
    def console(self) -> "Console":
        """The stream, as rich sees it. Data is never markup: that is off."""
        from rich.console import Console

        return Console(file=self.stream, markup=False, emoji=False, highlight=False)

    def line(self, *parts: Part) -> None:
        """Print one line, as long as it is: a path that was cut could not be used."""
        if not self.is_terminal:
            print("".join(self._harmless(part) for part in parts), file=self.stream, flush=True)
            return
        from rich.text import Text

        styled = ((self._harmless(part), _style(part)) for part in parts)
        self.console.print(Text.assemble(*styled), soft_wrap=True)

    def table(self, headings: Sequence[str], rows: Sequence[Sequence[Part]]) -> None:
        """Print rows in columns, a line each. On a terminal what does not fit its width is cut off at the right."""
        lines: list[list[tuple[str, str]]] = [[(heading, "bold") for heading in headings]]
        lines += [[(self._harmless(cell), _style(cell)) for cell in row] for row in rows]
        widths = [max(_width(cells[column][0]) for cells in lines) for column in range(len(headings))]
        room = shutil.get_terminal_size().columns if self.is_terminal else None
        for cells in lines:
            while cells and not cells[-1][0]:
                cells.pop()  # no blanks at the end of a line
            self.line(*_fitted(cells, widths, room))

    def _harmless(self, part: Part) -> str:
        return plain(self._concealed.text(_text(part)))


def _fitted(cells: list[tuple[str, str]], widths: list[int], room: int | None) -> list[Part]:
    parts: list[Part] = []
    left = room
    for (text, style), width in zip(cells, widths, strict=False):
        is_last = len(parts) == len(cells) - 1
        padded = text if is_last else text + " " * (width - _width(text)) + _GAP
        if left is not None:
            padded = _cropped(padded, left)
            left -= _width(padded)
        parts.append((padded, style))
    return parts


def _cropped(text: str, room: int) -> str:
    if _width(text) <= room:
        return text
    from rich.cells import set_cell_size

    return f"{set_cell_size(text, room - 1)}…" if room > 0 else ""


def _width(text: str) -> int:
    """Columns of a terminal that a text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _text(part: Part) -> str:
    return part if isinstance(part, str) else part[0]


def _style(part: Part) -> str:
    return "" if isinstance(part, str) else part[1]
