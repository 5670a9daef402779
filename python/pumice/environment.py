"""The user's environment as it goes along with a job: the Python, the local modules, the packages."""

from __future__ import annotations

import hashlib
import platform
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from . import local_modules, packages

__all__ = ["Archive", "Environment"]


@dataclass(frozen=True, slots=True)
class Archive:
    """A zip, and the SHA-256 of it in hex: the same content makes the same bytes."""

    hash: str
    data: bytes


class Environment:
    """What this process has imported and installed, looked at when it is made; archives are built when asked for."""

    def __init__(self, files: dict[str, Path] | None = None, *, imports: Iterable[str] = ()) -> None:
        """`imports` are names of modules that functions import when they run."""
        self._files = local_modules.find(imports) if files is None else files
        # Where the modules are looked for here; the folder for the empty name is that of this moment.
        self.path = _module_path()

    python = platform.python_version()
    """Version of this Python, as "3.11.7"."""

    @property
    def executable(self) -> str:
        """The interpreter, for back ends on the same machine."""
        return sys.executable

    @cached_property
    def modules(self) -> Archive | None:
        """A zip of the local modules that are imported: under the working directory, or installed to be edited."""
        if not self._files:
            return None
        data = local_modules.pack(self._files)
        return Archive(hashlib.sha256(data).hexdigest(), data)

    @cached_property
    def packages(self) -> tuple[str, ...]:
        """All installed packages as `name==version`, sorted."""
        return packages.installed()

    @cached_property
    def packages_hash(self) -> str:
        """Names the packages and the Python they are for, in hex."""
        return packages.fingerprint(self.packages)

    def packages_archive(self) -> Archive:
        """A zip of the folders that hold the packages, for nodes which don't have them. Can be large and take long."""
        data = packages.pack(packages.folders())
        return Archive(hashlib.sha256(data).hexdigest(), data)

    @cached_property
    def stamps(self) -> dict[str, tuple[int, int]]:
        """Size and time of change of each local module's file: cheap, and only of meaning on this machine."""
        return local_modules.stamps(self._files)


def _module_path() -> tuple[str, ...]:
    """Where modules are looked for, by absolute folders; without those below a working folder that has been removed."""
    try:
        here = str(Path.cwd())
    except OSError:
        return tuple(str(entry) for entry in sys.path if Path(entry).is_absolute())
    return tuple(str(Path(here, entry)) for entry in sys.path)
