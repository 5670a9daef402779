"""How many calls of a map make a shard, which is a pod, where nobody says so by `chunk`."""

from __future__ import annotations

import os

__all__ = ["default_chunk"]

_PODS_PER_CPU = 4
"""Pods of a job on this machine, for each of its processors."""
_PODS_ELSEWHERE = 1_000
"""Pods of a job at most, where nobody knows how many run at a time."""


def default_chunk(count: int, *, here: bool) -> int:
    """The chunk of a map of so many calls; `here` is whether pods run on this machine."""
    most = _PODS_PER_CPU * (os.cpu_count() or 1) if here else _PODS_ELSEWHERE
    return -(-count // most)
