"""What a notebook shows: a small table of a map's states."""

from __future__ import annotations

import html as escaping
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from .backend import State
from .redraw_interval import REDRAW_SECONDS

__all__ = ["NotebookPainter", "html", "in_notebook"]

_SHOWN_FAILURES = 5
_COLOURS = {
    State.SUCCEEDED: "#2e7d32",
    State.FAILED: "#c62828",
    State.CANCELLED: "#757575",
    State.RUNNING: "#1565c0",
    State.WAITING: "#bdbdbd",
}


def in_notebook() -> bool:
    """Whether this runs in a notebook's kernel; IPython isn't imported for asking."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None and hasattr(ipython, "get_ipython") else None
    return shell is not None and hasattr(shell, "kernel")


def html(name: str, counts: Mapping[State, int], failed: Sequence[Any]) -> str:
    """A bar, the counts, and the first failures."""
    total = sum(counts.values()) or 1
    shown = {state: counts[state] for state in _COLOURS if counts[state]}
    bar = "".join(
        f'<div style="width:{100 * count / total:.2f}%;background:{_COLOURS[state]}"></div>'
        for state, count in shown.items()
    )
    cells = "".join(f'<td style="text-align:right">{count:,}</td>' for count in shown.values())
    heads = "".join(f'<th style="color:{_COLOURS[state]}">{state.value}</th>' for state in shown)
    rows = "".join(
        f"<tr><td>{escaping.escape(item.key)}</td><td>{escaping.escape(_first_line(item))}</td></tr>"
        for item in failed[:_SHOWN_FAILURES]
    )
    more = f"<p>and {len(failed) - _SHOWN_FAILURES:,} more in .failed</p>" if len(failed) > _SHOWN_FAILURES else ""
    failures = f"<table><tr><th>failed</th><th>because</th></tr>{rows}</table>{more}" if rows else ""
    return (
        f'<div><strong>{escaping.escape(name)}</strong><div style="display:flex;height:6px;max-width:30em">{bar}</div>'
        f"<table><tr>{heads}</tr><tr>{cells}</tr></table>{failures}</div>"
    )


def _first_line(item: Any) -> str:
    failure = getattr(item.error, "failure", None)
    return str(failure.message if failure is not None else item.error).partition("\n")[0][:200]


class NotebookPainter:
    """One output that is updated."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._handle: Any = None
        self._last = 0.0

    def paint(self, counts: Mapping[State, int]) -> None:
        """Show the table, if it was not shown just before."""
        now = time.monotonic()
        if now - self._last >= REDRAW_SECONDS:
            self._last = now
            self._show(counts)

    def clear(self) -> None:
        """It isn't in the way."""

    def end(self, counts: Mapping[State, int]) -> None:
        """Show it a last time, if it was shown at all."""
        if self._handle is not None:
            self._show(counts)

    def _show(self, counts: Mapping[State, int]) -> None:
        from IPython import display

        shown: Any = display
        output = shown.HTML(html(self._name, counts, ()))
        if self._handle is None:
            self._handle = shown.display(output, display_id=True)
        else:
            self._handle.update(output)
