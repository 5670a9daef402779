"""Pickles that a process without the program can read: what `__main__` holds goes as what it is made of.

cloudpickle does so with functions and classes. Other things pickle as a name of their module, and of `__main__` the other
process lacks all names: those of the standard library are taken apart here, the rest is refused before anything runs.
"""

from __future__ import annotations

import dataclasses
import functools
import io
import operator
import pickle
import sys
import types
import typing
from collections.abc import Callable, Hashable
from typing import Any

import cloudpickle
from cloudpickle import cloudpickle as reducers

from .code_names import imports_in

__all__ = ["DISPATCHER", "ByValuePickler", "dumps", "goes_by_value"]


def dumps(value: Any, imports: set[str] | None = None) -> bytes:
    """The pickle of a value. Names of modules that functions in it import when they run are added to `imports`."""
    with io.BytesIO() as file:
        pickler = ByValuePickler(file)
        pickler.dump(value)
        if imports is not None:
            imports |= pickler.imports
        return file.getvalue()


class ByValuePickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles nothing as a name that only this process knows."""

    def __init__(self, file: Any) -> None:
        super().__init__(file, protocol=5)
        self.imports: set[str] = set()

    def reducer_override(self, obj: Any) -> Any:
        """How an object is taken apart; asked by the C pickler for all but plain values and containers."""
        kind: Any = type(obj)
        if kind is types.CodeType:
            self.imports |= imports_in(obj)
            return _code(obj)
        if (maker := _MAKERS.get(kind)) is not None:
            return maker(obj)
        reduced = super().reducer_override(obj)
        if isinstance(obj, (type, types.FunctionType)):
            return self._by_name(obj) if reduced is NotImplemented else _made(obj, reduced)
        if reduced is NotImplemented and not _is_taken_apart(kind):
            reduce = self.dispatch_table.get(kind)
            reduced = reduce(obj) if reduce is not None else obj.__reduce_ex__(self.proto)
            if isinstance(reduced, str):
                _check_name(obj, reduced)
        return reduced

    def _by_name(self, obj: Any) -> Any:
        """A function or class that cloudpickle leaves a name: taken apart where no other process can have its module."""
        module = sys.modules.get(getattr(obj, "__module__", None) or "")
        if module is None or _can_be_imported(module) or obj in reducers._BUILTIN_TYPE_NAMES:
            return NotImplemented
        return reducers._dynamic_class_reduce(obj) if isinstance(obj, type) else self._dynamic_function_reduce(obj)


@functools.lru_cache(4096)
def _is_taken_apart(kind: Hashable) -> bool:
    """Whether objects of a class pickle as their state, never as a name."""
    plain = all(getattr(kind, name) is getattr(object, name) for name in ("__reduce__", "__reduce_ex__"))
    return plain and kind not in ByValuePickler.dispatch_table


def _can_be_imported(module: types.ModuleType) -> bool:
    """Whether a module is more than what this process has made in memory."""
    return getattr(module, "__spec__", None) is not None or getattr(module, "__file__", None) is not None


def goes_by_value(module: str) -> bool:
    """Whether what is in a module goes as what it is made of."""
    if module == "__main__":
        return True
    registered = cloudpickle.list_registry_pickle_by_value()
    parts = module.split(".")
    return any(".".join(parts[:count]) in registered for count in range(1, len(parts) + 1))


def _is_found(obj: Any, name: str) -> bool:
    """Whether another process finds an object under its name."""
    module = getattr(obj, "__module__", None)
    if module is None:
        return True  # the pickler looks for it, and says where it isn't
    if goes_by_value(module):
        return False
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found is obj


def _check_name(obj: Any, name: str) -> None:
    if goes_by_value(getattr(obj, "__module__", None) or ""):
        raise pickle.PicklingError(
            f"it pickles as the name {name!r} of {obj.__module__}, which another process doesn't have; "
            "move it into a module of its own, beside the program"
        )


def _code(code: types.CodeType) -> Any:
    """As cloudpickle does it, with the file's name, which some of its versions leave out: tracebacks need it."""
    function, args = reducers._code_reduce(code)
    return function, tuple(code.co_filename if arg == "<dynamic-code>" else arg for arg in args)


def _module(module: types.ModuleType) -> Any:
    if module.__name__ == "__main__":
        raise pickle.PicklingError(
            "it is the program itself, and another process runs another one; pass what is needed of it"
        )
    if _can_be_imported(module) or module.__name__ in sys.builtin_module_names:
        return NotImplemented
    return reducers.dynamic_subimport, (module.__name__, {n: v for n, v in vars(module).items() if n != "__builtins__"})


def _made(obj: Any, reduced: Any) -> Any:
    """How a function or class goes as what it is made of, where cloudpickle's way loses something."""
    if getattr(obj, "__code__", None) is DISPATCHER:
        return _dispatcher(obj)
    if reduced[0] is reducers._make_skeleton_class and vars(obj).get("__slots__"):
        return _with_slots(obj, reduced)
    return reduced


def _with_slots(kind: type, reduced: tuple[Any, ...]) -> tuple[Any, ...]:
    """How a class is made, with its slots: cloudpickle makes one without, whose objects have another state than here."""
    make, (meta, name, bases, namespace, *rest), (attributes, slots), *more = reduced
    made = {name: item for name, item in attributes.items() if not isinstance(item, types.MemberDescriptorType)}
    return make, (meta, name, bases, {**namespace, "__slots__": vars(kind)["__slots__"]}, *rest), (made, slots), *more


