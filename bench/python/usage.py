"""CPU time of this process and of all that descends from it, ended or not, from `/proc`.

Daemons are in it: this process adopts those whose parent has ended (`PR_SET_CHILD_SUBREAPER`), and what ended adds its
time to whoever waited for it. What the kernel does in threads of its own is nobody's: `machine` has that, too.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import time
from pathlib import Path

__all__ = ["adopt", "family", "machine", "reap", "settle"]

_SET_CHILD_SUBREAPER = 36
_TICK = os.sysconf("SC_CLK_TCK")
_QUIET_SECONDS = 1.0
_QUIET_SHARE = 0.05
_SETTLE_SECONDS = 60.0


def adopt() -> None:
    """Make this process the parent of descendants whose own has ended."""
    if ctypes.CDLL(None, use_errno=True).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "can't adopt the processes that daemons leave behind")


def _stats() -> dict[int, tuple[int, str, int]]:
    """Parent, state and ticks (its own and of those it waited for) of every process."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                # The name in brackets may hold anything.
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                found[int(entry.name)] = (int(fields[1]), fields[0], sum(int(ticks) for ticks in fields[11:15]))
    return found


def _descendants(stats: dict[int, tuple[int, str, int]]) -> list[int]:
    children: dict[int, list[int]] = {}
    for pid, (parent, _, _) in stats.items():
        children.setdefault(parent, []).append(pid)
    found, left = [], [os.getpid()]
    while left:
        pids = children.get(left.pop(), [])
        found += pids
        left += pids
    return found


def family() -> float:
    """Seconds of CPU, user and system. To 10 ms for each process that is there."""
    stats = _stats()
    return sum(os.times()[:4]) + sum(stats[pid][2] for pid in _descendants(stats)) / _TICK


def machine() -> float:
    """Seconds that all cores of the machine were busy."""
    fields = Path("/proc/stat").read_text().partition("\n")[0].split()[1:9]
    busy = [int(ticks) for position, ticks in enumerate(fields) if position not in (3, 4)]
    return sum(busy) / _TICK


def settle() -> None:
    """Wait until the family does nothing much any more: what a run leaves behind to be done is part of it."""
    deadline = time.monotonic() + _SETTLE_SECONDS
    before = family()
    while time.monotonic() < deadline:
        time.sleep(_QUIET_SECONDS)
        now = family()
        if now - before < _QUIET_SHARE * _QUIET_SECONDS:
            return
        before = now


def reap() -> None:
    """Wait for the adopted processes that have ended, so that they go. Not while somebody else waits for a child."""
    for pid, (parent, state, _) in _stats().items():
        if parent == os.getpid() and state == "Z":
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
