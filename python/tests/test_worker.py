"""The program in the pod, run as a process on a bundle in a folder, with modules and packages that come along."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
import zipfile
from io import BytesIO
from pathlib import Path

import pytest

import pumice
from pumice import _core, local_modules, node_cache, outcome, packages, workstore
from pumice.backend import Failure, Record
from pumice.environment import Environment
from pumice.pickling import LIMIT, dumps_args, dumps_function
from pumice.result_store import write_once

LIBRARY = str(Path(pumice.__file__).parent.parent)


class Work:
    """A job in a bundle, and workers on it."""

    def __init__(self, folder: Path, function, arguments, chunk: int = 1, **more) -> None:
        records = [Record(str(arg), dumps_args((arg,), {}, str(arg))) for arg in arguments]
        pickled = function if isinstance(function, bytes) else dumps_function(function)
        self.folder = folder
        self.bundle = workstore.pack(folder / "bundles", pickled, records, **{"python": Environment().python, **more})
        self.count, self.chunk = len(records), chunk
        self.results = _core.BundleResults(self.bundle, self.count, chunk)

    def start(self, shard: int, attempt: int = 1, *, session: bool = False, **environ: str) -> subprocess.Popen[str]:
        environ = {
            **os.environ,
            "PYTHONPATH": LIBRARY,
            "PUMICE_BUNDLE": self.bundle,
            "PUMICE_WORK_CHUNK": str(self.chunk),
            "PUMICE_CACHE": str(self.folder / "cache"),
            "PUMICE_ATTEMPT": str(attempt),
            "VC_TASK_INDEX": str(shard),
            **environ,
        }
        command = [sys.executable, "-m", "pumice.worker"]
        return subprocess.Popen(
            command,
            env=environ,
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=session,
        )

    def run(self, shard: int, attempt: int = 1, **environ: str) -> subprocess.CompletedProcess[str]:
        process = self.start(shard, attempt, **environ)
        out, err = process.communicate(timeout=60)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def told(self) -> dict[int, object]:
        """Values and failures by number."""
        shards = range(-(-self.count // self.chunk))
        rows = [row for shard in shards for row in self.results.shard(shard)]
        assert all(number in range(self.count) for number, *_ in rows)
        return {
            number: outcome.read_value(data) if success else outcome.failure_of(data)
            for number, _, _, success, data, _ in rows
        }


def test_each_shard_runs_its_slice_and_passes_on_what_is_printed(tmp_path):
    def double(x):
        print("working on", x, os.environ["PUMICE_SHARD_KEY"], os.environ["PUMICE_SHARD_COUNT"])
        return x * 2

    work = Work(tmp_path, double, range(5), chunk=2)
    first = work.run(0)
    assert (first.returncode, first.stdout) == (0, "working on 0 0 5\nworking on 1 1 5\n")
    assert work.told() == {0: 0, 1: 2}
    assert work.run(2).returncode == work.run(1).returncode == 0
    assert work.told() == {0: 0, 1: 2, 2: 4, 3: 6, 4: 8}
    assert work.run(7).returncode == 0


def test_a_failed_record_fails_the_pod_and_runs_again_the_others_do_not(tmp_path):
    def flaky(x):
        print("running", x)
        if x == 1 and os.environ["PUMICE_ATTEMPT"] == "1":
            raise ValueError("first time")
        return x

    work = Work(tmp_path, flaky, range(3), chunk=3)
    first = work.run(0)
    assert first.returncode == 1 and "1: raised ValueError: first time" in first.stderr
    failure = work.told()[1]
    assert failure.log_lines == ("running 1",) and failure.attempt == 1
    second = work.run(0, attempt=2)
    assert (second.returncode, second.stdout) == (0, "running 1\n")
    assert work.told() == {0: 0, 1: 1, 2: 2}


def test_a_process_that_ends_takes_one_record_with_it(tmp_path):
    def ends(x):
        print("at", x, flush=True)
        if x == 1:
            os.kill(os.getpid(), signal.SIGSEGV)
        if x == 3:
            os._exit(7)
        if x == 4 and not (child := os.fork()):  # outlives it, with all else that it has open
            os.close(1)
            os.close(2)
            time.sleep(600)
        return child if x == 4 else x

    work = Work(tmp_path, ends, range(5), chunk=5)
    assert work.run(0).returncode == 128 + signal.SIGSEGV
    told = work.told()
    os.kill(told[4], signal.SIGKILL)
    assert (told[0], told[2]) == (0, 2)
    assert (told[1].kind, told[1].signal, told[1].log_lines) == ("killed", signal.SIGSEGV, ("at 1",))
    assert (told[3].kind, told[3].exit_code, told[3].log_lines) == ("killed", 7, ("at 3",))


def test_a_record_that_takes_too_long_is_ended_and_the_next_one_runs(tmp_path):
    work = Work(tmp_path, lambda seconds: time.sleep(seconds) or seconds, [0, 600, 0.01], chunk=3)
    assert work.run(0, PUMICE_WORK_TIMEOUT="2").returncode == 1
    told = work.told()
    assert (told[0], told[2]) == (0, 0.01)
    assert (told[1].kind, told[1].message) == ("timeout", "took longer than its timeout of 2 s")


def test_a_pod_that_is_to_end_ends_its_record_and_what_is_done_stays(tmp_path):
    def slow(x):
        print("at", x, flush=True)
        return time.sleep(600 * x) or x

    work = Work(tmp_path, slow, range(3), chunk=3)
    process = work.start(0)
    assert [process.stdout.readline(), process.stdout.readline()] == ["at 0\n", "at 1\n"]
    process.terminate()
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGTERM
    assert work.told() == {0: 0}


def test_what_a_call_has_started_gets_the_signal_once_and_has_its_time(tmp_path):
    saves = """n=0; trap 'n=$((n+1))' TERM; echo up; while [ $n = 0 ]; do sleep 0.02; done
