"""The README's first command: the tour shows what it says, and leaves nothing behind."""

from __future__ import annotations

import subprocess
from pathlib import Path

from up import BINARIES

TOUR = Path(__file__).parents[1] / "demo" / "run"
TIMEOUT = 240


def test_the_tour_ends_well():
    tour = subprocess.run([TOUR, BINARIES], capture_output=True, text=True, timeout=TIMEOUT, check=False)
    assert tour.returncode == 0, tour.stdout + tour.stderr
