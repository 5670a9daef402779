"""What a value is made of, as a hash: the same in every process that has made an equal value, and another for another.

A value is walked from its root without recursion, so that neither cycles nor depth matter. Whatever is reached twice is a
number the second time. Own functions and classes count by what they are made of: bytecode without lines and comments, outer
variables, defaults, and the globals they name; installed ones count by their names.
"""

from __future__ import annotations

import collections
import copyreg
import dataclasses
import enum
import functools
import hashlib
import operator
import pickle
import re
import sys
import types
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

from .bounded_text import short_repr
from .by_value import DISPATCHER
from .code_names import attributes_in, globals_in, modules_in, names_in
from .local_modules import is_local
from .modules_on_disk import differs_on_disk, digest_on_disk, literals_on_disk

__all__ = ["NoContent", "content_of"]

_LIMIT = 5_000_000
"""Most parts of a value that are looked at."""
_SIZE = 16
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]{6,}")
_HEAP_TYPE = 1 << 9
"""Set in the flags of a class that a program has made; others are of the interpreter or of a compiled module."""


class _Item(NamedTuple):
    """What the part of a dictionary is in the eyes of a reader, who rarely wants to know."""

    key: Any


_Part: TypeAlias = tuple[str | _Item, Any]
"""What a part is in the eyes of a reader, and the part."""
_Opened: TypeAlias = tuple[str, list[_Part]]
"""What a value is by itself, and its parts."""


class NoContent(Exception):
    """A value has no content that could be hashed."""

    def __init__(self, path: list[str], value: Any, reason: str) -> None:
        super().__init__(path, value, reason)
        self.path = path
        """The way to it, from the outermost."""
        self.value = value
        self.reason = reason

    def __str__(self) -> str:
        kind = f"{type(self.value).__module__}.{type(self.value).__qualname__}".removeprefix("builtins.")
        through = ", in it ".join(self.path)
        return f"{through + ', ' if through else ''}a {kind}: {self.reason}"


class _Uses(NamedTuple):
    """What code uses of a module of the user's."""

    module: types.ModuleType
    chains: frozenset[tuple[str, ...]]
    """Attributes, and attributes of those."""
    names: frozenset[str]
    """All names in the code: any of them may be an attribute of a module that is used by itself."""


def content_of(value: Any) -> bytes:
    """The hash of what a value is made of. Raises `NoContent`."""
    return _Walk().digest(value)


