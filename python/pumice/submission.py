"""What a map gives to the back end: the function's pickle, made once, the records, and what is kept already."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

from . import outcome, parameters, watching
from .backend import Backend, Job, JobSpec, OnChange, Options, Record
from .bounded_text import short_repr
from .environment import Environment
from .errors import BadOption, PickleTooLarge
from .interpreter import check_python
from .items import Item
from .pickling import dumps_args, dumps_function, module_of, name_of
from .result_store import KeptResults
from .results_key import user_key
from .versions import version_of

__all__ = ["Submission"]

T = TypeVar("T")

_ALL_ARGS_LIMIT = 4 << 30


class Submission(Generic[T]):
    """One map of one function, before and during its jobs."""

    def __init__(
        self,
        backend: Backend,
        function: Callable[..., T],
        iterables: Sequence[Iterable[Any]],
        options: Options,
        *,
        chunk: int | str = "auto",
        key: Callable[..., str] | None = None,
        store: str | os.PathLike[str] | None = None,
        version: str | None = None,
    ) -> None:
        if chunk != "auto" and (isinstance(chunk, bool) or not isinstance(chunk, int) or chunk < 1):
            raise BadOption(
                f'chunk={short_repr(chunk)} can\'t be meant: it is "auto", or how many calls make a shard, from 1.'
            )
        self.name = options.name or name_of(function)
        self.options = options
        self._backend = backend
        self._function = function
        self._chunk = None if isinstance(chunk, str) else chunk
        if backend.python is not None:
            check_python(Environment.python, backend.python)
        self._imports: set[str] = set()
        self._pickle = dumps_function(function, self._imports)
        self.items = [Item(call, function) for call in parameters.calls(iterables, key)]
        if self._chunk is not None:
            self._chunk = min(self._chunk, max(1, len(self.items)))
        self._own_keys = key is not None
        self._kept = None
        self._warned = False
        if store is not None:
            full_name = f"{module_of(function)}.{name_of(function)}"
            version = version or version_of(function)
            allowed = options.allow_pickle
            self._kept = KeptResults(os.fspath(store), full_name, version, user_key(), allow_pickle=allowed)

    def _kept_key(self, item: Item[T]) -> str:
        if self._own_keys:
            return item.key
        call = parameters.Call(item.key, item.args, item.kwargs)
        return f"{item.key}+{parameters.content_hash(call)}"

    def from_store(self) -> list[Item[T]]:
        """Records which an earlier run has finished, made to have succeeded."""
        found = []
        for item in self.items if self._kept is not None else ():
            data = self._kept.read(self._kept_key(item)) if self._kept is not None else None
            if data is not None and outcome.is_success(data):
                item.succeed(data)
                item.from_store = True
                found.append(item)
        return found

    def keep(self, item: Item[T], result: bytes) -> None:
        """Keep a value for later runs."""
        if self._kept is None:
            return
        try:
            self._kept.write(self._kept_key(item), result)
        except OSError as error:
            if not self._warned:
                self._warned = True
                warnings.warn(f"Results aren't kept in {self._kept.folder}: {error}", RuntimeWarning, stacklevel=1)

    def submit(self, items: list[Item[T]], on_change: OnChange) -> Job:
        """Run these records as one job."""
        records, size = [], 0
        for item in items:
            record = Record(item.key, dumps_args(item.args, item.kwargs, item.key, self._imports))
            size += len(record.args)
            if size > _ALL_ARGS_LIMIT:
                raise PickleTooLarge(
                    f"The arguments of all {len(items)} calls are more than {_ALL_ARGS_LIMIT >> 30} GiB: "
                    "write the data to a shared path, and map over names."
                )
            records.append(record)
        environment = Environment(imports=self._imports)
        spec = JobSpec(self._pickle, records, self.options, environment, self._chunk)
        job = watching.submit(self._backend, spec, on_change)
        for index, item in enumerate(items):
            item.job, item.index = job, index
        return job
