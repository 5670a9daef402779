"""The results of a map: in order or as they come, with what failed and what is missing; to wait for or to await."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from .backend import Change, Job, State
from .bounded_text import short_repr
from .errors import BadOption, BelowMinSuccess
from .interrupt import asked_to_cancel
from .items import Done, Item
from .progress import Painter, painter

if TYPE_CHECKING:
    import pandas
    import pyarrow

    from .submission import Submission

__all__ = ["AsCompleted", "MapResult"]

T = TypeVar("T")

_PAINT_EVERY = 0.25


class MapResult(Generic[T]):
    """What became of each call of a map. Looking at it never waits, iterating and the methods that say so do."""

    def __init__(self, submission: Submission[T]) -> None:
        self._submission = submission
        self._items: list[Item[T]] = submission.items
        self._by_key = {item.key: item for item in self._items}
        self._changed = threading.Condition()
        self._listeners: list[Callable[[], None]] = []
        self._counts: Counter[State] = Counter({State.WAITING: len(self._items)})
        self._finished: list[Item[T]] = []
        self._jobs: list[Job] = []
        self._watched: list[Job] = []
        self._needed = needed(submission.options.min_success, len(self._items))
        self._brush: Painter | None = None
        self.began = time.monotonic()
        for item in submission.from_store():
            self._counts[State.WAITING] -= 1
            self._counts[item.state] += 1
            self._finished.append(item)
        self._start([item for item in self._items if not item.state.final])

    def _start(self, items: list[Item[T]]) -> None:
        """Give records to the back end, as one job."""
        if not items:
            return
        job = self._submission.submit(items, lambda changes: self._take(items, changes))
        with self._changed:
            self._jobs.append(job)
            self._watched.append(job)

    def _release(self) -> None:
        """Close the jobs once all is over; not from a back end's thread, which closing may wait for."""
        with self._changed:
            over, self._watched = (self._watched, []) if self.done else ([], self._watched)
        for job in over:
            job.close()

    def _take(self, items: list[Item[T]], changes: Sequence[Change]) -> None:
        for change in changes:
            if isinstance(change.outcome, bytes) and change.state is State.SUCCEEDED:
                self._submission.keep(items[change.index], change.outcome)
        with self._changed:
            for change in changes:
                item = items[change.index]
                before = item.state
                if before.final:
                    continue
                item.take(change)
                self._counts[before] -= 1
                self._counts[item.state] += 1
                if item.state.final:
                    self._finished.append(item)
            self._changed.notify_all()
            listeners = list(self._listeners)
        for listener in listeners:
            listener()

    # What there is now.

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, key: str) -> Item[T]:
        return self._by_key[key]

    @property
    def items(self) -> Sequence[Item[T]]:
        """All records, in order."""
        return self._items

    @property
    def failed(self) -> list[Item[T]]:
        """Records that have failed, in order."""
        return [item for item in self._items if item.state is State.FAILED]

    @property
    def missing(self) -> list[Item[T]]:
        """Records with neither a value nor a failure: they wait, run, or were cancelled."""
        return [item for item in self._items if item.state not in (State.SUCCEEDED, State.FAILED)]

    @property
    def counts(self) -> dict[State, int]:
        """How many records are in each state."""
        with self._changed:
            return {state: self._counts[state] for state in State}

    @property
    def done(self) -> bool:
        """Whether all records have come to an end."""
        return len(self._finished) == len(self._items)

    @property
    def name(self) -> str:
        """What the back end calls the job, if there is one."""
        return self._jobs[-1].id if self._jobs else str(self._submission.name)

    def why(self) -> str | None:
        """Why the job waits, as text."""
        return self._jobs[-1].why() if self._jobs else None

    # What waits.

    def wait(self, timeout: float | None = None) -> MapResult[T]:
        """Wait until all records have come to an end. Raises TimeoutError."""
        self._wait_for(lambda: self.done, timeout)
        return self

    def results(self, timeout: float | None = None) -> list[T]:
        """All values, in order.

        Without `min_success` the first failure is raised; with it the values there are come back, if they are enough.
        """
        self.wait(timeout)
        self._check()
        return [item.value for item in self._items if item.state is State.SUCCEEDED]

    def __iter__(self) -> Iterator[T]:
        for item in self._items:
            self._wait_for(lambda item=item: item.state.final, None)  # type: ignore[misc]
            if self._counts_for(item):
                yield item.value
        self._check()

    def as_completed(self, timeout: float | None = None) -> AsCompleted[T]:
        """Keys and values in the order in which they come; for `for` and `async for`.

        `timeout` is of the whole, in seconds from the first step on; then TimeoutError is raised.
        """
        return AsCompleted(self, timeout)

    def __await__(self) -> Generator[Any, None, list[T]]:
        return self._results_async().__await__()

    async def __aiter__(self) -> AsyncIterator[T]:
        for item in self._items:
            await self._wait_async(lambda item=item: item.state.final)  # type: ignore[misc]
            if self._counts_for(item):
                yield item.value
        self._check()

    async def _results_async(self) -> list[T]:
        await self._wait_async(lambda: self.done)
        return self.results()

    def progress(self, timeout: float | None = None) -> MapResult[T]:
        """Wait and show how it goes, also where that isn't shown by itself."""
        self._wait_for(lambda: self.done, timeout, show=True)
        return self

    def _counts_for(self, item: Item[T]) -> bool:
        """Whether an ended record has a value; one without is raised where all are needed."""
        if item.state is State.SUCCEEDED:
            return True
        if self._submission.options.min_success is None:
            if item.error is not None:
                raise item.error
            self._check()
        return False

    def _check(self) -> None:
        """Raise if fewer succeeded than are needed, though all is over."""
        if not self.done or self._counts[State.SUCCEEDED] >= self._needed:
            return
        failed = self.failed
        first = failed[0].error if failed else None
        if self._submission.options.min_success is None and first is not None and not self._counts[State.CANCELLED]:
            raise first
        without = [item.key for item in self._items if item.state is not State.SUCCEEDED]
        raise BelowMinSuccess(self._counts[State.SUCCEEDED], self._needed, len(self), without) from first

    def _wait_for(self, ready: Callable[[], bool], timeout: float | None, show: bool = False) -> None:
        deadline = None if timeout is None else time.monotonic() + timeout
        if ready() and not show:
            self._release()
            return
        if self._brush is None or show:
            self._brush = painter(self, show)
        brush = self._brush
        try:
            with self._changed:
                while not ready():
                    left = None if deadline is None else deadline - time.monotonic()
                    if left is not None and left <= 0:
                        raise TimeoutError(f"{self.name}: {len(self) - len(self._finished)} of {len(self)} are not over yet")
                    pauses = [pause for pause in (left, None if brush is None else _PAINT_EVERY) if pause is not None]
                    self._changed.wait(min(pauses, default=None))
                    if brush is not None:
                        brush.paint(self._counts)
        except KeyboardInterrupt:
            self._lift(brush)
            if asked_to_cancel(self.name):
                self.cancel()
            raise
        self._lift(brush)
        self._release()

    def _lift(self, brush: Painter | None) -> None:
        """Leave the progress as it is when all is over, else make room for what the program writes."""
        if brush is None:
            return
        if self.done:
            brush.end(self._counts)
        else:
            brush.clear()

    async def _wait_async(self, ready: Callable[[], bool], timeout: float | None = None) -> None:
        import asyncio

        loop, event = asyncio.get_running_loop(), asyncio.Event()

        def listener() -> None:
            loop.call_soon_threadsafe(event.set)

        async with asyncio.timeout(timeout):
            with self._changed:
                self._listeners.append(listener)
            try:
                while not ready():
                    await event.wait()
                    event.clear()
            finally:
                with self._changed:
                    self._listeners.remove(listener)
        await asyncio.to_thread(self._release)

    # What changes it.

    def cancel(self) -> None:
        """End what isn't over."""
        for job in list(self._jobs):
            job.cancel()

    def retry(self) -> MapResult[T]:
        """Run again what failed or was cancelled; what runs is left alone. Gives this same object."""
        with self._changed:
            again = [item for item in self._items if item.state in (State.FAILED, State.CANCELLED)]
            for item in again:
                self._counts[item.state] -= 1
                self._counts[State.WAITING] += 1
                item.reset()
            self._finished = [item for item in self._finished if item.state.final]
        self._start(again)
        return self

    # Tables.

    @overload
    def to_pandas(self) -> pandas.DataFrame: ...
    @overload
    def to_pandas(self, *, status: bool) -> pandas.DataFrame: ...
    def to_pandas(self, *, status: bool = False) -> pandas.DataFrame:
        """Wait, then a DataFrame of the values by key: tables one below the other, dicts as columns, others as `value`.

        `status=True` gives how each record went instead, without waiting.
        """
        from . import tables

        return tables.status_frame(self._items) if status else tables.frame(self._succeeded())

    def to_arrow(self, *, status: bool = False) -> pyarrow.Table:
        """The same as an Arrow table with a column `key`."""
        from . import tables

        return tables.status_arrow(self._items) if status else tables.arrow(self._succeeded())

    def _succeeded(self) -> list[Item[T]]:
        self.wait()
        self._check()
        return [item for item in self._items if item.state is State.SUCCEEDED]

    def _repr_html_(self) -> str:
        from .notebook import html

        return html(self.name, self.counts, self.failed)

    def __repr__(self) -> str:
        counts = " · ".join(f"{count} {state.value}" for state, count in self.counts.items() if count)
        return f"<MapResult {self.name}: {counts or 'empty'}>"


