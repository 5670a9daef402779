"""Which run this is, in a script that runs many times (`jobctl run --array ...`)."""

from __future__ import annotations

import datetime
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .errors import PumiceError

__all__ = ["Shard", "checkpoint", "shard"]


@dataclass(frozen=True, slots=True)
class Shard:
    """The record this process is run for."""

    key: str
    """Its stable name: `7`, `2024-01-02`, `2024-01`."""
    index: int
    """Its number among all, from 0."""
    count: int
    """How many there are."""
    attempt: int
    """1 in the first run."""
    day: datetime.date | None
    """In a job over days."""
    month: str | None
    """In a job over months, `2024-01`."""
    params: Mapping[str, str]
    """In a job over rows: the row by the names of its columns in capital letters."""
    checkpoint: Path | None
    """A folder that stays over attempts, where the job has one."""


def shard(environ: Mapping[str, str] = os.environ) -> Shard:
    """The record of this process, out of its environment. Outside of a job: the only one, with key `0`."""
    if "PUMICE_SHARD_KEY" not in environ:
        if "PUMICE_SHARDS" in environ:
            raise PumiceError(
                "This pod has a slice of records and runs none of them: start the program by `jobctl shard -- PROGRAM`, "
                "as `jobctl run` and `jobctl submit` do."
            )
        return Shard("0", 0, 1, 1, None, None, {}, None)
    prefix = "PUMICE_PARAM_"
    day = environ.get("PUMICE_DAY")
    return Shard(
        key=environ["PUMICE_SHARD_KEY"],
        index=_number(environ, "PUMICE_SHARD_INDEX", 0),
        count=_number(environ, "PUMICE_SHARD_COUNT", 1),
        attempt=_number(environ, "PUMICE_ATTEMPT", 1),
        day=_date(day) if day else None,
        month=environ.get("PUMICE_MONTH") or None,
        params={name.removeprefix(prefix): value for name, value in environ.items() if name.startswith(prefix)},
        checkpoint=checkpoint(environ),
    )


def checkpoint(environ: Mapping[str, str] = os.environ) -> Path | None:
    """The folder in which the call that runs here keeps, over its attempts, what lets it go on where it stopped.

    None where there is none: outside of a job, and on this machine without `retries`.
    """
    folder = environ.get("PUMICE_CHECKPOINT")
    return Path(folder) if folder else None


def _number(environ: Mapping[str, str], name: str, default: int) -> int:
    text = environ.get(name, str(default))
    try:
        return int(text)
    except ValueError as error:
        raise PumiceError(f"{name} is {text!r} and should be a number; it is set by the platform, don't set it.") from error


def _date(text: str) -> datetime.date:
    try:
        return datetime.date.fromisoformat(text)
    except ValueError as error:
        raise PumiceError(f"PUMICE_DAY is {text!r} and should be a day such as 2024-12-31.") from error
