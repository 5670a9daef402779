"""Days to map over: all, weekdays, an own list, or those of an exchange's calendar (from the compiled part)."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from typing import TypeAlias

from .errors import BadOption, MissingExtension
from .shortened import short_repr

__all__ = ["days"]

Day: TypeAlias = datetime.date | str

_LIMIT = 366 * 400


def _day(value: Day) -> datetime.date:
    if isinstance(value, datetime.datetime):
        return value.date()
    if isinstance(value, datetime.date):
        return value
    try:
        return datetime.date.fromisoformat(value)
    except (TypeError, ValueError) as error:
        raise BadOption(f"{short_repr(value)} is no day; days are written 2024-12-31.") from error


def days(first: Day, last: Day, calendar: str | Iterable[Day] = "weekdays") -> list[datetime.date]:
    """The days from `first` to `last`, both included.

    `calendar` is "weekdays" (Monday to Friday), "all", a list of days, or the name of an exchange ("XNYS").
    """
    start, end = _day(first), _day(last)
    if end < start:
        raise BadOption(f"The last day, {end}, is before the first, {start}.")
    if (end - start).days > _LIMIT:
        raise BadOption(f"From {start} to {end} are more than {_LIMIT} days.")
    if not isinstance(calendar, str):
        return sorted({day for day in map(_day, calendar) if start <= day <= end})
    if calendar in ("all", "weekdays"):
        every = (start + datetime.timedelta(days=number) for number in range((end - start).days + 1))
        return [day for day in every if calendar == "all" or day.weekday() < 5]
    return _of_exchange(start, end, calendar)


def _of_exchange(start: datetime.date, end: datetime.date, calendar: str) -> list[datetime.date]:
    try:
        from . import _core
    except ImportError as error:
        raise MissingExtension(
            f"The calendar {calendar!r} comes with the compiled part of pumice (pumice._core), which is missing here. "
            'Without it there are "weekdays", "all" and lists of days.'
        ) from error
    return [_day(day) for day in _core.days(start.isoformat(), end.isoformat(), calendar)]
