"""One way to run tasks, as a process of its own: `ways.py WAY WORK COUNT`.

It makes ready, says so in a line, runs the tasks when it gets a line, checks every value, says how many seconds that took,
and ends what it has started when it gets another. So start and end of servers and workers are nobody's overhead a task.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path

import work

__all__ = ["WAYS", "WORKERS"]

WORKERS = 2
"""How many tasks run at once, everywhere."""

Run = Callable[[str, int], None]
"""Runs so many tasks of a work, and checks them."""


def _check(values: list[int], count: int) -> None:
    expected = [work.tiny(number) for number in range(count)]
    if values != expected:
        wrong = sum(value != right for value, right in zip(values, expected, strict=False)) + abs(len(values) - count)
        raise SystemExit(f"{wrong} of {count} values are wrong")


@contextlib.contextmanager
def _pool() -> Iterator[Run]:
    with ProcessPoolExecutor(WORKERS) as executor:
        yield lambda name, count: _check(list(executor.map(work.WORKS[name], range(count))), count)


@contextlib.contextmanager
def _local() -> Iterator[Run]:
    import pumice

    with contextlib.closing(pumice.local(WORKERS)) as backend, pumice.use(backend):
        yield lambda name, count: _check(pumice.task(work.WORKS[name]).map(range(count)).results(), count)


@contextlib.contextmanager
def _platform(run: Run) -> Iterator[Run]:
    import pumice
    from pumice.platform import PlatformBackend
    from up import Platform

    with tempfile.TemporaryDirectory() as folder:
        os.environ["PUMICE_CACHE"] = folder
        platform = Platform(Path(folder))
        try:
            platform.up()
            os.environ["PUMICE_DATA_DIR"] = str(platform.data_dir)
            with contextlib.closing(PlatformBackend(platform.connect())) as backend, pumice.use(backend):
                yield run
        finally:
            platform.tear_down()


def _map(name: str, count: int, chunk: int | str) -> None:
    import pumice

    _check(pumice.task(work.WORKS[name], cpu=1).map(range(count), chunk=chunk).results(), count)


def _submit(name: str, count: int) -> None:
    import pumice

    with pumice.Executor(WORKERS, cpu=1) as executor:
        futures = [executor.submit(work.WORKS[name], number) for number in range(count)]
        _check([future.result() for future in futures], count)


def _jobctl(_: str, count: int) -> None:
    from up import BINARIES

    command = [BINARIES / "jobctl", "run", "--cpu", "1", "--array", f"0-{count - 1}", "--", "true"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


@contextlib.contextmanager
def _xargs() -> Iterator[Run]:
    def run(_: str, count: int) -> None:
        numbers = "\n".join(map(str, range(count)))
        subprocess.run(["xargs", "-P", str(WORKERS), "-n", "1", "true"], input=numbers, text=True, check=True)

    yield run


@contextlib.contextmanager
def _hyperqueue(add: Callable[[object, str, int, str], None], checked: bool = True) -> Iterator[Run]:
    from hyperqueue import Job
    from hyperqueue.cluster import LocalCluster, WorkerConfig
    from hyperqueue.task.function import PythonEnv

    with tempfile.TemporaryDirectory() as folder:
        values = Path(folder) / "values"
        values.mkdir()

        def run(name: str, count: int) -> None:
            job = Job(default_workdir=folder, default_env={"PYTHONPATH": os.environ["PYTHONPATH"]}, max_fails=0)
            for number in range(count):
                add(job, name, number, str(values))
            client = cluster.client(python_env=PythonEnv(python_bin=sys.executable))
            client.wait_for_jobs([client.submit(job)])
            if checked:
                _check([int((values / str(number)).read_text()) for number in range(count)], count)

        with LocalCluster(str(Path(folder) / "server"), WorkerConfig(cores=WORKERS)) as cluster:
            yield run


def _hq_function(job, name: str, number: int, folder: str) -> None:  # noqa: ANN001 - a job of HyperQueue, which has no types
    job.function(work.keep, args=(name, number, folder), stdout=None, stderr=None)


def _hq_python(job, name: str, _: int, folder: str) -> None:  # noqa: ANN001
    job.program([sys.executable, work.__file__, name, folder], stdout=None, stderr=None)


def _hq_true(job, *_: object) -> None:  # noqa: ANN001
    job.program(["true"], stdout=None, stderr=None)


WAYS: dict[str, Callable[[], AbstractContextManager[Run]]] = {
    "pool": _pool,
    "hyperqueue_functions": lambda: _hyperqueue(_hq_function),
    "hyperqueue_programs": lambda: _hyperqueue(_hq_python),
    "local": _local,
    "map": lambda: _platform(lambda name, count: _map(name, count, "auto")),
    "executor": lambda: _platform(_submit),
    "pods": lambda: _platform(lambda name, count: _map(name, count, 1)),
    "xargs_true": _xargs,
    "hyperqueue_true": lambda: _hyperqueue(_hq_true, checked=False),
    "jobctl_true": lambda: _platform(_jobctl),
}
"""Each way by its name; those that end in `_true` run a program that does nothing, whatever the work."""


def main() -> None:
    """Make ready, run, make an end, each when told."""
    way, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    # What servers print is not meant for who started us.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    with WAYS[way]() as run:
        run(name, WORKERS)  # what is made once: caches, connections, the workers of a pool
        print("ready", file=answers, flush=True)
        sys.stdin.readline()
        begin = time.monotonic()
        run(name, count)
        print(time.monotonic() - begin, file=answers, flush=True)
        sys.stdin.readline()


if __name__ == "__main__":
    main()
