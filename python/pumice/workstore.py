"""What a worker process needs to know of its work, and a plain folder which has it.

`pumice.worker` finds its store by the environment: `PUMICE_WORK_FOLDER` is the folder, in which there are:

    function            the pickled function
    modules.zip         the user's local modules, if there are any
    packages.zip        the user's packages, where they have to come along
    python              the version of the client's Python
    records/INDEX       a pickled `(key, args)`, INDEX counted from 0
    outcomes/INDEX      written once, by the attempt that ended first
    attempts/INDEX-N    what attempt N wrote, where it failed
"""

from __future__ import annotations

import os
import pickle
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from .backend import Record
from .errors import PumiceError

__all__ = ["FolderStore", "WorkStore", "open_store", "write_once"]


class WorkStore(Protocol):
    """One job's work as one shard's process sees it."""

    @property
    def python(self) -> str:
        """Version of the Python that pickled the function."""

    def function(self) -> bytes:
        """The pickled function."""

    def modules(self) -> bytes | None:
        """A zip of the user's local modules."""

    def packages(self) -> bytes | None:
        """A zip of the user's packages, where they have to come along."""

    @property
    def total(self) -> int:
        """How many records the job has."""

    def slice(self) -> range:
        """Numbers of the records of this process's shard."""

    def record(self, index: int) -> Record:
        """One record."""

    def done(self, index: int) -> bool:
        """Whether a success is written for it already, by an earlier attempt."""

    def write(self, index: int, attempt: int, outcome: bytes, *, success: bool) -> bool:
        """Keep an outcome. A success is kept once: False says that another attempt was first, and that its stays."""


def write_once(path: Path, data: bytes, *, durable: bool = True) -> bool:
    """Write a file whole or not at all; False where it exists already, which is left as it is.

    Without `durable` a machine that loses its power may leave an empty file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".part")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.link(name, path)
    except FileExistsError:
        return False
    finally:
        Path(name).unlink(missing_ok=True)
    return True


class FolderStore:
    """A job's work as files in a folder; see the head of this file."""

    def __init__(self, folder: Path, task: int, chunk: int) -> None:
        self._folder = folder
        self._slice = range(min(task * chunk, self.total), min((task + 1) * chunk, self.total))

    @staticmethod
    def create(
        folder: Path,
        function: bytes,
        records: Sequence[Record],
        *,
        python: str,
        modules: bytes | None = None,
        packages: bytes | None = None,
    ) -> None:
        """Lay a job out in a folder, which is made."""
        write_once(folder / "function", function)
        write_once(folder / "python", python.encode())
        if modules is not None:
            write_once(folder / "modules.zip", modules)
        if packages is not None:
            write_once(folder / "packages.zip", packages)
        for index, record in enumerate(records):
            write_once(folder / "records" / str(index), pickle.dumps((record.key, record.args)))

    @property
    def python(self) -> str:
        """Version of the Python that pickled the function."""
        return (self._folder / "python").read_text()

    def function(self) -> bytes:
        """The pickled function."""
        return (self._folder / "function").read_bytes()

    def modules(self) -> bytes | None:
        """A zip of the user's local modules."""
        return _read_if_there(self._folder / "modules.zip")

    def packages(self) -> bytes | None:
        """A zip of the user's packages, where they have to come along."""
        return _read_if_there(self._folder / "packages.zip")

    @property
    def total(self) -> int:
        """How many records the job has."""
        return sum(1 for _ in (self._folder / "records").iterdir())

    def slice(self) -> range:
        """Numbers of the records of this process's shard."""
        return self._slice

    def record(self, index: int) -> Record:
        """One record."""
        key, args = pickle.loads((self._folder / "records" / str(index)).read_bytes())
        return Record(key, args)

    def done(self, index: int) -> bool:
        """Whether a success is written for it already."""
        return (self._folder / "outcomes" / str(index)).exists()

    def outcome(self, index: int) -> bytes | None:
        """The success that is written for it."""
        return _read_if_there(self._folder / "outcomes" / str(index))

    def failure(self, index: int) -> bytes | None:
        """The last failure that is written for it."""
        attempts = (self._folder / "attempts").glob(f"{index}-*")
        last = max(attempts, key=lambda path: int(path.name.partition("-")[2]), default=None)
        return None if last is None else _read_if_there(last)

    def write(self, index: int, attempt: int, outcome: bytes, *, success: bool) -> bool:
        """Keep an outcome; successes once."""
        if success:
            return write_once(self._folder / "outcomes" / str(index), outcome)
        write_once(self._folder / "attempts" / f"{index}-{attempt}", outcome)
        return True


def _read_if_there(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def open_store(environ: Mapping[str, str]) -> WorkStore:
    """The store this process's environment names."""
    if folder := environ.get("PUMICE_WORK_FOLDER"):
        path = Path(folder)
        try:
            chunk, task = int(environ.get("PUMICE_WORK_CHUNK", "1")), int(environ["VC_TASK_INDEX"])
        except (KeyError, ValueError) as error:
            raise PumiceError("VC_TASK_INDEX and PUMICE_WORK_CHUNK must be numbers: they name my records.") from error
        return FolderStore(path, task, chunk)
    raise PumiceError("PUMICE_WORK_FOLDER isn't set: this runs inside a job's pod, not by hand.")
