"""A terminal's screen as an SVG file: text that stays text, legible on light and dark pages. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple
from xml.sax.saxutils import escape

__all__ = ["Cell", "picture"]

WIDTH, HEIGHT, FONT, MARGIN = 8.4, 18, 14, 14
BACKGROUND, FOREGROUND = "#1b2028", "#d8dee9"
COLOURS: Mapping[str, str] = {
    "black": "#4c566a",
    "red": "#f07178",
    "green": "#a5d67b",
    "brown": "#f2c572",
    "blue": "#7aa2f7",
    "magenta": "#c792ea",
    "cyan": "#7fd1e0",
    "white": "#eceff4",
}
# Fonts draw these with gaps between cells, so they are drawn as rectangles that are so opaque.
SHADES: Mapping[str, float] = {"█": 1, "▓": 0.7, "▒": 0.45, "░": 0.2}
# And these as lines: to the left, right, up and down of the middle.
BOXES: Mapping[str, str] = {"─": "lr", "│": "ud", "└": "ur", "├": "udr", "┌": "dr", "┐": "dl", "┘": "ul", "┤": "udl"}


class Cell(NamedTuple):
    """A character, and how it is drawn."""

    text: str
    colour: str = "default"
    bold: bool = False
    reversed: bool = False


def picture(rows: Sequence[Sequence[Cell]]) -> str:
    """The whole file. All rows have the same number of cells."""
    columns = max(map(len, rows), default=0)
    width, height = columns * WIDTH + 2 * MARGIN, len(rows) * HEIGHT + 2 * MARGIN
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}">',
        f"<style>text{{font:{FONT}px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;white-space:pre}}"
        ".b{font-weight:bold}</style>",
        f'<rect width="100%" height="100%" rx="8" fill="{BACKGROUND}"/>',
    ]
    for number, row in enumerate(rows):
        lines.extend(_row(row, MARGIN + number * HEIGHT))
    return "\n".join([*lines, "</svg>\n"])


def _row(row: Sequence[Cell], top: float) -> Iterator[str]:
    column = 0
    for (kind, *_), group in groupby(row, key=_kind):
        cells = list(group)
        left = MARGIN + column * WIDTH
        column += len(cells)
        if cells[0].reversed:
            yield _filled(left, top, len(cells) * WIDTH, HEIGHT, cells[0])
        if kind == "text":
            yield from _text(cells, left, top)
        elif kind in SHADES:
            yield _filled(left, top + 2, len(cells) * WIDTH, HEIGHT - 4, cells[0], SHADES[kind])
        else:
            yield _lines(cells, left, top)


def _kind(cell: Cell) -> tuple[str, str, bool, bool]:
    """What is drawn as one thing."""
    kind = cell.text if cell.text in SHADES else "box" if cell.text in BOXES else "text"
    return kind, cell.colour, cell.bold, cell.reversed


def _text(cells: Sequence[Cell], left: float, top: float) -> Iterator[str]:
    whole = "".join(cell.text for cell in cells)
    text = whole.strip()
    if not text:
        return
    left += (len(whole) - len(whole.lstrip())) * WIDTH
    bold = ' class="b"' if cells[0].bold else ""
    colour = BACKGROUND if cells[0].reversed else _ink(cells[0])
    # Whatever font there is, columns stay columns.
    length = f' textLength="{len(text) * WIDTH:g}"' if len(text) > 1 else ""
    yield f'<text x="{left:g}" y="{top + FONT - 1:g}"{length}{bold} fill="{colour}">{escape(text)}</text>'


def _filled(left: float, top: float, width: float, height: float, cell: Cell, opacity: float = 1) -> str:
    faint = f' fill-opacity="{opacity:g}"' if opacity < 1 else ""
    return f'<rect x="{left:g}" y="{top:g}" width="{width:g}" height="{height:g}" fill="{_ink(cell)}"{faint}/>'


def _lines(cells: Sequence[Cell], left: float, top: float) -> str:
    path = "".join(_box(cell.text, left + number * WIDTH, top) for number, cell in enumerate(cells))
    return f'<path d="{path}" stroke="{_ink(cells[0])}" fill="none"/>'


def _box(text: str, left: float, top: float) -> str:
    x, y = left + WIDTH / 2, top + HEIGHT / 2
    ends = {"l": f"H{left:g}", "r": f"H{left + WIDTH:g}", "u": f"V{top:g}", "d": f"V{top + HEIGHT:g}"}
    return "".join(f"M{x:g} {y:g}{ends[way]}" for way in BOXES[text])


def _ink(cell: Cell) -> str:
    colour = cell.colour.removeprefix("bright")
    if len(colour) == 6 and all(digit in "0123456789abcdef" for digit in colour):
        return f"#{colour}"
    return COLOURS.get(colour, FOREGROUND)
