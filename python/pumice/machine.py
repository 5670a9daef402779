"""The back end of this machine: real processes, no platform. It doesn't enforce `cpu` and `memory`."""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from collections.abc import Hashable, Iterable, Iterator, Sequence
from pathlib import Path

from .backend import Change, JobSpec, OnChange, Outcome, Record, register
from .errors import PumiceError
from .exit_hooks import close_at_exit
from .fair_queue import Unit
from .pool import Pool
from .worker_log import read_lines

__all__ = ["LocalBackend", "LocalJob"]


class LocalJob:
    """A job in the pool of this machine."""

    def __init__(self, pool: Pool, spec: JobSpec, on_change: OnChange, id_: str) -> None:
        self._pool = pool
        self._id = id_
        self._records = spec.records
        self._on_change = on_change
        self.env = tuple(sorted(spec.options.env.items()))
        self.function = spec.function
        digest = hashlib.sha256(spec.function)
        self.folder = _working_folder()
        self.path = spec.environment.path
        digest.update(repr((self.env, self.folder, self.path)).encode())
        self.program = digest.hexdigest()
        self.count = len(spec.records)
        self.chunk = spec.chunk
        self.retries = spec.options.retries
        self.timeout = spec.options.timeout
        self.cap = spec.options.max_parallel
        self.units: dict[int, Unit] = {}
        """Records that aren't over; guarded by the pool's lock."""
        self.cancelled: set[int] = set()
        self.logs_at: dict[int, tuple[Path, int, int]] = {}
        """Log file, begin and end of the lines of each record that is over."""

    @property
    def id(self) -> str:
        """A name that is unique in this process."""
        return self._id

    def record(self, index: int) -> Record:
        """One of its records."""
        return self._records[index]

    def on_change(self, changes: Sequence[Change]) -> None:
        """Pass changes on to the library."""
        self._on_change(changes)

    def outcomes(self, indexes: Sequence[int]) -> Iterator[tuple[int, Outcome]]:
        """Nothing to ask for: outcomes come with the changes, and aren't kept."""
        raise PumiceError("The outcomes of a local job come with its changes.")

    def cancel(self, indexes: Iterable[int] | None = None, *, running: bool = True) -> frozenset[int]:
        """End records which are not over."""
        return self._pool.cancel(self, list(range(self.count) if indexes is None else indexes), running)

    def logs(self, index: int, *, tail: int | None = None) -> Iterator[str]:
        """The lines a record has written; those of long ago are gone."""
        place: tuple[Path, int, int | None] | None = self.logs_at.get(index)
        unit = self.units.get(index)
        if unit is not None and (running := self._pool.running_log(unit)) is not None:
            place = (*running, None)
        if place is not None:
            yield from read_lines(*place, tail)

    def why(self) -> str | None:
        """Records wait here for one thing only."""
        waiting = sum(1 for unit in list(self.units.values()) if unit.waiting)
        return f"{waiting} records wait for one of {self._pool.size} processes" if waiting else None

    def close(self) -> None:
        """Nothing watches it."""


def _working_folder() -> str:
    """That of the program at this moment; empty where it has been removed."""
    try:
        return str(Path.cwd())
    except OSError:
        return ""


class LocalBackend:
    """Worker processes of this interpreter, which live until the back end is closed."""

    def __init__(self, workers: int | None = None) -> None:
        if workers is not None and workers <= 0:
            raise ValueError("max_workers must be greater than 0")
        count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        self._pool = Pool(workers or count, sys.executable)
        self._jobs = 0
        close_at_exit(self._pool)

    @property
    def name(self) -> str:
        """Under which it was registered."""
        return "local"

    @property
    def python(self) -> str:
        """The workers run this Python."""
        return platform.python_version()

    @property
    def slots(self) -> int:
        """The number of processes."""
        return self._pool.size

    @property
    def gather(self) -> float:
        """Each call goes at once: the pool makes batches of what waits."""
        return 0.0

    def submit(self, spec: JobSpec, on_change: OnChange) -> LocalJob:
        """Queue a job's records."""
        self._jobs += 1
        job = LocalJob(self._pool, spec, on_change, f"local/{spec.options.name or 'job'}-{self._jobs}")
        lane: Hashable = spec.group if spec.group is not None else job
        self._pool.submit(job, lane, job.cap, spec.environment.stamps)
        return job

    def close(self) -> None:
        """Cancel what isn't over and end the processes."""
        self._pool.close()


register("local", LocalBackend)
