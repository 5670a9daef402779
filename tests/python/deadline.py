"""How long tests wait, for what they wait for."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

DEADLINE = 60.0
T = TypeVar("T")


def until(look: Callable[[], T], within: float = DEADLINE) -> T:
    """What `look` gives once that is true."""
    late = time.monotonic() + within
    while True:
        seen = look()
        if seen:
            return seen
        assert time.monotonic() < late, f"still {seen!r}"
        time.sleep(0.05)
