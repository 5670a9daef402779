"""A `concurrent.futures.Executor` whose calls run on a back end."""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import itertools
import pickle
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterable, Iterator, Sized
from typing import Any, ParamSpec, TypeVar, Unpack

from . import option_values, watching
from .backend import Backend, Job, JobSpec, Options, Record
from .choice import resolve
from .environment import Environment
from .exit_hooks import interpreter_ends, wait_at_exit
from .futures import Future, Tracker
from .interpreter import check_python
from .option_values import Asked
from .parameters import arguments
from .pickling import dumps_args, dumps_function

__all__ = ["Executor"]

P = ParamSpec("P")
T = TypeVar("T")

_groups = itertools.count(1)


def _run_chunk(function: Callable[..., T], chunk: list[tuple[Any, ...]]) -> list[T]:
    return [function(*args) for args in chunk]


class _Pickled:
    """A function that is pickled already, for all calls of a map."""

    def __init__(self, function: Callable[..., Any], imports: set[str]) -> None:
        self.data = dumps_function(function, imports)

    def __call__(self, *args: Any) -> Any:
        return pickle.loads(self.data)(*args)


class _Calls:
    """What outlives the executor object: the calls that aren't over, and the back end to close after them."""

    def __init__(self, backend: Backend, made: bool, options: Options, original: bool) -> None:
        self.backend = backend
        self.options = options
        self.imports: set[str] = set()
        """Modules that the functions import when they run."""
        self._environment: Environment | None = None
        self._known = (0, 0)
        self.group = f"executor-{next(_groups)}"
        self.lock = threading.Condition()
        self.futures: set[concurrent.futures.Future[Any]] = set()
        self.gathered: list[tuple[bytes, Record, Future[Any]]] = []
        self.closed = False
        self._jobs = 0
        self._ended: list[Job] = []
        self._made = made
        self._original = original
        self._timer: threading.Timer | None = None
        if backend.python is not None:
            check_python(Environment.python, backend.python)

    def add(self, function: bytes, record: Record, future: Future[Any]) -> None:
        with self.lock:
            self.futures.add(future)
            future.add_done_callback(self._done)
            if self.backend.gather:
                self.gathered.append((function, record, future))
                if self._timer is None:
                    self._timer = threading.Timer(self.backend.gather, self.flush)
                    self._timer.daemon = True
                    self._timer.start()
                return
        try:
            self._submit(function, [record], [future])
        except BaseException:
            self._done(future)
            raise

    def flush(self) -> None:
        """Submit what was gathered, one job a function."""
        with self.lock:
            gathered, self.gathered, self._timer = self.gathered, [], None
        by_function: dict[bytes, list[tuple[Record, Future[Any]]]] = {}
        for function, record, future in gathered:
            by_function.setdefault(function, []).append((record, future))
        for function, calls in by_function.items():
            futures = [future for _, future in calls]
            try:
                self._submit(function, [record for record, _ in calls], futures)
            except Exception as error:  # noqa: BLE001 - it belongs to the calls, whoever waits for them
                for future in futures:
                    future.set_exception(error)

    def _submit(self, function: bytes, records: list[Record], futures: list[Future[Any]]) -> None:
        self._close_ended()
        # It holds no future that is done: a value is its reader's alone.
        tracker = Tracker(futures, self._original, self._over)
        for index, future in enumerate(futures):
            future._stop = functools.partial(self._stop, tracker, index)
        spec = JobSpec(function, records, self.options, self.environment(), group=self.group)
        with self.lock:
            self._jobs += 1
        try:
            tracker.job = watching.submit(self.backend, spec, tracker.on_change)
        except BaseException:
            self._over(tracker)
            raise
        if tracker.over:
            with self.lock:
                self._ended.append(tracker.job)

    def environment(self) -> Environment:
        """That of this moment; looked at anew where modules have been imported since, or functions name others."""
        known = (len(sys.modules), len(self.imports))
        if self._environment is None or known != self._known:
            self._environment, self._known = Environment(imports=list(self.imports)), known
        return self._environment

    def _stop(self, tracker: Tracker, index: int) -> bool:
        return tracker.job is not None and index in tracker.job.cancel([index], running=False)

    def unsubmitted(self, future: Future[Any]) -> bool:
        """Take a gathered call back."""
        with self.lock:
            before = len(self.gathered)
            self.gathered = [call for call in self.gathered if call[2] is not future]
            return len(self.gathered) < before

    def _close_ended(self) -> None:
        """Close the jobs that are over; not from a back end's thread, which closing may wait for."""
        with self.lock:
            ended, self._ended = self._ended, []
        for job in ended:
            job.close()

    @contextlib.contextmanager
    def _change(self) -> Iterator[None]:
        """Around what may leave nothing to do: then the back end goes, if it was made for these calls."""
        with self.lock:
            yield
            self.lock.notify_all()
            last = self.closed and not self._busy
        if last and self._made:
            self.backend.close()

    @property
    def _busy(self) -> bool:
        return bool(self.futures or self._jobs)

    def _done(self, future: concurrent.futures.Future[Any]) -> None:
        with self._change():
            self.futures.discard(future)

    def _over(self, tracker: Tracker) -> None:
        with self._change():
            self._jobs -= 1
            if tracker.job is not None:
                self._ended.append(tracker.job)

    def close(self) -> None:
        """Take no more calls; the back end goes when the last is over, if it was made for them."""
        with self._change():
            self.closed = True

    def wait(self) -> None:
        with self.lock:
            while self._busy:
                self.lock.wait()
        self._close_ended()
        if self._made:
            self.backend.close()


