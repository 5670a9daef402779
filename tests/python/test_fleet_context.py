"""The Python library with a fleet that `jobctl context add` has given a name."""

from __future__ import annotations

import itertools
import os
import pickle
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_platform import Trap, flaky, span, wait_for

import pumice
from deadline import DEADLINE, until
from fleet import BINARIES, Cluster, Fleet
from pumice import _core
from pumice.errors import NoBackend
from pumice.platform import PlatformBackend


@pytest.fixture
def grid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[_core.Connection]:
    """A connection of ada's to a small fleet."""
    fleet = Fleet(tmp_path / "fleet", "--clusters", "1", "--nodes", "3", verb="up")
    try:
        fleet.start()
        client = fleet.administrator.client(fleet.address)
        client.create_queue(client.create_queue_request(name="research", priority_factor=1.0, user_owners=["ada"]))
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
        place = ["--fleet", fleet.address, "--identity", fleet.identity("--user", "ada").file, "--queue", "research"]
        subprocess.run([BINARIES / "jobctl", "context", "add", "grid", *place], check=True, timeout=DEADLINE)
        yield _core.Connection.open(context="grid")
    finally:
        fleet.program.end()


def test_jobs_go_to_their_end_and_functions_need_a_folder(grid: _core.Connection) -> None:
    described = grid.describe()
    assert (described["fleet"], described["local"], described["namespace"]) == (True, False, "default")
    job = _core.render(["work"], name="three", replicas=3, min_available=1, cpu="100m", memory="32Mi")
    template = job["spec"]["tasks"][0]["template"]
    template.setdefault("metadata", {}).setdefault("annotations", {})["pumice.sh/simulated-duration"] = "100ms"
    assert grid.submit(job) == "three"
    ending = grid.wait("three", timeout=DEADLINE)
    assert (ending["end"], ending["exit_code"], ending["succeeded"]) == ("completed", 0, 3)
    assert sorted((pod["name"], pod["index"], pod["phase"]) for pod in grid.pods("three")) == [
        (f"three-main-{index}", index, "Succeeded") for index in range(3)
    ]
    assert [job["name"] for job in grid.jobs()] == ["three"]
    grid.submit(_core.render(["work"], name="large", cpu="1000", memory="1Gi"))
    until(lambda: "cpu" in grid.why("large")["text"])
    grid.cancel("large")
    assert grid.status("large")["end"] == "terminated"
    with pytest.raises(_core.CoreError, match="is not connected"):
        list(grid.logs("three"))
    with pytest.raises(NoBackend, match=r"name a folder that all nodes see at the same path, .*folder="):
        PlatformBackend(grid)


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A fleet with a cluster whose pods are processes; its directory is the home of who uses it."""
    directory = tmp_path_factory.mktemp("real")
    # Functions come and go through a folder of the host.
    access = f"queueAccess: {{research: {{hostFolders: [{tmp_path_factory.getbasetemp()}]}}}}"
    server, executor = directory / "server.yaml", directory / "executor.yaml"
    server.write_text(f"submission: {{{access}}}\n")
    executor.write_text(f"{access}\n")
    fleet = Fleet(directory, "--config", str(server))
    fleet.start()
    cluster = Cluster(fleet, directory / "cluster", "east", nodes=0, config=executor)
    try:
        cluster.start()
        client = fleet.administrator.client(fleet.address)
        client.create_queue(client.create_queue_request(name="research", priority_factor=1.0, user_owners=["ada"]))
        place = ["--fleet", fleet.address, "--identity", fleet.identity("--user", "ada").file, "--queue", "research"]
        home = os.environ | {"HOME": str(directory)}
        home.pop("XDG_CONFIG_HOME", None)
        subprocess.run([BINARIES / "jobctl", "context", "add", "grid", *place], check=True, env=home, timeout=DEADLINE)
        yield fleet
    finally:
        cluster.end()
        fleet.program.end()
        subprocess.run(
            [BINARIES / "pumice", "down", "--now", "--data-dir", cluster.data_dir], check=False, capture_output=True
        )


@pytest.fixture
def used(real: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The fleet in use, with a folder that its pods see."""
    monkeypatch.setenv("HOME", str(real.directory))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    with pumice.use(pumice.context("grid", folder=tmp_path / "shared")) as backend:
        yield
    backend.close()


# A fleet bounds the CPU of a pod by what it asks for.
SMALL = {"cpu": 1, "memory": "64Mi"}


