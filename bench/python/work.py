"""What the tasks do: next to nothing, or so much computing. As a program, one task, whose number HyperQueue tells."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

__all__ = ["SPIN_SECONDS", "WORKS", "spin", "tiny"]

SPIN_SECONDS = 0.05


def tiny(number: int) -> int:
    """Next to nothing."""
    return number * number + 1


def spin(number: int) -> int:
    """So many seconds of CPU."""
    end = time.process_time() + SPIN_SECONDS
    while time.process_time() < end:
        pass
    return tiny(number)


WORKS = {"tiny": tiny, "spin": spin}
"""By name."""


def keep(name: str, number: int, folder: str) -> None:
    """Run one and write its value into a file, where nobody else brings it back."""
    (Path(folder) / str(number)).write_text(str(WORKS[name](number)))


if __name__ == "__main__":
    keep(sys.argv[1], int(os.environ["HQ_TASK_ID"]), sys.argv[2])
