"""A job's work in a bundle (docs/bundles.md): packed by the client, read and told of by a worker.

A worker finds it by its environment: `PUMICE_BUNDLE` names the bundle and the run, `PUMICE_WORK_CHUNK` says how many records
a shard has, `VC_TASK_INDEX` which shard is its own, `PUMICE_ATTEMPT` the how manieth run of it this is. `PUMICE_RUN_KEY`
marks what it records, and is taken out of the environment. The records are the pickled arguments by key; beside them are
attached:

    function        the pickled function
    modules.zip     the user's local modules, if there are any
    packages.zip    the user's packages, where they have to come along
    path            where the client looks for modules, a zero between two folders; where pods have the same Python
    python          the version of the client's Python
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from pathlib import Path

from . import _core, run_key
from .backend import Record
from .errors import PumiceError
from .wire import Result

__all__ = ["WorkStore", "pack"]


def pack(
    folder: Path,
    function: bytes,
    records: Iterable[Record],
    *,
    python: str,
    modules: bytes | None = None,
    packages: bytes | None = None,
    path: Sequence[str] = (),
) -> str:
    """Pack a job into a folder of bundles, which is made; the value of `PUMICE_BUNDLE`. Equal parts are kept once."""
    attachments: dict[str, bytes | None] = {
        "function": function,
        "python": python.encode(),
        "modules.zip": modules,
        "packages.zip": packages,
    }
    attachments["path"] = os.fsencode("\0".join(path)) if path else None
    there = {name: content for name, content in attachments.items() if content is not None}
    return _core.write_bundle(folder, there, ((record.key, record.args) for record in records))


class WorkStore:
    """One job's work as one shard's process sees it."""

    def __init__(self, slice_: _core.BundleSlice) -> None:
        self._slice = slice_

    @classmethod
    def open(cls, environ: MutableMapping[str, str]) -> WorkStore:
        """The work this process's environment names."""
        key = run_key.take(environ)
        bundle = environ.get("PUMICE_BUNDLE")
        if not bundle:
            raise PumiceError("PUMICE_BUNDLE isn't set: this runs inside a job's pod, not by hand.")
        shard, chunk = _number(environ, "VC_TASK_INDEX", 0), _number(environ, "PUMICE_WORK_CHUNK", 1)
        return cls(_core.BundleSlice(bundle, shard, chunk, _number(environ, "PUMICE_ATTEMPT", 1), key))

    @property
    def python(self) -> str:
        """Version of the Python that pickled the function."""
        return self._attached("python").decode()

    def function(self) -> bytes:
        """The pickled function."""
        return self._attached("function")

    def modules(self) -> bytes | None:
        """A zip of the user's local modules."""
        return self._slice.attachment("modules.zip")

    def packages(self) -> bytes | None:
        """A zip of the user's packages, where they have to come along."""
        return self._slice.attachment("packages.zip")

    def path(self) -> list[str]:
        """Where the client's Python looks for modules; empty where pods have another one."""
        path = self._slice.attachment("path")
        return os.fsdecode(path).split("\0") if path else []

    @property
    def total(self) -> int:
        """How many records the job has."""
        return self._slice.total

    @property
    def attempt(self) -> int:
        """Which run of the shard this is, from 1."""
        return self._slice.attempt

    def left(self) -> list[int]:
        """Numbers of the shard's records that have not succeeded yet, in the order in which they are to run."""
        return self._slice.left()

    def record(self, index: int) -> Record:
        """One record."""
        return Record(*self._slice.record(index))

    def checkpoint(self, index: int) -> Path:
        """The folder a record keeps over its attempts; made, if it isn't there."""
        return Path(self._slice.make_checkpoint(index))

    def write(self, results: Sequence[Result]) -> frozenset[int]:
        """Keep results, durably; the numbers of those which stand now. A success is kept once: the first one stays."""
        return frozenset(self._slice.write(results))

    def _attached(self, name: str) -> bytes:
        content = self._slice.attachment(name)
        if content is None:
            raise PumiceError(f"The bundle has no {name!r}: it isn't one of a Python job. Submit the job again.")
        return content


def _number(environ: Mapping[str, str], name: str, least: int) -> int:
    text = environ.get(name, "")
    if not text.isdecimal() or not least <= int(text) < 1 << 32:
        raise PumiceError(f"{name} is {text!r} and should be a number from {least}: it is set by the platform.")
    return int(text)
