"""Results kept in a folder from run to run: `FOLDER/FUNCTION/VERSION/KEY`, each written once and whole."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from pathlib import Path

from .errors import BadOption

__all__ = ["KeptResults"]

_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._,=+-]{0,79}")


class KeptResults:
    """The finished records of one version of one function."""

    def __init__(self, folder: str | Path, function: str, version: str) -> None:
        self.folder = Path(folder).expanduser() / _file_name(function) / _file_name(version)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadOption(
                f"store={os.fspath(folder)!r} can't be used: {error}. Name a folder that can be written."
            ) from error

    def read(self, key: str) -> bytes | None:
        """The outcome of a record that finished in this run or an earlier one."""
        path = self.folder / _file_name(key)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        if not data:  # what a machine that lost its power left
            path.unlink(missing_ok=True)
        return data or None

    def write(self, key: str, outcome: bytes) -> None:
        """Keep an outcome; the first that is kept stays."""
        write_once(self.folder / _file_name(key), outcome)


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
