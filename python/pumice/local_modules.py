"""Which modules are the user's own, and a zip of them.

Local is what lies outside of the standard library and of the folders packages are installed to: modules under the working
directory, beside the program, on `PYTHONPATH`, or installed to be edited. They go along when they are imported, and when
an import inside of a function names them.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.machinery
import importlib.util
import io
import itertools
import re
import site
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path

from .errors import PickleTooLarge

__all__ = ["FILES_LIMIT", "LIMIT", "find", "is_local", "pack", "source_of", "stamps"]

LIMIT = 64 << 20
"""Most bytes of local modules that go along with a job."""
FILES_LIMIT = 20_000
"""Most files of them."""
_BESIDE_LIMIT = 16 << 20
_BESIDE_FILES_LIMIT = 1_000
"""Most bytes and files beside one module that go along because it names them."""

_FOLDERS_REMEMBERED = 4096
_EPOCH = (1980, 1, 1, 0, 0, 0)
_SKIPPED = {"__pycache__", ".git", ".venv", "venv", "node_modules", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".tox"}
_SUFFIXES = tuple(importlib.machinery.all_suffixes())
_IMPORT = re.compile(
    rb"\bfrom[ \t]+(\w+)|\bimport[ \t]+([\w.]+(?:[ \t]+as[ \t]+\w+)?(?:[ \t]*,[ \t]*[\w.]+(?:[ \t]+as[ \t]+\w+)?)*)"
)
_BY_NAME = re.compile(rb"(?:import_module|__import__)\(\s*[\"'](\w+)")
_PUT_IN = re.compile(r"\{[^{}]*\}")
_PATTERN = re.compile(r"[*?[]")
_ANYTHING = re.compile(r"\s|^\W*$")
"""In a pattern that is part of a message rather than the name of a file."""
_TEXT = re.compile(rb"[\"']([^\"'\n\\]{1,200})[\"']")
_PROGRAMS = {"__main__", "__mp_main__"}
"""Modules that go with the functions."""


@functools.cache
def _installed_folders() -> tuple[Path, ...]:
    """Folders whose modules are packages or the standard library, not the user's."""
    names = {*sysconfig.get_paths().values(), *site.getsitepackages(), site.getusersitepackages()}
    return tuple(Path(name).resolve() for name in names if name not in (sys.prefix, sys.base_prefix))


@functools.cache
def _library() -> Path:
    return Path(__file__).resolve().parent


@functools.lru_cache(_FOLDERS_REMEMBERED)
def _is_installed(folder: Path) -> bool:
    """Whether what lies in a folder is installed. It is looked at once: most modules lie in few of them."""
    place = folder.resolve()
    return any(place.is_relative_to(installed) for installed in _installed_folders())


def _is_users(path: Path) -> bool:
    """Whether a file or folder is neither installed nor this library. A link counts where it lies, not where it leads."""
    return not _is_installed(path.parent) and path.exists() and path.resolve() != _library()


def _places(name: str) -> tuple[str | None, Iterable[str]]:
    """The file and the folders of a top-level module, imported or not; nothing of it is run."""
    module = sys.modules.get(name)
    if module is not None:
        return getattr(module, "__file__", None), getattr(module, "__path__", ())
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError, AttributeError):
        spec = None
    if spec is None:
        return None, ()
    return spec.origin if spec.has_location else None, spec.submodule_search_locations or ()


def _roots(name: str) -> list[Path]:
    """The file or the package's folders of a top-level module of the user's; empty for others. Links stay links."""
    file, folders = _places(name)
    if file is not None and isinstance(file, str):
        path = Path(file)
        root = path.parent if path.name.startswith("__init__.") else path
        roots = [root] if path.name.endswith(_SUFFIXES) and not _is_installed(root.parent) and path.is_file() else []
    else:  # a namespace package has folders only; built-in modules have neither
        roots = [Path(folder) for folder in folders]
    return [root for root in roots if _is_users(root)]


def is_local(module: str) -> bool:
    """Whether the module of that name is the user's own, imported or not."""
    return bool(_roots(module.partition(".")[0]))


def source_of(module: str) -> Path | None:
    """The source file of a module of the user's, imported or not; None for what has none."""
    loaded = getattr(sys.modules.get(module), "__file__", None)
    if isinstance(loaded, str):
        return Path(loaded) if loaded.endswith(".py") and Path(loaded).is_file() else None
    top, *rest = module.split(".")
    for root in _roots(top):
        place = root.joinpath(*rest)
        places = (root,) if root.is_file() and not rest else (place / "__init__.py", place.with_name(f"{place.name}.py"))
        for file in places:
            if file.suffix == ".py" and file.is_file():
                return file
    return None


