"""What a function is mapped over: calls made of iterables, grids and days, and their stable keys."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import hashlib
import itertools
import math
import pickle
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from typing import Any, NamedTuple

from .bounded_text import short_repr
from .errors import BadOption

__all__ = ["Call", "Grid", "arguments", "calls", "content_hash", "grid", "key_of", "plain_key"]

_PLAIN_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._,=:+-]{0,79}")
_HASH_LENGTH = 16
_LIMIT = 10_000_000
_ENDLESS_LIMIT = 1_000_000
"""Most calls where nothing says how many there are."""
_TEXT_BITS = 1024
"""Larger numbers have no text: the interpreter refuses to write very long ones."""
_KEY_LIMIT = 256


class Call(NamedTuple):
    """One call, and the key which names it in every run."""

    key: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class Grid(Sequence[Mapping[str, Any]]):
    """All combinations of some values, the last name varying fastest; each is given to a function by name."""

    def __init__(self, values: Mapping[str, Sequence[Any]]) -> None:
        self.values = values

    def __len__(self) -> int:
        return math.prod(len(column) for column in self.values.values()) if self.values else 0

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return [self[index] for index in range(*place.indices(len(self)))]
        if not -len(self) <= place < len(self):
            raise IndexError(place)
        rest, row = place % len(self), {}
        for name, column in reversed(list(self.values.items())):
            rest, at = divmod(rest, len(column))
            row[name] = column[at]
        return {name: row[name] for name in self.values}

    def __repr__(self) -> str:
        return f"grid({', '.join(f'{name}=<{len(column)} values>' for name, column in self.values.items())})"


def grid(**values: Iterable[Any]) -> Grid:
    """All combinations: `grid(a=[1, 2], b=["x", "y"])` has four."""
    return Grid({name: list(column) for name, column in values.items()})


def calls(iterables: Sequence[Iterable[Any]], key: Callable[..., str] | None) -> list[Call]:
    """The calls of `map(f, *iterables)`; the rows of a grid, and nothing else, are given by name.

    What has no content to make a key of (a lambda, an open file) is named by its place, `#3`, which isn't stable.
    """
    if not iterables:
        raise BadOption("map wants something to map over: a list, pumice.grid(...), pumice.days(...).")
    rows: Iterator[tuple[tuple[Any, ...], dict[str, Any]]]
    if len(iterables) == 1 and isinstance(iterables[0], Grid):
        rows = (((), dict(row)) for row in iterables[0])
    else:
        rows = ((args, {}) for args in arguments(iterables))
    made: list[Call] = []
    seen: Counter[str] = Counter()
    for args, kwargs in itertools.islice(rows, _LIMIT + 1):
        name = key(*args, **kwargs) if key is not None else _key_or_place(args, kwargs, len(made))
        if (
            not isinstance(name, str)
            or not 0 < len(name.encode(errors="replace")) <= _KEY_LIMIT
            or not _can_be_written(name)
        ):
            raise BadOption(
                f"key= must give a text of 1 to {_KEY_LIMIT} bytes in UTF-8 for each call, it gave {short_repr(name)}."
            )
        seen[name] += 1
        if seen[name] > 1:
            if key is not None:
                raise BadOption(f"key= gave {short_repr(name)} for two calls; each needs one of its own.")
            name = f"{name}#{seen[name]}"
        made.append(Call(name, args, kwargs))
    if len(made) > _LIMIT:
        raise BadOption(f"That is more than {_LIMIT:,} calls: make each do more, or map over parts.")
    return made


def _can_be_written(text: str) -> bool:
    """Whether it is text in every file and message: half of a pair of surrogates is not."""
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def arguments(iterables: Sequence[Iterable[Any]]) -> Iterable[tuple[Any, ...]]:
    """The arguments of each call. Where nothing has a length they are read before any is looked at: they may have no end."""
    arguments = zip(*iterables, strict=False)
    if any(isinstance(values, Sized) for values in iterables):
        return arguments
    read = list(itertools.islice(arguments, _ENDLESS_LIMIT + 1))
    if len(read) > _ENDLESS_LIMIT:
        raise BadOption(
            f"More than {_ENDLESS_LIMIT:,} calls came of something that may have no end, as it has no length. "
            "If it has one, give a list of it; else take a part, itertools.islice(..., 1000)."
        )
    return read


def _key_or_place(args: tuple[Any, ...], kwargs: Mapping[str, Any], place: int) -> str:
    try:
        return key_of(args, kwargs)
    except BadOption:
        return f"#{place}"


def plain_key(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str | None:
    """The text of what a call is given, where that is short and plain."""
    if len(args) == 1 and not kwargs:
        text = _text(args[0])
    elif not args and kwargs:
        texts = {name: _text(value) for name, value in kwargs.items()}
        text = None if None in texts.values() else ",".join(f"{name}={value}" for name, value in texts.items())
    else:
        text = None
    return text if text is not None and _PLAIN_KEY.fullmatch(text) else None


def key_of(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    """A key from what a call is given: its text where that is short and plain, else a hash of the content."""
    return plain_key(args, kwargs) or content_hash(Call("", args, dict(kwargs)))


def content_hash(call: Call) -> str:
    """A short hash of what a call is given: `1` and `"1"` have one key, and different contents."""
    return _digest((call.args, call.kwargs)).hex()[:_HASH_LENGTH]


def _text(value: Any) -> str | None:
    """The text of a simple value, such that different values have different texts as far as one map is concerned."""
    for kind, text in _TEXTS:
        if isinstance(value, kind):
            return text(value)
    return _text(value.item()) if _is_numpy_scalar(value) else None


def _text_of_int(value: int) -> str | None:
    return int.__repr__(value) if value.bit_length() <= _TEXT_BITS else None


_TEXTS: tuple[tuple[type, Callable[[Any], str | None]], ...] = (
    (datetime.date, lambda value: value.isoformat()),
    (enum.Enum, lambda value: value.name),
    (str, str.__str__),
    (bool, repr),
    (int, _text_of_int),
    (float, float.__repr__),
)
"""Kinds of simple values, of which some belong to others that come later, and the texts of them."""


def _is_numpy_scalar(value: Any) -> bool:
    """Whether it is one number, text or time of numpy's, which isn't imported for asking."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.generic) and not isinstance(value.item(), (numpy.generic, bytes))


