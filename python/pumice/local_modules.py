"""Which imported modules are the user's own, and a zip of them."""

from __future__ import annotations

import io
import site
import sys
import sysconfig
from pathlib import Path
from types import ModuleType

from .errors import PickleTooLarge

__all__ = ["FILES_LIMIT", "LIMIT", "find", "is_local", "pack", "stamps"]

LIMIT = 64 << 20
"""Most bytes of local modules that go along with a job."""
FILES_LIMIT = 20_000
"""Most files of them."""

_EPOCH = (1980, 1, 1, 0, 0, 0)
_SKIPPED = {"__pycache__", ".git", ".venv", "venv", "node_modules", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".tox"}


def _installed_folders() -> tuple[Path, ...]:
    """Folders whose modules are packages or the standard library, not the user's."""
    names = {*sysconfig.get_paths().values(), *site.getsitepackages(), site.getusersitepackages()}
    return tuple(Path(name).resolve() for name in names if name not in (sys.prefix, sys.base_prefix))


def _roots(module: ModuleType, installed: tuple[Path, ...], library: Path) -> list[Path]:
    """The file or the package's folders of a top-level module of the user's; empty for others."""
    name = getattr(module, "__file__", None)
    if name:
        file = Path(name).resolve()
        roots = [file.parent if file.name == "__init__.py" else file] if file.suffix == ".py" and file.is_file() else []
    else:  # a namespace package has folders only; built-in modules have neither
        roots = [Path(folder).resolve() for folder in getattr(module, "__path__", ())]
    return [
        root
        for root in roots
        if root != library and root.exists() and not any(root.is_relative_to(folder) for folder in installed)
    ]


def find() -> dict[str, Path]:
    """Files of all local modules that are imported, by their name in the zip; a package goes whole, with its data files.

    Local is what lies outside of the standard library and of the folders packages are installed to: modules under the
    working directory, on `PYTHONPATH`, or installed to be edited. `__main__` goes with the function.
    """
    installed, library = _installed_folders(), Path(__file__).resolve().parent
    files: dict[str, Path] = {}
    for name, module in list(sys.modules.items()):
        if "." in name or name == "__main__":
            continue
        for root in _roots(module, installed, library):
            if root.is_file():
                files[root.name] = root
            else:
                _walk(root, root.name, files)
    return dict(sorted(files.items()))


def is_local(module: str) -> bool:
    """Whether the module of that name is the user's own."""
    top = sys.modules.get(module.partition(".")[0])
    return top is not None and bool(_roots(top, _installed_folders(), Path(__file__).resolve().parent))


def _walk(folder: Path, name: str, files: dict[str, Path]) -> None:
    """Add the files below a folder; folders that are links are left out, they may lead anywhere."""
    for path in folder.iterdir():
        if path.name in _SKIPPED or path.suffix == ".pyc":
            continue
        if path.is_dir():
            if not path.is_symlink():
                _walk(path, f"{name}/{path.name}", files)
        elif path.is_file():
            files[f"{name}/{path.name}"] = path
            if len(files) > FILES_LIMIT:
                raise PickleTooLarge(
                    f"The local modules are more than {FILES_LIMIT} files, {folder} is among their folders. "
                    "Keep data out of the folders of packages, and read it from a shared path."
                )


def pack(files: dict[str, Path]) -> bytes:
    """A zip which is the same bytes whenever names and contents are."""
    total = sum(path.stat().st_size for path in files.values())
    if total > LIMIT:
        largest = max(files, key=lambda name: files[name].stat().st_size)
        raise PickleTooLarge(
            f"The local modules are {total >> 20} MiB, at most {LIMIT >> 20} go along with a job; the largest file is "
            f"{largest}. Keep data out of the package's folder, and read it from a shared path."
        )
    import zipfile

    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(files):
            info = zipfile.ZipInfo(name, _EPOCH)
            info.external_attr = 0o644 << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, files[name].read_bytes())
    return buffer.getvalue()


def stamps(files: dict[str, Path]) -> dict[str, tuple[int, int]]:
    """Size and time of change (in ns) of each file that is there."""
    found = {}
    for name, path in files.items():
        try:
            status = path.stat()
        except FileNotFoundError:
            continue
        found[name] = (status.st_size, status.st_mtime_ns)
    return found
