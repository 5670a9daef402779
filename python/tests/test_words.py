"""What users write: options, grids, days, keys, versions of functions, the environment of a shard."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import importlib
import itertools
import subprocess
import sys
import time
from pathlib import Path

import numpy
import pytest

import pumice
from pumice import option_values
from pumice.backend import OnOom, Options
from pumice.parameters import calls, content_hash, key_of
from pumice.versions import version_of


@pytest.mark.parametrize(
    ("asked", "field", "meant"),
    [
        ({"cpu": 2}, "cpu", "2"),
        ({"cpu": 0.5}, "cpu", "0.5"),
        ({"cpu": "500m"}, "cpu", "500m"),
        ({"memory": "4Gi"}, "memory", "4Gi"),
        ({"memory": 1 << 20}, "memory", "1048576"),
        ({"timeout": "15m"}, "timeout", 900.0),
        ({"timeout": "1h30m"}, "timeout", 5400.0),
        ({"timeout": "1d2h3min4.5s"}, "timeout", 93784.5),
        ({"timeout": datetime.timedelta(minutes=1)}, "timeout", 60.0),
        ({"min_success": "99%"}, "min_success", 0.99),
        ({"min_success": 5}, "min_success", 5),
        ({"on_oom": "factor=1.5,max=64Gi"}, "on_oom", OnOom(factor=1.5, ceiling="64Gi")),
        ({"on_oom": pumice.grow(2)}, "on_oom", OnOom(factor=2)),
        ({"env": {"A": "b"}}, "env", {"A": "b"}),
        ({"timeout": None}, "timeout", None),
    ],
)
def test_options_are_read(asked, field, meant):
    assert getattr(option_values.merge(Options(), asked), field) == meant


@pytest.mark.parametrize(
    "asked",
    [
        {"cpu": "two"},
        {"cpu": True},
        {"cpu": -1},
        {"memory": "4 GB"},
        {"memory": "100m"},
        {"retries": -1},
        {"retries": 1.5},
        {"max_parallel": 0},
        {"timeout": "soon"},
        {"timeout": "1h 30m"},
        {"timeout": 1e400},
        {"timeout": float(1 << 60)},
        {"cpu": "9" * 5000 + "x"},
        {"retries": 1 << 40},
        {"timeout": "1h30"},
        {"timeout": ""},
        {"timeout": 0},
        {"timeout": float("inf")},
        {"timeout": float("nan")},
        {"min_success": 1.5},
        {"min_success": "many%"},
        {"on_oom": "grow"},
        {"on_oom": "factor=0.5"},
        {"on_oom": "factor=2,step=1Gi"},
        {"on_oom": 3},
        {"env": {"A": 1}},
        {"env": {"A=B": "x"}},
        {"queue": ""},
        {"colour": "red"},
    ],
)
def test_options_that_cannot_be_meant_are_refused_by_name(asked):
    with pytest.raises(pumice.BadOption, match=next(iter(asked)).replace("on_oom", "on_oom")):
        pumice.task(**asked)(len)


@pytest.mark.parametrize(
    ("memory", "meant"),
    [(4, "4Gi"), ("16", "16Gi"), (512, "512Mi"), (4000, "4000Mi"), ("100k", "100Mi"), ("512Ki", "512Mi")],
)
def test_memory_that_no_program_can_live_with_says_what_may_be_meant(memory, meant):
    with pytest.raises(pumice.BadOption, match=rf'less than any program needs; "{meant}" may be meant'):
        pumice.task(memory=memory)(len)
    with pytest.raises(pumice.BadOption, match="may be meant"):
        pumice.grow(1.5, str(memory))


def test_what_has_no_end_is_refused_early(fake):
    began = time.monotonic()
    for endless in (itertools.count(), itertools.cycle("ab"), (0 for _ in iter(int, 1)), iter(int, 1)):
        with pytest.raises(pumice.BadOption, match=r"1,000,000 calls .*no end.*itertools\.islice"):
            pumice.task(len).map(endless)
    assert time.monotonic() - began < 20 and fake.jobs == []
    assert [call.args for call in calls([itertools.count(), "ab"], None)] == [(0, "a"), (1, "b")]
    assert len(calls([(number for number in range(10))], None)) == 10


def test_bad_maps_are_refused(fake):
    with pytest.raises(pumice.BadOption, match="chunk=0"):
        pumice.task(len).map([[]], chunk=0)
    with pytest.raises(pumice.BadOption, match="min_success=3 is more than the 1 calls"):
        pumice.task(len).map([[]], min_success=3)
    with pytest.raises(pumice.BadOption, match="something to map over"):
        pumice.task(len).map()
    with pytest.raises(pumice.BadOption, match="for two calls"):
        pumice.task(len).map([[], []], key=lambda x: "same")
    with pytest.raises(pumice.BadOption, match="1 to 256 bytes"):
        pumice.task(len).map([[]], key=lambda x: "x" * 257)
    with pytest.raises(pumice.BadOption, match="in UTF-8"):
        pumice.task(len).map([[]], key=lambda x: "\ud800")
    with pytest.raises(pumice.BadOption, match=r"it gave \[0, 1, 2.*\]") as caught:
        pumice.task(len).map([[]], key=lambda x: list(range(10**6)))
    assert len(str(caught.value)) < 1000
    with pytest.raises(ValueError, match="max_workers must be greater than 0"):
        pumice.Executor(0)


def test_grids_vary_the_last_name_fastest():
    grid = pumice.grid(a=[1, 2], b="xy")
    assert list(grid) == [{"a": 1, "b": "x"}, {"a": 1, "b": "y"}, {"a": 2, "b": "x"}, {"a": 2, "b": "y"}]
    assert len(pumice.grid()) == 0 and len(pumice.grid(a=[])) == 0
    assert grid[-1] == {"a": 2, "b": "y"} and grid[1:3] == list(grid)[1:3]
    with pytest.raises(IndexError):
        grid[4]


@pytest.mark.parametrize(
    ("first", "last", "calendar", "expected"),
    [
        ("2024-01-05", "2024-01-08", "weekdays", ["2024-01-05", "2024-01-08"]),
        ("2024-02-28", "2024-03-01", "all", ["2024-02-28", "2024-02-29", "2024-03-01"]),
        ("2024-01-01", "2024-12-31", ["2024-07-04", "2023-01-01", "2024-01-02", "2024-07-04"], ["2024-01-02", "2024-07-04"]),
        (datetime.date(2024, 1, 6), datetime.datetime(2024, 1, 7, 12), "weekdays", []),
        ("2024-01-06", "2024-01-07", "XNYS", []),
        ("2023-12-29", "2024-01-02", "XNYS", ["2023-12-29", "2024-01-02"]),
        ("1970-01-01", "1970-01-02", "XNYS", ["1970-01-02"]),
        ("2100-12-30", "2100-12-31", "XNYS", ["2100-12-30", "2100-12-31"]),
    ],
)
def test_days(first, last, calendar, expected):
    assert [day.isoformat() for day in pumice.days(first, last, calendar)] == expected


@pytest.mark.parametrize(
    ("first", "last", "calendar", "said"),
    [
        ("2024-02-30", "2024-03-01", "all", "2024-02-30.* is no day"),
        ("2024-03-02", "2024-03-01", "all", "before the first"),
        ("0001-01-01", "9999-12-31", "all", "more than"),
        ("2024-01-01", "2024-01-02", ["never"], "never.* is no day"),
        ("2024-01-01", "2024-01-02", "xnys", "There is no calendar 'xnys'.*XNYS.*lists of days"),
        ("2024-01-01", "2024-01-02", "x" * 10**6, "There is no calendar 'xxx"),
        ("1969-12-31", "2024-01-02", "XNYS", "known from 1970 to 2100"),
        ("2024-01-01", "2101-01-01", "XNYS", "known from 1970 to 2100"),
    ],
)
def test_days_that_cannot_be_meant(first, last, calendar, said):
    with pytest.raises(pumice.BadOption, match=said) as caught:
        pumice.days(first, last, calendar)
    assert len(str(caught.value)) < 1000 and "--" not in str(caught.value)


def test_an_exchanges_calendar_needs_the_compiled_part(monkeypatch):
    monkeypatch.setitem(sys.modules, "pumice._core", None)
    monkeypatch.delattr(pumice, "_core", raising=False)
    with pytest.raises(pumice.MissingExtension, match=r"'XNYS' comes with the compiled part"):
        pumice.days("2024-01-01", "2024-01-31", "XNYS")


@dataclasses.dataclass
class Point:
    x: int


class Colour(enum.Enum):
    RED = 1


class Named(str):
    def __str__(self):
        return "another"

    __repr__ = __str__


@pytest.mark.parametrize(
    ("value", "key"),
    [
        (7, "7"),
        (-1.5, None),
        ("2024-01", "2024-01"),
        (datetime.date(2024, 1, 2), "2024-01-02"),
        (datetime.datetime(2024, 1, 2, 3), "2024-01-02T03:00:00"),
        (Colour.RED, "RED"),
        (numpy.int64(7), "7"),
        (numpy.float64(0.5), "0.5"),
        (numpy.float32(0.5), "0.5"),
        (numpy.bool_(True), "True"),
        (numpy.str_("a"), "a"),
        (numpy.datetime64("2024-01-02"), "2024-01-02"),
        (numpy.bytes_(b"a"), None),
        (numpy.arange(2), None),
        (Named("a"), "a"),
        ("a/b", None),
        ("", None),
        ("x" * 81, None),
        (["a", {"b": {1, 2}}], None),
        (Point(1), None),
    ],
)
def test_keys_are_the_text_where_it_is_plain_and_a_hash_where_not(value, key):
    made = key_of((value,), {})
    assert made == key if key is not None else len(made) == 16
    assert made == key_of((value,), {})


def test_a_number_of_any_length_has_a_key(fake, tmp_path):
    numbers = [10**5000, 10**5000 + 1, -(10**5000)]
    result = pumice.task(lambda x: x % 7).map(numbers, store=tmp_path)
    assert result.results() == [number % 7 for number in numbers]
    assert len({item.key for item in result.items}) == 3 and all(len(item.key) == 16 for item in result.items)


def test_options_of_any_length_are_refused_in_few_words(fake):
    huge = 10**5000
    for asked in (
        {"cpu": huge},
        {"memory": huge},
        {"retries": huge},
        {"timeout": huge},
        {"max_parallel": huge},
        {"name": huge},
    ):
        with pytest.raises(pumice.BadOption, match="a number of 16,610 bits") as caught:
            pumice.task(**asked)(len)
        assert len(str(caught.value)) < 500
    with pytest.raises(pumice.BadOption, match="a number of 16,610 bits"):
        pumice.task(len).map([[]], min_success=huge)
    assert pumice.task(len).map([[]], chunk=huge).results() == [0] and fake.jobs[0].spec.chunk == 1


def test_content_tells_apart_what_keys_do_not():
    contents = [1, "1", 1.0, True, None, [1], (1,), {1}, {"a": 1}, {"a": 2}, Point(1), Point(2), b"1", [[1]], [1, [1]]]
    hashes = [content_hash(call) for call in calls([contents], None)]
    assert len(set(hashes)) == len(contents)
    assert content_hash(calls([[{"a": 1, "b": {3, 1, 2}}]], None)[0]) == content_hash(
        calls([[{"b": {2, 1, 3}, "a": 1}]], None)[0]
    )


def test_content_hashes_are_the_same_in_every_process():
    text = "from pumice.parameters import key_of; print(key_of(({'a', 'b', 'c'}, {'x': frozenset('yz')}), {}))"
    root = Path(pumice.__file__).parent.parent
    made = {
        subprocess.run(
            [sys.executable, "-c", text], cwd=root, env={"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(made) == 1


def test_equal_calls_of_one_map_have_keys_of_their_own():
    assert [call.key for call in calls([[1, 1, "1"]], None)] == ["1", "1#2", "1#3"]


def test_a_version_changes_with_the_code_and_with_the_users_functions_it_calls(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    file = tmp_path / "versioned.py"
    versions = []
    for text in (
        "def helper(x): return x\ndef f(x): return helper(x)",
        "# a comment\ndef helper(x):\n    return x\n\ndef f(x): return helper(x)  # another",
        "def helper(x): return x + 1\ndef f(x): return helper(x)",
        "def helper(x): return x\ndef f(x): return helper(x) * 2",
        "def helper(x): return x\ndef other(): pass\ndef f(x): return helper(x)",
    ):
        file.write_text(text)
        sys.modules.pop("versioned", None)
        importlib.invalidate_caches()
        import linecache

        linecache.clearcache()
        versions.append(version_of(importlib.import_module("versioned").f))
    assert versions[0] == versions[1] == versions[4]
    assert len(set(versions)) == 3


def test_a_shard_reads_its_environment():
    environ = {
        "PUMICE_SHARD_KEY": "2024-01-02",
        "PUMICE_SHARD_INDEX": "1",
        "PUMICE_SHARD_COUNT": "252",
        "PUMICE_ATTEMPT": "2",
        "PUMICE_DAY": "2024-01-02",
        "PUMICE_PARAM_LEARNING_RATE": "0.1",
        "PUMICE_CHECKPOINT": "/checkpoint/1",
    }
    shard = pumice.shard(environ)
    assert (shard.key, shard.index, shard.count, shard.attempt) == ("2024-01-02", 1, 252, 2)
    assert (shard.day, shard.month, shard.params) == (datetime.date(2024, 1, 2), None, {"LEARNING_RATE": "0.1"})
    assert shard.checkpoint == Path("/checkpoint/1")
    assert pumice.shard({}).key == "0"
    for wrong in (
        {"PUMICE_SHARDS": "v1 chunk=1 array=0-9"},
        {**environ, "PUMICE_DAY": "x"},
        {**environ, "PUMICE_ATTEMPT": "x"},
    ):
        with pytest.raises(pumice.PumiceError):
            pumice.shard(wrong)


def imported_by(module: str) -> set[str]:
    text = f"import sys, {module}; print(' '.join(name.partition('.')[0] for name in sys.modules))"
    root = Path(pumice.__file__).parent.parent
    output = subprocess.run([sys.executable, "-c", text], cwd=root, capture_output=True, text=True, check=True).stdout
    return set(output.split())


def test_a_worker_begins_with_what_every_call_needs():
    assert not {"cloudpickle", "logging", "platform", "traceback", "zipfile"} & imported_by("pumice.worker")


def test_importing_the_library_imports_nothing_heavy():
    heavy = {"pandas", "pyarrow", "numpy", "joblib", "IPython", "asyncio", "multiprocessing", "cloudpickle", "concurrent"}
    assert not heavy & imported_by("pumice")
    assert set(pumice.__all__) <= set(dir(pumice))
    for name in pumice.__all__:
        assert getattr(pumice, name) is not None
    with pytest.raises(AttributeError):
        pumice.nothing
