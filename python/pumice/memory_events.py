"""How often the kernel has killed for memory in this process's control group."""

from __future__ import annotations

from pathlib import Path

__all__ = ["oom_kills"]


def oom_kills() -> int:
    """The count of `memory.events`; 0 where there is none (no Linux, no control groups of version 2)."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
        own = next(line.partition("::")[2] for line in lines if line.startswith("0::"))
        events = Path("/sys/fs/cgroup", own.lstrip("/"), "memory.events").read_text()
    except (OSError, StopIteration):
        return 0
    counts = dict(line.split(maxsplit=1) for line in events.splitlines())
    return int(counts.get("oom_kill", 0))
