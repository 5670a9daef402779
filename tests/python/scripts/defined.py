"""What a program defines is there where its functions run."""

from __future__ import annotations

import abc
import collections
import contextlib
import dataclasses
import enum
import functools
import importlib
import itertools
import json
import math
import sys
import threading
import types
import typing
import weakref
from pathlib import Path

import numpy

import __main__
from cases import here, refused, run, task, there

# Outer variables, defaults, globals.

RATE = 3
TABLE = {"a": [1, 2], "b": {"c": (3,)}}


def make(n):
    count = 0

    def inner(x):
        nonlocal count
        count += x * n
        return count

    return inner


def nested(depth):
    return (lambda: nested(depth - 1)() + "!") if depth else (lambda: "bottom")


@there("a global", 9)
def _():
    return RATE * 3


@there("a global of containers", 3)
def _():
    return TABLE["b"]["c"][0]


@there("an outer variable that is written", [4, 8])
def _():
    add = make(2)
    return [add(2), add(2)]


@there("functions in functions", "bottom!!!!!")
def _():
    return nested(5)()


@there("a default argument", 6)
def _(n=6):
    return n


@there("a default argument by name", [1, 2])
def _(*, values=(1, 2)):
    return list(values)


there("a lambda", 7)(lambda: 7)
there("a partial as an argument", 8)(functools.partial(pow, 2, 3))
there("a method of an object as an argument", "A-B")(functools.partial("-".join, ["A", "B"]))
there("a builtin as an argument", {})(dict)


@there("a comprehension over a global", [3, 6])
def _():
    return [RATE * number for number in (1, 2)]


def generated(n):
    yield from range(n)


@there("a generator that is used up there", [0, 1, 2])
def _():
    return list(generated(3))


def counted(function):
    @functools.wraps(function)
    def wrapper(*args):
        wrapper.calls += 1
        return function(*args), wrapper.calls

    wrapper.calls = 0
    return wrapper


@counted
def doubled(x):
    """Twice."""
    return x * 2


@there("a decorated function with attributes", ((6, 1), "Twice."))
def _():
    return doubled(3), doubled.__doc__


@contextlib.contextmanager
def opened():
    yield "open"


@there("a context manager", "open")
def _():
    with opened() as value:
        return value


def recursive(n):
    return 1 if n < 2 else n * recursive(n - 1)


@there("a function that calls itself", 120)
def _():
    return recursive(5)


# Caches.


@functools.lru_cache
def load(n):
    return n * 10


@functools.lru_cache(maxsize=7, typed=True)
def load_typed(n):
    return n


@functools.cache
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


@functools.cache
def even(n):
    return n == 0 or odd(n - 1)


@functools.cache
def odd(n):
    return n > 0 and even(n - 1)


loads = functools.cache(json.loads)
cached_power = functools.cache(functools.partial(pow, 2))
load.unit = "m"


class Cached:
    @functools.lru_cache
    def go(self, x):
        return x + 1

    @functools.cached_property
    def once(self):
        return object()


@there("a cache", (30, 1))
def _():
    load(3)
    return load(3), load.cache_info().hits


@there("a cache with parameters", (3, 7, True))
def _():
    return load_typed(3), *load_typed.cache_parameters().values()


@there("a cache that calls itself", 832040)
def _():
    return fib(30)


@there("caches that call each other", (False, True))
def _():
    return even(7), odd(7)


@there("a cached method", 4)
def _():
    return Cached().go(3)


@there("a cached property", True)
def _():
    cached = Cached()
    return cached.once is cached.once


@there("a cache around an installed function", [3])
def _():
    return loads("[3]")


@there("a cache around a partial", 8)
def _():
    return cached_power(3)


@there("a cache's own attributes", ("m", "load", 10))
def _():
    return load.unit, load.__name__, load.__wrapped__(1)


# Functions by type.


@functools.singledispatch
def show(x):
    return "other"


@show.register
def _of_int(x: int):
    return "int"


@show.register(list)
def _of_list(x):
    return [show(y) for y in x]


class Shown:
    @functools.singledispatchmethod
    def show(self, x):
        return "other"

    @show.register
    def _(self, x: int):
        return "int"

    def sub(self, a, b):
        return a - b

    one_less = functools.partialmethod(sub, b=1)


@there("a function by type", ["int", "other", ["int"]])
def _():
    return show([1, "a", [2]])


@there("a method by type", ("int", "other"))
def _():
    return Shown().show(1), Shown().show("a")


@there("a partial method", 2)
def _():
    return Shown().one_less(3)


# Names of types.

UserId = typing.NewType("UserId", int)
UserIds = list[UserId]
T = typing.TypeVar("T")
P = typing.ParamSpec("P")
Ts = typing.TypeVarTuple("Ts")


def typed(x: UserId, *args: P.args, **more: P.kwargs) -> typing.Callable[P, tuple[T, *Ts]]:
    return UserId(x)


typed.__annotations__ = {"x": UserIds | None, "return": typing.Callable[P, tuple[T, *Ts]]}
Point = collections.namedtuple("Point", "x y")


class Pair(typing.NamedTuple):
    x: int
    y: str = "a"


class Row(typing.TypedDict):
    x: int


class Box(typing.Generic[T]):
    def __init__(self, x: T) -> None:
        self.x = x


@typing.runtime_checkable
class HasX(typing.Protocol):
    x: int


there("a new type", 3)(lambda: typed(3))
there("named types in annotations", ["return", "x"])(lambda: sorted(typed.__annotations__))
there("a named tuple", "Point(x=3, y=1)")(lambda: repr(Point(3, 1)))
there("a typed tuple", (3, "a"))(lambda: tuple(Pair(3)))
there("a typed dict", {"x": 3})(lambda: Row(x=3))
there("a generic class", 3)(lambda: Box[int](3).x)
there("a protocol", (True, False))(lambda: (isinstance(Box(3), HasX), isinstance(3, HasX)))

