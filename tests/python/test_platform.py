"""The Python library on a real `pumice up`: maps, failures, memory, cancelling."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

import pumice
from deadline import DEADLINE, until
from pumice import Options, State, _core, watching
from pumice.backend import JobSpec, Record
from pumice.environment import Environment
from pumice.pickling import dumps_args, dumps_function
from pumice.platform import PlatformBackend
from up import BINARIES, Platform


@pytest.fixture
def backend(platform: Platform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PlatformBackend]:
    """The platform in use, with a cache of its own."""
    monkeypatch.setenv("PUMICE_CACHE", str(tmp_path))
    backend = PlatformBackend(platform.connect())
    with pumice.use(backend):
        yield backend
    backend.close()


@pytest.mark.parametrize("chunk", [1, 4, "auto"])
def test_a_map(backend, chunk):
    square = pumice.task(lambda x: (x * x, os.environ["VC_TASK_INDEX"]))
    result = square.map(range(10), chunk=chunk)
    values = result.results()
    assert [value for value, _ in values] == [x * x for x in range(10)]
    pods = [int(index) for _, index in values]
    assert pods == sorted(pods) and len(set(pods)) > 1


def test_calls_of_an_executor(backend):
    with pumice.Executor(on=backend) as executor:
        futures = [executor.submit(pow, 2, n) for n in range(5)]
        assert [future.result(DEADLINE) for future in futures] == [1, 2, 4, 8, 16]


def fails(x):
    print(f"at {x}")
    if x == 1:
        raise ValueError("one")
    if x == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return x


def test_what_failed_says_how(backend):
    result = pumice.task(fails).map(range(4), chunk=1)
    result.wait(DEADLINE)
    by_key = {item.key: item for item in result.items}
    assert by_key["0"].value == 0 and by_key["3"].value == 3
    assert [item.key for item in result.failed] == ["1", "2"]
    raised, killed = by_key["1"].error, by_key["2"].error
    assert isinstance(raised.__cause__, ValueError) and raised.log_lines[-1] == "at 1"
    assert (killed.failure.kind, killed.signal, killed.log_lines) == ("killed", signal.SIGKILL, ("at 2",))
    assert killed.node


def test_a_process_that_is_killed_takes_one_call_with_it(backend):
    result = pumice.task(fails).map([0, 2, 3, 4], chunk=3)
    result.wait(DEADLINE)
    kinds = {item.key: item.error and item.error.failure.kind for item in result.items}
    assert kinds == {"0": None, "2": "killed", "3": None, "4": None}
    assert result.failed[0].error.log_lines == ("at 2",)


def test_too_much_memory_is_told(backend):
    greedy = pumice.task(lambda mib: len(b"x" * (mib << 20)), memory="150Mi")
    result = greedy.map([1, 400], chunk=1)
    result.wait(DEADLINE)
    assert [item.key for item in result.failed] == ["400"]
    assert result.failed[0].error.oom


def test_memory_is_raised_and_the_record_succeeds(backend):
    greedy = pumice.task(lambda mib: len(b"x" * (mib << 20)), memory="150Mi", on_oom=pumice.grow(4, "2Gi"))
    assert greedy.map([1, 400], chunk=1).results() == [1 << 20, 400 << 20]


def span(seconds):
    start = time.time()
    time.sleep(seconds)
    return start, time.time()


def test_no_more_run_at_once_than_may(backend):
    spans = sorted(pumice.task(span, max_parallel=1).map([0.3, 0.2, 0.1], chunk=1).results())
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(spans))


def test_a_map_is_cancelled(backend):
    result = pumice.task(time.sleep).map([600, 601], chunk=1)
    result.cancel()
    result.wait(DEADLINE)
    assert {item.state for item in result.items} == {State.CANCELLED}


def test_an_unknown_queue_is_refused(backend):
    with pytest.raises(pumice.Refused, match="nowhere"):
        pumice.task(abs, queue="nowhere").map([1])


def flaky(x):
    attempt = pumice.shard().attempt
    print(f"attempt {attempt} at {x}")
    if x == 1 and attempt == 1:
        raise ValueError("first time")
    if x == 2 and attempt <= 2:
        os.kill(os.getpid(), signal.SIGKILL)
    if x == 3:
        raise LookupError(f"attempt {attempt}")
    return attempt


@pytest.mark.parametrize("chunk", [1, 5])
def test_what_fails_is_run_again_and_what_is_done_is_not(backend, chunk):
    result = pumice.task(flaky, retries=2).map(range(5), chunk=chunk, min_success=0)
    result.wait(DEADLINE)
    assert {item.key: item.value for item in result.items if item.key != "3"} == {"0": 1, "1": 2, "2": 3, "4": 1}
    assert [item.attempt for item in result.items] == [1, 2, 3, 3, 1]
    (failed,) = result.failed
    assert (str(failed.error.__cause__), failed.error.attempt) == ("attempt 3", 3)


def test_a_record_is_not_over_while_it_has_retries(backend):
    states = []

    def watch(changes):
        states.extend(change.state for change in changes)

    environment = Environment()
    spec = JobSpec(dumps_function(flaky), [Record("1", dumps_args((1,), {}, "1"))], Options(retries=1), environment)
    job = watching.submit(backend, spec, watch)
    until(lambda: any(state.final for state in states))
    job.close()
    assert states[-1] is State.SUCCEEDED and states.count(State.WAITING) >= 1
    assert not any(state.final for state in states[:-1])


def processes_of(bundles: Path, shard: int) -> list[int]:
    """The processes of one pod whose bundle is in a folder, which is this test's own."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            variables = (process / "environ").read_bytes().split(b"\0")
            if any(variable.startswith(f"PUMICE_BUNDLE=folder:{bundles}#".encode()) for variable in variables):
                found += [int(process.name)] if f"VC_TASK_INDEX={shard}".encode() in variables else []
    return found