# Caches.


def _cached(obj: Any) -> Any:
    """`functools.lru_cache` and `cache`: the function goes, and what it has kept stays here."""
    if _is_found(obj, getattr(obj, "__qualname__", "")):
        return NotImplemented
    parameters = obj.cache_parameters()
    own = {name: item for name, item in vars(obj).items() if name not in ("__wrapped__", "cache_parameters")}
    return _make_cached, (parameters["maxsize"], parameters["typed"]), (obj.__wrapped__, own), None, None, _fill_cached


def _make_cached(maxsize: int | None, typed: bool) -> Any:
    # Its function may call it, so it is made before its function is there.
    def call(*args: Any, **kwargs: Any) -> Any:
        return cached.__wrapped__(*args, **kwargs)

    cached = functools.lru_cache(maxsize, typed)(call)
    return cached


def _fill_cached(cached: Any, state: tuple[Any, dict[str, Any]]) -> None:
    function, own = state
    functools.update_wrapper(cached, function)
    vars(cached).update(own)


def _cached_property(obj: Any) -> Any:
    return _make_cached_property, (obj.func, obj.attrname)


def _make_cached_property(function: Callable[[Any], Any], name: str | None) -> Any:
    made: Any = functools.cached_property(function)
    made.attrname = name
    return made


# Functions by type.

DISPATCHER = getattr(functools.singledispatch(lambda value: value), "__code__")  # noqa: B009 - typed as an object of a class
_OF_A_DISPATCHER = {"registry", "dispatch", "register", "_clear_cache", "__wrapped__"}


def _dispatcher(obj: Any) -> Any:
    """`functools.singledispatch`: the functions by their types go, and the cache of which is meant stays here."""
    own = {name: item for name, item in vars(obj).items() if name not in _OF_A_DISPATCHER}
    return _make_dispatcher, (), (list(obj.registry.items()), own), None, None, _fill_dispatcher


def _make_dispatcher() -> Any:
    return functools.singledispatch(lambda value: value)


def _fill_dispatcher(dispatcher: Any, state: tuple[list[tuple[type, Any]], dict[str, Any]]) -> None:
    functions, own = state
    for kind, function in functions:
        dispatcher.register(kind, function)
    functools.update_wrapper(dispatcher, dispatcher.registry[object])
    vars(dispatcher).update(own)


def _method_by_type(obj: Any) -> Any:
    return _make_method_by_type, (obj.func, obj.dispatcher)


def _make_method_by_type(function: Callable[..., Any], dispatcher: Any) -> Any:
    made: Any = functools.singledispatchmethod(function)
    made.dispatcher = dispatcher
    return made


# Objects that are nothing but themselves.


def _sentinel(obj: object) -> Any:
    """An `object()` of a module goes as its name there: another one would not be it."""
    module, name = _sentinels_of(len(sys.modules)).get(id(obj), (None, ""))
    if module is None or vars(module).get(name) is not obj or goes_by_value(module.__name__):
        return NotImplemented
    return operator.attrgetter(name), (module,)


@functools.lru_cache(1)
def _sentinels_of(_modules: int) -> dict[int, tuple[types.ModuleType, str]]:
    """Where each `object()` of a module is; looked for anew when there are more modules."""
    return {
        id(value): (module, name)
        for module in list(sys.modules.values())
        if isinstance(module, types.ModuleType) and _can_be_imported(module)
        for name, value in list(vars(module).items())
        if type(value) is object
    }


# Types that are named by an assignment.


def _new_type(obj: Any) -> Any:
    return (
        NotImplemented
        if _is_found(obj, obj.__qualname__)
        else (_make_new_type, (obj.__name__, obj.__supertype__, obj.__module__))
    )


def _make_new_type(name: str, supertype: Any, module: str) -> Any:
    made: Any = typing.NewType(name, supertype)  # type: ignore[misc]
    made.__module__ = module
    return made


def _parameters(obj: Any) -> Any:
    variance = {"covariant": obj.__covariant__, "contravariant": obj.__contravariant__}
    return NotImplemented if _is_found(obj, obj.__name__) else (_make_parameters, (obj.__name__, obj.__bound__, variance))


def _make_parameters(name: str, bound: Any, variance: dict[str, bool]) -> Any:
    return typing.ParamSpec(name, bound=bound, **variance)


def _type_tuple(obj: Any) -> Any:
    return NotImplemented if _is_found(obj, obj.__name__) else (typing.TypeVarTuple, (obj.__name__,))


def _alias(obj: Any) -> Any:
    found = _is_found(obj, obj.__name__)
    return NotImplemented if found else (_make_alias, (obj.__name__, obj.__value__, obj.__type_params__))


def _make_alias(name: str, value: Any, parameters: tuple[Any, ...]) -> Any:
    return typing.TypeAliasType(name, value, type_params=parameters)  # type: ignore[attr-defined]


_MAKERS: dict[type, Callable[[Any], Any]] = {
    types.ModuleType: _module,
    functools._lru_cache_wrapper: _cached,
    functools.cached_property: _cached_property,
    functools.singledispatchmethod: _method_by_type,
    object: _sentinel,
    type(dataclasses.MISSING): lambda _: "MISSING",
    typing.NewType: _new_type,
    typing.ParamSpec: _parameters,
    typing.TypeVarTuple: _type_tuple,
}
if hasattr(typing, "TypeAliasType"):
    _MAKERS[typing.TypeAliasType] = _alias