# Classes.


class Shape(abc.ABC):
    @abc.abstractmethod
    def area(self): ...

    @property
    def twice(self):
        return 2 * self.area()

    @staticmethod
    def unit():
        return Square(1)

    @classmethod
    def named(cls):
        return cls.__name__


class Square(Shape):
    __slots__ = ("side",)

    def __init__(self, side):
        super().__init__()
        self.side = side

    def area(self):
        return self.side**2


@dataclasses.dataclass(frozen=True, order=True)
class Item:
    name: str
    tags: list = dataclasses.field(default_factory=list, compare=False)


@dataclasses.dataclass(slots=True)
class Slotted:
    x: int


class Private:
    __slots__ = ("__hidden", "__weakref__")

    def __init__(self, hidden):
        self.__hidden = hidden

    def shown(self):
        return self.__hidden


class Colour(enum.Enum):
    RED = 1
    BLUE = "b"

    def other(self):
        return Colour.BLUE if self is Colour.RED else Colour.RED


class Rights(enum.IntFlag):
    READ = 1
    WRITE = 2


class Meta(type):
    def __call__(cls, *args):
        return ("made", *args)


class Made(metaclass=Meta):
    pass


class Outer:
    class Inner:
        def outer(self):
            return Outer


class Odd(Exception):
    def __init__(self, number):
        super().__init__(f"{number} is odd")
        self.number = number


class Described:
    def __set_name__(self, owner, name):
        self.name = name

    def __get__(self, instance, owner=None):
        return self.name if instance is not None else self


class Describes:
    length = Described()


there("an abstract class and its properties", 18)(lambda: Square(3).twice)
there("a static method", 1)(lambda: Shape.unit().area())
there("a class method", "Square")(Square.named)
there("a data class", (True, "Item(name='a', tags=[])"))(lambda: (Item("a") < Item("b"), repr(Item("a"))))
there("a data class with slots", "Slotted(x=3)")(lambda: repr(Slotted(3)))
there("an enum", ("BLUE", 1))(lambda: (Colour.RED.other().name, Colour(1).value))
there("a flag", (3, True))(lambda: (int(Rights.READ | Rights.WRITE), Rights.READ in Rights(3)))
there("a metaclass", ("made", 3))(lambda: Made(3))
there("a class in a class", True)(lambda: Outer.Inner().outer() is Outer)
there("an exception of the program", (3, "3 is odd"))(lambda: (Odd(3).number, str(Odd(3))))
there("a descriptor", "length")(lambda: Describes().length)


@here("objects of the program come back as they are", (True, True, True, True))
def _():
    def back(value):
        return value

    values = task(back).map([Colour.RED, Item("a", ["x"]), Point(1, 2), Slotted(1)]).results()
    return values[0] is Colour.RED, values[1] == Item("a"), type(values[2]) is Point, values[3] == Slotted(1)


@here("objects with slots come back", (2, 4, True))
def _():
    private = task(Private).map([1]).results()[0]
    assert private.shown() == 1 and weakref.ref(private)() is private
    square, other = task(Square).map([2, 4]).results()
    return square.side, other.side, hasattr(square, "__dict__")


# Modules that are no files, and objects of one kind only.

memory = types.ModuleType("memory")
exec("def f(x): return g(x)\ndef g(x): return x + 1\nclass K: v = 5", vars(memory))
sys.modules["memory"] = memory
from_memory, class_from_memory = memory.f, memory.K
MISSING = object()
Path(__file__).with_name("queue_of_mine.py").write_text("MISSING = object()\n")
importlib.invalidate_caches()
MISSING_OF_A_MODULE = importlib.import_module("queue_of_mine").MISSING


def missing(x=MISSING):
    return x is MISSING


def of_kind(x=MISSING_OF_A_MODULE):
    return x is importlib.import_module("queue_of_mine").MISSING


def extended():
    @dataclasses.dataclass(frozen=True)
    class More(Item):
        more: int = 2

    return repr(More("a"))


there("a sentinel of a module", (True, False))(lambda: (of_kind(), of_kind(1)))
there("a data class that another one extends there", "extended.<locals>.More(name='a', tags=[], more=2)")(extended)
there("a module made in memory", 4)(lambda: memory.g(3))
there("a function of a module made in memory", 4)(lambda: from_memory(3))
there("a class of a module made in memory", 5)(lambda: class_from_memory.v)
there("a sentinel", (True, False))(lambda: (missing(), missing(1)))
there("an installed module", 4.0)(lambda: float(numpy.sqrt(16)))
there("an installed function", [(0, "a"), (1, "b")])(lambda: list(zip(itertools.count(), "ab", strict=False)))
there("a constant of an installed module", 3)(lambda: int(math.pi))


# What can't be sent.


class Missing:
    def __reduce__(self):
        return "NOTHING"


NOTHING = Missing()
LOCK = threading.Lock()
LATER = generated(3)
FILE = open("/dev/null", "w")  # noqa: SIM115

refused("an object that is a name", "the global 'NOTHING', a __main__.Missing: it pickles as the name 'NOTHING'")(
    lambda: NOTHING
)
refused("the program itself", "the global '__main__', a module: it is the program itself")(lambda: __main__.RATE)
refused("a lock", "the global 'LOCK', a _thread.lock")(lambda: LOCK)
refused("a generator", "the global 'LATER', a generator")(lambda: LATER)
refused("an open file", "the global 'FILE', a _io.TextIOWrapper")(lambda: FILE)
refused("a thread", "the global 'threads', in it element 0")(lambda: threads)
threads = [threading.current_thread()]

run()
