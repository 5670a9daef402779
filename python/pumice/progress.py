"""How a map goes, drawn again and again: one line in a terminal, a table in a notebook, nothing elsewhere."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from .backend import State
from .notebook import NotebookPainter, in_notebook
from .redraw_interval import REDRAW_SECONDS

if TYPE_CHECKING:
    from .map_result import MapResult

__all__ = ["LinePainter", "Painter", "line", "painter"]

_BAR = 20
_SHADES = "░▒▓"


class Painter(Protocol):
    """Shows counts."""

    def paint(self, counts: Mapping[State, int]) -> None:
        """Show them, unless that was done just before."""

    def clear(self) -> None:
        """Make room for something else."""

    def end(self, counts: Mapping[State, int]) -> None:
        """Show them a last time."""


def painter(result: MapResult[Any], show: bool) -> Painter | None:
    """What shows a map's progress here; `show` wants it though nobody may look."""
    if os.environ.get("PUMICE_NO_PROGRESS") and not show:
        return None
    if in_notebook():
        return NotebookPainter(result.name)
    if show or sys.stderr.isatty():
        return LinePainter(sys.stderr, result.began)
    return None


def line(counts: Mapping[State, int], seconds: float, width: int) -> str:
    """Counts as one line of at most `width` characters."""
    total = sum(counts.values())
    over = sum(count for state, count in counts.items() if state.final)
    share = over / total if total else 1.0
    whole, part = divmod(round(share * _BAR * len(_SHADES)), len(_SHADES))
    bar = ("█" * whole + _SHADES[part]).ljust(_BAR, _SHADES[0])[:_BAR]
    rate = over / seconds if seconds > 0 else 0.0
    parts = [f"{bar} {share * 100:.0f} % {counts[State.SUCCEEDED]:,}/{total:,} ok"]
    for state, word in (
        (State.FAILED, "fail"),
        (State.CANCELLED, "cancelled"),
        (State.RUNNING, "run"),
        (State.WAITING, "wait"),
    ):
        if counts[state]:
            parts.append(f"{counts[state]:,} {word}")
    if rate and over < total:
        parts.append(f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.1f}/s")
        parts.append(f"left {(total - over) / rate:,.0f} s")
    text = parts[0]
    for part_text in parts[1:]:
        if len(text) + 3 + len(part_text) > width:
            break
        text += f" · {part_text}"
    return text[:width]


class LinePainter:
    """One line in a terminal, written over and over."""

    def __init__(self, stream: TextIO, began: float) -> None:
        self._stream = stream
        self._began = began
        self._last = 0.0

    def paint(self, counts: Mapping[State, int]) -> None:
        """Write the line again, if it was not written just before."""
        now = time.monotonic()
        if now - self._last >= REDRAW_SECONDS:
            self._last = now
            self._write(counts, "")

    def clear(self) -> None:
        """Take the line away."""
        if self._stream.isatty():
            self._stream.write("\r\x1b[K")
            self._stream.flush()

    def end(self, counts: Mapping[State, int]) -> None:
        """Write the line a last time and leave it."""
        self._write(counts, "\n")

    def _write(self, counts: Mapping[State, int], end: str) -> None:
        width = shutil.get_terminal_size().columns - 1
        text = line(counts, time.monotonic() - self._began, width)
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        text = text.encode(encoding, "replace").decode(encoding)
        clear = "\x1b[K" if self._stream.isatty() else ""
        self._stream.write(f"\r{text}{clear}{end}")
        self._stream.flush()
