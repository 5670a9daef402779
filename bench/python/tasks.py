"""Overhead of a task, each way beside the others in the same run: `tasks.py`, told by `make bench NAME=tasks`.

A line of JSON for each figure. Rounds are interleaved, so that what else the machine does meets all of them alike; figures
are medians over the rounds. Overhead is what was used beyond the work itself.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from typing import NamedTuple

import usage
import ways
import work
from figures import size, tell, wants

TASKS = 1000
ROUNDS = int(os.environ.get("PUMICE_BENCH_ROUNDS", "3"))
PEERS = ("pool", "hyperqueue_functions", "hyperqueue_programs", "hyperqueue_true", "xargs_true")
PYTHON = ("pool", "hyperqueue_functions", "hyperqueue_programs", "local", "map", "executor", "pods")
ROWS = {"tiny": PYTHON, "spin": PYTHON, "process": ("xargs_true", "hyperqueue_true", "jobctl_true")}
"""What is run, and by which ways."""


class Used(NamedTuple):
    """Seconds of one round."""

    wall: float
    cpu: float
    machine: float


def measure(way: str, row: str, count: int) -> Used:
    """One round of one way."""
    command = [sys.executable, ways.__file__, way, row, str(count)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise SystemExit(f"{way} could not make ready for {row}")
        usage.settle()
        before, machine = usage.family(), usage.machine()
        process.stdin.write("run\n")
        line = process.stdout.readline()
        if not line:
            raise SystemExit(f"{way} failed at {row}")
        usage.settle()
        used = Used(float(line), usage.family() - before, usage.machine() - machine)
        process.stdin.write("end\n")
    usage.reap()
    return used


def tell_row(row: str, rounds: dict[str, list[Used]], count: int) -> None:
    """All figures of a row."""
    pure = work.SPIN_SECONDS if row == "spin" else 0.0
    cpu = {way: statistics.median(used.cpu for used in taken) for way, taken in rounds.items()}
    wall = {way: statistics.median(used.wall for used in taken) for way, taken in rounds.items()}
    busy = {way: statistics.median(used.machine for used in taken) for way, taken in rounds.items()}
    for way, taken in rounds.items():
        name, times = f"{row}/{way}", len(taken)
        tell(f"{name}/wall", wall[way], "s", times)
        tell(f"{name}/cpu", cpu[way], "s", times)
        tell(f"{name}/machine", busy[way], "s", times)
        tell(f"{name}/cpu_overhead", (cpu[way] / count - pure) * 1e3, "ms/task", times)
        tell(f"{name}/wall_overhead", (wall[way] / count - pure / ways.WORKERS) * 1e3, "ms/task", times)
        for peer in PEERS:
            if peer in rounds and way not in PEERS:
                tell(f"{name}/cpu_of_{peer}", cpu[way] / cpu[peer], "ratio", times)
                tell(f"{name}/wall_of_{peer}", wall[way] / wall[peer], "ratio", times)


def main() -> None:
    """Every row that is wanted, at this run's scale."""
    count = size(TASKS)
    times = ROUNDS if count == TASKS else 1
    usage.adopt()
    for row, names in ROWS.items():
        chosen = [way for way in names if wants(f"{row}/{way}")]
        rounds: dict[str, list[Used]] = {way: [] for way in chosen}
        for _ in range(times):
            for way in chosen:
                rounds[way].append(measure(way, row, count))
        tell_row(row, rounds, count)


if __name__ == "__main__":
    main()
