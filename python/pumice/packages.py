"""The installed packages: their names and versions, and a zip of the folders they lie in."""

from __future__ import annotations

import hashlib
import io
import platform
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

__all__ = ["fingerprint", "folders", "installed", "pack", "platform_tag"]

_EPOCH = (1980, 1, 1, 0, 0, 0)


def installed() -> tuple[str, ...]:
    """All installed packages as `name==version`, sorted, names as PEP 503 writes them."""
    from importlib import metadata  # takes longer to import than all of this library

    found = set()
    for distribution in metadata.distributions():
        name = distribution.metadata["Name"]
        if name:
            found.add(f"{name.lower().replace('_', '-').replace('.', '-')}=={distribution.version}")
    return tuple(sorted(found))


def platform_tag() -> str:
    """What compiled packages are for: implementation, version and machine."""
    return f"{sys.implementation.cache_tag}-{sysconfig.get_platform()}-{platform.libc_ver()[0] or 'libc'}"


def fingerprint(names: tuple[str, ...]) -> str:
    """Names a set of packages for one kind of Python, in hex."""
    return hashlib.sha256("\n".join((platform_tag(), *names)).encode()).hexdigest()


def folders() -> list[Path]:
    """The folders packages are installed to."""
    paths = sysconfig.get_paths()
    return sorted({Path(paths["purelib"]).resolve(), Path(paths["platlib"]).resolve()})


def pack(roots: Sequence[Path]) -> bytes:
    """A zip of what is installed in some folders, the same bytes whenever names and contents are.

    Packages that were installed to be edited aren't in it: those are local modules.
    """
    import zipfile

    entries: dict[str, Path] = {}
    for folder in roots:
        for path in folder.rglob("*"):
            name = path.relative_to(folder).as_posix()
            if path.is_file() and "__pycache__" not in name and not name.startswith(("pip/", "setuptools/")):
                entries.setdefault(name, path)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name in sorted(entries):
            info = zipfile.ZipInfo(name, _EPOCH)
            info.external_attr = (0o755 if entries[name].stat().st_mode & 0o100 else 0o644) << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, entries[name].read_bytes())
    return buffer.getvalue()
