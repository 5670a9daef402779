"""Results kept in a folder from run to run: `FOLDER/FUNCTION/VERSION/KEY`, each written once and whole.

A file is `PMKV`, a byte 1, a mark and the outcome. The mark is an HMAC-SHA256 by the user's own key over function, version
and key, as JSON, and the SHA-256 of the outcome. So a file that somebody else wrote, changed or moved to another name is
known as such: the outcome is a pickle, which runs code when it is read. Files of before are the outcome alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import re
import stat
import tempfile
import warnings
from pathlib import Path

from .errors import BadOption, NotMarked
from .run_key import whose

__all__ = ["KeptResults"]

_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._,=+-]{0,79}")
_BEGIN = b"PMKV\x01"
_HEAD_BYTES = len(_BEGIN) + 32


class KeptResults:
    """The finished records of one version of one function."""

    def __init__(
        self, folder: str | Path, function: str, version: str, mark_key: bytes, *, allow_pickle: bool = False
    ) -> None:
        self.folder = Path(folder).expanduser() / _file_name(function) / _file_name(version)
        self._names = function, version
        self._mark_key = mark_key
        self._allow_pickle = allow_pickle
        self._warned = False
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadOption(
                f"store={os.fspath(folder)!r} can't be used: {error}. Name a folder that can be written."
            ) from error

    def read(self, key: str) -> bytes | None:
        """The outcome of a record that finished in this run or an earlier one. Raises NotMarked for one of somebody else."""
        path = self.folder / _file_name(key)
        try:
            data, found = read_plain(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise BadOption(f"The kept result {path} can't be read: {error}. Name another folder by store=.") from error
        if not data:  # what a machine that lost its power left
            with contextlib.suppress(OSError):
                path.unlink()
            return None
        if not data.startswith(_BEGIN):
            return self._of_before(path, found, data)
        mark, outcome = data[len(_BEGIN) : _HEAD_BYTES], data[_HEAD_BYTES:]
        if not self._allow_pickle and not hmac.compare_digest(mark, self._mark(key, outcome)):
            raise _not_marked(
                path, found, "is marked with another key than yours, or was changed, cut or renamed since it was kept"
            )
        return outcome

    def write(self, key: str, outcome: bytes) -> None:
        """Keep an outcome; the first that is kept stays."""
        write_once(self.folder / _file_name(key), b"".join((_BEGIN, self._mark(key, outcome), outcome)))

    def _mark(self, key: str, outcome: bytes) -> bytes:
        place = json.dumps([*self._names, key]).encode()
        return hmac.digest(self._mark_key, place + hashlib.sha256(outcome).digest(), "sha256")

    def _of_before(self, path: Path, found: os.stat_result, data: bytes) -> bytes:
        """An outcome without a mark: taken from the user alone, in a file that nobody else can have written."""
        if self._allow_pickle:
            return data
        mine = found.st_uid == os.geteuid() and not found.st_mode & 0o022
        if not mine or not os.path.samestat(found, os.lstat(path)):
            raise _not_marked(path, found, "has no mark, and somebody else can have written it")
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"{path} was kept before results were marked, and others of this map may be. It is read because it is "
                "yours and nobody else can write it. To have it marked, remove it: its call runs again.",
                RuntimeWarning,
                stacklevel=1,
            )
        return data


def read_plain(path: Path, most: int = -1) -> tuple[bytes, os.stat_result]:
    """What a file holds, at most so many bytes, and whose it is, as one. Raises BadOption where it is no plain file."""
    # Not waiting, as for the other end of a pipe.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise BadOption(f"{path} is no plain file. Remove it.")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(most), found
    finally:
        os.close(descriptor)


def _not_marked(path: Path, found: os.stat_result, problem: str) -> NotMarked:
    return NotMarked(
        f"The kept result {path}, which belongs to {whose(found.st_uid)}, {problem}. It is not read, as a pickle runs, when "
        "it is read, whatever its writer wants. If you trust it, say map(..., allow_pickle=True); if it is of another "
        "machine of yours, copy ~/.config/pumice/results.key from there; else remove it, or name another folder by store=."
    )


def write_once(path: Path, data: bytes) -> bool:
    """Write a file whole or not at all; False where it exists already, which is left as it is.

    A machine that loses its power may leave an empty file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".part")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        os.link(name, path)
    except FileExistsError:
        return False
    finally:
        Path(name).unlink(missing_ok=True)
    return True


def _file_name(text: str) -> str:
    """The text where it can be a file's name on any file system, else its hash."""
    if _SAFE.fullmatch(text):
        return text
    return "h-" + hashlib.sha256(text.encode()).hexdigest()[:40]
