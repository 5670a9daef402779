"""The last lines that a record wrote, in memory which outlives the process that ran it."""

from __future__ import annotations

import mmap
from typing import Any, TextIO

from .calls import LOG_LINES

__all__ = ["LastLines", "Passing"]

_SIZE = 16 << 10
_HEAD = 4


class LastLines:
    """Made before a process is forked, written by that process, read by both."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _HEAD + _SIZE)

    def clear(self) -> None:
        """Forget all: another record begins."""
        self._put(b"")

    def add(self, text: str) -> None:
        """Add what was written."""
        self._put((self._bytes() + text.encode(errors="replace"))[-_SIZE:])

    def lines(self) -> tuple[str, ...]:
        """The last whole ones, and the one which isn't ended yet."""
        return tuple(self._bytes().decode(errors="replace").splitlines()[-LOG_LINES:])

    def _bytes(self) -> bytes:
        size = min(int.from_bytes(self._memory[:_HEAD], "little"), _SIZE)
        return self._memory[_HEAD : _HEAD + size]

    def _put(self, data: bytes) -> None:
        self._memory[_HEAD : _HEAD + len(data)] = data
        self._memory[:_HEAD] = len(data).to_bytes(_HEAD, "little")


class Passing:
    """A stream that passes on what is written and remembers the last lines."""

    def __init__(self, stream: TextIO, last: LastLines) -> None:
        self._stream = stream
        self._last = last

    def write(self, text: str) -> int:
        """Write to the stream."""
        self._last.add(text)
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
