"""Why a job waits, and how a queue or a node stands: the scheduler's own answers.

Nothing is worked out here. Each answer has its `text` for people, and the same as data. The platform asked is the one that
`jobctl` would talk to; none is started for a question.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from . import _core
from .errors import Refused

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["why", "why_node", "why_queue"]

_Answer = TypeVar("_Answer")


def why(job: str) -> _core.Why:
    """Why a job of the platform is where it is, by its name: what fails, who holds what it lacks, what would help."""
    return _ask(lambda connection: connection.why(job))


def why_queue(queue: str) -> _core.Standing:
    """What a queue holds, deserves and waits for, and who is first in it. It takes a right in the whole cluster."""
    return _ask(lambda connection: connection.why_queue(queue))


def why_node(node: str) -> _core.Standing:
    """What is free on a node, for whom it is kept, and who holds the rest. It takes a right in the whole cluster."""
    return _ask(lambda connection: connection.why_node(node))


def _ask(question: Callable[[_core.Connection], _Answer]) -> _Answer:
    try:
        return question(_core.Connection.open())
    except _core.CoreError as error:
        raise Refused(f"{error}; next: {error.next_command}" if error.next_command else str(error)) from error
