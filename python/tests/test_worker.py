"""The program in the pod, run as a process on a plain folder, with modules and packages that come along."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import zipfile
from io import BytesIO
from pathlib import Path

import pytest

import pumice
from pumice import local_modules, node_cache, outcome, packages
from pumice.backend import Record
from pumice.environment import Environment
from pumice.pickling import dumps_args, dumps_function
from pumice.workstore import FolderStore, write_once

LIBRARY = str(Path(pumice.__file__).parent.parent)


def lay_out(folder: Path, function, arguments, **more) -> None:
    records = [Record(str(arg), dumps_args((arg,), {}, str(arg))) for arg in arguments]
    FolderStore.create(folder, dumps_function(function), records, **{"python": Environment().python, **more})


def work(folder: Path, task: int, chunk: int = 1, attempt: int = 1) -> subprocess.CompletedProcess[str]:
    environ = {
        **os.environ,
        "PYTHONPATH": LIBRARY,
        "PUMICE_WORK_FOLDER": str(folder),
        "PUMICE_WORK_CHUNK": str(chunk),
        "PUMICE_CACHE": str(folder / "cache"),
        "PUMICE_ATTEMPT": str(attempt),
        "VC_TASK_INDEX": str(task),
    }
    command = [sys.executable, "-m", "pumice.worker"]
    return subprocess.run(command, env=environ, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


def values(folder: Path, count: int) -> list[object]:
    store = FolderStore(folder, 0, count)
    found = [store.outcome(index) for index in range(count)]
    return [None if data is None else outcome.read_value(data) for data in found]


def test_each_shard_runs_its_slice_and_passes_on_what_is_printed(tmp_path):
    def double(x):
        print("working on", x, os.environ["PUMICE_SHARD_KEY"], os.environ["PUMICE_SHARD_COUNT"])
        return x * 2

    lay_out(tmp_path, double, range(5))
    first = work(tmp_path, 0, chunk=2)
    assert (first.returncode, first.stdout) == (0, "working on 0 0 5\nworking on 1 1 5\n")
    assert values(tmp_path, 5) == [0, 2, None, None, None]
    assert work(tmp_path, 2, chunk=2).returncode == work(tmp_path, 1, chunk=2).returncode == 0
    assert values(tmp_path, 5) == [0, 2, 4, 6, 8]
    assert work(tmp_path, 7, chunk=2).returncode == 0


def test_a_failed_record_fails_the_pod_and_runs_again_the_others_do_not(tmp_path):
    def flaky(x):
        print("running", x)
        if x == 1 and os.environ["PUMICE_ATTEMPT"] == "1":
            raise ValueError("first time")
        return x

    lay_out(tmp_path, flaky, range(3))
    first = work(tmp_path, 0, chunk=3)
    assert first.returncode == 1 and "1: raised ValueError: first time" in first.stderr
    failure = outcome.failure_of((tmp_path / "attempts" / "1-1").read_bytes())
    assert failure.log_lines == ("running 1",) and failure.attempt == 1
    second = work(tmp_path, 0, chunk=3, attempt=2)
    assert (second.returncode, second.stdout) == (0, "running 1\n")
    assert values(tmp_path, 3) == [0, 1, 2]


def test_a_success_is_written_once(tmp_path):
    lay_out(tmp_path, len, [[]])
    store = FolderStore(tmp_path, 0, 1)
    assert store.write(0, 1, outcome.of_value("first"), success=True)
    assert not store.write(0, 2, outcome.of_value("second"), success=True)
    assert values(tmp_path, 1) == ["first"]


def test_local_modules_and_a_package_the_base_lacks_come_along(tmp_path):
    mine, theirs = tmp_path / "mine", tmp_path / "theirs"
    (mine / "ours").mkdir(parents=True)
    (mine / "ours" / "__init__.py").write_text("from . import deep\n")
    (mine / "ours" / "deep.py").write_text("import wheelonly\ndef f(x):\n    return wheelonly.NAME * x\n")
    theirs.mkdir()
    (theirs / "wheelonly.py").write_text("NAME = 'from the wheel '\n")
    packed = BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.write(theirs / "wheelonly.py", "wheelonly.py")
    files = {f"ours/{path.name}": path for path in (mine / "ours").glob("*.py")}

    def call(x):
        import ours

        return ours.deep.f(x)

    lay_out(tmp_path / "with", call, [2], modules=local_modules.pack(files), packages=packed.getvalue())
    assert work(tmp_path / "with", 0).stderr == ""
    assert values(tmp_path / "with", 1) == ["from the wheel from the wheel "]
    lay_out(tmp_path / "without", call, [2])
    assert "No module named 'ours'" in work(tmp_path / "without", 0).stderr


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"python": "2.7.18"}, "This is Python 2.7.18, the workers run Python"),
        ({"function": b"rubbish"}, "UnpicklingError"),
    ],
)
def test_what_cannot_begin_is_written_as_the_failure_of_each_record(tmp_path, change, said):
    lay_out(tmp_path, len, [[], []], **({"python": change["python"]} if "python" in change else {}))
    if "function" in change:
        (tmp_path / "function").write_bytes(change["function"])
    assert work(tmp_path, 0, chunk=2).returncode == 1
    for index in range(2):
        assert said in outcome.failure_of((tmp_path / "attempts" / f"{index}-1").read_bytes()).message


@pytest.mark.parametrize(
    "environ", [{}, {"PUMICE_WORK_FOLDER": "/nowhere"}, {"PUMICE_WORK_FOLDER": "/x", "VC_TASK_INDEX": "no"}]
)
def test_a_wrong_environment_is_said_and_exits_2(environ):
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PUMICE", "VC_"))}
    command = [sys.executable, "-m", "pumice.worker"]
    everything = {**clean, "PYTHONPATH": LIBRARY, **environ}
    done = subprocess.run(command, env=everything, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2 and done.stderr.startswith("pumice.worker: ")


def test_the_zip_of_local_modules_is_the_same_bytes_for_the_same_content(tmp_path):
    for name, when in (("one", 1), ("two", 1_600_000_000)):
        (tmp_path / name).mkdir()
        for file in ("b.py", "a.py"):
            (tmp_path / name / file).write_text(f"# {file}")
            os.utime(tmp_path / name / file, (when, when))
    packed = [
        local_modules.pack({f: tmp_path / d / f for f in order})
        for d, order in (("one", ["a.py", "b.py"]), ("two", ["b.py", "a.py"]))
    ]
    assert packed[0] == packed[1]


def test_local_modules_are_the_users_and_not_the_installed_ones(tmp_path, monkeypatch):
    (tmp_path / "mypackage" / "__pycache__").mkdir(parents=True)
    (tmp_path / "mypackage" / "round").symlink_to(tmp_path)
    (tmp_path / "mynamespace").mkdir()
    (tmp_path / "mynamespace" / "part.py").write_text("")
    for name in ("__init__.py", "data.csv", "__pycache__/x.pyc"):
        (tmp_path / "mypackage" / name).write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    import mynamespace.part  # noqa: F401
    import mypackage  # noqa: F401

    files = local_modules.find()
    assert {name for name in files if name.startswith("mypackage")} == {"mypackage/__init__.py", "mypackage/data.csv"}
    assert files["mynamespace/part.py"] == tmp_path / "mynamespace" / "part.py"
    assert not any(name.startswith(("pumice/", "pytest", "os.py", "cloudpickle")) for name in files)


def test_packages_have_a_hash_and_names(tmp_path):
    environment = Environment(files={})
    assert any(name.startswith("cloudpickle==") for name in environment.packages)
    assert list(environment.packages) == sorted(environment.packages)
    assert environment.packages_hash == Environment(files={}).packages_hash
    assert environment.modules is None


def test_installed_packages_are_packed_the_same_each_time_and_unpack(tmp_path):
    place = tmp_path / "site-packages"
    for name in ("thing/__init__.py", "thing/fast.so", "thing/__pycache__/x.pyc", "pip/__init__.py"):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(name)
    data = packages.pack([place])
    (place / "thing" / "fast.so").touch()
    assert packages.pack([place]) == data
    unpacked = node_cache.unpack(data, tmp_path / "cache")
    assert sorted(path.relative_to(unpacked).as_posix() for path in unpacked.rglob("*.*")) == [
        "thing/__init__.py",
        "thing/fast.so",
    ]


def test_archives_are_unpacked_once_and_pruned(tmp_path):
    data = local_modules.pack({"x.py": Path(__file__)})
    folder = node_cache.unpack(data, tmp_path / "cache")
    (folder / "mark").touch()
    assert (node_cache.unpack(data, tmp_path / "cache") / "mark").exists()
    assert node_cache.prune(tmp_path / "cache", days=1) == []
    os.utime(folder, (1, 1))
    assert node_cache.prune(tmp_path / "cache", days=1) == [folder]
    assert not write_once(Path(__file__), b"never")


def test_the_args_of_a_record_are_a_plain_pickle():
    assert pickle.loads(dumps_args((1, "a"), {}, "k")) == ((1, "a"), {})
