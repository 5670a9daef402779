"""What can be a task, and how it is called."""

from __future__ import annotations

import functools
import math
import operator

import pumice
from cases import SMALL, here, run, task


def joined(*args, **kwargs):
    return (*args, *sorted(kwargs.items()))


class Scale:
    map = "an attribute that a task has, too"

    def __init__(self, n):
        self.n = n

    def __call__(self, x):
        return self.n * x

    @pumice.task(**SMALL)
    def times(self, x):
        return self.n * x

    @pumice.task(**SMALL)
    @staticmethod
    def plain(x):
        return x + 1

    @staticmethod
    @pumice.task(**SMALL)
    def plain_too(x):
        return x + 1

    @pumice.task(**SMALL)
    @classmethod
    def named(cls, x):
        return f"{cls.__name__}{x}"

    @pumice.task(**SMALL)
    def counted(self, x):
        return x if x == 0 else self.counted(x - 1) + self.n


@pumice.task(**SMALL)
def factorial(n):
    return 1 if n < 2 else n * factorial(n - 1)


KINDS = {
    "a partial": (functools.partial(pow, 2), [1, 2], [2, 4]),
    "a partial of a partial": (functools.partial(functools.partial(joined, 1), c=9), [2], [(1, 2, ("c", 9))]),
    "a callable object": (Scale(3), [2], [6]),
    "a method": (Scale(4).times, [2, 3], [8, 12]),
    "a method that calls itself": (Scale(4).counted, [2], [8]),
    "a bound method that is no task": (Scale(5).times.__wrapped__, [2], [10]),
    "a static method": (Scale.plain, [1], [2]),
    "a static method of an object": (Scale(1).plain, [1], [2]),
    "a static method around a task": (Scale.plain_too, [1], [2]),
    "a class method": (Scale.named, [1], ["Scale1"]),
    "a class method of an object": (Scale(1).named, [1], ["Scale1"]),
    "a function that calls itself": (factorial, [5], [120]),
    "a builtin": (abs, [-1], [1]),
    "a function of a compiled module": (math.factorial, [5], [120]),
    "a method of a builtin object": ("-".join, ["ab"], ["a-b"]),
    "a method of a builtin class": (str.upper, ["ab"], ["AB"]),
    "an item getter": (operator.itemgetter(1), ["ab"], ["b"]),
    "a class": (int, ["7"], [7]),
}


def mapped(function, values):
    return (function if isinstance(function, pumice.Task) else task(function)).map(values).results(100)


for kind, (called, given, expected) in KINDS.items():
    here(f"{kind} as a task", expected)(functools.partial(mapped, called, given))


@here("a task is still its function", (120, 8, 2, "Scale1", 24))
def _():
    return factorial(5), Scale(4).times(2), Scale.plain(1), Scale.named(1), Scale(2).times.options(cpu=1)(12)


@here("a grid gives arguments by name", [("a", 1), ("b", "x")])
def _():
    return list(task(joined).map(pumice.grid(a=[1], b=["x"])).results(100)[0])


@here("several iterables go side by side", [8, 9])
def _():
    return task(pow).map([2, 3], [3, 2]).results(100)


run()
