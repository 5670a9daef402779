"""Pickles of functions, arguments and values: limits, and errors that name what is in the way."""

from __future__ import annotations

import contextlib
import functools
import pickle
import types
from collections.abc import Callable, Iterator
from typing import Any

from .bounded_text import short_repr, shortened
from .code_names import names_in
from .errors import NotPicklable, PickleTooLarge

__all__ = ["LIMIT", "called_by", "dumps_args", "dumps_function", "dumps_value", "module_of", "name_of"]

LIMIT = 64 << 20
"""Most bytes of one pickle that goes along with a job."""

_DEPTH = 4


def dumps_function(function: Callable[..., Any], imports: set[str] | None = None) -> bytes:
    """The pickle of a function, by value where the other side can't import it.

    Names of modules that it imports when it runs are added to `imports`.
    """
    name = name_of(function)
    try:
        data = _by_value(function, imports)
    except Exception as error:
        raise NotPicklable(_advice(f"The function {name}", function, error)) from error
    if len(data) > LIMIT:
        raise PickleTooLarge(_too_large(f"The function {name}", len(data), function))
    return data


def dumps_args(args: tuple[Any, ...], kwargs: dict[str, Any], key: str, imports: set[str] | None = None) -> bytes:
    """The pickle of a call's arguments; `imports` as of `dumps_function`."""
    data = _plain(args, kwargs)
    if data is None:
        try:
            data = _by_value((args, kwargs), imports)
        except Exception as error:
            raise NotPicklable(_advice(f"The arguments of {key}", (args, kwargs), error)) from error
    if len(data) > LIMIT:
        raise PickleTooLarge(_too_large(f"The pickle of the arguments of {key}", len(data), (args, kwargs)))
    return data


_PLAIN = (int, float, str, bytes, bool, type(None))


def _plain(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes | None:
    """The same from the C pickler, ten times as fast, where nothing in it can need cloudpickle."""
    if kwargs or not all(type(arg) in _PLAIN for arg in args):
        return None
    return pickle.dumps((args, kwargs), protocol=5)


def dumps_value(value: Any) -> bytes:
    """The pickle of a returned value or a raised exception; may be of any size."""
    if type(value) in _PLAIN:
        return pickle.dumps(value, protocol=5)
    return _by_value(value)


def _by_value(value: Any, imports: set[str] | None = None) -> bytes:
    """What the other side can't import goes as what it is made of."""
    from . import by_value  # which takes as long to import as all of a worker; where nothing needs it, nothing waits for it

    return by_value.dumps(value, imports)


def _pickles(value: Any) -> bool:
    try:
        _by_value(value)
    except Exception:  # noqa: BLE001 - a user's __reduce__ may raise anything
        return False
    return True


def called_by(function: Callable[..., Any]) -> Callable[..., Any]:
    """What a partial calls in the end; any other function itself."""
    while isinstance(function, functools.partial):
        function = function.func
    return function


def name_of(function: Callable[..., Any]) -> str:
    """What people call a function: its name, that of what a partial calls, or that of a callable object's class."""
    called = called_by(function)
    name = getattr(called, "__qualname__", None) or getattr(called, "__name__", None)
    return name if isinstance(name, str) else type(called).__qualname__


def module_of(function: Callable[..., Any]) -> str:
    """The module that a function, or what a partial calls, is from."""
    name = getattr(called_by(function), "__module__", None)
    return name if isinstance(name, str) else "builtins"


def _parts_of_function(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    code = function.__code__
    for name in names_in(code):
        if name in function.__globals__:
            yield f"the global {name!r}", function.__globals__[name]
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=False):
        with contextlib.suppress(ValueError):
            yield f"the outer variable {name!r}", cell.cell_contents
    for default in function.__defaults__ or ():
        yield "a default argument", default


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """What a value is made of, with a name for each part."""
    if isinstance(value, types.FunctionType):
        yield from _parts_of_function(value)
    elif isinstance(value, types.MethodType):
        yield "its object", value.__self__
    elif isinstance(value, dict):
        for key, item in value.items():
            yield f"the item {short_repr(key)}", item
    elif isinstance(value, (list, tuple, set, frozenset)):
        for number, item in enumerate(value):
            yield f"element {number}", item
    elif hasattr(value, "func") and hasattr(value, "keywords"):
        yield "its function", value.func
        yield "its arguments", (value.args, value.keywords)
    elif hasattr(value, "__dict__") and not isinstance(value, (type, types.ModuleType)):
        for name, item in vars(value).items():
            yield f"the attribute {name!r}", item


def _culprit(value: Any, depth: int = _DEPTH) -> tuple[list[str], Any]:
    """The way to the innermost part that can't be pickled, and that part."""
    if depth:
        for name, part in _parts(value):
            if not _pickles(part):
                path, found = _culprit(part, depth - 1)
                return [name, *path], found
    return [], value


def _advice(what: str, value: Any, error: Exception) -> str:
    path, culprit = _culprit(value)
    kind = f"{type(culprit).__module__}.{type(culprit).__qualname__}".removeprefix("builtins.")
    through = f" because of {', in it '.join(path)}, a {kind}" if path else ""
    return (
        f"{what} can't be sent to another process{through}: {shortened(str(error))}. "
        "Make it inside of the function (open files, connections and locks there), or pass what it is made from."
    )


def _too_large(what: str, size: int, value: Any) -> str:
    sizes = [(len(_safe(part)), name) for name, part in _parts(value)]
    size_of_part, part_name = max(sizes, default=(0, ""))
    because = f", {size_of_part >> 20} of them {part_name}" if size_of_part > size // 4 else ""
    return (
        f"{what} would be {size >> 20} MiB{because}; at most {LIMIT >> 20} MiB go along with a job. "
        "Write the data to a shared path or an object store once, pass its name, and read it inside of the function."
    )


def _safe(value: Any) -> bytes:
    try:
        return _by_value(value)
    except Exception:  # noqa: BLE001 - only a size is wanted
        return b""
