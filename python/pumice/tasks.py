"""Functions that can run elsewhere: `@pumice.task`."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterable
from typing import Any, Generic, ParamSpec, TypeVar, Unpack, overload

import cloudpickle

from . import asking, watching
from .asking import Asked
from .backend import Backend, JobSpec, Options, Record
from .choice import current
from .environment import Environment
from .futures import Future, Tracker
from .interpreter import check_python
from .map_result import MapResult
from .parameters import plain_key
from .pickling import dumps_args, dumps_function
from .submission import Submission

__all__ = ["Task", "task"]

P = ParamSpec("P")
R = TypeVar("R")


class Task(Generic[P, R]):
    """A function with what its runs ask for. Calling it runs it here and now, as if it were not a task."""

    def __init__(
        self, function: Callable[P, R], options: Options, on: Backend | None = None, version: str | None = None
    ) -> None:
        self.__name__ = getattr(function, "__name__", "task")
        functools.update_wrapper(self, function)
        self._function = function
        self._options = options
        self._on = on
        self._version = version

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function here."""
        return self._function(*args, **kwargs)

    def options(self, *, on: Backend | None = None, version: str | None = None, **asked: Unpack[Asked]) -> Task[P, R]:
        """The same function, asking for something else."""
        return Task(self._function, asking.merge(self._options, asked), on or self._on, version or self._version)

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Run one call elsewhere."""
        backend = self._on or current()
        environment = Environment()
        if backend.python is not None:
            check_python(environment.python, backend.python)
        key = plain_key(args, kwargs) or self.__name__
        tracker: Tracker

        def stop() -> bool:
            return tracker.job is not None and bool(tracker.job.cancel([0], running=False))

        future: Future[R] = Future(key, stop)
        tracker = Tracker([future], original=False, when_over=lambda _: None)
        records = [Record(key, dumps_args(args, kwargs, key))]
        spec = JobSpec(dumps_function(self._sent()), records, self._named(), environment)
        tracker.job = watching.submit(backend, spec, tracker.on_change)
        return future

    def map(
        self,
        *iterables: Iterable[Any],
        chunk: int | str = "auto",
        key: Callable[..., str] | None = None,
        store: str | os.PathLike[str] | None = None,
        **asked: Unpack[Asked],
    ) -> MapResult[R]:
        """Run one call for each element, or for each row of a `pumice.grid`.

        `chunk` calls share a process and its start. `key` gives a call's stable name; without it the name is made of what
        the call is given. Calls which have their value in the folder `store` don't run again, as long as the function's
        code is the same.
        """
        options = asking.merge(self._named(), asked)
        submission = Submission(
            self._on or current(),
            self._sent(),
            iterables,
            options,
            chunk=chunk,
            key=key,
            store=store,
            version=self._version,
        )
        return MapResult(submission)

    def _named(self) -> Options:
        return self._options if self._options.name is not None else asking.merge(self._options, {"name": self.__name__})

    def _sent(self) -> Callable[..., R]:
        """What is pickled: this object where the other side can import it, else the function."""
        return self if self._importable() else self._function

    def _importable(self) -> bool:
        name = self._function.__module__
        module = sys.modules.get(name)
        if module is None or name == "__main__" or name in cloudpickle.list_registry_pickle_by_value():
            return False
        return getattr(module, self._function.__qualname__, None) is self

    def __reduce__(self) -> str | tuple[Any, ...]:
        if self._importable():
            return self._function.__qualname__
        return Task, (self._function, self._options, None, self._version)

    def __repr__(self) -> str:
        return f"<task {self._function.__module__}.{self.__name__}>"


@overload
def task(function: Callable[P, R], /) -> Task[P, R]: ...
@overload
def task(*, version: str | None = None, **asked: Unpack[Asked]) -> Callable[[Callable[P, R]], Task[P, R]]: ...
def task(
    function: Callable[P, R] | None = None, /, *, version: str | None = None, **asked: Unpack[Asked]
) -> Task[P, R] | Callable[[Callable[P, R]], Task[P, R]]:
    """Make a task of a function: `@task`, or `@task(cpu=2, memory="4Gi", on_oom=pumice.grow(1.5, "64Gi"), retries=1)`.

    `version` replaces the hash of the function's code by which kept results are told apart.
    """
    options = asking.merge(Options(), asked)

    def make(function: Callable[P, R]) -> Task[P, R]:
        return Task(function, options, version=version)

    return make if function is None else make(function)
