"""A terminal without a window: programs run in it as in a real one, and its screen can be drawn."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import termios
import time
from collections.abc import Callable, Iterator, Mapping

import pyte
from pyte.graphics import FG, FG_BG_256

from .svg import Cell, picture

__all__ = ["Terminal"]

_DEADLINE = 120.0
# Programs that name the eight colours by number mean the same as by name.
_NAMED = {FG_BG_256[number]: FG[30 + number % 8] for number in range(16)}
_PROMPT = "\x1b[32m$\x1b[0m \x1b[1m{}\x1b[0m\r\n"


class Terminal:
    """So many columns and rows, and the environment that programs get."""

    def __init__(self, columns: int, rows: int, environ: Mapping[str, str]) -> None:
        self.columns, self.rows = columns, rows
        self.environ = {**environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
        self.environ.pop("NO_COLOR", None)
        self._screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self._screen)

    def feed(self, data: bytes) -> None:
        """Take what a program writes."""
        self._stream.feed(data)

    def text(self) -> str:
        """What stands on the screen."""
        return "\n".join(line.rstrip() for line in self._screen.display)

    def run(self, command: str) -> None:
        """Type a command of the shell and wait for its end, which has to be a good one."""
        with self.started(command) as program:
            pass
        if program.exit_code:
            raise RuntimeError(f"{command} ended with {program.exit_code}:\n{self.text()}")

    @contextlib.contextmanager
    def started(self, command: str, *, full_screen: bool = False) -> Iterator[Program]:
        """Type a command, which has ended when the block has; what takes the whole screen is not seen typed."""
        if not full_screen:
            self.feed(_PROMPT.format(command.replace("\n", "\r\n")).encode())
        program = Program(command, self)
        try:
            yield program
            program.read(lambda: False)
        finally:
            program.close()

    def svg(self) -> str:
        """The screen as a picture, without the empty rows and columns at its ends."""
        lines = [[self._screen.buffer[row][column] for column in range(self.columns)] for row in range(self.rows)]
        rows = [[Cell(cell.data, _NAMED.get(cell.fg, cell.fg), cell.bold, cell.reverse) for cell in line] for line in lines]
        seen = [[number for number, cell in enumerate(row, 1) if cell.text != " " or cell.reversed] for row in rows]
        height = max((number for number, row in enumerate(seen, 1) if row), default=0)
        width = max((row[-1] for row in seen if row), default=0)
        return picture([row[:width] for row in rows[:height]])


class Program:
    """A command that runs in a terminal."""

    def __init__(self, command: str, terminal: Terminal) -> None:
        self._shown = terminal
        self.exit_code: int | None = None
        self._pid, self._terminal = pty.fork()
        if self._pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", terminal.rows, terminal.columns, 0, 0))
            os.execvpe("bash", ["bash", "-c", command], terminal.environ)

    def press(self, keys: str) -> None:
        """Press keys."""
        os.write(self._terminal, keys.encode())

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        self.press("\x03")

    def read(self, enough: Callable[[], bool]) -> bool:
        """Take what it writes until that is enough, or until it ends; whether it was enough."""
        deadline = time.monotonic() + _DEADLINE
        while not enough():
            ready, _, _ = select.select([self._terminal], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError(f"it neither ends nor shows what is waited for:\n{self._shown.text()}")
            try:
                data = os.read(self._terminal, 65536)
            except OSError:  # Linux says so when the other end is closed
                return False
            if not data:
                return False
            self._shown.feed(data)
        return True

    def close(self) -> None:
        """End it, if it still runs."""
        os.close(self._terminal)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGHUP)
        self.exit_code = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