class Executor(concurrent.futures.Executor):
    """Runs calls on a back end.

    `on` is a back end, which is left open at the end, or the name of one, which is made for this executor and closed with
    it; without it the back end in use is taken. Exceptions come back as they were raised, with the remote traceback.
    """

    def __init__(self, max_workers: int | None = None, *, on: Backend | str | None = None, **asked: Unpack[Asked]) -> None:
        if max_workers is not None and max_workers <= 0:
            raise ValueError("max_workers must be greater than 0")
        options = option_values.merge(Options(max_parallel=max_workers), asked)
        backend, made = resolve(on)
        self._calls = _Calls(backend, made, options, original=True)
        self._numbers = itertools.count()
        self._functions: weakref.WeakKeyDictionary[Callable[..., Any], bytes] = weakref.WeakKeyDictionary()
        weakref.finalize(self, self._calls.close)
        wait_at_exit(self)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Start a call."""
        if self._calls.closed:
            raise RuntimeError("cannot schedule new futures after shutdown")
        if interpreter_ends():
            raise RuntimeError("cannot schedule new futures after interpreter shutdown")
        key = str(next(self._numbers))
        record = Record(key, dumps_args(args, kwargs, f"call {key}", self._calls.imports))
        calls = self._calls
        future: Future[T] = Future(key, lambda: calls.unsubmitted(future))
        self._calls.add(self._function(fn), record, future)
        return future

    def _function(self, function: Callable[..., Any]) -> bytes:
        """The pickle of a function; kept where it is only a name, which doesn't change."""
        if isinstance(function, _Pickled):
            return function.data
        if not isinstance(function, types.FunctionType) or function.__module__ == "__main__":
            return dumps_function(function, self._calls.imports)
        data = self._functions.get(function)
        if data is None:
            data = dumps_function(function, self._calls.imports)
            if len(data) < 512 and function.__closure__ is None and "<" not in function.__qualname__:
                self._functions[function] = data
        return data

    def map(
        self, fn: Callable[..., T], *iterables: Iterable[Any], timeout: float | None = None, chunksize: int = 1, **more: Any
    ) -> Iterator[T]:
        """As of `concurrent.futures`; `chunksize` calls go as one."""
        if chunksize < 1:
            raise ValueError("chunksize must be >= 1.")
        if "buffersize" not in more and not any(isinstance(values, Sized) for values in iterables):
            # All calls are made at once, so what may have no end is read before the first of them.
            iterables = tuple(zip(*arguments(iterables), strict=True))
        if chunksize == 1:
            return super().map(_Pickled(fn, self._calls.imports), *iterables, timeout=timeout, **more)
        calls = iter(zip(*iterables, strict=False))
        chunks = iter(lambda: list(itertools.islice(calls, chunksize)), [])
        return _chain(
            super().map(_Pickled(functools.partial(_run_chunk, fn), self._calls.imports), chunks, timeout=timeout, **more)
        )

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls; `wait` for those there are."""
        if cancel_futures:
            with self._calls.lock:
                waiting = list(self._calls.futures)
            for future in waiting:
                future.cancel()
        self._calls.close()
        if wait:
            self._calls.wait()


def _chain(chunks: Iterator[list[T]]) -> Iterator[T]:
    """Values one after the other, keeping none that was handed out."""
    for chunk in chunks:
        chunk.reverse()
        while chunk:
            yield chunk.pop()
