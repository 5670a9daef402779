"""Long-lived worker processes on this machine, and the one thread which hands them records and reads their reports."""

from __future__ import annotations

import itertools
import platform
import selectors
import shutil
import socket
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Hashable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from . import memory_events, process_failures
from .backend import Change, Failure, State
from .fair_queue import Lanes, Unit
from .outcome import is_success
from .pool_worker import WorkerProcess
from .wire import Call, Program, Report

if TYPE_CHECKING:
    from .machine import LocalJob

__all__ = ["Pool"]

_PREFETCH_BELOW = 0.002
"""A worker with less than so many seconds of work gets more before it has ended it."""
_CHECK_EVERY = 0.05
_STILLBORN_LIMIT = 3
_STOP_SECONDS = 2.0


class Pool:
    """At most `size` worker processes, started when there is work for them."""

    def __init__(self, size: int, python: str) -> None:
        self.size = size
        self._python = python
        self._lock = threading.Lock()
        self._lanes = Lanes()
        self._ids = itertools.count(1)
        self._workers: dict[int, WorkerProcess] = {}
        self._worker_numbers = itertools.count()
        self._generation = 0
        self._stamps: dict[str, tuple[int, int]] = {}
        self._told: dict[LocalJob, list[Change]] = {}
        self._jobs: weakref.WeakSet[LocalJob] = weakref.WeakSet()
        self._new: list[WorkerProcess] = []
        self._stillborn = 0
        self._watched = False
        self._oom_kills = memory_events.oom_kills()
        self._closing = False
        self._selector = selectors.DefaultSelector()
        self._bell, self._ringer = socket.socketpair()
        self._bell.setblocking(False)
        self._rung = False
        self._selector.register(self._bell, selectors.EVENT_READ, self._hear)
        self.folder = Path(tempfile.mkdtemp(prefix="pumice-"))
        self._thread: threading.Thread | None = None

    # What other threads call.

    def submit(self, job: LocalJob, lane: Hashable, cap: int | None, stamps: Mapping[str, tuple[int, int]]) -> None:
        """Queue all records of a job. `stamps` are those of the local modules' files: workers that know older ones go."""
        with self._lock:
            if self._closing:
                raise RuntimeError("cannot submit to a pool that is closed")
            if any(self._stamps.get(name, stamp) != stamp for name, stamp in stamps.items()):
                self._generation += 1
            self._stamps.update(stamps)
            self._jobs.add(job)
            self._watched = self._watched or job.timeout is not None
            for index in range(job.count):
                job.units[index] = Unit(next(self._ids), job, index, lane)
            self._lanes.add(lane, cap, job.units.values())
            if len(self._workers) < self.size:
                self._hire()
                self._dispatch()
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="pumice-pool", daemon=True)
                self._thread.start()
            self._ring()

    def cancel(self, job: LocalJob, indexes: list[int], running: bool) -> frozenset[int]:
        """See `Job.cancel`."""
        cancelled = set()
        with self._lock:
            for index in indexes:
                unit = job.units.get(index)
                if unit is None:
                    continue
                if unit.waiting:
                    unit.waiting = False
                    del job.units[index]
                    self._tell(job, Change(index, State.CANCELLED, unit.attempt))
                    cancelled.add(index)
                elif running:
                    # A worker has it, and may not have begun it yet.
                    self._watched = True
                    job.cancelled.add(index)
                    cancelled.add(index)
            self._ring()
        return frozenset(cancelled)

    def running_log(self, unit: Unit) -> tuple[Path, int] | None:
        """Where the lines of a record that runs begin."""
        with self._lock:
            for worker in self._workers.values():
                stamp = worker.stamp
                if stamp is not None and worker.current is unit:
                    return worker.log_path(stamp.log), stamp.begin
        return None

    def unfinished(self) -> list[tuple[str, int]]:
        """The jobs that aren't over, each with how many of its calls aren't."""
        with self._lock:
            return sorted((job.id, len(job.units)) for job in self._jobs if job.units)

    def close(self) -> None:
        """Cancel what isn't over, end the workers, remove their folder."""
        with self._lock:
            first, self._closing = not self._closing, True
            if first:
                self._ring()
        if self._thread is None:
            if first:
                self._clean_up()
        elif self._thread is not threading.current_thread():
            self._thread.join()

    def _ring(self) -> None:
        if not self._rung:
            self._rung = True
            self._ringer.send(b"!")

    # What the pool's own thread does.

    def _serve(self) -> None:
        try:
            while not self._closing:
                self._turn()
        finally:
            self._closing = True
            self._end_all()

    def _turn(self) -> None:
        wait = _CHECK_EVERY if self._watched and any(w.units for w in self._workers.values()) else None
        for key, _ in self._selector.select(wait):
            if key.fileobj in self._selector.get_map():
                key.data()
        if self._watched:
            self._end_cancelled_and_late_ones()
        self._dismiss_stale()
        with self._lock:
            self._hire()
            self._dispatch()
        self._deliver()
        self._start_new()

    def _hear(self) -> None:
        with self._lock:
            self._bell.recv(64)
            self._rung = False

    def _tell(self, job: LocalJob, change: Change) -> None:
        self._told.setdefault(job, []).append(change)

    def _deliver(self) -> None:
        with self._lock:
            told, self._told = self._told, {}
        for job, changes in told.items():
            try:
                job.on_change(changes)
            except Exception as error:  # noqa: BLE001 - one job's listener doesn't end the pool of all
                sys.excepthook(type(error), error, error.__traceback__)

    def _dismiss_stale(self) -> None:
        for worker in list(self._workers.values()):
            if worker.generation != self._generation and not worker.units:
                self._forget(worker)
                worker.stop()
                worker.wait(time.monotonic() + _STOP_SECONDS)

    def _hire(self) -> None:
        """Make workers for what waits; their processes are started by the pool's thread, what they are given goes first."""
        idle = sum(1 for worker in self._workers.values() if not worker.units)
        for _ in range(min(self._lanes.waiting - idle, self.size - len(self._workers))):
            number = next(self._worker_numbers)
            worker = WorkerProcess(number, self.folder / str(number), self._generation, self._python)
            self._workers[number] = worker
            self._new.append(worker)

    def _start_new(self) -> None:
        with self._lock:
            new, self._new = self._new, []
        for worker in new:
            self._selector.register(worker.connection, selectors.EVENT_READ, partial(self._talk, worker))
            try:
                worker.start()
            except OSError as error:
                worker.killed_for = Failure("lost", f"no process could be started for it: {error}")
                self._bury(worker)
                continue
            if worker.exit_descriptor is not None:
                self._selector.register(worker.exit_descriptor, selectors.EVENT_READ, partial(self._talk, worker, True))
            with self._lock:
                self._watch_writing(worker)

    def _dispatch(self) -> None:
        for worker in sorted(self._workers.values(), key=lambda worker: len(worker.units)):
            while worker.generation == self._generation and (not worker.units or worker.expected < _PREFETCH_BELOW):
                batch = self._lanes.take(worker.number, self.size)
                if not batch:
                    break
                self._give(worker, batch)

    def _give(self, worker: WorkerProcess, batch: list[Unit]) -> None:
        calls = []
        for unit in batch:
            job = unit.job
            if job.program not in worker.programs:
                worker.programs.add(job.program)
                worker.send(Program(job.program, job.function, job.env, job.folder, job.path))
            record = job.record(unit.index)
            checkpoint = str(self._checkpoint(unit)) if job.retries else ""
            calls.append(
                Call(unit.id, job.program, record.key, unit.index, job.count, unit.attempt, checkpoint, record.args)
            )
            worker.units[unit.id] = unit
            worker.expected += self._lanes.expected(job.program)
            self._tell(job, Change(unit.index, State.RUNNING, unit.attempt, node=platform.node()))
        worker.send(calls)
        if worker.process is not None:
            self._watch_writing(worker)

    def _watch_writing(self, worker: WorkerProcess) -> None:
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if worker.flush() else 0)
        if self._selector.get_key(worker.connection).events != events:
            self._selector.modify(worker.connection, events, partial(self._talk, worker))

    def _talk(self, worker: WorkerProcess, ended: bool = False) -> None:
        messages, alive = worker.read()
        with self._lock:
            for reports in messages:
                for report in reports:
                    self._take_report(worker, report)
            if alive and not ended:
                self._watch_writing(worker)
                return
        self._bury(worker)

    def _take_report(self, worker: WorkerProcess, report: Report) -> None:
        unit = worker.units.pop(report.unit)
        self._stillborn = 0
        if not worker.units:
            worker.expected = 0.0
        self._lanes.release(unit, worker.number)
        self._lanes.measured(unit.job.program, report.seconds)
        unit.job.logs_at[unit.index] = (worker.log_path(report.log), report.begin, report.end)
        success = is_success(report.outcome)
        if not success and self._again(unit):
            return
        state = State.SUCCEEDED if success else State.FAILED
        change = Change(
            unit.index,
            state,
            unit.attempt,
            node=platform.node(),
            outcome=report.outcome,
            started=report.started,
            seconds=report.seconds,
            max_rss=report.max_rss,
        )
        unit.job.units.pop(unit.index, None)
        if unit.job.retries:
            shutil.rmtree(self._checkpoint(unit), ignore_errors=True)
        self._tell(unit.job, change)

    def _checkpoint(self, unit: Unit) -> Path:
        return self.folder / "checkpoints" / str(unit.id)

    def _again(self, unit: Unit) -> bool:
        """Queue a failed record for another attempt, if it has one left."""
        if unit.attempt > unit.job.retries or self._closing:
            return False
        unit.attempt += 1
        self._requeue([unit])
        self._tell(unit.job, Change(unit.index, State.WAITING, unit.attempt, why="the attempt before failed"))
        return True

    def _requeue(self, units: list[Unit]) -> None:
        for unit in units:
            unit.waiting = True
            self._lanes.add(unit.lane, unit.job.cap, [unit], first=True)

    def _forget(self, worker: WorkerProcess) -> None:
        if worker.connection in self._selector.get_map():
            self._selector.unregister(worker.connection)
        if worker.exit_descriptor is not None:
            self._selector.unregister(worker.exit_descriptor)
        with self._lock:
            del self._workers[worker.number]

    def _bury(self, worker: WorkerProcess) -> None:
        """A worker has ended: the record it ran pays for that, the others go to other workers."""
        self._forget(worker)
        current, lines = worker.current, worker.last_lines()
        code = worker.end()
        with self._lock:
            for unit in worker.units.values():
                self._lanes.release(unit, worker.number)
            if current is None:
                current = self._stillborn_unit(worker)
            if current is not None:
                del worker.units[current.id]
                failure = self._post_mortem(worker, code, lines, current.attempt)
                if current.index in current.job.cancelled:
                    current.job.units.pop(current.index, None)
                    self._tell(current.job, Change(current.index, State.CANCELLED, current.attempt))
                elif not self._again(current):
                    current.job.units.pop(current.index, None)
                    node = platform.node()
                    self._tell(current.job, Change(current.index, State.FAILED, current.attempt, node, outcome=failure))
            self._requeue(list(reversed(worker.units.values())))
            worker.units.clear()

    def _stillborn_unit(self, worker: WorkerProcess) -> Unit | None:
        """Workers that end before they begin anything are tried a few times, then a record fails for it."""
        self._stillborn += 1
        if self._stillborn < _STILLBORN_LIMIT:
            return None
        return next(iter(worker.units.values()), None)

    def _post_mortem(self, worker: WorkerProcess, code: int, lines: tuple[str, ...], attempt: int) -> Failure:
        if worker.killed_for is not None:
            return replace(worker.killed_for, log_lines=lines, attempt=attempt, node=platform.node())
        kills = memory_events.oom_kills()
        oom, self._oom_kills = kills > self._oom_kills, kills
        return process_failures.of_process(code, oom=oom, log_lines=lines, node=platform.node(), attempt=attempt)

    def _end_cancelled_and_late_ones(self) -> None:
        now = time.time()
        for worker in list(self._workers.values()):
            unit, stamp = worker.current, worker.stamp
            if unit is not None and unit.index in unit.job.cancelled:
                worker.kill(None)
                continue
            if unit is None or stamp is None or unit.job.timeout is None or worker.killed_for is not None:
                continue
            if now - stamp.started > unit.job.timeout:
                worker.kill(process_failures.took_too_long(unit.job.timeout))

    def _end_all(self) -> None:
        with self._lock:
            workers = list(self._workers.values())
        for worker in workers:
            self._forget(worker)
            if worker.units:
                worker.kill(None)
            worker.stop()
        deadline = time.monotonic() + _STOP_SECONDS
        for worker in workers:
            worker.wait(deadline)
        with self._lock:
            held = [unit for worker in workers for unit in worker.units.values()]
            for unit in [*held, *self._lanes.drain()]:
                unit.job.units.pop(unit.index, None)
                self._tell(unit.job, Change(unit.index, State.CANCELLED, unit.attempt))
        self._deliver()
        self._clean_up()

    def _clean_up(self) -> None:
        self._selector.close()
        self._bell.close()
        self._ringer.close()
        shutil.rmtree(self.folder, ignore_errors=True)
