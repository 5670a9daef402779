"""Kept values belong to the very function: its code and all that it is bound to, the same in every process."""

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import importlib
import itertools
import os
import subprocess
import sys
import textwrap
import threading
import types
from pathlib import Path

import numpy
import pandas
import pytest

import pumice
from pumice.content_hash import NoContent, content_of
from pumice.versions import version_of

LIBRARY = str(Path(pumice.__file__).parent.parent)


def closure(n):
    return lambda x: x * n


def default(n):
    return lambda x, n=n: x * n


def keyword_default(n):
    return lambda x, *, n=n: x * n


def nested(n):
    def inner():
        return n

    return lambda x: x * inner()


def attribute(n):
    def function(x):
        return x

    function.rate = n
    return function


class Model:
    def __init__(self, n):
        self.n = n

    def go(self, x):
        return self.n * x

    def __call__(self, x):
        return self.n * x


class Slots:
    __slots__ = ("n",)

    def __init__(self, n):
        self.n = n

    def go(self, x):
        return self.n * x


def model_class(n):
    class Local:
        rate = n

        def go(self, x):
            return self.rate * x

    return Local().go


def enumeration(n):
    members = enum.Enum("Local", {"A": n})
    return lambda x: members.A.value * x


def data_class(n):
    @dataclasses.dataclass
    class Local:
        rate: int = n

    return lambda x: Local().rate * x


def cached(n):
    @functools.lru_cache
    def inner(x):
        return x * n

    return inner


def by_type(n):
    @functools.singledispatch
    def inner(x):
        return x

    inner.register(int, lambda x: x * n)
    return inner


def method_by_type(n):
    class Local:
        @functools.singledispatchmethod
        def go(self, x):
            return x * n

    return lambda x: Local().go(x)


class Compiled:
    """As numba's: with a number of its own in each process."""

    def __init__(self, n, **targetoptions):
        self.py_func = closure(n)
        self.targetoptions = targetoptions
        self.number = object()

    def __reduce__(self):
        return Compiled, (repr(self.number),)


def in_namespace(n):
    there = {"n": n}
    exec("def function(x):\n    return x * n\n", there)
    return there["function"]


MAKERS = [
    closure,
    default,
    keyword_default,
    nested,
    attribute,
    lambda n: Model(n).go,
    Model,
    lambda n: Slots(n).go,
    lambda n: functools.partial(pow, n),
    lambda n: functools.partial(functools.partial(divmod), n),
    lambda n: functools.partial(sorted, reverse=n),
    model_class,
    enumeration,
    data_class,
    cached,
    by_type,
    method_by_type,
    lambda n: closure(Compiled(n)),
    lambda n: closure(Compiled(1, parallel=n)),
    in_namespace,
    lambda n: pumice.task(closure(n)),
    lambda n: closure([1, {"a": (n,)}]),
    lambda n: closure({1, 2, str(n)}),
    lambda n: closure(numpy.full(1000, n)),
    lambda n: closure(numpy.array([{"k": n}], dtype=object)),
    lambda n: closure(pandas.DataFrame({"a": [1, n], "b": ["x", str(n)]})),
    lambda n: closure(closure(n)),
    lambda n: functools.lru_cache(n)(closure(1)),
]


@pytest.mark.parametrize("make", MAKERS)
def test_equal_source_with_other_bound_values_is_another_function(make):
    assert version_of(make(2)) == version_of(make(2))
    assert version_of(make(2)) != version_of(make(3))


@pytest.mark.parametrize("make", [closure, default, lambda n: Model(n).go, lambda n: functools.partial(pow, n), Model])
def test_kept_values_are_those_of_the_very_function(fake, tmp_path, make):
    two, three = (pumice.task(make(n)) for n in (2, 3))
    first = two.map([2, 3], store=tmp_path).results()
    assert three.map([2, 3], store=tmp_path).results() != first
    again = pumice.task(make(2)).map([2, 3], store=tmp_path)
    assert again.results() == first and all(item.from_store for item in again.items)


def test_values_of_another_kind_have_another_content():
    values = [
        1,
        1.0,
        True,
        "1",
        b"1",
        None,
        (1,),
        [1],
        {1},
        frozenset({1}),
        {1: 1},
        {1: None},
        [[1]],
        [(1,)],
        1j,
        "",
        [],
        (),
    ]
    values += [collections.OrderedDict(pairs) for pairs in ([("a", 1), ("b", 2)], [("b", 2), ("a", 1)])]
    values += [
        [1, 2],
        [12],
        ["1", 2],
        ["12"],
        {"a": {"b": 1}},
        {"a": {}, "b": 1},
        Model(1),
        Slots(1),
        Model,
        Slots,
        len,
        abs,
    ]
    contents = [content_of(value) for value in values]
    assert len(set(contents)) == len(values)
    assert contents == [content_of(value) for value in values]