class _Walk:
    def __init__(self) -> None:
        self._uses: dict[Hashable, _Uses] = {}
        self._own: dict[str, bool] = {}
        self._left = _LIMIT

    def digest(self, root: Any) -> bytes:
        digest = hashlib.blake2b(digest_size=_SIZE)
        numbers: dict[int, int] = {}
        alive: list[Any] = []
        left: list[tuple[Any, Any]] = [(root, None)]
        while left:
            value, way = left.pop()
            self._left -= 1
            if self._left < 0:
                raise NoContent(_path(way), value, f"it has more than {_LIMIT:,} parts")
            if (plain := _plain(value)) is not None:
                for piece in plain:
                    digest.update(piece)
                continue
            # A tuple is its items: whether two places share it is the compiler's business.
            if type(value) not in (tuple, frozenset):
                number = numbers.setdefault(id(value), len(numbers))
                if number != len(alive):
                    digest.update(b"@%d;" % number)
                    continue
                alive.append(value)
            try:
                head, parts = self._open(value)
            except NoContent as error:
                raise NoContent(_path(way) + error.path, error.value, error.reason) from error
            except Exception as error:
                raise NoContent(_path(way), value, str(error) or type(error).__name__) from error
            digest.update(b"%s(%d;" % (head.encode(errors="surrogatepass"), len(parts)))
            left += [(part, (way, name)) for name, part in reversed(parts)]
        return digest.digest()

    def _open(self, value: Any) -> _Opened:
        kind = type(value)
        opener = _OPENERS.get(kind)
        if opener is not None:
            return opener(self, value)
        if isinstance(value, type):
            return self._class(value)
        if isinstance(value, enum.Enum):
            return f"member {value.name}", [("its enum", kind)]
        if isinstance(value, types.ModuleType):
            return f"module {value.__name__}", []
        return _of_a_function(value) or self._object(value)

    def _sorted(self, values: Iterable[Any]) -> list[tuple[bytes, Any]]:
        """Values in an order that depends on nothing but them, each with what it is sorted by."""
        return sorted(((self.digest(value), value) for value in values), key=operator.itemgetter(0))

    # Containers.

    def _sequence(self, value: list[Any] | tuple[Any, ...]) -> _Opened:
        if _is_flat(value):
            return f"{type(value).__name__} {value!r}", []
        return type(value).__name__, [(f"element {number}", item) for number, item in enumerate(value)]

    def _set(self, value: set[Any] | frozenset[Any]) -> _Opened:
        if _is_flat(value):
            return f"{type(value).__name__} {sorted(map(repr, value))!r}", []
        return type(value).__name__, [("an element", item) for _, item in self._sorted(value)]

    def _dict(self, value: Mapping[Any, Any]) -> _Opened:
        if _is_flat(value) and _is_flat(value.values()):
            return f"dict {sorted(map(repr, value.items()))!r}", []
        keys = sorted(value, key=repr) if _is_flat(value) else [key for _, key in self._sorted(value)]
        return "dict", [part for key in keys for part in (("a key", key), (_Item(key), value[key]))]

    # Code.

    def _code(self, code: types.CodeType) -> _Opened:
        constants = tuple(code.co_consts)
        shape = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags, code.co_exceptiontable)
        names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
        return f"code {shape} {names}", [("its code", code.co_code), ("its constants", constants)]

    def _function(self, function: types.FunctionType) -> _Opened:
        if not self._is_own(function):
            return _reference(function), []
        code = function.__code__
        parts: list[_Part] = [
            ("its code", code),
            ("a default argument", function.__defaults__),
            ("a default argument", function.__kwdefaults__),
        ]
        if code is DISPATCHER:
            # Its outer variables are the functions by type, and a cache.
            return "dispatcher", [("a function by type", function.registry)]  # type: ignore[attr-defined]
        parts += [(f"the attribute {name!r}", item) for name, item in sorted(vars(function).items())]
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=False):
            used = self._used(_content(cell), code, name)
            parts.append((f"the outer variable {name!r}", used if isinstance(used, _Uses) else cell))
        return _by_names("function", parts + self._globals(function))

    def _globals(self, function: types.FunctionType) -> list[_Part]:
        parts: list[_Part] = []
        code, there, written = function.__code__, function.__globals__, literals_on_disk(function)
        for name in sorted(globals_in(code)):
            if name in there:
                value = self._used(there[name], code, name)
                parts.append((f"the global {name!r}", value))
                if name in written and self._differ(written[name], value):
                    parts.append((f"the global {name!r} as its module writes it", written[name]))
        package = there.get("__package__") or str(there.get("__name__", "")).rpartition(".")[0]
        imported = sorted(name for name in modules_in(code, package) if self._is_users(name))
        parts += [(f"the module {name}", digest_on_disk(name)) for name in imported]
        if differs_on_disk(function):
            # Others import what lies there now, not what this process has read.
            parts.append(("its module", digest_on_disk(function.__module__)))
        return parts

    def _differ(self, one: Any, other: Any) -> bool:
        try:
            return self.digest(one) != self.digest(other)
        except NoContent:  # which is told where the value itself has its turn
            return True

    def _used(self, value: Any, code: types.CodeType, name: str) -> Any:
        """What code uses of a value that it has under a name: of a module only the attributes that it takes."""
        if not isinstance(value, types.ModuleType) or not self._is_users(value.__name__):
            return value
        return self._named(value, attributes_in(code).get(name, frozenset({()})), frozenset(names_in(code)))

    def _named(self, module: types.ModuleType, chains: frozenset[tuple[str, ...]], names: frozenset[str]) -> _Uses:
        """One object for each use, so that modules that name each other come to an end."""
        if () in chains:
            chains |= {(name,) for name in names}
        key = (module.__name__, chains, names)
        return self._uses.setdefault(key, _Uses(module, chains, names))

    def _module(self, uses: _Uses) -> _Opened:
        there = vars(uses.module)
        parts: list[_Part] = []
        for first in sorted({chain[0] for chain in uses.chains if chain and chain[0] in there}):
            value = there[first]
            if isinstance(value, types.ModuleType) and self._is_users(value.__name__):
                value = self._named(
                    value, frozenset(chain[1:] for chain in uses.chains if chain[:1] == (first,)), uses.names
                )
            parts.append((f"{uses.module.__name__}.{first}", value))
        if () in uses.chains:
            parts.append(("its file", digest_on_disk(uses.module.__name__)))
        return _by_names(f"module {uses.module.__name__}", parts)

    def _cell(self, cell: types.CellType) -> _Opened:
        content = _content(cell)
        return ("empty cell", []) if content is _EMPTY else ("cell", [("its content", content)])

    def _method(self, method: types.MethodType) -> _Opened:
        return "method", [("its function", method.__func__), ("its object", method.__self__)]

    def _builtin(self, function: types.BuiltinFunctionType) -> _Opened:
        owner = function.__self__
        if owner is None or isinstance(owner, types.ModuleType):
            return f"builtin {function.__module__}.{function.__qualname__}", []
        return f"builtin {function.__name__}", [("its object", owner)]

    def _cached(self, function: Any) -> _Opened:
        return "cached", [("its function", function.__wrapped__), ("its parameters", function.cache_parameters())]

    def _wrapping(self, value: Any) -> _Opened:
        return type(value).__name__, [("its function", value.__func__)]

    def _property(self, value: property) -> _Opened:
        return "property", [("its function", part) for part in (value.fget, value.fset, value.fdel)]

    def _cached_property(self, value: Any) -> _Opened:
        return "cached property", [("its function", value.func)]

    # Classes and objects.

    def _class(self, kind: type) -> _Opened:
        if not self._is_own(kind):
            return _reference(kind), []
        parts: list[_Part] = [("its class", type(kind)), ("its bases", kind.__bases__)]
        if issubclass(kind, enum.Enum):
            parts.append(("its members", [(name, member.value) for name, member in kind.__members__.items()]))
        parts += [
            (f"the attribute {name!r}", item)
            for name, item in sorted(vars(kind).items())
            if name not in _NOT_OF_A_CLASS and not isinstance(item, _DESCRIPTORS) and not _is_of_enum(kind, name, item)
        ]
        return _by_names(f"class {kind.__qualname__}", parts)

    def _field(self, field: Any) -> _Opened:
        there = [name for name in _OF_A_FIELD if hasattr(field, name)]
        return _by_names("field", [(f"the attribute {name!r}", getattr(field, name)) for name in there])

    def _buffer(self, value: Any) -> _Opened:
        view = pickle.PickleBuffer(value).raw()
        return "buffer", [("its bytes", hashlib.blake2b(view, digest_size=_SIZE).digest())]

    def _object(self, value: Any) -> _Opened:
        """What pickling takes of an object: how it is made, of what, and what is put into it."""
        reduce = copyreg.dispatch_table.get(type(value))
        reduced = reduce(value) if reduce is not None else value.__reduce_ex__(pickle.HIGHEST_PROTOCOL)
        if isinstance(reduced, str):
            return f"{getattr(value, '__module__', None)}.{reduced}", []
        made_by, args, *more = reduced
        parts: list[_Part] = [("what makes it", made_by), ("what it is made of", args)]
        state, items, pairs, setter = (*more, None, None, None, None)[:4]
        if isinstance(state, dict):
            _check_state(state)
            parts += [
                (f"the attribute {name!r}", item) for name, item in sorted(state.items(), key=lambda pair: str(pair[0]))
            ]
        else:
            parts.append(("its state", state))
        parts.append(("its elements", None if items is None else list(items)))
        ordered = isinstance(value, collections.OrderedDict)
        parts.append(("its items", None if pairs is None else list(pairs) if ordered else dict(pairs)))
        parts.append(("what sets its state", setter))
        return _by_names("object", parts)

    # Whose is it?

    def _is_own(self, value: Any) -> bool:
        """Whether a function or class is other than what its name gives in an installed module."""
        if isinstance(value, type) and not value.__flags__ & _HEAP_TYPE:
            return False
        name = getattr(value, "__module__", None)
        module = sys.modules.get(name) if isinstance(name, str) else None
        if module is None or name == "__main__" or self._is_users(module.__name__):
            return True
        try:
            return operator.attrgetter(value.__qualname__)(module) is not value
        except AttributeError:
            return True

    def _is_users(self, module: str) -> bool:
        top = module.partition(".")[0]
        if top not in self._own:
            self._own[top] = top == "__main__" or is_local(top)
        return self._own[top]


