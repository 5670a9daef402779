"""Ctrl-C ends the wait, not the job; whether the job is to end as well is asked."""

from __future__ import annotations

import select
import sys

from .notebook import in_notebook

__all__ = ["asked_to_cancel"]

# Seconds after which a Ctrl-C is noticed that came just before the call that waits for an answer, and so does not end it.
LOOK_EVERY = 0.2


def asked_to_cancel(job: str) -> bool:
    """Ask in a terminal; elsewhere say how to cancel. A second Ctrl-C is a no."""
    if in_notebook():
        print(f"{job} runs on. To end it: .cancel() of the result; to wait on: .wait().", file=sys.stderr)  # noqa: T201
        return False
    if not (sys.stdin and sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    try:
        print(f"\n{job} runs on. Cancel it? [y/N] ", end="", file=sys.stderr, flush=True)  # noqa: T201
        while not select.select([sys.stdin], [], [], LOOK_EVERY)[0]:
            pass
        return sys.stdin.readline().strip().lower() in ("y", "yes")
    except KeyboardInterrupt:
        return False