def test_who_refers_to_whom_counts_and_cycles_come_to_an_end():
    def ring(*names):
        nodes = [{"name": name} for name in names]
        for node, following in itertools.pairwise([*nodes, nodes[0]]):
            node["next"] = following
        return nodes[0]

    assert content_of(ring("a", "b")) == content_of(ring("a", "b")) != content_of(ring("a", "b", "a", "b"))
    deep: list = []
    for _ in range(100_000):
        deep = [deep]
    assert content_of(deep)


PROGRAM = """
    import functools, enum, dataclasses, re, logging, decimal, datetime, pathlib
    import numpy, pandas
    from pumice.versions import version_of

    class Colour(enum.Enum):
        RED = 1
        BLUE = "b"
        def other(self): return self.RED

    class Rights(enum.Flag):
        READ = enum.auto()
        WRITE = enum.auto()

    @dataclasses.dataclass(frozen=True)
    class Point:
        x: int
        tags: frozenset = frozenset("abc")
        more: list = dataclasses.field(default_factory=list)
        @functools.cached_property
        def far(self): return self.x

    @functools.cache
    def even(n): return n == 0 or odd(n - 1)
    def odd(n): return n != 0 and even(n - 1)

    SETS = {"a", "b", ("x", 1), frozenset("xyz"), Colour.RED, None}
    TABLE = {Colour.RED: Point(1), "k": {1.5, "u", b"v"}}
    FRAME = pandas.DataFrame({"a": [1, 2], "b": ["x", "y"]}, index=pandas.date_range("2024-01-01", periods=2))
    ARRAY = numpy.array(["a", {"k": {"q", "r"}}], dtype=object)
    LOG = logging.getLogger("mine")
    PATTERN, PRICE, DAY, HOME = re.compile("a+"), decimal.Decimal("1.5"), datetime.date(2024, 1, 2), pathlib.Path("/x")

    def work(x, kinds=frozenset({"p", "q"}), *, point=Point(2)):
        if x in {"u", "v", "w"}:
            return SETS, TABLE, FRAME, ARRAY, LOG, PATTERN, PRICE, DAY, HOME, Rights.READ
        return even(x), Point(x).far, Colour.RED.other(), [part for part in kinds if part in {"p", "z"}]

    functions = work, even, odd, Point(3).__eq__, functools.partial(work, 3)
    print(*map(version_of, functions))
"""


def test_a_function_is_the_same_in_every_process(tmp_path):
    (tmp_path / "program.py").write_text(textwrap.dedent(PROGRAM))
    (tmp_path / "moved.py").write_text(
        "# comments, and other lines\n\n\n" + textwrap.dedent(PROGRAM).replace("def odd", "# odd\n\ndef odd")
    )
    made = set()
    for name, seed in (("program", "1"), ("program", "2"), ("moved", "3")):
        environ = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": LIBRARY}
        command = [sys.executable, str(tmp_path / f"{name}.py")]
        made.add(subprocess.run(command, env=environ, capture_output=True, text=True, check=True).stdout)
    assert len(made) == 1 and len(set(made.pop().split())) == 5


class Addressed:
    def __init__(self):
        self.name = repr(object())


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (threading.Lock(), r"the outer variable 'n', a _thread\.lock"),
        ({"deep": [sys.stderr]}, r"the item 'deep', in it element 0, a "),
        ((part for part in "abc"), "a generator"),
        (Addressed(), "the attribute 'name', a str: it has an address in it, '<object object at 0x"),
    ],
)
def test_what_has_no_content_is_named_and_a_version_helps(fake, tmp_path, value, said):
    task = pumice.task(closure(value))
    with pytest.raises(pumice.BadOption, match=rf"Results can't be kept.*{said}.*version=\.\.\."):
        version_of(task)
    with pytest.raises(NoContent):
        content_of(value)
    assert pumice.task(lambda x: x, version="2").map([1], store=tmp_path).results() == [1]


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Writes and imports a module of the user's."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def write(text: str, fresh: bool = True):
        (tmp_path / "mine.py").write_text(text)
        if fresh:
            sys.modules.pop("mine", None)
        importlib.invalidate_caches()
        return importlib.import_module("mine")

    yield write
    sys.modules.pop("mine", None)


def test_globals_count_by_value_and_only_those_that_are_named(module):
    text = "RATE = {}\nOTHER = {}\ndef f(x):\n    return x * RATE\n"
    versions = [version_of(module(text.format(*values)).f) for values in ((1, 1), (1, 2), (2, 1))]
    assert versions[0] == versions[1] != versions[2]


