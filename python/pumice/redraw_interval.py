"""How often the progress of a map is drawn again, as a line in a terminal or a table in a notebook."""

from __future__ import annotations

__all__ = ["REDRAW_SECONDS"]

REDRAW_SECONDS = 0.25
"""Seconds between two drawings at least; changes in between show in the next one."""
