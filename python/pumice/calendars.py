"""Days to map over: all, weekdays, an own list, or those of an exchange's calendar (from the compiled part)."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from typing import TypeAlias

from .bounded_text import short_repr
from .errors import BadOption, MissingExtension

__all__ = ["days"]

Day: TypeAlias = datetime.date | str

_LIMIT = 366 * 400
_FIRST, _LAST = datetime.date(1970, 1, 1), datetime.date(2100, 12, 31)
_WIDER = datetime.timedelta(days=31)


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
    if not _FIRST <= start <= end <= _LAST:
        raise BadOption(f"From {start} to {end}: the days of an exchange are known from {_FIRST.year} to {_LAST.year}.")
    # Widened, as a range without a day of trade is an error there, and an empty list here.
    first, last = max(start - _WIDER, _FIRST), min(end + _WIDER, _LAST)
    try:
        known = _core.days(first.isoformat(), last.isoformat(), calendar)
    except _core.UsageError as error:
        raise BadOption(
            f'There is no calendar {short_repr(calendar)}: there are "weekdays", "all", the code of an exchange in capital '
            'letters ("XNYS"), and lists of days.'
        ) from error
    return [day for day in map(_day, known) if start <= day <= end]
