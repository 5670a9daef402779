"""The waiting records of the local pool: whose turn it is, and how many a worker gets at once. No I/O, no clock."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .machine import LocalJob

__all__ = ["Lanes", "Unit"]

_BATCH_SECONDS = 0.004
"""Work a worker is given at once: enough to hide the way there and back, little enough that none waits behind it."""
_BATCH_LIMIT = 256
_FORGET = 0.95


class Unit:
    """One record that isn't over."""

    __slots__ = ("attempt", "id", "index", "job", "lane", "waiting")

    def __init__(self, id_: int, job: LocalJob, index: int, lane: Hashable) -> None:
        self.id = id_
        self.job = job
        self.index = index
        self.lane = lane
        self.attempt = 1
        self.waiting = True
        """False once it is with a worker, or cancelled."""


class _Lane:
    def __init__(self, cap: int | None) -> None:
        self.cap = cap
        self.units: deque[Unit] = deque()
        self.workers: Counter[int] = Counter()
        """How many of its records each worker holds."""

    def admits(self, worker: int) -> bool:
        return self.cap is None or worker in self.workers or len(self.workers) < self.cap


class Lanes:
    """One queue a job, or a group of jobs; they take turns."""

    def __init__(self) -> None:
        self._lanes: dict[Hashable, _Lane] = {}
        self._turns: deque[Hashable] = deque()
        self._slowest: dict[str, float] = {}
        self.waiting = 0

    def add(self, lane: Hashable, cap: int | None, units: Iterable[Unit], *, first: bool = False) -> None:
        """Put records at the end of a queue, or at its head."""
        queue = self._lanes.get(lane)
        if queue is None:
            queue = self._lanes[lane] = _Lane(cap)
            self._turns.append(lane)
        before = len(queue.units)
        if first:
            queue.units.extendleft(reversed(list(units)))
        else:
            queue.units.extend(units)
        self.waiting += len(queue.units) - before

    def measured(self, program: str, seconds: float) -> None:
        """Learn how long records of a program take: the slowest of late counts."""
        self._slowest[program] = max(seconds, self._slowest.get(program, 0.0) * _FORGET)

    def expected(self, program: str) -> float:
        """Seconds a record of the program may take; infinite while none has ended."""
        return self._slowest.get(program, math.inf)

    def take(self, worker: int, workers: int, budget: float = _BATCH_SECONDS) -> list[Unit]:
        """The next records for a worker, one of `workers`: about `budget` seconds of work."""
        for _ in range(len(self._turns)):
            name = self._turns[0]
            self._turns.rotate(-1)
            lane = self._lanes[name]
            if lane.admits(worker):
                batch = self._batch(lane, workers, budget)
                if batch:
                    lane.workers[worker] += len(batch)
                    return batch
                if not lane.workers:
                    del self._lanes[name]
                    self._turns.remove(name)
        return []

    def _batch(self, lane: _Lane, workers: int, budget: float) -> list[Unit]:
        batch: list[Unit] = []
        most, spent = max(1, min(_BATCH_LIMIT, len(lane.units) // (2 * workers))), 0.0
        while lane.units:
            unit = lane.units[0]
            if unit.waiting:
                chunk = unit.job.chunk
                if chunk is not None:
                    if len(batch) == chunk or (batch and batch[0].job is not unit.job):
                        break
                else:
                    spent += self.expected(unit.job.program)
                    if batch and (spent > budget or len(batch) >= most or batch[0].job.chunk is not None):
                        break
                unit.waiting = False
                batch.append(unit)
            lane.units.popleft()
            self.waiting -= 1
        return batch

    def release(self, unit: Unit, worker: int) -> None:
        """A record is no longer with a worker."""
        lane = self._lanes.get(unit.lane)
        if lane is not None:
            lane.workers[worker] -= 1
            if lane.workers[worker] <= 0:
                del lane.workers[worker]

    def drain(self) -> list[Unit]:
        """Take out all that wait."""
        units = [unit for lane in self._lanes.values() for unit in lane.units if unit.waiting]
        self._lanes.clear()
        self._turns.clear()
        self.waiting = 0
        return units