USES = {
    "import mine\ndef work(x): return mine.f(x)": True,
    "import mine\ndef work(x): return mine.inner.f(x)": True,
    "import mine\ndef work(x, m=None): return (m or mine).f(x)": True,
    "import mine\ndef work(x): return getattr(mine, 'g')(x)": True,
    "def make():\n    from sys import modules; mine = modules['mine']\n    return lambda x: mine.f(x)\nwork = make()": True,
    "import mine\nclass A:\n    g = staticmethod(lambda x: mine.f(x))\ndef work(x): return A.g(x)": True,
    "import mine\ndef work(x): return mine.other(x), x.f, x.lock": False,
}


@pytest.mark.parametrize(("text", "changes"), USES.items(), ids=map(str, range(len(USES))))
def test_of_a_module_counts_what_is_used_of_it(module, text, changes):
    versions = []
    others = "import threading\nlock = threading.Lock()\ndef other(x): return x\ndef g(x): return f(x)\n"
    for sign in ("", "-"):
        mine = module(f"{others}def f(x): return {sign}x\n")
        mine.inner = mine
        there: dict = {}
        exec(text, there)
        versions.append(version_of(there["work"]))
    assert (versions[0] != versions[1]) is changes


def test_names_count_and_not_only_what_they_name():
    namespaces = [types.SimpleNamespace(a=1), types.SimpleNamespace(b=1), types.SimpleNamespace(a=1, b=1)]
    classes = [type("C", (), {"a": 1}), type("C", (), {"b": 1})]
    functions = []
    for name in ("len", "abs"):
        there: dict = {name: min}
        exec("def f(x): return len(x), abs(x)", there)
        functions.append(there["f"])
    functions += [eval(f"lambda x: {text}") for text in ("x.a + x.b", "x.b + x.a", "x.a + x.a")]
    exec("def t(x):\n    try:\n        x()\n        x()\n    except E: pass", there)
    exec("def u(x):\n    x()\n    try:\n        x()\n    except E: pass", there)
    values = [*namespaces, *classes, *functions, there["t"], there["u"]]
    assert len({content_of(value) for value in values}) == len(values)


@pytest.mark.parametrize(
    "edited", ["RATE = 1\ndef f(x):\n    return x + RATE\n", "RATE = 2\ndef f(x):\n    return x * RATE\n"]
)
def test_a_module_that_was_edited_since_it_was_imported_is_another(module, edited):
    original = "RATE = 1\ndef f(x):\n    return x * RATE\n"
    function = module(original).f
    before = version_of(function)
    module(edited, fresh=False)
    assert version_of(function) != before
    module("# Comments and layout don't count.\n" + original.replace("return", "return  "), fresh=False)
    assert version_of(function) == before


LATER = {
    "import package.late as late; late.V": "import package.late as late\n    return late.V",
    "import package.late; package.late.V": "import package.late\n    return package.late.V",
    "from package import late": "from package import late\n    return late.V",
    "from package.late import V": "from package.late import V\n    return V",
    "import_module(package.late)": "import importlib\n    return importlib.import_module('package.late').V",
    "from . import late": "from . import late\n    return late.V",
    "from .late import V": "from .late import V\n    return V",
    "from .uses import V": "from .uses import V\n    return V",
    "from ..uses import V": "from ..uses import V\n    return V",
}


@pytest.mark.parametrize("text", LATER.values(), ids=LATER)
def test_a_module_of_a_package_that_is_imported_later_counts(tmp_path, monkeypatch, text):
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("package", "package/inner"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("")
    (tmp_path / "package" / "uses.py").write_text("def f():\n    from . import late\n    return late.V\nV = f()\n")
    folder = tmp_path / "package" / ("inner" if ".." in text else "")
    (folder / "mine.py").write_text(f"def work(x):\n    {text}\n")
    module = "package.inner.mine" if ".." in text else "package.mine"
    versions = []
    for value in (1, 1, 2):
        (tmp_path / "package" / "late.py").write_text(f"V = {value}\n")
        importlib.invalidate_caches()
        versions.append(version_of(importlib.import_module(module).work))
        for name in [name for name in sys.modules if name.partition(".")[0] == "package"]:
            del sys.modules[name]
    assert versions[0] == versions[1] != versions[2]


def test_a_module_that_a_function_imports_when_it_runs_counts(module, tmp_path):
    def work(x):
        import mine

        return mine.f(x)

    versions = []
    for text in ("def f(x): return x\n", "# more\ndef f(x): return x\n", "def f(x): return -x\n"):
        module(text)
        sys.modules.pop("mine")
        versions.append(version_of(work))
    assert versions[0] == versions[1] != versions[2]
