"""Which names a function's code looks up: globals, attributes, modules that it imports when it runs."""

from __future__ import annotations

import dis
import functools
import types
from collections.abc import Iterator

__all__ = ["all_of", "globals_in", "imports_in", "names_in"]

_OF_GLOBALS = {"LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL", "DELETE_GLOBAL"}
_IMPORTERS = {"import_module", "__import__"}
_REMEMBERED = 4096


def all_of(code: types.CodeType) -> Iterator[types.CodeType]:
    """A code object and those inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from all_of(constant)


def names_in(code: types.CodeType) -> set[str]:
    """Names of globals and attributes that a code object and those inside it use."""
    return {name for part in all_of(code) for name in part.co_names}


@functools.lru_cache(_REMEMBERED)
def globals_in(code: types.CodeType) -> frozenset[str]:
    """Names of globals that a code object and those inside it use."""
    return frozenset(
        instruction.argval
        for part in all_of(code)
        for instruction in dis.get_instructions(part)
        if instruction.opname in _OF_GLOBALS
    )


@functools.lru_cache(_REMEMBERED)
def imports_in(code: types.CodeType) -> frozenset[str]:
    """Names of modules that a code object and those inside it import, also by `importlib.import_module("name")`.

    A relative import gives the name without its dots.
    """
    found = set()
    for part in all_of(code):
        if _IMPORTERS & set(part.co_names):
            found |= {text for text in part.co_consts if isinstance(text, str) and _is_dotted(text)}
        for instruction in dis.get_instructions(part):
            if instruction.opname == "IMPORT_NAME" and instruction.argval:
                found.add(instruction.argval)
    return frozenset(found)


def _is_dotted(text: str) -> bool:
    return all(name.isidentifier() for name in text.split("."))
