"""The pool's side of one worker process: starting it, talking to it, seeing it end."""

from __future__ import annotations

import json
import mmap
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from .backend import Failure
from .calls import LOG_LINES
from .fair_queue import Unit
from .pool_child import COMMAND, STATUS_SIZE
from .wire import Incoming, Message, Stamp, frame
from .worker_log import Log, read_lines

__all__ = ["WorkerProcess"]

_GRACE = 1.0
_NEVER_STARTED = 127


class WorkerProcess:
    """A process which runs records one after the other."""

    def __init__(self, number: int, folder: Path, generation: int, python: str) -> None:
        self.number = number
        self.generation = generation
        """Of the user's local modules; a worker which has imported old ones is let go."""
        self.units: dict[int, Unit] = {}
        """What it holds, in the order in which it runs them."""
        self.programs: set[str] = set()
        self.expected = 0.0
        """Seconds of work it was given since it last had none."""
        self.killed_for: Failure | None = None
        """Why the pool killed it, where it did."""
        self.folder = folder
        self._status: mmap.mmap | bytes = b""
        self.connection, self._theirs = socket.socketpair()
        self.connection.setblocking(False)
        self.process: subprocess.Popen[bytes] | None = None
        """None until `start`; what is sent before that waits in the socket."""
        self.exit_descriptor: int | None = None
        self.incoming = Incoming()
        self._unsent: list[memoryview] = []
        self._python = python

    def start(self) -> None:
        """Start the process. Raises OSError where there can't be one more."""
        self.folder.mkdir()
        (self.folder / "status").write_bytes(bytes(STATUS_SIZE))
        with (self.folder / "status").open("rb") as file:
            self._status = mmap.mmap(file.fileno(), STATUS_SIZE, prot=mmap.PROT_READ)
        with self._theirs as theirs, (self.folder / "log-0").open("wb") as log:
            self.process = subprocess.Popen(
                [self._python, "-P", "-c", COMMAND, json.dumps(sys.path), str(theirs.fileno()), str(self.folder)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[theirs.fileno()],
                # What a call maps on its own runs here, too, and starts no platform.
                env={"PUMICE_BACKEND": "local", **os.environ},
                start_new_session=True,
            )
        if hasattr(os, "pidfd_open"):
            self.exit_descriptor = os.pidfd_open(self.process.pid)

    @property
    def stamp(self) -> Stamp | None:
        """The record it has begun last."""
        stamp = Stamp.unpack(self._status[:])
        return stamp if stamp is not None and stamp.unit else None

    @property
    def current(self) -> Unit | None:
        """The record it runs, as far as can be seen from here."""
        stamp = self.stamp
        return self.units.get(stamp.unit) if stamp is not None else None

    def send(self, message: Message) -> None:
        """Put a message on its way; `flush` sends what the socket didn't take."""
        self._unsent.append(memoryview(frame(message)))
        self.flush()

    def flush(self) -> bool:
        """Send on; whether something is left to be sent."""
        while self._unsent:
            try:
                count = self.connection.send(self._unsent[0])
            except BlockingIOError:
                return True
            except ConnectionError:
                self._unsent.clear()
                return False
            self._unsent[0] = self._unsent[0][count:]
            if not self._unsent[0]:
                self._unsent.pop(0)
        return False

    def read(self) -> tuple[list[Any], bool]:
        """Messages that have come, and whether the process is still there to send more."""
        alive = self.incoming.read(self.connection)
        return list(self.incoming.messages()), alive

    def kill(self, reason: Failure | None) -> None:
        """End it at once."""
        self.killed_for = reason
        if self.process is not None:
            self.process.kill()

    def end(self) -> int:
        """Wait for its end, which has begun; its exit code, negative for a signal."""
        code = self._wait(_GRACE)
        self.release()
        return code

    def stop(self) -> None:
        """Ask it to end: it sees that its pool has gone."""
        self.connection.close()

    def wait(self, deadline: float) -> None:
        """Give it until `deadline` (monotonic) to end, then end it."""
        self._wait(max(0.0, deadline - time.monotonic()))
        self.release()

    def _wait(self, seconds: float) -> int:
        if self.process is None:
            return _NEVER_STARTED
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()

    def release(self) -> None:
        """Close what belongs to it; its log files stay."""
        self.connection.close()
        self._theirs.close()
        if self.exit_descriptor is not None:
            os.close(self.exit_descriptor)
            self.exit_descriptor = None

    def log_path(self, number: int) -> Path:
        """One of its log files."""
        return Log.path(self.folder, number)

    def last_lines(self) -> tuple[str, ...]:
        """The last lines of the record it has begun last, or of its start."""
        stamp = self.stamp
        number, begin = (stamp.log, stamp.begin) if stamp is not None else (0, 0)
        return read_lines(self.log_path(number), begin, None, LOG_LINES)
