"""What can go wrong, as exceptions. Each says what was wrong and what to do next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .bounded_text import shortened

if TYPE_CHECKING:
    from .backend import Failure

__all__ = [
    "BadOption",
    "BelowMinSuccess",
    "EnvironmentMismatch",
    "MissingExtension",
    "NoBackend",
    "NotMarked",
    "NotPicklable",
    "PickleTooLarge",
    "PumiceError",
    "Refused",
    "TaskFailed",
]

_SHOWN_LOG_LINES = 20
_SHOWN_OF_A_LINE = 200
_SHOWN_KEYS = 10


class PumiceError(Exception):
    """The root of all errors of this library."""


class BadOption(PumiceError, ValueError):
    """An option has a value that can't be meant."""


class NoBackend(PumiceError):
    """It isn't said, or can't be had, what is to run the work."""


class Refused(PumiceError):
    """The back end doesn't take the job: an unknown queue, a request that fits nowhere, no permission."""


class MissingExtension(PumiceError, ImportError):
    """Something needs the compiled part (`pumice._core`) or an optional package that isn't installed."""


class NotMarked(PumiceError):
    """A result that is kept in a folder may be somebody else's, and `allow_pickle=True` wasn't said."""


class NotPicklable(PumiceError, TypeError):
    """A function, an argument or a result can't be sent to another process."""

    failure: Failure | None = None
    """Of a record that has come back and can't be read here: what is known of it."""


class PickleTooLarge(PumiceError, ValueError):
    """A pickle is larger than what is sent along with a job."""


class EnvironmentMismatch(PumiceError):
    """The worker's Python can't run what this Python has pickled."""


class TaskFailed(PumiceError):
    """A record failed; `failure` has all that is known of it. The exception it raised, if any, is `__cause__`."""

    def __init__(self, key: str, failure: Failure) -> None:
        super().__init__(key, failure)
        self.key = key
        self.failure = failure

    @property
    def traceback(self) -> str | None:
        """The remote traceback as text."""
        return self.failure.traceback

    @property
    def log_lines(self) -> tuple[str, ...]:
        """The last lines it wrote."""
        return self.failure.log_lines

    @property
    def exit_code(self) -> int | None:
        """Exit code of its process, if that ended under it."""
        return self.failure.exit_code

    @property
    def signal(self) -> int | None:
        """The signal that ended its process."""
        return self.failure.signal

    @property
    def oom(self) -> bool:
        """Whether it ran out of memory."""
        return self.failure.oom

    @property
    def node(self) -> str | None:
        """Where it ran."""
        return self.failure.node

    @property
    def why(self) -> str | None:
        """What the platform says to "why?"."""
        return self.failure.why

    @property
    def attempt(self) -> int:
        """Which attempt it was; the first is 1."""
        return self.failure.attempt

    def __repr__(self) -> str:
        return f"TaskFailed({self.key!r}, {shortened(self.failure.message)!r})"

    def __str__(self) -> str:
        failure = self.failure
        where = f" on {failure.node}" if failure.node else ""
        again = f" in attempt {failure.attempt}" if failure.attempt > 1 else ""
        parts = [f"{self.key}: {shortened(failure.message)}{where}{again}"]
        if failure.why:
            parts.append(f"why: {shortened(failure.why)}")
        if failure.traceback:
            parts.append(failure.traceback.rstrip())
        if failure.log_lines:
            shown = failure.log_lines[-_SHOWN_LOG_LINES:]
            parts.append(f"the last {len(shown)} lines it wrote:")
            parts.extend(f"  {shortened(line, _SHOWN_OF_A_LINE)}" for line in shown)
        if failure.oom:
            parts.append('It ran out of memory: ask for more, memory="..." or on_oom=pumice.grow(1.5, "64Gi").')
        return "\n".join(parts)


class BelowMinSuccess(PumiceError):
    """Fewer records succeeded than `min_success` asks for."""

    def __init__(self, succeeded: int, needed: int, total: int, without: Sequence[str]) -> None:
        super().__init__(succeeded, needed, total, tuple(without))
        self.succeeded = succeeded
        self.needed = needed
        self.total = total
        self.without = tuple(without)
        """Keys of the records without a value."""

    def __repr__(self) -> str:
        return f"BelowMinSuccess({self.succeeded} of {self.total} succeeded, {self.needed} were needed)"

    def __str__(self) -> str:
        names = ", ".join(self.without[:_SHOWN_KEYS])
        more = f" and {len(self.without) - _SHOWN_KEYS} more" if len(self.without) > _SHOWN_KEYS else ""
        return (
            f"{self.succeeded} of {self.total} succeeded, {self.needed} were needed; without a value: {names}{more}. "
            "Look at .failed[0].error, run one here with .failed[0].run_local(), run them again with .retry()."
        )
