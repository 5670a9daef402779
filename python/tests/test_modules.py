"""Which of the user's modules and files go along, and under which names."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

import pytest

import pumice
from pumice import local_modules
from pumice.code_names import imports_in
from pumice.environment import Environment
from pumice.pickling import dumps_args, dumps_function


@pytest.fixture
def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Writes modules into a folder of the path; those that were imported are forgotten."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(**files: str) -> Path:
        for name, text in files.items():
            path = tmp_path / name.replace("__", "/").replace("_py", ".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        importlib.invalidate_caches()
        return tmp_path

    yield write
    for name, module in sorted(sys.modules.items(), reverse=True):
        places = [getattr(module, "__file__", None) or "", *map(str, getattr(module, "__path__", ()))]
        if any(place.startswith(str(tmp_path)) for place in places):
            del sys.modules[name]


def found(folder: Path, *imports: str) -> dict[str, str]:
    files = local_modules.find(imports)
    return {name: str(path.relative_to(folder)) for name, path in files.items() if path.is_relative_to(folder)}


@pytest.mark.parametrize(
    "text",
    [
        "def f():\n    import late\n",
        "def f():\n    import os, late as l, sys\n",
        "def f(): from late import name\n",
        "def f():\n    from late.deep import (\n        name,\n    )\n",
        "import importlib\ndef f():\n    return importlib.import_module('late')\n",
        'def f(): __import__("late")\n',
        "class A:\n    def f(self):\n        if True: import late\n",
    ],
)
def test_what_a_module_imports_later_goes_along_and_nothing_of_it_runs(beside, text):
    folder = beside(early_py=text, late_py="import last\nraise SystemExit\n", last_py="", other_py="")
    importlib.import_module("early")
    assert set(found(folder)) == {"early.py", "late.py", "last.py"}


def imports_when_it_runs(x):
    from late import deep

    return [deep for _ in [lambda: __import__("by_name")]], x


def test_what_a_function_imports_later_goes_along(beside):
    folder = beside(late_py="", by_name_py="")
    assert {"late", "by_name"} <= imports_in(imports_when_it_runs.__code__)
    for pickled in (
        lambda imports: dumps_function(lambda: imports_when_it_runs_too(1), imports),
        lambda imports: dumps_args((lambda: __import__("late"), [lambda: __import__("by_name")]), {}, "k", imports),
    ):
        imports: set[str] = set()
        pickled(imports)
        assert set(found(folder, *imports)) == {"late.py", "by_name.py"}


imports_when_it_runs_too = eval("lambda f: lambda x: f(x)")(imports_when_it_runs)
imports_when_it_runs.__qualname__ = "not.there"


def test_jobs_have_what_their_functions_import(beside, fake):
    # Put together, as what this file imports goes along, too.
    name = "only" + "there"
    folder = beside(**{f"{name}_py": ""})
    there: dict = {}
    exec(f"def lazy(x):\n    import {name}\n    return x\n", there)
    lazy = there["lazy"]

    def names(number):
        return set(fake.jobs[number].spec.environment._files.values())

    pumice.task(abs).map([1])
    pumice.task(lazy).map([1])
    pumice.task(lazy).submit(1)
    # The fake back end has run it here.
    del sys.modules[name]
    with pumice.Executor(on=fake) as executor:
        executor.submit(abs, 1)
        executor.submit(lazy, 1)
        executor.submit(abs, 1)
    assert [folder / f"{name}.py" in names(number) for number in range(6)] == [False, True, True, False, True, True]


def test_links_go_under_the_name_that_is_imported(beside):
    folder = beside(real_v2_py="", real_package__init_py="", real_package__inner_py="", package__init_py="")
    (folder / "real_package" / "__init__.py").write_text("")
    (folder / "package" / "__init__.py").write_text("")
    for name, target in {
        "linked.py": "real_v2.py",
        "linked_package": "real_package",
        "package/inside": "../real_package",
        "package/round": "../package",
        "package/data": "/",
    }.items():
        (folder / name).symlink_to(target)
    for name in ("linked", "linked_package", "package"):
        importlib.import_module(name)
    names = set(found(folder))
    assert {"linked.py", "linked_package/__init__.py", "package/__init__.py", "package/inside/__init__.py"} <= names
    assert not any(name.startswith(("real", "package/round", "package/data")) for name in names)


def test_a_link_to_what_is_installed_goes_along_and_what_is_installed_does_not(beside):
    folder = beside()
    import cloudpickle

    (folder / "pickles").symlink_to(Path(cloudpickle.__file__).parent)
    importlib.import_module("pickles")
    assert "pickles/__init__.py" in found(folder) and local_modules.is_local("pickles")
    assert not any(local_modules.is_local(name) for name in ("cloudpickle", "pickle", "pumice", "sys", "nowhere"))


def test_compiled_modules_and_namespaces_go_along(beside):
    folder = beside(space__part__leaf_py="")
    (folder / "space" / "part").mkdir(parents=True, exist_ok=True)
    (folder / "space" / "part" / "leaf.py").write_text("")
    suffix = importlib.machinery.EXTENSION_SUFFIXES[0]
    (folder / f"fast{suffix}").write_bytes(b"")
    importlib.import_module("space.part.leaf")
    assert {"space/part/leaf.py", f"fast{suffix}"} <= set(found(folder, "fast"))


def test_files_beside_a_module_of_one_file_go_along_if_it_names_them_and_they_are_small(beside, monkeypatch):
    text = "PLACE = __file__\nNAMES = ['data.csv', 'tables', 'absent', '/etc', '../outside', 'large.bin', '.', '**/*.bin']\n"
    text += "def f(name): return f'{name}.json', '*.t?t', f'{name}', '*', '[', 'sub/*.yaml'\n"
    folder = beside(reads_py=text, ignores_py="NAMES = ['other.csv']\n")
    (folder / "tables" / "deep").mkdir(parents=True)
    (folder / "sub").mkdir()
    given = ("data.csv", "tables/deep/one.txt", "a.json", "b.json", "c.txt", "sub/d.yaml")
    for name in (*given, "other.csv", "other.bin", "sub/other.csv", "large.bin"):
        (folder / name).write_text(name)
    monkeypatch.setattr(local_modules, "_BESIDE_LIMIT", 100)
    (folder / "large.bin").write_bytes(bytes(101))
    for name in ("reads", "ignores"):
        importlib.import_module(name)
    assert set(found(folder)) == {"reads.py", "ignores.py", *given}


def test_files_of_one_name_beside_two_modules_are_not_mixed_up(beside, tmp_path_factory, monkeypatch):
    folder = beside(reads_py="open(__file__)\nNAME = 'data.csv'\n")
    other = tmp_path_factory.mktemp("other")
    monkeypatch.syspath_prepend(other)
    (other / "also.py").write_text("open(__file__)\nNAME = 'data.csv'\n")
    for place in (folder, other):
        (place / "data.csv").write_text(place.name)
    for name in ("reads", "also"):
        importlib.import_module(name)
    assert "data.csv" not in local_modules.find()


def test_the_path_of_a_program_goes_along_whole(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "path", ["", "relative", str(tmp_path)])
    assert Environment({}).path == (os.getcwd(), f"{os.getcwd()}/relative", str(tmp_path))


def test_what_may_be_imported_later_is_left_out_where_it_is_too_much(beside, monkeypatch):
    name = "results" + "_of_mine"
    folder = beside(early_py=f"# import {name} from where it lies\ndef f():\n    import small\n", small_py="")
    (folder / name).mkdir()
    for number in range(30):
        (folder / name / f"{number}.csv").write_bytes(bytes(200_000))
    importlib.import_module("early")
    assert len(found(folder)) == 32
    for limit, value in (
        ("LIMIT", local_modules._size(local_modules.find()) - 1),
        ("FILES_LIMIT", len(local_modules.find()) - 1),
    ):
        with monkeypatch.context() as context:
            context.setattr(local_modules, limit, value)
            assert set(found(folder)) == {"early.py", "small.py"}
            assert pumice.task(abs).options(on=pumice.fake()).map([-1]).results() == [1]
    # What is imported has to go along.
    importlib.import_module(name)
    monkeypatch.setattr(local_modules, "FILES_LIMIT", 20)
    with pytest.raises(pumice.PickleTooLarge, match="more than 20 files"):
        local_modules.find()
