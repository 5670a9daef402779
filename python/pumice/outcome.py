"""What the process that ran a record writes: one byte that says how it went, then the pickled value or failure."""

from __future__ import annotations

import pickle
from dataclasses import asdict, replace
from typing import Any

from .backend import Failure, Outcome
from .errors import NotPicklable, PumiceError, TaskFailed

__all__ = ["of_failure", "is_success", "failure_of", "of_value", "read_value"]

_SUCCESS, _FAILURE = b"+", b"-"


def of_value(value: Any) -> bytes:
    """The outcome of a record that returned. Raises what pickling raises."""
    from .pickling import dumps_value

    return _SUCCESS + dumps_value(value)


def of_failure(failure: Failure) -> bytes:
    """The outcome of a record that failed where its process could say so."""
    return _FAILURE + pickle.dumps(asdict(failure))


def is_success(outcome: bytes) -> bool:
    """Whether the record returned a value; looks at the first byte only."""
    return outcome[:1] == _SUCCESS


def read_value(outcome: bytes) -> Any:
    """The value of a success."""
    try:
        return pickle.loads(memoryview(outcome)[1:])
    except Exception as error:
        raise NotPicklable(
            f"The value came back, but can't be read here: {type(error).__name__}: {error}. "
            "Import here what its type needs, or return plain values."
        ) from error


def failure_of(outcome: Outcome) -> Failure:
    """The failure in an outcome that isn't a success."""
    if isinstance(outcome, Failure):
        return outcome
    if outcome[:1] != _FAILURE:
        raise PumiceError(f"An outcome begins with {_SUCCESS!r} or {_FAILURE!r}, this one with {outcome[:1]!r}.")
    fields: dict[str, Any] = pickle.loads(memoryview(outcome)[1:])
    return Failure(**fields)


def exception_of(key: str, outcome: Outcome) -> BaseException:
    """What to raise for a failed record: `TaskFailed` with the function's own exception, if it came back, as its cause."""
    failure = failure_of(outcome)
    error = TaskFailed(key, failure)
    if failure.exception is not None:
        error.__cause__ = load_exception(failure)
    return error


def load_exception(failure: Failure) -> BaseException | None:
    """The exception the function raised, with the remote traceback as its cause, as `concurrent.futures` does it."""
    if failure.exception is None:
        return None
    try:
        cause = pickle.loads(failure.exception)
    except Exception:  # noqa: BLE001 - whatever unpickling a user's class may raise; the text of it is in the failure
        return None
    if not isinstance(cause, BaseException):
        return None
    cause.__cause__ = RemoteTraceback(failure.traceback or "")
    return cause


class RemoteTraceback(Exception):
    """The traceback of another process, as text."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text}"""'


def with_attempt(failure: Failure, attempt: int, node: str | None) -> Failure:
    """The failure with what only the back end knows."""
    return replace(failure, attempt=attempt, node=failure.node or node)
