"""Frames between worker processes and who started them: a length of eight bytes, then a pickle made by this library."""

from __future__ import annotations

import pickle
import socket
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

__all__ = ["Call", "Incoming", "Message", "Program", "Report", "Result", "Stamp", "frame", "receive"]

_LENGTH = struct.Struct("<Q")
_STAMP = struct.Struct("<QdQQ")
_READ = 1 << 18


class Program(NamedTuple):
    """A function a worker is about to be asked for, and its environment variables."""

    id: str
    function: bytes
    env: tuple[tuple[str, str], ...]
    folder: str
    """In which its calls work."""
    path: tuple[str, ...]
    """Where its modules are looked for."""


class Call(NamedTuple):
    """One record to run."""

    unit: int
    program: str
    key: str
    number: int
    total: int
    attempt: int
    checkpoint: str
    """A folder that stays over attempts; empty where there can't be another one."""
    args: bytes


class Report(NamedTuple):
    """How a record went, and where in which log file its lines are."""

    unit: int
    outcome: bytes
    started: float
    seconds: float
    max_rss: int
    log: int
    begin: int
    end: int


class Result(NamedTuple):
    """What came of a record in a pod."""

    number: int
    key: str
    success: bool
    outcome: bytes


Message: TypeAlias = Program | list[Call] | list[Report] | list[Result]


def frame(message: Message) -> bytes:
    """A message as bytes."""
    data = pickle.dumps(message, protocol=5)
    return _LENGTH.pack(len(data)) + data


def _receive_exactly(connection: socket.socket, size: int) -> bytearray | None:
    data = bytearray(size)
    view = memoryview(data)
    while view:
        count = connection.recv_into(view)
        if not count:
            return None
        view = view[count:]
    return data


def receive(connection: socket.socket) -> Any:
    """Wait for the next message; None when the other side has gone."""
    head = _receive_exactly(connection, _LENGTH.size)
    if head is None:
        return None
    data = _receive_exactly(connection, _LENGTH.unpack(head)[0])
    return None if data is None else pickle.loads(data)


class Incoming:
    """Messages out of a socket which doesn't block."""

    def __init__(self) -> None:
        self._data = bytearray()

    def read(self, connection: socket.socket) -> bool:
        """Take what is there; False when the other side has gone."""
        while True:
            try:
                data = connection.recv(_READ)
            except BlockingIOError:
                return True
            except ConnectionError:
                return False
            if not data:
                return False
            self._data += data
            if len(data) < _READ:
                return True

    def messages(self) -> Iterator[Any]:
        """The whole messages read up to now."""
        while len(self._data) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(self._data)[0]
            if len(self._data) < end:
                return
            message = pickle.loads(memoryview(self._data)[_LENGTH.size : end])
            del self._data[:end]
            yield message


class Stamp(NamedTuple):
    """What a worker notes before it runs a record, so that its end is not the end of what is known."""

    unit: int
    started: float
    log: int
    begin: int

    def pack(self) -> bytes:
        """As bytes of a fixed size."""
        return _STAMP.pack(*self)

    @classmethod
    def unpack(cls, data: bytes) -> Stamp | None:
        """From bytes; None where no record has begun."""
        return cls(*_STAMP.unpack(data)) if len(data) == _STAMP.size else None
