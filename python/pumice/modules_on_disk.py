"""The code of the user's modules as it lies on disk, which other processes import: it may be newer than what is loaded."""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import sys
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from .code_names import all_of, modules_in
from .local_modules import is_local, source_of

__all__ = ["differs_on_disk", "digest_on_disk", "literals_on_disk"]

_SIZE = 16
_REMEMBERED = 4096


def digest_on_disk(name: str) -> bytes:
    """The hash of a module's code, and of the code of the user's modules that it imports; without comments and lines."""
    digest = hashlib.blake2b(digest_size=_SIZE)
    seen: set[str] = set()
    left = [name]
    while left:
        module = left.pop()
        if module in seen:
            continue
        seen.add(module)
        if is_local(module) and (compiled := _compiled(module)) is not None:
            digest.update(f"{module};".encode() + compiled.digest)
            left += sorted(compiled.imports)
    return digest.digest()


def differs_on_disk(function: types.FunctionType) -> bool:
    """Whether a function that others import by name is another one in the file of its module."""
    compiled = _compiled_for(function)
    return compiled is not None and _of_code(function.__code__) not in compiled.functions


def literals_on_disk(function: types.FunctionType) -> Mapping[str, Any]:
    """The globals that the file of a function's module sets to a value which is written there."""
    compiled = _compiled_for(function)
    return compiled.literals if compiled is not None else {}


class _Compiled:
    """What the code of one version of a file says."""

    def __init__(self, text: bytes, file: str, package: str) -> None:
        tree = ast.parse(text, file)
        self.literals = dict(_literals(tree))
        code = compile(tree, file, "exec", dont_inherit=True)
        self.digest = _of_code(code)
        self.imports = modules_in(code, package)
        self.functions = frozenset(_of_code(part) for part in all_of(code))


def _literals(tree: ast.Module) -> Iterator[tuple[str, Any]]:
    for node in tree.body:
        names = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        value = getattr(node, "value", None)
        for name in names:
            if isinstance(name, ast.Name) and value is not None:
                with contextlib.suppress(ValueError, TypeError):
                    yield name.id, ast.literal_eval(value)


def _compiled_for(function: types.FunctionType) -> _Compiled | None:
    """The file of the module that others import for a function; None where it goes along by itself."""
    module = sys.modules.get(function.__module__ or "")
    if module is None or function.__module__ == "__main__" or function.__globals__ is not vars(module):
        return None
    if function.__code__.co_filename != getattr(module, "__file__", None):  # such as what a decorator has written
        return None
    return _compiled(function.__module__)


def _compiled(module: str) -> _Compiled | None:
    file = source_of(module)
    if file is None:
        return None
    try:
        status = file.stat()
    except OSError:
        return None
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    return _compile(file, package, status.st_size, status.st_mtime_ns)


@functools.lru_cache(_REMEMBERED)
def _compile(file: Path, package: str, size: int, changed: int) -> _Compiled | None:
    try:
        return _Compiled(file.read_bytes(), str(file), package)
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None


def _of_code(code: types.CodeType) -> bytes:
    from .content_hash import content_of  # which asks here of functions

    return content_of(code)