for step in 1 2 3 4 5 6; do sleep 0.03; done; echo saved after $n"""

    def solve(_):
        return subprocess.run(["sh", "-c", saves], check=False).returncode

    work = Work(tmp_path, solve, range(2), chunk=2)
    # As the first process of a pod: in a group of its own, which is signalled as one.
    process = work.start(0, session=True)
    assert process.stdout.readline() == "up\n"
    os.killpg(process.pid, signal.SIGTERM)
    out, _ = process.communicate(timeout=60)
    assert (out, process.returncode) == ("saved after 1\n", -signal.SIGTERM)


def test_what_ended_an_attempt_is_run_last_in_the_next(tmp_path):
    def order(x):
        print(os.getpid() if os.environ["PUMICE_ATTEMPT"] == "1" else x, flush=True)
        return time.sleep(600) if os.environ["PUMICE_ATTEMPT"] == "1" else x

    work = Work(tmp_path, order, range(3), chunk=3)
    process = work.start(0)
    child = int(process.stdout.readline())
    for pid in (process.pid, child):  # as when the pod goes with all that is in it
        os.kill(pid, signal.SIGKILL)
    process.communicate(timeout=60)
    second = work.run(0, attempt=2)
    assert (second.returncode, second.stdout) == (0, "1\n2\n0\n")


def test_a_record_keeps_its_folder_over_attempts_and_an_empty_one_goes(tmp_path):
    def steps(x):
        folder = pumice.checkpoint()
        assert folder is not None and folder == pumice.shard().checkpoint
        done = folder / "step"
        if x and not done.exists():
            done.write_text("1")
            raise ValueError("half way")
        return done.read_text() if x else None

    work = Work(tmp_path, steps, range(2), chunk=2)
    assert work.run(0).returncode == 1
    assert not work.results.begun(0) and work.results.begun(1)
    assert work.run(0, attempt=2).returncode == 0
    assert work.told() == {0: None, 1: "1"}
    work.results.remove()
    assert list((tmp_path / "bundles" / "runs").iterdir()) == [] and work.told() == {}


def test_a_success_is_written_once(tmp_path):
    work = Work(tmp_path, len, [[]])
    first, second = (_core.BundleSlice(work.bundle, 0, 1, attempt) for attempt in (1, 2))
    assert first.write([(0, "k", True, outcome.of_value("first"))]) == [0]
    assert second.write([(0, "k", True, outcome.of_value("second"))]) == []
    assert work.told() == {0: "first"} and _core.BundleSlice(work.bundle, 0, 1, 3).left() == []


def test_a_result_over_the_limit_is_a_failure_that_says_what_to_do(tmp_path):
    work = Work(tmp_path, lambda size: b"x" * size, [LIMIT, 5])
    assert work.run(0).returncode == 1 and work.run(1).returncode == 0
    told = work.told()
    assert "64 MiB come back" in told[0].message and "return its name" in told[0].message
    assert told[1] == b"xxxxx"


def test_equal_parts_are_kept_once_and_runs_are_their_own(tmp_path):
    def chunks() -> int:
        return sum(1 for path in (tmp_path / "bundles" / "chunks").rglob("*") if path.is_file())

    packed = BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("data.bin", bytes(3 << 19))
    big = packed.getvalue()
    first = Work(tmp_path, len, ["a", "b"], modules=big)
    there = chunks()
    again = Work(tmp_path, len, ["a", "b"], modules=big)
    assert chunks() == there
    one, other = (work.bundle.rpartition("/") for work in (first, again))
    assert one[0] == other[0] and one[2] != other[2]
    Work(tmp_path, len, ["a", "c"], modules=big)
    assert chunks() == there + 2  # the leaf and the root
    assert first.run(0).returncode == 0
    assert (first.told(), again.told()) == ({0: 1}, {})


def test_many_records_are_packed_as_they_come(tmp_path):
    count, asked = 100_000, []

    def records():
        for number in range(count):
            asked.append(number)
            yield str(number), b"%d" % number

    bundle = _core.write_bundle(tmp_path, {"function": b""}, records())
    assert len(asked) == count
    last = _core.BundleSlice(bundle, 99, 1000, 1)
    assert last.total == count and last.left() == list(range(99_000, count))
    assert last.record(99_999) == ("99999", b"99999") and last.record(99_001) == ("99001", b"99001")


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda folder: (folder / "FORMAT").write_text("somebody else's"), "is in format"),
        (lambda folder: (folder / "FORMAT").unlink(), "holds no bundles"),
        (lambda folder: [path.write_bytes(b"x") for path in (folder / "chunks").rglob("*") if path.is_file()], "is damaged"),
        (lambda folder: [path.unlink() for path in (folder / "chunks").rglob("*") if path.is_file()], "is missing in"),
    ],
)
def test_a_broken_or_foreign_folder_is_said(tmp_path, damage, said):
    work = Work(tmp_path, len, [[]])
    damage(tmp_path / "bundles")
    done = work.run(0)
    assert done.returncode == 2 and done.stderr.startswith("pumice.worker: ") and said in done.stderr
    assert "Traceback" not in done.stderr


def test_what_can_not_be_packed_is_refused(tmp_path):
    with pytest.raises(_core.UsageError, match="must be absolute"):
        _core.write_bundle("relative", {}, [])
    with pytest.raises(_core.UsageError, match=r"record 1 \(b\) can't go into a bundle.*67108865, and at most 67108864"):
        _core.write_bundle(tmp_path, {}, [("a", b""), ("b", bytes(LIMIT + 1))])
    with pytest.raises(TypeError):
        _core.write_bundle(tmp_path, {}, [("a", "text")])  # type: ignore[list-item]
    with pytest.raises(ZeroDivisionError):
        _core.write_bundle(tmp_path, {}, (("a", b"%d" % (1 // n)) for n in range(2)))


def test_a_full_disk_says_what_to_do(tmp_path):
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(tmp_path)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        assert "CI" not in os.environ, "run the tests as root"
        pytest.skip("needs root to mount a small file system")
    try:
        with pytest.raises(_core.CoreError, match=f"no space is left in {tmp_path}/b: free some there.*PUMICE_CACHE"):
            _core.write_bundle(tmp_path / "b", {}, ((str(n), os.urandom(30_000)) for n in range(100)))
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


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

    along = Work(tmp_path, call, [2], modules=local_modules.pack(files), packages=packed.getvalue())
    assert along.run(0).stderr == ""
    assert along.told() == {0: "from the wheel from the wheel "}
    assert "No module named 'ours'" in Work(tmp_path, call, [2]).run(0).stderr


@pytest.mark.parametrize(
    ("function", "python", "said"),
    [
        (len, "2.7.18", "This is Python 2.7.18, the workers run Python"),
        (b"rubbish", Environment().python, "UnpicklingError"),
    ],
)
def test_what_cannot_begin_is_written_as_the_failure_of_each_record(tmp_path, function, python, said):
    work = Work(tmp_path, function, ["a", "b"], chunk=2, python=python)
    assert work.run(0).returncode == 1
    failures = work.told()
    assert len(failures) == 2
    for failure in failures.values():
        assert isinstance(failure, Failure) and said in failure.message


ROOT = "0" * 64


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({}, "PUMICE_BUNDLE isn't set"),
        ({"PUMICE_BUNDLE": "/x", "VC_TASK_INDEX": "no"}, "VC_TASK_INDEX is 'no'"),
        ({"PUMICE_BUNDLE": "/x"}, "no place of a bundle"),
        ({"PUMICE_BUNDLE": f"folder:/nowhere#{ROOT}"}, "says no run"),
        ({"PUMICE_BUNDLE": f"folder:/nowhere#{ROOT}/r"}, "/nowhere holds no bundles"),
        ({"PUMICE_BUNDLE": f"objects:n/a#{ROOT}/r"}, "is no folder"),
        ({"PUMICE_BUNDLE": "x" * 10_000}, "at most 8192"),
        ({"PUMICE_BUNDLE": "/x", "PUMICE_WORK_CHUNK": "0"}, "PUMICE_WORK_CHUNK is '0'"),
        ({"PUMICE_BUNDLE": "/x", "PUMICE_ATTEMPT": "-1"}, "PUMICE_ATTEMPT is '-1'"),
    ],
)
def test_a_wrong_environment_is_said_and_exits_2(environ, said):
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PUMICE", "VC_"))}
    command = [sys.executable, "-m", "pumice.worker"]
    numbers = {"VC_TASK_INDEX": "0", "PUMICE_WORK_CHUNK": "1", "PUMICE_ATTEMPT": "1"}
    everything = {**clean, "PYTHONPATH": LIBRARY, **numbers, **environ}
    done = subprocess.run(command, env=everything, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2 and done.stderr.startswith("pumice.worker: ") and said in done.stderr


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
