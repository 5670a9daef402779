"""What a function's code is, as a hash: results kept for older code aren't taken for newer."""

from __future__ import annotations

import ast
import hashlib
import inspect
import textwrap
import types
from collections.abc import Callable, Iterator
from typing import Any

from .code_names import names_in
from .local_modules import is_local

__all__ = ["version_of"]


def version_of(function: Callable[..., Any]) -> str:
    """A hash over the source of a function and of the user's own functions and classes it uses, comments left out.

    Functions reached through attributes of objects, and the values of globals, aren't seen.
    """
    digest = hashlib.sha256()
    for name, text in sorted(_sources(function, {})):
        digest.update(f"{name}\0{text}\0".encode())
    return digest.hexdigest()[:16]


def _sources(value: Any, seen: dict[int, Any]) -> Iterator[tuple[str, str]]:
    value = inspect.unwrap(value)
    if id(value) in seen:
        return
    seen[id(value)] = value
    name = f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', '')}"
    yield name, _text(value)
    functions = [item for item in vars(value).values() if isinstance(item, types.FunctionType)]
    if isinstance(value, types.FunctionType):
        functions.append(value)
    for function in functions:
        for used in _used(function):
            yield from _sources(used, seen)


def _text(value: Any) -> str:
    """The source without comments and layout; for what has none, its bytecode."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(value)))
    except (OSError, TypeError, SyntaxError):
        code = getattr(value, "__code__", None)
        return _bytecode(code) if code is not None else ""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)):
            node.decorator_list = []
    return ast.dump(tree)


def _bytecode(code: types.CodeType) -> str:
    constants = [_bytecode(part) if isinstance(part, types.CodeType) else repr(part) for part in code.co_consts]
    return repr((code.co_code, code.co_names, constants))


def _used(function: types.FunctionType) -> Iterator[Any]:
    """The user's own functions and classes among the globals and outer variables a function names."""
    names = names_in(function.__code__)
    found = [function.__globals__[name] for name in names if name in function.__globals__]
    for cell in function.__closure__ or ():
        try:
            found.append(cell.cell_contents)
        except ValueError:
            continue
    for value in found:
        if isinstance(value, types.ModuleType):
            if is_local(value.__name__):
                yield from (getattr(value, name) for name in names if _is_own(getattr(value, name, None)))
        elif _is_own(value):
            yield value


def _is_own(value: Any) -> bool:
    value = inspect.unwrap(value) if callable(value) else value
    if not isinstance(value, (types.FunctionType, type)):
        return False
    return value.__module__ == "__main__" or is_local(value.__module__)
