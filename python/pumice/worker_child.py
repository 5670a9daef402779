"""What the process in a pod does that runs the records: it tells the one which forked it what came of each."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from . import node_cache, outcome
from .calls import failure_from, record_variables, run
from .errors import PickleTooLarge
from .interpreter import check_python
from .last_lines import LastLines, Passing
from .pickling import LIMIT
from .wire import Result
from .workstore import WorkStore

__all__ = ["run_all"]


def _prepare(store: WorkStore) -> Callable[..., Any]:
    """Make the user's modules and packages importable, and read the function."""
    check_python(store.python, "{}.{}.{}".format(*sys.version_info))
    # As where it was submitted: the program's folder and what else is on the path there, and no folder but those. The folder
    # in which this process works comes last, where nothing in it can be taken for what somebody else has installed.
    here = str(Path.cwd())
    sys.path[:] = [*(store.path() or (entry for entry in sys.path if entry not in ("", here))), here]
    cache = node_cache.cache_folder() / node_cache.ARCHIVES
    if (packages := store.packages()) is not None:
        node_cache.add_to_path(node_cache.unpack(packages, cache), first=False)
    if (modules := store.modules()) is not None:
        node_cache.add_to_path(node_cache.unpack(modules, cache), first=True)
    function: Callable[..., Any] = pickle.loads(store.function())
    return function


def run_all(store: WorkStore, left: Sequence[int], last: LastLines, tell: Callable[[Result], None]) -> None:
    """Run records, one after the other. A function that can't be read fails each, so that each says why."""
    sys.stdout = Passing(sys.stdout, last)
    sys.stderr = Passing(sys.stderr, last)
    function: Callable[..., Any] | None = None
    unreadable: bytes | None = None
    try:
        function = _prepare(store)
    except BaseException as error:  # noqa: BLE001 - importing a user's modules may raise anything
        unreadable = outcome.of_failure(failure_from(error, store.attempt))
    for index in left:
        record = store.record(index)
        os.environ.update(record_variables(record.key, index, store.total, store.attempt, store.checkpoint(index)))
        last.clear()
        result = unreadable or run(function, record.args, store.attempt, last.lines)  # type: ignore[arg-type]
        sys.stdout.flush()
        result = _sendable(result, store.attempt)
        success = outcome.is_success(result)
        if not success:
            print(f"{record.key}: {outcome.failure_of(result).message}", file=sys.stderr, flush=True)  # noqa: T201 - the pod's log
        tell(Result(index, record.key, success, result))


def _sendable(result: bytes, attempt: int) -> bytes:
    """The outcome, or a failure in its place if it is larger than what comes back."""
    if len(result) <= LIMIT:
        return result
    what = "it returned" if outcome.is_success(result) else "it raised"
    error = PickleTooLarge(
        f"The pickle of what {what} would be {len(result) >> 20} MiB; at most {LIMIT >> 20} MiB come back from a pod. "
        "Write it to a shared path, and return its name."
    )
    return outcome.of_failure(replace(failure_from(error, attempt), traceback=None))