def find(imports: Iterable[str] = ()) -> dict[str, Path]:
    """Files of all local modules, by their name in the zip; a package goes whole, with its data files.

    Those are modules that are imported, those of the names in `imports`, and what any of them imports later. A module of one
    file that uses `__file__` brings the files beside it whose names it has as text.
    """
    files: dict[str, Path] = {}
    late: list[dict[str, Path]] = []
    beside: dict[str, set[Path]] = {}
    left = [name for name in list(sys.modules) if "." not in name and name not in _PROGRAMS]
    left += [name.partition(".")[0] for name in imports]
    # What is imported is looked at anyway, and no module of the library is looked for.
    known = sys.modules.keys() | sys.stdlib_module_names
    seen: set[str] = set()
    while left:
        name = left.pop()
        if name in seen:
            continue
        seen.add(name)
        for root in _roots(name):
            if root.is_file():
                found = {name + _suffix(root): root}
                _beside(root, beside)
            else:
                found = dict(itertools.islice(_below_package(root, name, frozenset({root.resolve()})), FILES_LIMIT + 1))
            if name in sys.modules:
                files |= found
                _check_count(files, root)
            else:
                late.append(found)
            left += (other for path in found.values() for other in _imported_by(path) if other not in known)
    # All modules of one file lie in one folder there. Where two of them mean other files by one name, neither goes along.
    late += [{name: places.pop()} for name, places in beside.items() if len(places) == 1 and name not in files]
    room = LIMIT - (_size(files) if late else 0)
    for size, found in sorted(((_size(found), found) for found in late), key=lambda pair: pair[0]):
        # It may be no more than a word in a comment, and goes along as far as there is room.
        room -= size
        if room >= 0 and len(files) + len(found) <= FILES_LIMIT:
            files |= found
    return dict(sorted(files.items()))


def _suffix(file: Path) -> str:
    """What makes a file a module: `.py`, `.cpython-311-x86_64-linux-gnu.so`."""
    return next(suffix for suffix in sorted(_SUFFIXES, key=len, reverse=True) if file.name.endswith(suffix))


def _below_package(folder: Path, name: str, above: frozenset[Path]) -> Iterator[tuple[str, Path]]:
    """The files below a folder. Of folders that are links only packages are followed: others may lead anywhere."""
    for path in folder.iterdir():
        if path.name in _SKIPPED or path.suffix == ".pyc":
            continue
        if path.is_dir():
            if not path.is_symlink():
                yield from _below_package(path, f"{name}/{path.name}", above)
            elif (path / "__init__.py").is_file() and (real := path.resolve()) not in above:
                yield from _below_package(path, f"{name}/{path.name}", above | {real})
        elif path.is_file():
            yield f"{name}/{path.name}", path


def _size(files: dict[str, Path]) -> int:
    return sum(path.stat().st_size for path in files.values())


def _check_count(files: dict[str, Path], folder: Path) -> None:
    if len(files) > FILES_LIMIT:
        raise PickleTooLarge(
            f"The local modules are more than {FILES_LIMIT} files, {folder} is among their folders. "
            "Keep data out of the folders of packages, and read it from a shared path."
        )


class _Source:
    """What one version of a source file says: the modules it imports, and the texts in it where it uses `__file__`."""

    def __init__(self, text: bytes) -> None:
        named = set(_BY_NAME.findall(text))
        for package, modules in _IMPORT.findall(text):
            named |= (
                {package}
                if package
                else {part.split()[0].partition(b".")[0] for part in modules.split(b",") if part.split()}
            )
        self.imports = frozenset(name.decode() for name in named if name.isascii())
        texts = _TEXT.findall(text) if b"__file__" in text else ()
        self.texts = frozenset(found.decode(errors="replace") for found in texts)


@functools.lru_cache(FILES_LIMIT)
def _read_source(path: Path, size: int, changed: int) -> _Source:
    try:
        return _Source(path.read_bytes() if size <= LIMIT else b"")
    except OSError:
        return _Source(b"")


def _source(path: Path) -> _Source | None:
    if path.suffix != ".py":
        return None
    try:
        status = path.stat()
    except OSError:
        return None
    return _read_source(path, status.st_size, status.st_mtime_ns)


def _imported_by(path: Path) -> frozenset[str]:
    source = _source(path)
    return source.imports if source is not None else frozenset()


def _beside(module: Path, files: dict[str, set[Path]]) -> None:
    """Add the files and folders beside a module of one file whose names it has as text, as far as they are few and small."""
    source = _source(module)
    for text in source.texts if source is not None else ():
        named = (path for place in _meant(module.parent, text) for path in _below(place))
        found = {
            path.relative_to(module.parent).as_posix(): path for path in itertools.islice(named, _BESIDE_FILES_LIMIT + 1)
        }
        if len(found) <= _BESIDE_FILES_LIMIT and _size(found) <= _BESIDE_LIMIT:
            for name, path in found.items():
                files.setdefault(name, set()).add(path)


def _meant(folder: Path, text: str) -> Iterator[Path]:
    """The files and folders in a folder that a text may name: by its name, by a pattern, by a name with `{parts}` put in.

    A folder of very many files is not searched by patterns.
    """
    pattern = _PUT_IN.sub("*", text)
    place = Path(pattern)
    if place.is_absolute() or {"..", "**"} & set(place.parts) or not place.parts or text.endswith(".py"):
        return
    if not _PATTERN.search(pattern):
        yield folder / place
    elif "." in pattern and not _ANYTHING.search(pattern):
        with contextlib.suppress(OSError, ValueError, NotImplementedError):
            if len(list(itertools.islice(folder.iterdir(), _BESIDE_FILES_LIMIT + 1))) <= _BESIDE_FILES_LIMIT:
                yield from folder.glob(pattern)


def _below(path: Path) -> Iterator[Path]:
    """A file, or the files of a folder and the folders in it."""
    try:
        if path.is_file():
            yield path
        elif path.is_dir() and not path.is_symlink() and path.name not in _SKIPPED:
            for part in path.iterdir():
                yield from _below(part)
    except OSError:
        return


def pack(files: dict[str, Path]) -> bytes:
    """A zip which is the same bytes whenever names and contents are."""
    total = _size(files)
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
