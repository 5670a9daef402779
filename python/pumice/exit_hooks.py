"""What happens when the interpreter ends: first calls are waited for, then back ends let go of their processes."""

from __future__ import annotations

import atexit
import contextlib
import sys
import weakref
from typing import ClassVar, Protocol

__all__ = ["close_at_exit", "interpreter_ends", "wait_at_exit"]


_SHOWN_JOBS = 5


class _Closes(Protocol):
    def close(self) -> None: ...

    def unfinished(self) -> list[tuple[str, int]]: ...


class _Waits(Protocol):
    def shutdown(self, wait: bool = True) -> None: ...


class _State:
    ending = False
    waiting: ClassVar[weakref.WeakSet[_Waits]] = weakref.WeakSet()
    closing: ClassVar[weakref.WeakSet[_Closes]] = weakref.WeakSet()


def interpreter_ends() -> bool:
    """Whether nothing new is to be begun."""
    return _State.ending


def wait_at_exit(executor: _Waits) -> None:
    """As the executors of the standard library do, wait for the calls of this one."""
    _State.waiting.add(executor)


def close_at_exit(backend: _Closes) -> None:
    """Close it after that."""
    _State.closing.add(backend)


@atexit.register
def _end() -> None:
    _State.ending = True
    for executor in list(_State.waiting):
        with contextlib.suppress(KeyboardInterrupt):
            executor.shutdown(wait=True)
    backends = list(_State.closing)
    _tell_of([job for backend in backends for job in backend.unfinished()])
    for backend in backends:
        backend.close()


def _tell_of(jobs: list[tuple[str, int]]) -> None:
    """Say what ends with the program though it was submitted to be done."""
    if not jobs:
        return
    count = sum(calls for _, calls in jobs)
    names = ", ".join(job for job, _ in jobs[:_SHOWN_JOBS]) + (", ..." if len(jobs) > _SHOWN_JOBS else "")
    what = f"{count} calls that it didn't wait for have ended" if count > 1 else "a call that it didn't wait for has ended"
    print(f"pumice: the program is over, and {what} with it ({names}): .results() or .wait() waits.", file=sys.stderr)  # noqa: T201