def _feed(update: Callable[[bytes], object], value: Any) -> None:
    """Put a value's content into a hash: the same in every process and in every order of sets and dicts."""
    kind = type(value).__qualname__.encode()
    if value is None or isinstance(value, (bool, int, float, str, bytes, datetime.date, datetime.time, datetime.timedelta)):
        data = value if isinstance(value, bytes) else _written(value)
        update(kind + b"%d:" % len(data) + data)
    elif isinstance(value, (list, tuple)):
        update(kind + b"%d[" % len(value))
        for item in value:
            _feed(update, item)
    elif isinstance(value, (set, frozenset, dict)):
        pairs = value.items() if isinstance(value, dict) else ((item, None) for item in value)
        update(kind + b"%d{" % len(value))
        for part in sorted(_digest(pair) for pair in pairs):
            update(part)
    elif isinstance(value, enum.Enum):
        _feed(update, (kind, value.name))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        _feed(update, (kind, fields))
    else:
        try:
            data = pickle.dumps(value, protocol=4)
        except Exception as error:
            raise BadOption(
                f"A {type(value).__qualname__} has no content to make a stable key of ({error}): give key=lambda ...: text."
            ) from error
        update(kind + b"%d:" % len(data) + data)


def _written(value: Any) -> bytes:
    if isinstance(value, int) and value.bit_length() > _TEXT_BITS:
        return int.__format__(value, "x").encode()
    return repr(value).encode(errors="surrogatepass")


def _digest(value: Any) -> bytes:
    digest = hashlib.sha256()
    _feed(digest.update, value)
    return digest.digest()
