"""Runs one record in a worker's process and says how it went, as bytes."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from . import outcome
from .backend import Failure
from .errors import NotPicklable

__all__ = ["LOG_LINES", "failure_from", "record_variables", "run"]

LOG_LINES = 50
"""How many of its last lines a failure carries."""


def record_variables(key: str, index: int, count: int, attempt: int, checkpoint: Path | None) -> dict[str, str]:
    """What a user's function finds in its environment about the record it is run for."""
    return {
        "PUMICE_SHARD_KEY": key,
        "PUMICE_SHARD_INDEX": str(index),
        "PUMICE_SHARD_COUNT": str(count),
        "PUMICE_ATTEMPT": str(attempt),
        "PUMICE_CHECKPOINT": str(checkpoint or ""),
    }


def failure_from(error: BaseException, attempt: int) -> Failure:
    """A raised exception as a failure."""
    import platform

    from .bounded_text import shortened
    from .pickling import dumps_value
    from .tracebacks import summary_of, text_of

    try:
        pickled: bytes | None = dumps_value(error)
    except Exception:  # noqa: BLE001 - a user's exception may hold anything; its text goes back all the same
        pickled = None
    return Failure(
        "error",
        f"raised {shortened(summary_of(error))}",
        traceback=text_of(error),
        exception=pickled,
        oom=isinstance(error, MemoryError),
        node=platform.node(),
        attempt=attempt,
    )


def run(function: Callable[..., Any], args: bytes, attempt: int, log_lines: Callable[[], tuple[str, ...]]) -> bytes:
    """Call the function and give the outcome. Whatever it raises is an outcome, too."""
    import pickle
    from dataclasses import replace

    try:
        positional, named = pickle.loads(args)
        value = function(*positional, **named)
    except BaseException as error:  # noqa: BLE001 - SystemExit of a user's function is its failure, not the worker's end
        return outcome.of_failure(replace(failure_from(error, attempt), log_lines=log_lines()))
    try:
        return outcome.of_value(value)
    except Exception as error:  # noqa: BLE001 - a user's __reduce__ may raise anything
        from .bounded_text import shortened

        kind = type(value).__qualname__
        refused = NotPicklable(
            f"The returned {kind} can't be sent back: {shortened(str(error))}. Return plain values, arrays or tables."
        )
        return outcome.of_failure(replace(failure_from(refused, attempt), log_lines=log_lines()))


def set_variables(environ: Mapping[str, str]) -> None:
    """Put variables into this process's environment."""
    os.environ.update(environ)
