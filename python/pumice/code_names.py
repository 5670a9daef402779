"""Which names a function's code looks up: globals, attributes, modules that it imports when it runs."""

from __future__ import annotations

import dis
import functools
import importlib.util
import types
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

__all__ = ["all_of", "attributes_in", "globals_in", "imports_in", "modules_in", "names_in"]

_OF_GLOBALS = {"LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL", "DELETE_GLOBAL"}
_LOADS = {"LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"}
_OF_ATTRIBUTES = {"LOAD_ATTR", "LOAD_METHOD"}
_BETWEEN = {"CACHE", "EXTENDED_ARG", "NOP"}
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
def attributes_in(code: types.CodeType) -> Mapping[str, frozenset[tuple[str, ...]]]:
    """The attributes that a code object and those in it take of globals and outer variables: `(b, c)` of `a` in `a.b.c`.

    The empty tuple is for one that is used by itself, so that nobody knows what is taken of it.
    """
    found: dict[str, set[tuple[str, ...]]] = {}
    for part in all_of(code):
        name = ""
        chain: tuple[str, ...] = ()
        for instruction in dis.get_instructions(part):
            if instruction.opname in _OF_ATTRIBUTES and name:
                chain = (*chain, instruction.argval)
            elif instruction.opname not in _BETWEEN:
                if name:
                    found.setdefault(name, set()).add(chain)
                name, chain = (instruction.argval, ()) if instruction.opname in _LOADS else ("", ())
    return {name: frozenset(chains) for name, chains in found.items()}


class _Import(NamedTuple):
    """What one statement imports."""

    name: str
    level: int
    """Dots before the name."""
    taken: tuple[str, ...]
    """What is taken from it."""


@functools.lru_cache(_REMEMBERED)
def _imports(code: types.CodeType) -> frozenset[_Import]:
    found = set()
    for part in all_of(code):
        if _IMPORTERS & set(part.co_names):
            found |= {_Import(text, 0, ()) for text in part.co_consts if isinstance(text, str) and _is_dotted(text)}
        before: list[Any] = []
        for instruction in dis.get_instructions(part):
            if instruction.opname == "IMPORT_NAME":
                level, taken = before[-2:]
                found.add(_Import(instruction.argval, level, taken or ()))
            if instruction.opname != "EXTENDED_ARG":
                before.append(instruction.argval)
    return frozenset(found)


def imports_in(code: types.CodeType) -> frozenset[str]:
    """Names of modules that a code object and those inside it import, also by `importlib.import_module("name")`.

    A relative import gives the name without its dots.
    """
    return frozenset(found.name for found in _imports(code) if found.name)


def modules_in(code: types.CodeType, package: str) -> frozenset[str]:
    """The same, by their full names as code of a package imports them, with names that may be modules or what is in them."""
    modules = set()
    for found in _imports(code):
        try:
            module = importlib.util.resolve_name("." * found.level + found.name, package)
        except ImportError:  # it is in no package, or above all of them
            continue
        modules |= {module} | {f"{module}.{name}" for name in found.taken if name != "*"}
    return frozenset(modules)


def _is_dotted(text: str) -> bool:
    return all(name.isidentifier() for name in text.split("."))