@pytest.mark.usefixtures("used")
def test_a_map_runs_on_a_fleet(tmp_path: Path) -> None:
    assert pumice.task(lambda x: x * x, **SMALL).map(range(20), chunk=7).results(DEADLINE) == [x * x for x in range(20)]
    assert list((tmp_path / "shared" / "bundles" / "runs").iterdir()) == []
    with pumice.Executor(on=pumice.current(), **SMALL) as executor:
        assert [executor.submit(pow, 2, n).result(DEADLINE) for n in (3, 4)] == [8, 16]
    with pytest.raises(pumice.Refused, match="say cpu and memory"):
        pumice.task(abs).map([1])
    with pytest.raises(pumice.Refused, match="nowhere"):
        pumice.task(abs, queue="nowhere", **SMALL).map([1])


@pytest.mark.usefixtures("used")
def test_what_others_write_among_the_results_of_a_fleet_is_not_unpickled(tmp_path: Path) -> None:
    bundles, sprung = tmp_path / "shared" / "bundles", tmp_path / "sprung"
    go = bundles / "go"
    shows = pumice.task(lambda x: (wait_for(go), "PUMICE_RUN_KEY" in os.environ, x)[1:], **SMALL)
    result = shows.map(range(2), chunk=1)
    (run,) = until(lambda: list(bundles.glob("runs/*")))
    # An entry of somebody else's, as it would stand in any run.
    elsewhere = _core.write_bundle(tmp_path / "theirs", {}, [("0", b"")])
    _core.BundleSlice(elsewhere, 0, 1, 1).write([(0, "0", True, b"+" + pickle.dumps(Trap(sprung)))])
    (forged,) = (tmp_path / "theirs" / "runs").rglob("0.0")
    (run / "0").mkdir(exist_ok=True)
    (run / "0" / "0.0").write_bytes(forged.read_bytes())
    go.touch()
    assert result.results(DEADLINE) == [(False, 0), (False, 1)] and not sprung.exists()


@pytest.mark.usefixtures("used")
@pytest.mark.parametrize("chunk", [1, 5])
def test_what_fails_on_a_fleet_is_run_again_and_what_is_done_is_not(chunk: int) -> None:
    result = pumice.task(flaky, retries=2, **SMALL).map(range(5), chunk=chunk, min_success=0)
    result.wait(DEADLINE)
    assert {item.key: item.value for item in result.items if item.key != "3"} == {"0": 1, "1": 2, "2": 3, "4": 1}
    (failed,) = result.failed
    assert (str(failed.error.__cause__), failed.error.attempt) == ("attempt 3", 3)
    assert failed.error.log_lines[-1] == "attempt 3 at 3" and failed.node


@pytest.mark.usefixtures("used")
def test_memory_is_raised_on_a_fleet() -> None:
    greedy = pumice.task(lambda mib: len(b"x" * (mib << 20)), cpu=1, memory="150Mi", on_oom=pumice.grow(4, "2Gi"))
    assert greedy.map([1, 400], chunk=1).results(DEADLINE) == [1 << 20, 400 << 20]
    over = greedy.options(on_oom=pumice.grow(1.1, "160Mi"), retries=1).map([400])
    over.wait(DEADLINE)
    assert over.failed[0].error.oom and "needed more memory" in str(over.failed[0].error)


@pytest.mark.usefixtures("used")
def test_no_more_run_at_once_on_a_fleet_than_may() -> None:
    spans = sorted(pumice.task(span, max_parallel=1, **SMALL).map([0.3, 0.2, 0.1], chunk=1).results(DEADLINE))
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(spans))


@pytest.mark.usefixtures("used")
def test_a_map_on_a_fleet_waits_says_why_and_is_cancelled() -> None:
    result = pumice.task(time.sleep, cpu="1000", memory="64Mi").map([600, 601], chunk=1)
    until(lambda: "cpu" in (result.items[0].job.why() or ""))
    result.cancel()
    result.wait(DEADLINE)
    assert {item.state for item in result.items} == {pumice.State.CANCELLED}


@pytest.mark.usefixtures("used")
def test_a_map_outlives_the_server(real: Fleet, tmp_path: Path) -> None:
    go = tmp_path / "shared" / "bundles" / "go"

    def waits(x: int) -> int:
        until(go.exists)
        return x

    result = pumice.task(waits, **SMALL).map(range(3), chunk=1)
    until(lambda: all(item.state is pumice.State.RUNNING for item in result.items))
    real.program.crash()
    go.touch()
    until(lambda: len(list(go.parent.glob("runs/*/0/*"))) == 3)
    real.start()
    assert result.results(DEADLINE) == [0, 1, 2]
