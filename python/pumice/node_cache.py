"""Archives kept unpacked on a node, by the hash of their content, for all processes that come after.

What only unpacking needs is imported there: each pod begins here, and nearly all find it done.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from .errors import PumiceError

__all__ = ["ARCHIVES", "add_to_path", "cache_folder", "prune", "unpack"]

ARCHIVES = "archives"
"""The folder for them in the user's cache, beside what others keep there."""

_UNPACKED_LIMIT = 32 << 30
_ENTRIES_LIMIT = 1_000_000


def cache_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Where archives are unpacked: `PUMICE_CACHE`, else a folder in the user's cache or in the temporary folder."""
    if folder := environ.get("PUMICE_CACHE"):
        return Path(folder)
    if home := environ.get("XDG_CACHE_HOME") or (environ.get("HOME") and f"{environ['HOME']}/.cache"):
        return Path(home) / "pumice"
    import tempfile

    return Path(tempfile.gettempdir()) / "pumice"


def unpack(data: bytes, cache: Path) -> Path:
    """The folder with an archive's files; unpacked once, whole or not at all."""
    import hashlib

    folder = cache / hashlib.sha256(data).hexdigest()
    if folder.is_dir():
        os.utime(folder)
        return folder
    _extract(data, folder)
    return folder


def _extract(data: bytes, folder: Path) -> None:
    import io
    import shutil
    import tempfile
    import zipfile

    folder.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".part-"))
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = archive.infolist()
            size = sum(entry.file_size for entry in entries)
            if size > _UNPACKED_LIMIT or len(entries) > _ENTRIES_LIMIT:
                raise PumiceError(
                    f"The archive would be {size >> 20} MiB in {len(entries)} files; at most {_UNPACKED_LIMIT >> 20} MiB in "
                    f"{_ENTRIES_LIMIT} are unpacked. Put the packages into the image."
                )
            archive.extractall(part)
        try:
            part.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise
    finally:
        shutil.rmtree(part, ignore_errors=True)


def prune(cache: Path, days: float) -> list[Path]:
    """Remove what no process has asked for in so many days."""
    import shutil
    import time

    removed = []
    for folder in cache.iterdir() if cache.is_dir() else ():
        if folder.is_dir() and folder.stat().st_mtime < time.time() - days * 86400:
            shutil.rmtree(folder, ignore_errors=True)
            removed.append(folder)
    return removed


def add_to_path(folder: Path, *, first: bool) -> None:
    """Make the modules in a folder importable, before or after what is there."""
    if first:
        sys.path.insert(0, str(folder))
    else:
        sys.path.append(str(folder))
