"""What calls are given, how they are named, and what of it can't be."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import functools
import itertools
import pathlib
import threading

import numpy
import pandas

import pumice
from cases import here, run, task


class Colour(enum.Enum):
    RED = 1


@dataclasses.dataclass
class Point:
    x: int


class Named(str):
    def __str__(self):
        return "another"


def closure(n):
    return lambda: n


# Each with the key that its call has; None where that is a hash of the content.
VALUES = {
    "a number": (7, "7"),
    "a number of 5,001 digits": (10**5000, None),
    "a real number": (0.5, "0.5"),
    "text": ("2024-01", "2024-01"),
    "text with spaces": ("a b", None),
    "text of a class of its own": (Named("own"), "own"),
    "bytes": (b"\0", None),
    "nothing": (None, None),
    "a day": (datetime.date(2024, 1, 2), "2024-01-02"),
    "a decimal": (decimal.Decimal("1.5"), None),
    "a path": (pathlib.PurePosixPath("/a/b"), None),
    "an enum": (Colour.RED, "RED"),
    "a data class": (Point(1), None),
    "a list": ([1, [2, {"a": {3}}]], None),
    "a dictionary": ({"a": 1}, None),
    "a number of numpy": (numpy.int64(8), "8"),
    "a real number of numpy": (numpy.float64(1.5), "1.5"),
    "text of numpy": (numpy.str_("numpy"), "numpy"),
    "an array": (numpy.arange(5), None),
    "a data frame": (pandas.DataFrame({"a": [1], "b": ["x"]}), None),
    "8 MB": (b"x" * (8 << 20), None),
    "a partial": (functools.partial(pow, 2), None),
    "a class": (Point, None),
    "a closure": (closure(3), None),
}


def described(value):
    shown = value() if callable(value) and not isinstance(value, (type, functools.partial)) else value
    length = len(shown) if hasattr(shown, "__len__") else None
    return type(shown).__name__, length, "" if type(shown) is int and shown > 10**4000 else str(shown)[:20]


def describe_all():
    values = [value for value, _ in VALUES.values()]
    result = task(described, memory="512Mi").map(values, chunk=len(values))
    return result.results(100), [item.key for item in result.items]


@functools.cache
def told():
    answers, keys = describe_all()
    return dict(zip(VALUES, zip(answers, keys, strict=True), strict=True))


def one(name):
    value, key = VALUES[name]
    answer, named = told()[name]
    readable = named == key if key is not None else len(named) == 16 or named.startswith("#")
    return (repr(answer) == repr(described(value))), readable


for name in VALUES:
    here(f"{name} as an argument", (True, True))(functools.partial(one, name))


def refusal(call):
    try:
        call()
    except pumice.PumiceError as error:
        return type(error).__name__, len(str(error)) < 2000
    return "it was not refused"


identity = task(described)
REFUSED = {
    "an endless iterable": ("BadOption", lambda: identity.map(itertools.count())),
    "several endless iterables": ("BadOption", lambda: identity.map(itertools.count(), itertools.cycle("ab"))),
    "an argument above the limit": ("PickleTooLarge", lambda: identity.map([bytes(65 << 20)])),
    "an argument with a lock in it": ("NotPicklable", lambda: identity.map([[{"a": (threading.Lock(),)}]])),
    "keys that aren't text": ("BadOption", lambda: identity.map([1], key=lambda value: value)),
    "keys that are equal": ("BadOption", lambda: identity.map([1, 2], key=lambda value: "same")),
    "a map over nothing": ("BadOption", identity.map),
    "memory without a unit": ("BadOption", lambda: task(described, memory=4)),
    "a timeout that can't be read": ("BadOption", lambda: task(described, timeout="soon")),
    "a calendar that there isn't": ("BadOption", lambda: pumice.days("2024-01-01", "2024-01-02", "nowhere")),
    "days in the wrong order": ("BadOption", lambda: pumice.days("2024-01-02", "2024-01-01")),
    "an option that there isn't": ("BadOption", lambda: task(described, colour="red")),
}
for name, (kind, call) in REFUSED.items():
    here(f"{name} is refused", (kind, True))(functools.partial(refusal, call))

run()
