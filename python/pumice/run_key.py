"""The key of a run: with it the run's pods mark what they record, so that nobody else's pickle is taken for theirs."""

from __future__ import annotations

import os
import pwd
from collections.abc import MutableMapping
from pathlib import Path

from .backend import Failure

__all__ = ["VARIABLE", "fresh", "refusal", "take", "whose"]

VARIABLE = "PUMICE_RUN_KEY"
"""The variable by which a pod gets it."""

_WHAT_IS_WRONG = {
    "missing": "has no mark of this run. The pumice of an older image writes none; else somebody else has written it",
    "wrong": "has a mark that is not of this run, or was changed since: somebody else has written it",
    "unchecked": "is of a run whose key is not known here",
}


def fresh() -> str:
    """A key that nobody else has."""
    return os.urandom(32).hex()


def take(environ: MutableMapping[str, str]) -> str | None:
    """The key of this pod's run. It is gone from the environment then: what a call starts has no use for it."""
    return environ.pop(VARIABLE, None) or None


def refusal(file: str, mark: str, attempt: int) -> Failure:
    """The failure of a record whose result is not read, because of its mark."""
    return Failure(
        "unmarked",
        f"its result is not read: {file}, which belongs to {_owner(file)}, {_WHAT_IS_WRONG[mark]}. A pickle runs, when it "
        "is read, whatever its writer wants. If you trust it, run this again with allow_pickle=True.",
        attempt=attempt,
    )


def whose(uid: int) -> str:
    """A user, for people."""
    try:
        return f"user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"user {uid}"


def _owner(file: str) -> str:
    try:
        return whose(Path(file).stat().st_uid)
    except OSError:
        return "nobody knows whom"
