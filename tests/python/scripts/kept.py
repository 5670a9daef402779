"""Kept values belong to the very function."""

from __future__ import annotations

import functools
import tempfile

from cases import here, run, task

FACTOR = 2


def closure(n):
    return lambda x: x * n


def default(n):
    return lambda x, n=n: x * n


def keyword(n):
    return lambda x, *, n=n: x * n


class Model:
    def __init__(self, n):
        self.n = n

    def go(self, x):
        return self.n * x

    def __call__(self, x):
        return self.n * x


def local_class(n):
    class Local:
        rate = n

    return lambda x: Local.rate * x


def cached(n):
    @functools.cache
    def inner(x):
        return x * n

    return inner


def by_global(n):
    there = {"FACTOR": n}
    exec("def inner(x): return x * FACTOR", there)
    return there["inner"]


def times(n, x):
    return n * x


KINDS = {
    "outer variables": closure,
    "defaults": default,
    "defaults by name": keyword,
    "methods": lambda n: Model(n).go,
    "callable objects": Model,
    "partials": lambda n: functools.partial(times, n),
    "local classes": local_class,
    "caches": cached,
    "globals": by_global,
}


def kept(make):
    with tempfile.TemporaryDirectory() as store:
        two, three = (task(make(n)).map([1, 2], store=store) for n in (2, 3))
        values = two.results(100), three.results(100)
        again = task(make(2)).map([1, 2], store=store)
        return *values, again.results(100), all(item.from_store for item in again.items)


for kind, maker in KINDS.items():
    here(f"kept values of {kind}", ([2, 4], [3, 6], [2, 4], True))(functools.partial(kept, maker))

run()
