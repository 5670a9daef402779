"""What happens when the interpreter ends: first calls are waited for, then back ends let go of their processes."""

from __future__ import annotations

import atexit
import contextlib
import weakref
from typing import ClassVar, Protocol

__all__ = ["close_at_exit", "interpreter_ends", "wait_at_exit"]


class _Closes(Protocol):
    def close(self) -> None: ...


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
    for backend in list(_State.closing):
        backend.close()
