"""What a worker's process writes to stdout and stderr: files of a bounded size, of which the last few are kept."""

from __future__ import annotations

import os
import sys
from pathlib import Path

__all__ = ["Log", "read_lines"]

_FILE_LIMIT = 16 << 20
_KEPT_FILES = 4
_TAIL = 64 << 10


def read_lines(path: Path, begin: int, end: int | None, tail: int | None) -> tuple[str, ...]:
    """Lines between two offsets, the last `tail` of them (looked for in the last 64 KiB); empty if the file has gone."""
    try:
        with path.open("rb") as file:
            stop = os.fstat(file.fileno()).st_size if end is None else end
            start = begin if tail is None else max(begin, stop - _TAIL)
            file.seek(start)
            lines = file.read(max(stop - start, 0)).decode(errors="replace").splitlines()
    except FileNotFoundError:
        return ()
    return tuple(lines if tail is None else lines[-tail:])


class Log:
    """The file which stdout and stderr of this process go to."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.number = 0
        self._open()

    @staticmethod
    def path(folder: Path, number: int) -> Path:
        """Where the log file of that number lies."""
        return folder / f"log-{number}"

    def _open(self) -> None:
        descriptor = os.open(self.path(self._folder, self.number), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        os.close(descriptor)

    def position(self) -> int:
        """The end of the file, after what Python has buffered."""
        sys.stdout.flush()
        return os.fstat(1).st_size

    def begin(self) -> int:
        """Where the next record's lines begin; starts a new file when this one is full."""
        position = self.position()
        if position < _FILE_LIMIT:
            return position
        self.number += 1
        self._open()
        self.path(self._folder, self.number - _KEPT_FILES).unlink(missing_ok=True)
        return 0

    def tail(self, begin: int, lines: int) -> tuple[str, ...]:
        """The last lines since `begin`."""
        return read_lines(self.path(self._folder, self.number), begin, self.position(), lines)
