"""Functions that can run elsewhere: `@pumice.task`."""

from __future__ import annotations

import functools
import operator
import os
import sys
import types
from collections.abc import Callable, Iterable
from typing import Any, Generic, ParamSpec, TypeVar, Unpack, overload

from . import by_value, option_values, watching
from .backend import Backend, JobSpec, Options, Record
from .choice import current
from .environment import Environment
from .futures import Future, Tracker
from .interpreter import check_python
from .map_result import MapResult
from .option_values import Asked
from .parameters import plain_key
from .pickling import called_by, dumps_args, dumps_function, module_of, name_of
from .submission import Submission

__all__ = ["Task", "task"]

P = ParamSpec("P")
R = TypeVar("R")


class Task(Generic[P, R]):
    """A function with what its runs ask for. Calling it runs it here and now, as if it were not a task."""

    def __init__(
        self, function: Callable[P, R], options: Options, on: Backend | None = None, version: str | None = None
    ) -> None:
        # What isn't a function keeps what it has to itself: a class may well have an attribute `map`.
        updated = functools.WRAPPER_UPDATES if isinstance(function, types.FunctionType) else ()
        functools.update_wrapper(self, called_by(function), updated=updated)
        self.__wrapped__ = function
        self.__module__ = module_of(function)
        self.__name__ = name_of(function).rpartition(".")[2]
        self._function = function
        self._options = options
        self._on = on
        self._version = version

    def __get__(self, instance: Any, owner: type | None = None) -> Task[..., R]:
        """A decorated method that is asked of an object or a class: a task that is bound as the method would be."""
        bind = getattr(type(self._function), "__get__", None)
        bound = bind(self._function, instance, owner) if bind is not None else self._function
        if bound is self._function:
            return self
        if isinstance(bound, types.MethodType) and bound.__func__ is self._function:
            # Where the other side has this task by name, the function needn't go along.
            bound = types.MethodType(self, bound.__self__)
        return Task(bound, self._options, self._on, self._version)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function here."""
        return self._function(*args, **kwargs)

    def options(self, *, on: Backend | None = None, version: str | None = None, **asked: Unpack[Asked]) -> Task[P, R]:
        """The same function, asking for something else."""
        return Task(self._function, option_values.merge(self._options, asked), on or self._on, version or self._version)

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Run one call elsewhere."""
        backend = self._on or current()
        if backend.python is not None:
            check_python(Environment.python, backend.python)
        key = plain_key(args, kwargs) or self.__name__
        tracker: Tracker

        def stop() -> bool:
            return tracker.job is not None and bool(tracker.job.cancel([0], running=False))

        future: Future[R] = Future(key, stop)
        tracker = Tracker([future], original=False, when_over=lambda _: None)
        imports: set[str] = set()
        records = [Record(key, dumps_args(args, kwargs, key, imports))]
        function = dumps_function(self._sent(), imports)
        spec = JobSpec(function, records, self._named(), Environment(imports=imports))
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
        options = option_values.merge(self._named(), asked)
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
        return (
            self._options if self._options.name is not None else option_values.merge(self._options, {"name": self.__name__})
        )

    def _sent(self) -> Callable[..., R]:
        """What is pickled: this object where the other side can import it, else the function."""
        return self if self._importable() else self._function

    def _importable(self) -> bool:
        name, qualname = self.__module__, getattr(self._function, "__qualname__", None)
        module = sys.modules.get(name or "")
        if module is None or not isinstance(qualname, str) or by_value.goes_by_value(name):
            return False
        try:
            return operator.attrgetter(qualname)(module) is self
        except AttributeError:
            return False

    def __reduce__(self) -> str | tuple[Any, ...]:
        if self._importable():
            return str(self._function.__qualname__)
        return Task, (self._function, self._options, None, self._version)

    def __repr__(self) -> str:
        return f"<task {self.__module__}.{self.__name__}>"


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
    options = option_values.merge(Options(), asked)

    def make(function: Callable[P, R]) -> Task[P, R]:
        return Task(function, options, version=version)

    return make if function is None else make(function)
