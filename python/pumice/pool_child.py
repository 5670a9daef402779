"""A worker process of the local pool: runs the records it is sent, one after the other, until its pool has gone."""

from __future__ import annotations

import contextlib
import mmap
import os
import pickle
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import outcome
from .calls import LOG_LINES, failure_from, record_variables, run
from .wire import Call, Program, Report, Stamp, frame, receive
from .worker_log import Log

__all__ = ["COMMAND", "STATUS_SIZE", "main"]

COMMAND = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[1]); del sys.argv[1]; "
    "from pumice.pool_child import main; main(int(sys.argv[1]), sys.argv[2])"
)
"""What `python -c` is given, with the pool's module path as JSON, the number of the socket, and the worker's folder."""

STATUS_SIZE = 32
_REPORT_AFTER = 0.002
_KIB = 1 if sys.platform == "darwin" else 1024


class _Programs:
    """Functions this worker has got, unpickled on first use, each with the variables, the folder and the path it needs."""

    def __init__(self) -> None:
        self._programs: dict[str, Program] = {}
        self._functions: dict[str, Callable[..., Any]] = {}
        self._base = dict(os.environ)
        self._current: str | None = None

    def add(self, program: Program) -> None:
        self._programs[program.id] = program

    def function(self, name: str) -> Callable[..., Any]:
        """The function, with all set as it wants. Raises what unpickling it raises."""
        program = self._programs[name]
        if self._current != name:
            for variable in set(os.environ) - set(self._base):
                del os.environ[variable]
            os.environ.update(self._base)
            os.environ.update(program.env)
            sys.path[:] = program.path
            with contextlib.suppress(OSError):  # it may have gone; who needs it will say so
                os.chdir(program.folder)
            self._current = name
        if name not in self._functions:
            self._functions[name] = pickle.loads(program.function)
        return self._functions[name]


class _Worker:
    def __init__(self, connection: socket.socket, folder: Path) -> None:
        self._connection = connection
        self._log = Log(folder)
        self._programs = _Programs()
        with (folder / "status").open("r+b") as file:
            self._status = mmap.mmap(file.fileno(), STATUS_SIZE)

    def serve(self) -> None:
        while (message := receive(self._connection)) is not None:
            if isinstance(message, Program):
                self._programs.add(message)
            else:
                self._run_all(message)

    def _run_all(self, calls: list[Call]) -> None:
        reports: list[Report] = []
        first = time.monotonic()
        for call in calls:
            reports.append(self._run(call))
            if time.monotonic() - first > _REPORT_AFTER:
                self._connection.sendall(frame(reports))
                reports = []
                first = time.monotonic()
        if reports:
            self._connection.sendall(frame(reports))

    def _run(self, call: Call) -> Report:
        begin = self._log.begin()
        started = time.time()
        self._status[:] = Stamp(call.unit, started, self._log.number, begin).pack()
        clock = time.perf_counter()
        try:
            function = self._programs.function(call.program)
        except BaseException as error:  # noqa: BLE001 - importing a user's module may raise anything
            result = outcome.of_failure(failure_from(error, call.attempt))
        else:
            checkpoint = Path(call.checkpoint) if call.checkpoint else None
            if checkpoint is not None:
                checkpoint.mkdir(parents=True, exist_ok=True)
            os.environ.update(record_variables(call.key, call.number, call.total, call.attempt, checkpoint))
            result = run(function, call.args, call.attempt, lambda: self._log.tail(begin, LOG_LINES))
        seconds = time.perf_counter() - clock
        rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _KIB
        return Report(call.unit, result, started, seconds, rss, self._log.number, begin, self._log.position())


def main(descriptor: int, folder: str) -> None:
    """Serve the pool at the other end of the socket."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.set_inheritable(descriptor, False)
    sys.argv = [""]
    with socket.socket(fileno=descriptor) as connection:
        worker = _Worker(connection, Path(folder))
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
        try:
            worker.serve()
        except (BrokenPipeError, ConnectionResetError):
            os._exit(0)