def test_pods_that_are_killed_run_again_and_what_was_told_does_not(backend, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def step(x):
        with Path(f"ran-{x}").open("a") as file:
            file.write("once\n")
        if x % 10 == 5 and pumice.shard().attempt == 1:
            time.sleep(600)
        return x

    result = pumice.task(step, retries=1).map(range(40), chunk=10)
    told = result.items[0].job._results
    for shard in range(4):
        until(lambda shard=shard: len(list(told.shard(shard))) == 5 and Path(f"ran-{shard * 10 + 5}").exists())
        # First what would tell of it, then what runs the calls, which the platform may have ended by then.
        for pid in sorted(processes_of((tmp_path / "bundles").resolve(), shard)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    assert result.results(DEADLINE) == list(range(40))
    runs = [len(Path(f"ran-{x}").read_text().split()) for x in range(40)]
    assert runs == [1, 1, 1, 1, 1, 2, 1, 1, 1, 1] * 4
    assert [item.attempt for item in result.items] == [1, 1, 1, 1, 1, 2, 2, 2, 2, 2] * 4


def test_a_call_that_takes_too_long_is_ended(backend):
    result = pumice.task(lambda x: time.sleep(600 * x) or x, timeout=2).map(range(3), chunk=3)
    result.wait(DEADLINE)
    assert [item.error and item.error.failure.kind for item in result.items] == [None, "timeout", "timeout"]
    assert "longer than its timeout of 2 s" in str(result.failed[0].error)


def test_a_call_goes_on_where_it_stopped(backend):
    def steps():
        done = pumice.checkpoint() / "done"
        if done.exists():
            return done.read_text()
        done.write_text("half")
        raise ValueError("stopped")

    assert pumice.task(steps, retries=1).submit().result(DEADLINE) == "half"


def test_what_a_job_has_left_goes_and_equal_parts_are_kept_once(backend, tmp_path):
    def chunks() -> int:
        return sum(1 for path in (tmp_path / "bundles" / "chunks").rglob("*") if path.is_file())

    square = pumice.task(lambda x: x * x)
    assert square.map(range(3)).results() == [0, 1, 4]
    there = chunks()
    assert square.map(range(3)).results() == [0, 1, 4]
    assert chunks() == there > 0
    assert list((tmp_path / "bundles" / "runs").iterdir()) == []


def test_links_of_the_folder_are_shared_and_what_is_lost_is_told(backend, tmp_path, monkeypatch, capsys):
    work, scratch = tmp_path / "work", tmp_path / "scratch"
    work.mkdir()
    scratch.mkdir()
    (work / "out").symlink_to(scratch)
    monkeypatch.chdir(work)

    @pumice.task
    def write(name):
        for folder in ("out", "..", "."):
            Path(folder, name).write_text("x")
        return name

    with pytest.warns(RuntimeWarning, match=f"1 file is gone with the pod.*: {tmp_path}/a.txt"):
        assert write.map(["a.txt"]).results() == ["a.txt"]
        # The pod's end is told after its results.
        until(lambda: backend._jobs[-1]._told_discarded)
    assert [path.exists() for path in (work / "a.txt", scratch / "a.txt", tmp_path / "a.txt")] == [True, True, False]
    assert f"out leads to {scratch}, which the pods share, too" in capsys.readouterr().err


def test_a_folder_of_somebody_else_is_refused(backend, tmp_path):
    (tmp_path / "bundles").mkdir()
    (tmp_path / "bundles" / "FORMAT").write_text("theirs\n")
    with pytest.raises(pumice.Refused, match="is in format"):
        pumice.task(abs).map([1])


def test_a_call_that_is_too_large_is_refused_by_name(backend, tmp_path):
    with pytest.raises(pumice.PickleTooLarge, match=r"arguments of big.*Write the data to a shared path"):
        pumice.task(len).map([b"", bytes(65 << 20)], key=lambda data: "big" if data else "small")
    assert not (tmp_path / "bundles").exists()


def test_an_image_brings_python_and_this_library(tmp_path, monkeypatch):
    monkeypatch.setenv("PUMICE_CACHE", str(tmp_path / "cache"))
    program = tmp_path / "layer" / "usr" / "local" / "bin" / "python3"
    program.parent.mkdir(parents=True)
    library = Path(pumice.__file__).parents[1]
    program.write_text(f'#!/bin/sh\nIN_IMAGE=yes PYTHONPATH={library} exec {sys.executable} "$@"\n')
    program.chmod(0o755)
    (tmp_path / "empty").mkdir()
    images = tmp_path / "images.yaml"
    images.write_text(
        f"with-python:\n  layer: {tmp_path}/layer\n  env: {{PATH: /usr/local/bin:/bin}}\n"
        f"without:\n  root: {tmp_path}/empty\n"
    )
    platform = Platform(tmp_path / "up", "--image-map", str(images))
    try:
        platform.up()
        with pumice.use(PlatformBackend(platform.connect())):
            look = pumice.task(lambda: os.environ.get("IN_IMAGE"))
            assert look.options(image="with-python:1").submit().result(DEADLINE) == "yes"
            assert look.submit().result(DEADLINE) is None
            with pytest.raises(
                pumice.TaskFailed, match=r"The image without must have Python 3\.\d+ as python3, with pumice"
            ):
                look.options(image="without").submit().result(DEADLINE)
    finally:
        platform.tear_down()


NOT_NEEDED = shutil.ignore_patterns(
    "__pycache__",
    "site-packages",
    "dist-packages",
    "test",
    "tests",
    "idlelib",
    "lib2to3",
    "ensurepip",
    "tkinter",
    "turtledemo",
    "config-*",
)


def make_root(root: Path) -> None:
    """The files of an image: this Python with its standard library, this library, and what both are linked with."""
    python, standard = Path(sys.executable).resolve(), Path(sysconfig.get_path("stdlib"))
    packages = root / standard.relative_to("/")
    shutil.copytree(standard, packages, ignore=NOT_NEEDED, ignore_dangling_symlinks=True)
    for package in (pumice, cloudpickle):
        folder = Path(package.__file__).parent
        shutil.copytree(folder, packages / folder.name, ignore=shutil.ignore_patterns("__pycache__"))
    for file in [python, *packages.rglob("*.so")]:
        said = subprocess.run(["ldd", file], check=False, capture_output=True, text=True).stdout
        # NAME => PATH (ADDRESS), and the loader's path alone.
        for library in {word for word in said.split() if word.startswith("/")} | {str(python)}:
            copy = root / library.removeprefix("/")
            if not copy.exists():
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(library, copy)
    program = root / "usr" / "local" / "bin" / "python3"
    program.parent.mkdir(parents=True, exist_ok=True)
    if not program.exists():
        program.symlink_to(python)
    (root / "etc").mkdir(exist_ok=True)
    (root / "etc" / "word").write_text("of the image")


def test_an_image_itself_runs_the_calls(tmp_path, monkeypatch):
    monkeypatch.setenv("PUMICE_CACHE", str(tmp_path / "cache"))
    make_root(tmp_path / "root")
    platform = Platform(tmp_path / "up", "--images=registry")
    try:
        platform.up()
        made = [BINARIES / "pumice", "image", "from-root", tmp_path / "root", "localhost/with-python:1"]
        subprocess.run([*made, "--data-dir", platform.data_dir], check=True, capture_output=True)
        with pumice.use(PlatformBackend(platform.connect())):
            look = pumice.task(lambda x: (x, Path("/etc/word").read_text(), sorted(os.listdir("/etc"))[-1]))
            result = look.options(image="localhost/with-python:1").map(range(4), chunk=2)
            assert result.results() == [(x, "of the image", "word") for x in range(4)]
    finally:
        platform.tear_down()


def test_a_map_of_1000(backend):
    assert pumice.task(lambda x: x + 1).map(range(1000)).results() == list(range(1, 1001))


def test_a_cluster_by_its_kubeconfig_needs_a_folder_that_its_pods_see(platform, tmp_path, monkeypatch):
    monkeypatch.delenv("PUMICE_CACHE", raising=False)
    connection = _core.Connection.open(kubeconfig=platform.data_dir / "kubeconfig")
    with pytest.raises(pumice.NoBackend, match="name a folder that all nodes see"):
        PlatformBackend(connection)
    backend = PlatformBackend(connection, folder=tmp_path / "shared")
    with contextlib.closing(backend), pumice.use(backend):
        result = pumice.task(flaky, retries=1).map([0, 1], chunk=1)
        assert result.results(DEADLINE) == [1, 2]
    assert (tmp_path / "shared" / "bundles" / "FORMAT").exists()


class Trap:
    """What nobody may unpickle: a file tells that it was."""

    def __init__(self, sprung: Path) -> None:
        self.sprung = sprung

    def __reduce__(self):
        return Path.touch, (self.sprung,)


def wait_for(go: Path) -> None:
    """Until a file of the bundles' folder is there, whose changes pods see; what ends the test ends this."""
    while not go.exists():
        time.sleep(0.02)


def entry_of(bundles: Path, run: str, shard: int) -> Path:
    """The first entry of a shard, which may not be there yet."""
    return bundles / "runs" / run / "0" / f"{shard}.0"


def run_of(job: dict[str, Any]) -> str:
    """The run of a map, as its pods are told."""
    env = job["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["env"]
    return next(variable["value"] for variable in env if variable["name"] == "PUMICE_BUNDLE").rpartition("/")[2]


def name_of(result: pumice.MapResult[Any]) -> str:
    return result.name.partition("/")[2]


def test_what_another_process_writes_among_the_results_is_not_unpickled(backend, platform, tmp_path):
    """It comes first, with the name of the run's own first entry, and says that all is done."""
    bundles, sprung = tmp_path / "bundles", tmp_path / "sprung"
    go = bundles / "go"
    goes_on = pumice.task(lambda x: wait_for(go) or x)
    result = goes_on.map(range(4), chunk=2)
    job = platform.connect().get(name_of(result))
    forged = b"+" + pickle.dumps(Trap(sprung))
    env = {v["name"]: v.get("value", "") for v in job["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["env"]}
    for shard in range(2):
        numbers = (2 * shard, 2 * shard + 1)
        written = [(number, str(number), True, forged) for number in numbers]
        _core.BundleSlice(env["PUMICE_BUNDLE"], shard, 2, 1).write(written)
    go.touch()
    assert result.results(DEADLINE) == [0, 1, 2, 3] and not sprung.exists()
    assert not (bundles / "runs" / run_of(job)).exists()


def test_a_result_that_only_others_wrote_is_refused_by_name(backend, platform, tmp_path):
    """Each of its pods ends without a word of its own, as one does that has an older library."""
    go, sprung = tmp_path / "bundles" / "go", tmp_path / "sprung"
    silent = pumice.task(lambda _: (wait_for(go), os.kill(os.getppid(), signal.SIGKILL)))
    result = silent.map(range(2), chunk=1, min_success=0)
    job = platform.connect().get(name_of(result))
    env = {v["name"]: v.get("value", "") for v in job["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["env"]}
    for number, success in ((0, True), (1, False)):
        forged = (b"+" if success else b"-") + pickle.dumps(Trap(sprung))
        _core.BundleSlice(env["PUMICE_BUNDLE"], number, 1, 1).write([(number, str(number), success, forged)])
    go.touch()
    result.wait(DEADLINE)
    for shard, item in enumerate(result.items):
        assert item.error.failure.kind == "unmarked", item.error
        file = entry_of((tmp_path / "bundles").resolve(), run_of(job), shard)
        assert f"{file}, which belongs to " in str(item.error) and "allow_pickle=True" in str(item.error)
    assert not sprung.exists()


def keys_here(_: int) -> list[str]:
    """Keys of runs that this pod can find: in its environment, in that of any process it sees, and by its account."""
    found = [os.environ["PUMICE_RUN_KEY"]] if "PUMICE_RUN_KEY" in os.environ else []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            for variable in (process / "environ").read_bytes().split(b"\0"):
                if variable.startswith(b"PUMICE_RUN_KEY="):
                    found.append(variable.partition(b"=")[2].decode())
    return found


def test_the_key_of_a_run_is_its_pods_alone(backend, platform, tmp_path):
    go = tmp_path / "bundles" / "go"
    waits = pumice.task(lambda x: wait_for(go) or x)
    waiting = waits.map(range(2), chunk=1)
    until(lambda: all(item.state is State.RUNNING for item in waiting.items))
    connection = platform.connect()
    job = connection.get(name_of(waiting))
    kubectl = ["kubectl", "--kubeconfig", str(platform.data_dir / "kubeconfig")]

    def ask(*words: str) -> str:
        return subprocess.run([*kubectl, *words], check=True, capture_output=True, text=True, timeout=60).stdout

    env = job["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["env"]
    (variable,) = [variable for variable in env if variable["name"] == "PUMICE_RUN_KEY"]
    name = variable["valueFrom"]["secretKeyRef"]["name"]
    secret = json.loads(ask("get", "secret", name, "-o", "json"))
    key = base64.b64decode(secret["data"]["key"]).decode()
    assert len(key) == 64 and [owner["uid"] for owner in secret["metadata"]["ownerReferences"]] == [job["metadata"]["uid"]]
    shown = [ask("get", kind, "-A", "-o", "yaml") for kind in ("jobs.batch.volcano.sh", "pods", "podgroups", "events")]
    assert name in shown[0] and name in shown[1] and not any(key in text for text in shown)
    # Another job's pods find no key but their own run's.
    other = pumice.task(keys_here).submit(0).result(DEADLINE)
    assert key not in other and len(set(other)) <= 1
    words = [path.read_bytes().split(b"\0") for path in Path("/proc").glob("[0-9]*/cmdline") if not gone(path)]
    assert not any(key.encode() in word for line in words for word in line)
    # The node has it for its pods, in files that nobody else can read.
    # Folders of pods that end meanwhile vanish while they are listed.
    there = (Path(folder, name) for folder, _, names in os.walk(platform.data_dir) for name in names)
    files = [path for path in there if path.is_file() and not path.is_symlink()]
    having = [path for path in files if not gone(path) and key.encode() in path.read_bytes()]
    assert [path for path in having if path.stat().st_mode & 0o077 or "log" in path.name] == []
    go.touch()
    assert waiting.results(DEADLINE) == [0, 1]
    connection.cancel(name_of(waiting))
    ask("delete", "jobs.batch.volcano.sh", name_of(waiting))
    until(lambda: name not in ask("get", "secrets", "-o", "name"))


def gone(path: Path) -> bool:
    """Whether a process has ended that was there."""
    try:
        path.read_bytes()
    except OSError:
        return True
    return False


def test_who_allows_pickles_needs_no_key(backend, platform):
    result = pumice.task(abs, allow_pickle=True).map([-1, -2])
    assert result.results(DEADLINE) == [1, 2]
    assert "PUMICE_RUN_KEY" not in str(platform.connect().get(name_of(result)))


SUBMITTER = """
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: submits, namespace: default}
rules:
- {apiGroups: [batch.volcano.sh], resources: [jobs], verbs: [get, list, watch, create, delete]}
- {apiGroups: [bus.volcano.sh], resources: [commands], verbs: [create]}
- {apiGroups: [""], resources: [pods, pods/log, events], verbs: [get, list, watch]}
"""


def test_who_may_make_no_secrets_is_told_and_no_job_stays(platform, tmp_path):
    kubeconfig = platform.data_dir / "kubeconfig"

    def kubectl(*words: str, given: str = "") -> str:
        command = ["kubectl", "--kubeconfig", str(kubeconfig), *words]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60, input=given).stdout

    kubectl("apply", "-f", "-", given=SUBMITTER)
    kubectl("create", "serviceaccount", "bob")
    kubectl("create", "rolebinding", "bob", "--role=submits", "--serviceaccount=default:bob")
    config = json.loads(kubectl("config", "view", "--raw", "-o", "json"))
    config["users"] = [{"name": "bob", "user": {"token": kubectl("create", "token", "bob").strip()}}]
    config["contexts"][0]["context"]["user"] = "bob"
    (tmp_path / "bob").write_text(json.dumps(config))
    (tmp_path / "bob").chmod(0o600)
    backend = PlatformBackend(_core.Connection.open(kubeconfig=tmp_path / "bob"), folder=tmp_path / "shared")
    named = pumice.task(abs, name="of-bob")
    with contextlib.closing(backend), pumice.use(backend):
        with pytest.raises(pumice.Refused, match=r"right to create Secrets in namespace default.*allow_pickle=True"):
            named.map([-1])
        assert "of-bob" not in kubectl("get", "jobs.batch.volcano.sh", "-o", "name")
        assert list((tmp_path / "shared" / "bundles").glob("runs/*")) == []
        assert named.map([-1], allow_pickle=True).results(DEADLINE) == [1]
