"""A future of one call: `concurrent.futures.Future`, and it can be awaited."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeVar

from . import outcome, watching
from .backend import Change, Failure, Job, State

__all__ = ["Future", "Tracker"]

T = TypeVar("T")


class Future(concurrent.futures.Future[T]):
    """The value of a call that runs elsewhere."""

    def __init__(self, key: str, stop: Callable[[], bool]) -> None:
        super().__init__()
        self.key = key
        """Names the call in errors and logs."""
        self._stop = stop

    def cancel(self) -> bool:
        """Cancel the call if it hasn't begun; whether it is cancelled now."""
        if self.cancelled():
            return True
        if self.done() or self.running() or not self._stop():
            return False
        return self._cancelled()

    def _cancelled(self) -> bool:
        """Take note that the call will never begin."""
        if not super().cancel():
            return False
        self._notify_cancelled()
        return True

    def _notify_cancelled(self) -> None:
        with self._condition:
            fresh = self._state == "CANCELLED"
        if fresh:
            self.set_running_or_notify_cancel()

    def __await__(self) -> Generator[Any, None, T]:
        """Wait for it in an event loop."""
        import asyncio

        return asyncio.wrap_future(self).__await__()


class Tracker:
    """Brings the changes of a job's records to their futures."""

    def __init__(self, futures: Sequence[Future[Any]], original: bool, when_over: Callable[[Tracker], None]) -> None:
        self._futures: list[Future[Any] | None] = list(futures)
        self._left = len(self._futures)
        self._original = original
        self._when_over = when_over
        self.job: Job | None = None

    @property
    def over(self) -> bool:
        """Whether all futures are done."""
        return not self._left

    def on_change(self, changes: Sequence[Change]) -> None:
        """See `pumice.backend.OnChange`."""
        for change in changes:
            future = self._futures[change.index]
            if future is None:
                continue
            if change.state is State.RUNNING:
                if not future.running() and not future.done():
                    future.set_running_or_notify_cancel()
            elif change.state.final:
                self._futures[change.index] = None
                self._finish(future, change)
                self._left -= 1
                if not self._left:
                    self._when_over(self)

    def _finish(self, future: Future[Any], change: Change) -> None:
        if change.state is State.CANCELLED:
            if future.running():
                lost = Failure("lost", "was cancelled while it ran", attempt=change.attempt, node=change.node)
                future.set_exception(outcome.exception_of(future.key, lost))
            else:
                future._cancelled()
            return
        if not future.running():
            future.set_running_or_notify_cancel()
        if change.state is State.SUCCEEDED and isinstance(change.outcome, bytes):
            try:
                future.set_result(outcome.read_value(change.outcome))
            except Exception as error:  # noqa: BLE001 - a value which can't be read here is the call's failure
                future.set_exception(watching.unreadable(error, attempt=change.attempt, node=change.node))
        else:
            future.set_exception(self._exception(future.key, change))

    def _exception(self, key: str, change: Change) -> BaseException:
        failure = watching.failure_in(change)
        if self._original and (own := outcome.load_exception(failure)) is not None:
            return own
        return outcome.exception_of(key, failure)
