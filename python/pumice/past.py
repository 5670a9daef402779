"""What became of jobs, also of those that are gone, as plain records; `pandas.DataFrame(pumice.history())` takes them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from os import PathLike
from typing import Any, Literal, TypeAlias, TypedDict, cast

from . import _core

__all__ = ["PastJob", "PastSum", "history", "history_of", "history_sums"]

When: TypeAlias = datetime | timedelta | str
"""A moment: a time, so long ago, or as text "2h", "7d", "2026-01-31" (UTC), "2026-01-31T08:00:00Z"."""

By: TypeAlias = Literal["user", "queue", "namespace", "day", "name", "phase", "profile", "node"]

_LIMIT = 1000


class PastJob(TypedDict):
    """A job as it last was. Times have a time zone; what is not known is None."""

    namespace: str
    name: str
    uid: str
    api: str
    user: str | None
    queue: str | None
    priority_class: str | None
    profile: str | None
    """The name without what differs from run to run."""
    phase: str
    """The last one; "Deleted" of a job that was deleted before it ended, "EndUnknown" where nobody saw the end."""
    reason: str | None
    message: str | None
    submitted: datetime | None
    started: datetime | None
    ended: datetime | None
    gone: datetime | None
    """When its object was seen to be gone."""
    unseen_from: datetime | None
    """Of an unknown end: when the job was last known to be there."""
    waited_ms: int | None
    ran_ms: int | None
    replicas: int
    succeeded: int
    failed: int
    retries: int
    cpu_milli: int
    """What all of its pods ask for together."""
    memory_bytes: int


class PastSum(TypedDict):
    """Sums over jobs that have something in common."""

    key: str
    jobs: int
    failed: int
    pods: int
    core_hours: float
    memory_gib_hours: float
    waited_p50_ms: int | None
    waited_p90_ms: int | None


_TIMES = ("submitted", "started", "ended", "gone", "unseen_from")


def history(
    name: str | None = None,
    *,
    user: str | None = None,
    queue: str | None = None,
    node: str | None = None,
    states: Sequence[str] = (),
    since: When | None = None,
    until: When | None = None,
    limit: int = _LIMIT,
    namespace: str | None = None,
    all_namespaces: bool = False,
    context: str | None = None,
    kubeconfig: str | PathLike[str] | None = None,
    data_dir: str | PathLike[str] | None = None,
) -> list[PastJob]:
    """Jobs, the last submitted first, at most `limit`.

    `name` may have "*" and "?"; `since` leaves out what was over before, `until` what was submitted later. The platform is
    found as `jobctl` finds it.
    """
    connection = _core.Connection.open(context, kubeconfig, data_dir, namespace)
    rows = connection.history(name, user, queue, node, list(states), _text(since), _text(until), all_namespaces, limit)
    for row in rows:
        for time in _TIMES:
            row[time] = row[time] and datetime.fromisoformat(row[time])
    return cast("list[PastJob]", rows)


def history_sums(
    by: By,
    name: str | None = None,
    *,
    user: str | None = None,
    queue: str | None = None,
    node: str | None = None,
    states: Sequence[str] = (),
    since: When | None = None,
    until: When | None = None,
    namespace: str | None = None,
    all_namespaces: bool = False,
    context: str | None = None,
    kubeconfig: str | PathLike[str] | None = None,
    data_dir: str | PathLike[str] | None = None,
) -> list[PastSum]:
    """Sums over jobs by what they have in common; days in their order, others by core-hours."""
    connection = _core.Connection.open(context, kubeconfig, data_dir, namespace)
    rows = connection.history_sums(by, name, user, queue, node, list(states), _text(since), _text(until), all_namespaces)
    return cast("list[PastSum]", rows)


def history_of(
    name: str,
    uid: str | None = None,
    *,
    namespace: str | None = None,
    context: str | None = None,
    kubeconfig: str | PathLike[str] | None = None,
    data_dir: str | PathLike[str] | None = None,
) -> dict[str, Any]:
    """Everything of the last job of that name, or of the one with this uid: its tasks, attempts, waits, use and end.

    As `jobctl history NAME -o json` prints it.
    """
    return _core.Connection.open(context, kubeconfig, data_dir, namespace).history_of(name, uid)


def _text(when: When | None) -> str | None:
    if isinstance(when, timedelta):
        when = datetime.now(UTC) - when
    if isinstance(when, datetime):
        # A time without a zone is one of this machine.
        return when.astimezone(UTC).isoformat()
    return when
