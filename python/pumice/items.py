"""One record of a map: its key, what it was given, how it goes, and its value or failure."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from . import outcome, watching
from .backend import Change, State
from .bounded_text import shortened
from .errors import TaskFailed
from .parameters import Call

if TYPE_CHECKING:
    from .backend import Job

__all__ = ["Done", "Item"]

T = TypeVar("T")


class Done(NamedTuple, Generic[T]):
    """A record that has its value."""

    key: str
    value: T


class Item(Generic[T]):
    """A record of a `MapResult`."""

    __slots__ = (
        "_call",
        "_error",
        "_function",
        "_value",
        "attempt",
        "from_store",
        "index",
        "job",
        "max_rss",
        "node",
        "seconds",
        "started",
        "state",
        "why",
    )

    def __init__(self, call: Call, function: Callable[..., T]) -> None:
        self._call = call
        self._function = function
        self._value: T | None = None
        self._error: BaseException | None = None
        self.state = State.WAITING
        self.attempt = 1
        self.node: str | None = None
        self.why: str | None = None
        """Why it waits, as the back end says it."""
        self.started: float | None = None
        self.seconds: float | None = None
        self.max_rss: int | None = None
        self.from_store = False
        """Whether the value is of an earlier run."""
        self.job: Job | None = None
        self.index = 0
        """Its number in the job."""

    @property
    def key(self) -> str:
        """Names it, in every run."""
        return self._call.key

    @property
    def args(self) -> tuple[Any, ...]:
        """What it was given by place."""
        return self._call.args

    @property
    def kwargs(self) -> dict[str, Any]:
        """What it was given by name."""
        return self._call.kwargs

    @property
    def value(self) -> T:
        """What the function returned. Raises its failure; of a record that isn't over, LookupError."""
        if self._error is not None:
            raise self._error
        if self.state is not State.SUCCEEDED:
            raise LookupError(f"{self.key} is {self.state.value} and has no value.")
        return self._value  # type: ignore[return-value]

    @property
    def error(self) -> BaseException | None:
        """Why it failed: a `TaskFailed`, or what reading its value raised."""
        return self._error

    def run_local(self, *, debug: bool = False) -> T:
        """Call the function here, with the same arguments: its exception comes with a real traceback.

        `debug=True` opens the debugger where it was raised.
        """
        try:
            return self._function(*self._call.args, **self._call.kwargs)
        except Exception as error:
            if debug:
                import pdb

                print(f"{type(error).__name__}: {error}", file=sys.stderr)  # noqa: T201 - to who debugs
                trace = error.__traceback__
                pdb.post_mortem(trace.tb_next if trace is not None else None)
            raise

    def logs(self, tail: int | None = None) -> Iterator[str]:
        """The lines it has written, as far as they are kept."""
        if self.job is None:
            return iter(())
        return self.job.logs(self.index, tail=tail)

    def take(self, change: Change) -> None:
        """Come to a new state."""
        self.state, self.attempt, self.why = change.state, change.attempt, change.why
        self.node = change.node or self.node
        self.started = change.started if change.started is not None else self.started
        self.seconds = change.seconds if change.seconds is not None else self.seconds
        self.max_rss = change.max_rss if change.max_rss is not None else self.max_rss
        if change.state is State.SUCCEEDED and isinstance(change.outcome, bytes):
            self.succeed(change.outcome)
        elif change.state in (State.SUCCEEDED, State.FAILED):
            self.state = State.FAILED
            self._error = outcome.exception_of(self.key, watching.failure_in(change))

    def succeed(self, result: bytes) -> None:
        """Read the value."""
        try:
            self._value = outcome.read_value(result)
            self.state = State.SUCCEEDED
        except Exception as error:  # noqa: BLE001 - a value that can't be read here is a failure of the record
            self.state = State.FAILED
            self._error = watching.unreadable(error, attempt=self.attempt, node=self.node)

    def reset(self) -> None:
        """Back to waiting, for another run."""
        self._error = None
        self.state, self.attempt, self.why = State.WAITING, 1, None

    def __repr__(self) -> str:
        failure = self._error.failure.message if isinstance(self._error, TaskFailed) else self._error
        return f"<{self.key}: {self.state.value}{f', {shortened(str(failure))}' if failure else ''}>"
