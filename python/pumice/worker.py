"""The program in a job's pod: `python -m pumice.worker` runs its shard's records and writes down how each went.

A process which it forks runs them; this one writes what it is told, short records several at a time. So a call that ends
its process (for memory, by a fault in compiled code, for its timeout) takes neither those before it along nor those
after it, for which another process is forked. That is safe because this one has no threads.

Exit code: 0 when all its records have succeeded, now or in an earlier attempt; 1 when one failed; 2 when it could not begin;
128 and its number where a signal ended a record's process, which is how the platform sees that memory ran out.

Whoever ends a pod signals the process group of its first process. So the process that runs records has a group of its own,
and this one passes signals on to all of it: each gets a signal once. What a call has started has time to end, too.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sys
import time
from dataclasses import replace
from types import FrameType

from . import _core, memory_events, outcome, process_failures
from .backend import Failure
from .errors import PumiceError
from .last_lines import LastLines
from .wire import Incoming, Result, frame
from .worker_child import run_all
from .workstore import WorkStore

__all__ = ["main"]

_WRITE_EVERY = 0.05
"""Seconds for which results may wait for others while there are more and more of them."""
_WRITE_IDLE = 0.005
"""Seconds without another result, after which those there are get written."""
_WRITE_BYTES = 4 << 20
_GROUP_EVERY = 0.02
"""Seconds between two looks at who is left of a record that was ended."""


class _Told(Exception):
    """Raised in the process that runs records when all is said, so that it ends as any Python does."""


class _Shard:
    """The records of this pod, and the process that runs them."""

    def __init__(self, store: WorkStore, timeout: float | None) -> None:
        self._store = store
        self._timeout = timeout
        self._last = LastLines()
        self._child = 0
        self._ending: int | None = None
        self._reached = 0
        self._uncaught = False
        self._code = 0
        self._oom_kills = memory_events.oom_kills()

    def run(self) -> int:
        """Run what is left; the exit code."""
        left = self._store.left()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._end)
        try:
            while left and self._ending is None:
                left = self._run_some(left)
        finally:
            if self._child:
                _signal_group(self._child, signal.SIGKILL)
                os.waitpid(self._child, 0)
        return self._code if self._ending is None else 128 + self._ending

    @property
    def died_of(self) -> int | None:
        """The signal to end that nobody has caught."""
        return self._ending if self._uncaught else None

    def _end(self, number: int, _: FrameType | None) -> None:
        """The pod is to end: so is the process that runs its records, with all that its calls have started."""
        self._ending = number
        if self._child:
            self._reached = self._child
            _signal_group(self._child, number)

    def _run_some(self, left: list[int]) -> list[int]:
        """Run records in a process until it ends; what is left then."""
        ours, theirs = socket.socketpair()
        sys.stdout.flush()
        sys.stderr.flush()
        self._last.clear()
        child = os.fork()
        if not child:
            ours.close()
            os.setpgid(0, 0)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            with theirs:
                run_all(self._store, left, self._last, lambda result: theirs.sendall(frame([result])))
            raise _Told
        # Whichever of both is first: from here on it has its group.
        with contextlib.suppress(PermissionError, ProcessLookupError):
            os.setpgid(child, child)
        self._child = child
        # One that came before this process was known has not reached it.
        if self._ending is not None and self._reached != child:
            _signal_group(child, self._ending)
        theirs.close()
        ours.setblocking(False)
        with ours:
            told, late = self._listen(ours)
        _, status = os.waitpid(child, 0)
        if self._ending is not None and os.waitstatus_to_exitcode(status) == -self._ending:
            self._uncaught = True
            _wait_for_group(child)
        self._child = 0
        left = [index for index in left if index not in told]
        if not left or self._ending is not None or (late is not None and len(told) > late):
            # Where the one that took too long has ended just before its process did, it is none of the next one's doing.
            return left
        self._bury(left[0], os.waitstatus_to_exitcode(status), late is not None)
        return left[1:]

    def _listen(self, connection: socket.socket) -> tuple[set[int], int | None]:
        """Write what is told until nothing more can come; the numbers of it.

        And, where a record took too long, how many were told of before its process was killed.
        """
        told: set[int] = set()
        unwritten: list[Result] = []
        size = 0
        incoming, late = Incoming(), None
        begun = written = time.monotonic()
        # Whatever a user's function has started may keep the connection open; not so the process itself.
        watched: list[int] = [connection.fileno(), os.pidfd_open(self._child)]
        try:
            while True:
                wait = _WRITE_IDLE if unwritten else None
                if self._timeout is not None and late is None:
                    ends = max(0.0, begun + self._timeout - time.monotonic())
                    wait = ends if wait is None else min(wait, ends)
                ready, _, _ = select.select(watched, [], [], wait)
                open_ = incoming.read(connection)
                results = [result for message in incoming.messages() for result in message]
                now = time.monotonic()
                if results:
                    begun = now
                    unwritten += results
                    told.update(result.number for result in results)
                    size += sum(len(result.outcome) for result in results)
                elif self._timeout is not None and late is None and now - begun > self._timeout:
                    late = len(told)
                    os.kill(self._child, signal.SIGKILL)
                ended = not open_ or watched[1] in ready
                if unwritten and (ended or not results or now - written > _WRITE_EVERY or size > _WRITE_BYTES):
                    self._write(unwritten)
                    unwritten, size, written = [], 0, time.monotonic()
                if ended:
                    return told, late
        finally:
            os.close(watched[1])

    def _write(self, results: list[Result]) -> None:
        self._store.write(results)
        if not all(result.success for result in results):
            self._code = self._code or 1

    def _bury(self, index: int, code: int, late: bool) -> None:
        """Its process ended under this record."""
        kills = memory_events.oom_kills()
        oom, self._oom_kills = kills > self._oom_kills, kills
        attempt, lines = self._store.attempt, self._last.lines()
        if late:
            failure: Failure = replace(process_failures.took_too_long(self._timeout or 0), log_lines=lines, attempt=attempt)
            self._code = self._code or 1
        else:
            failure = process_failures.of_process(code, oom=oom, log_lines=lines, node=None, attempt=attempt)
            self._code = max(self._code, 128 - code if code < 0 else 1)
        key = self._store.record(index).key
        print(f"{key}: {failure.message}", file=sys.stderr, flush=True)  # noqa: T201 - the pod's log
        self._store.write([Result(index, key, False, outcome.of_failure(failure))])


def _signal_group(group: int, number: int) -> bool:
    """Signal all processes of a group; whether there are any."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    return True


def _wait_for_group(group: int) -> None:
    """Wait for those whom a process that died of a signal has left behind: the signal has reached them as well.

    The pod's end is the limit. They are children of the pod's first process; where that is this one, it takes their ends.
    """
    while _signal_group(group, 0):
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-1, os.WNOHANG)
        time.sleep(_GROUP_EVERY)


def _die_of(number: int) -> None:
    """End as a record did, so that who waits for this process knows that nobody has caught the signal.

    Comes back in the first process of a container, which doesn't die of what it has no handler for.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def main() -> int:
    """Run the records of this process's shard."""
    try:
        timeout = os.environ.get("PUMICE_WORK_TIMEOUT")
        shard = _Shard(WorkStore.open(os.environ), float(timeout) if timeout else None)
        code = shard.run()
        if shard.died_of is not None:
            _die_of(shard.died_of)
        return code
    except _Told:
        return 0
    except (PumiceError, _core.CoreError, OSError, ValueError) as error:
        print(f"pumice.worker: {error}", file=sys.stderr)  # noqa: T201 - the pod's log
        return 2


if __name__ == "__main__":
    sys.exit(main())