_NOT_OF_A_CLASS = {
    "__abstractmethods__",
    "__annotate__",
    "__annotate_func__",
    "__annotations__",
    "__annotations_cache__",
    "__dict__",
    "__doc__",
    "__firstlineno__",
    "__module__",
    "__static_attributes__",
    "__weakref__",
    "_abc_impl",
}
"""What a class has besides what its author wrote: it says nothing of what its methods do."""
_DESCRIPTORS = (types.MemberDescriptorType, types.GetSetDescriptorType, types.WrapperDescriptorType)
_OF_A_FIELD = ("name", "type", "default", "default_factory", "init", "repr", "hash", "compare", "kw_only")


def _is_of_enum(kind: type, name: str, item: Any) -> bool:
    """Whether an attribute of an enum is made by its metaclass: members, and tables of them."""
    if not issubclass(kind, enum.Enum):
        return False
    return isinstance(item, (kind, enum.property)) or (name.startswith("_") and not isinstance(item, types.FunctionType))


_OPENERS: dict[type, Callable[[_Walk, Any], _Opened]] = {
    list: _Walk._sequence,
    tuple: _Walk._sequence,
    set: _Walk._set,
    frozenset: _Walk._set,
    dict: _Walk._dict,
    types.MappingProxyType: _Walk._dict,
    types.CodeType: _Walk._code,
    types.FunctionType: _Walk._function,
    types.MethodType: _Walk._method,
    types.CellType: _Walk._cell,
    types.BuiltinFunctionType: _Walk._builtin,
    functools._lru_cache_wrapper: _Walk._cached,
    functools.cached_property: _Walk._cached_property,
    functools.singledispatchmethod: lambda walk, method: ("method by type", [("its function", method.dispatcher)]),
    classmethod: _Walk._wrapping,
    staticmethod: _Walk._wrapping,
    property: _Walk._property,
    dataclasses.Field: _Walk._field,
    pickle.PickleBuffer: _Walk._buffer,
    memoryview: _Walk._buffer,
    bytearray: _Walk._buffer,
    _Uses: _Walk._module,
}

