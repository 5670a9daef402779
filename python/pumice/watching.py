"""Submits a job such that what it tells comes with outcomes, and none before the job is known."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

from . import outcome, tracebacks
from .backend import Backend, Change, Failure, Job, JobSpec, State
from .bounded_text import shortened
from .errors import NotPicklable

__all__ = ["failure_in", "submit", "unreadable"]


class _Feed:
    """Between a back end, which may keep outcomes until it is asked, and who wants changes whole."""

    def __init__(self, deliver: Callable[[Sequence[Change]], None]) -> None:
        self._deliver = deliver
        self._lock = threading.RLock()
        self._job: Job | None = None
        self._early: list[Change] = []

    def on_change(self, changes: Sequence[Change]) -> None:
        with self._lock:
            if self._job is None and (self._early or any(map(_lacks_outcome, changes))):
                self._early += changes
            else:
                self._deliver(self._whole(changes))

    def start(self, job: Job) -> None:
        with self._lock:
            self._job = job
            early, self._early = self._early, []
            if early:
                self._deliver(self._whole(early))

    def _whole(self, changes: Sequence[Change]) -> Sequence[Change]:
        lacking = [change.index for change in changes if _lacks_outcome(change)]
        if not lacking or self._job is None:
            return changes
        try:
            found = dict(self._job.outcomes(lacking))
        except Exception as error:  # noqa: BLE001 - whatever a back end raises, these records have an end
            lost = Failure("lost", f"ended, and its outcome can't be had: {error}")
            found = dict.fromkeys(lacking, lost)
        return [replace(change, outcome=found.get(change.index)) if _lacks_outcome(change) else change for change in changes]


def _lacks_outcome(change: Change) -> bool:
    return change.outcome is None and change.state in (State.SUCCEEDED, State.FAILED)


def submit(backend: Backend, spec: JobSpec, deliver: Callable[[Sequence[Change]], None]) -> Job:
    """Start a job; changes come one call at a time, ended ones with their outcomes where there are any."""
    feed = _Feed(deliver)
    job = backend.submit(spec, feed.on_change)
    feed.start(job)
    return job


def failure_in(change: Change) -> Failure:
    """The failure of a record that has ended without a value."""
    found = change.outcome
    if found is None or (isinstance(found, bytes) and outcome.is_success(found)):
        found = Failure("lost", "ended, and its outcome is nowhere to be found")
    failure = outcome.with_attempt(outcome.failure_of(found), change.attempt, change.node)
    trace = None if failure.traceback is None else tracebacks.with_code(failure.traceback)
    return replace(failure, message=shortened(failure.message), traceback=trace)


def unreadable(error: Exception, *, attempt: int, node: str | None) -> Exception:
    """What reading a value has raised, with the failure that it is for its record."""
    if isinstance(error, NotPicklable):
        error.failure = Failure("error", shortened(str(error)), attempt=attempt, node=node)
    return error
