"""The program in a job's pod: `python -m pumice.worker` runs its shard's records and writes how each went.

Exit code: 0 when all its records have succeeded, now or in an earlier attempt; 1 when one failed; 2 when it could not begin.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections import deque
from collections.abc import Callable
from typing import Any, TextIO

from . import node_cache, outcome
from .calls import LOG_LINES, failure_from, record_variables, run
from .errors import PumiceError
from .interpreter import check_python
from .workstore import WorkStore, open_store

__all__ = ["main"]


class _Passing:
    """A stream that passes on what is written and remembers the last lines."""

    def __init__(self, stream: TextIO, lines: deque[str]) -> None:
        self._stream = stream
        self._lines = lines
        self._open = ""

    def write(self, text: str) -> int:
        *whole, self._open = (self._open + text).split("\n")
        self._lines.extend(whole)
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _prepare(store: WorkStore) -> Callable[..., Any]:
    """Make the user's modules and packages importable, and read the function."""
    check_python(store.python, "{}.{}.{}".format(*sys.version_info))
    cache = node_cache.cache_folder()
    if (packages := store.packages()) is not None:
        node_cache.add_to_path(node_cache.unpack(packages, cache), first=False)
    if (modules := store.modules()) is not None:
        node_cache.add_to_path(node_cache.unpack(modules, cache), first=True)
    function: Callable[..., Any] = pickle.loads(store.function())
    return function


def _run_all(store: WorkStore, attempt: int, lines: deque[str]) -> bool:
    """Run what isn't done; whether all is now. A function that can't be read fails each record, so that each says why."""
    function: Callable[..., Any] | None = None
    unreadable: bytes | None = None
    well = True
    for index in store.slice():
        if store.done(index):
            continue
        if function is None and unreadable is None:
            try:
                function = _prepare(store)
            except BaseException as error:  # noqa: BLE001 - importing a user's modules may raise anything
                unreadable = outcome.of_failure(failure_from(error, attempt))
        record = store.record(index)
        os.environ.update(record_variables(record.key, index, store.total, attempt))
        lines.clear()
        result = unreadable or run(function, record.args, attempt, lambda: tuple(lines))  # type: ignore[arg-type]
        sys.stdout.flush()
        success = outcome.is_success(result)
        store.write(index, attempt, result, success=success)
        if not success:
            well = False
            print(f"{record.key}: {outcome.failure_of(result).message}", file=sys.stderr, flush=True)  # noqa: T201 - the pod's log
    return well


def main() -> int:
    """Run the records of this process's shard."""
    lines: deque[str] = deque(maxlen=LOG_LINES)
    sys.stdout = _Passing(sys.stdout, lines)
    sys.stderr = _Passing(sys.stderr, lines)
    try:
        attempt = int(os.environ.get("PUMICE_ATTEMPT", "1"))
        return 0 if _run_all(open_store(os.environ), attempt, lines) else 1
    except (PumiceError, OSError, ValueError) as error:
        print(f"pumice.worker: {error}", file=sys.stderr)  # noqa: T201 - the pod's log
        return 2


if __name__ == "__main__":
    sys.exit(main())
