"""Texts of bounded length, for messages that name what somebody else has made."""

from __future__ import annotations

import reprlib

__all__ = ["shortened", "short_repr"]

_MESSAGE = 1_000
_REPR = 120


def shortened(text: str, limit: int = _MESSAGE) -> str:
    """The text, or its beginning and its end with the number of characters that were left out between them."""
    if len(text) <= limit:
        return text
    head = limit * 2 // 3
    tail = limit - head
    return f"{text[:head]} [... {len(text) - limit:,} characters ...] {text[-tail:]}"


class _Repr(reprlib.Repr):
    def __init__(self, limit: int) -> None:
        super().__init__()
        self.maxstring = self.maxother = self.maxlong = limit

    def repr_int(self, value: int, level: int) -> str:
        """Also of a number that the interpreter refuses to write, as it has too many digits."""
        try:
            return super().repr_int(value, level)
        except ValueError:
            return f"<a number of {value.bit_length():,} bits>"


def short_repr(value: object, limit: int = _REPR) -> str:
    """`repr` of a value, in few characters and in little time however large it is, whatever its own `__repr__` does."""
    return shortened(_Repr(limit).repr(value), limit)