def needed(min_success: float | int | None, total: int) -> int:
    """How many of `total` have to succeed."""
    if min_success is None:
        return total
    if isinstance(min_success, float):
        return math.ceil(round(min_success * total, 9))
    if min_success > total:
        raise BadOption(f"min_success={short_repr(min_success)} is more than the {total} calls there are.")
    return min_success


def _countdown(timeout: float | None) -> Callable[[], float | None]:
    """What is left of so many seconds from now on."""
    deadline = None if timeout is None else time.monotonic() + timeout
    return lambda: None if deadline is None else deadline - time.monotonic()


class AsCompleted(Generic[T]):
    """Iterates over a `MapResult` in the order of completion."""

    def __init__(self, result: MapResult[T], timeout: float | None) -> None:
        self._result = result
        self._timeout = timeout

    def __iter__(self) -> Iterator[Done[T]]:
        result, at, left = self._result, 0, _countdown(self._timeout)
        while at < len(result):
            result._wait_for(lambda: len(result._finished) > at, left())  # noqa: B023 - called before `at` changes
            item, at = result._finished[at], at + 1
            if result._counts_for(item):
                yield Done(item.key, item.value)
        result._check()

    async def __aiter__(self) -> AsyncIterator[Done[T]]:
        result, at, left = self._result, 0, _countdown(self._timeout)
        while at < len(result):
            await result._wait_async(lambda: len(result._finished) > at, left())  # noqa: B023 - as above
            item, at = result._finished[at], at + 1
            if result._counts_for(item):
                yield Done(item.key, item.value)
        result._check()