_FLAT = {float, complex, str, bool, type(None)}
_SHORT_INT_BITS = 1024


def _is_flat(values: Iterable[Any]) -> bool:
    """Whether values are nothing but numbers, texts and tuples of them, whose text the interpreter makes quickly."""
    for value in values:
        kind = type(value)
        if kind in _FLAT or (kind is int and value.bit_length() < _SHORT_INT_BITS) or (kind is tuple and _is_flat(value)):
            continue
        return False
    return True


def _plain(value: Any) -> tuple[bytes, ...] | None:
    """A value without parts as bytes; None for others."""
    kind = type(value)
    if kind is bytes:
        return (b"bytes%d:" % len(value), value)
    if kind is str:
        data = value.encode(errors="surrogatepass")
        return (b"str%d:" % len(data), data)
    if kind is int:
        return (b"int%x;" % value,)
    if kind in (float, complex, bool) or value is None or value is Ellipsis or value is NotImplemented:
        return (f"{kind.__name__}{value!r};".encode(),)
    return None


def _reference(value: Any) -> str:
    return f"{value.__module__}.{value.__qualname__}"


def _check_state(state: Mapping[Any, Any]) -> None:
    """Refuse what holds the text of an address, which is another in each process."""
    for name, item in state.items():
        if type(item) is str and " at 0x" in item and _ADDRESS.search(item):
            raise NoContent([f"the attribute {name!r}"], item, f"it has an address in it, {short_repr(item)}")


def _of_a_function(value: Any) -> _Opened | None:
    """A task, or what numba compiles, by its function; None for others."""
    tasks = sys.modules.get("pumice.tasks")
    if tasks is not None and isinstance(value, tasks.Task):
        return "task", [("its function", value.__wrapped__)]
    if isinstance(function := getattr(value, "py_func", None), types.FunctionType):
        # As an object it has a number that is another one in each process.
        return _reference(type(value)), [("its function", function), ("its options", getattr(value, "targetoptions", None))]
    return None


def _by_names(head: str, parts: list[_Part]) -> _Opened:
    """A value whose parts are told apart by their names."""
    return f"{head} {[name for name, _ in parts]}", parts


_EMPTY = object()


def _content(cell: types.CellType) -> Any:
    """What an outer variable is, or `_EMPTY` where it has no value yet."""
    try:
        return cell.cell_contents
    except ValueError:
        return _EMPTY


def _path(way: Any) -> list[str]:
    names: list[str] = []
    while way is not None:
        way, name = way
        if isinstance(name, _Item):
            names.append(f"the item {short_repr(name.key)}")
        elif name not in _UNSAID:
            names.append(name)
    return names[::-1]


_UNSAID = {
    "its content",
    "its function",
    "its class",
    "its bases",
    "what it is made of",
    "its state",
    "its elements",
    "its items",
}
"""Parts whose mention would tell a reader nothing that helps."""
