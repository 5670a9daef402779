"""What earlier versions have written is read by this one: tests/upgrade has it, and how it was made."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from armada_client.client import ArmadaClient
from armada_client.typings import JobState

import pumice
import upgrade
from deadline import until
from fleet import Fleet, follow, has, have_ended, read, state, stories
from postgres import Postgres, programs
from pumice import _core, outcome
from upgrade import FLEET_CONFIG, FLEET_FLAGS, NODE_FLAGS, SIMULATED_FLAGS, State, Up

STORY = ["submitted", "queued", "leased", "pending", "running"]


@pytest.fixture(params=upgrade.versions(), ids=lambda found: found.folder.name)
def written(request: pytest.FixtureRequest) -> State:
    """The state of each version."""
    return request.param


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    """A platform in a directory that is still empty."""
    up = Up(tmp_path / "platform", *SIMULATED_FLAGS, *NODE_FLAGS)
    try:
        yield up
    finally:
        up.down()


def test_a_data_directory_is_taken_over(written: State, up: Up) -> None:
    written.unpack("data", up.data_dir.parent)
    up.start()
    whole(written, up)
    # What a node has of pods that are over.
    assert "written before" in up.jobctl("logs", "done")


def test_a_backup_is_restored(written: State, up: Up, tmp_path: Path) -> None:
    backup = tmp_path / "platform.backup"
    backup.write_bytes(gzip.decompress((written.folder / "platform.backup.gz").read_bytes()))
    assert " objects of " in upgrade.pumice("restore", backup, "--data-dir", up.data_dir)
    up.start()
    whole(written, up)


def whole(written: State, up: Up) -> None:
    """All that was there is there, what ran goes on, and what waited starts when there is room."""
    expected = written.expected["platform"]
    assert up.get("configmap", "stays")["data"] == {"a": "before"}
    assert up.get("queues.scheduling.volcano.sh", "research")["spec"]["weight"] == 3
    assert up.get("priorityclass", "urgent")["value"] == 1000
    assert up.get("cronjobs.batch.volcano.sh", "nightly")["spec"]["suspend"] is True
    assert {name: up.phase(name) for name in expected["completed"]} == dict.fromkeys(expected["completed"], "Completed")
    rows = [json.loads(line) for line in up.jobctl("results", "rows", "-o", "json").splitlines()]
    assert [(row["key"], row["status"]) for row in rows] == [
        ("2024-01-02", "succeeded"),
        ("2024-01-03", "succeeded"),
        ("2024-01-04", "failed"),
    ]
    assert rows[0]["result"] == "rate 1"
    past = json.loads(up.jobctl("history", "gone", "-o", "json"))
    assert past["phase"] == "Completed" and past["gone"] and past["attempts"][0]["exitCode"] == 0
    for name, pods in expected["running"].items():
        assert up.phase(name) == "Running"
        found = up.pods(name)
        assert {pod: found[pod]["metadata"]["uid"] for pod in pods} == {pod: expected["uids"][pod] for pod in pods}
        assert {found[pod]["status"]["phase"] for pod in pods} == {"Running"}
    assert up.phase("large") == "Pending"
    why = until(lambda: json.loads(up.jobctl("why", "large", "-o", "json")))
    assert set(expected["why"]) <= set(why if isinstance(why, dict) else why[0])
    up.jobctl("cancel", *expected["running"], "yields")
    until(lambda: up.phase("large") == "Running")


@pytest.mark.parametrize("name", ["recording", "recording-hole"])
def test_a_recording_comes_out_bit_for_bit(written: State, name: str, tmp_path: Path) -> None:
    before, again = written.expected["platform"]["recordings"][name], upgrade.replay(written.unpack(name, tmp_path))
    assert len(again.pop("breaks")) == len(before.pop("breaks")) == 1
    assert again == before
    assert again["same"] is True and again["cycles"] > 0 and again["binds"] > 0


@pytest.mark.parametrize("name", ["world", "redacted"])
def test_a_case_that_begins_with_a_saved_world_is_played(written: State, name: str) -> None:
    said = upgrade.pumice("scheduler", "check", written.folder / f"{name}.case")
    assert said.endswith("1 pass, 0 differ on purpose, 0 fail\n")


def test_a_bundle_and_its_results_are_read(written: State, tmp_path: Path) -> None:
    expected = written.expected["bundle"]
    bundle = f"folder:{written.unpack('bundles', tmp_path)}#{expected['run']}"
    results = _core.BundleResults(bundle, 6, 2, expected["key"])
    rows = [row for shard in range(3) for row in results.shard(shard)]
    assert {key: attempt for _, key, attempt, *_ in rows} == {str(x): 1 for x in range(6)}
    assert [mark for *_, mark in rows] == [None] * 6
    assert {key: outcome.read_value(data) for _, key, _, success, data, _ in rows if success} == {
        str(x): x / 2 for x in range(6) if x != 3
    }
    [failure] = [outcome.failure_of(data) for *_, success, data, _ in rows if not success]
    cause = outcome.exception_of("3", failure).__cause__
    assert failure.kind == "error" and isinstance(cause, ValueError) and str(cause) == "three is odd"
    # A worker would go on where the one before it stopped.
    work = _core.BundleSlice(bundle, 1, 2, 2, expected["key"])
    assert (work.total, work.left(), work.record(3)[0]) == (6, [3], "3")
    assert work.attachment("python") is not None and work.attachment("function") is not None


def test_kept_values_are_found(written: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(written.unpack("config", tmp_path)))
    store = written.unpack("kept", tmp_path)
    with pumice.use(pumice.local(1)):
        again = pumice.task(upgrade.halves, version="1").map([1, 2, 4], store=store)
        assert again.results() == [0.5, 1.0, 2.0]
    assert all(item.from_store for item in again.items)


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_a_fleet_is_taken_over_with_its_leases(written: State, database: str, tmp_path: Path) -> None:
    if database == "sqlite":
        goes_on(written, "fleet", tmp_path)
        return
    postgres = Postgres()
    try:
        postgres.start()
        until(postgres.is_ready)
        load = [programs() / "psql", "-h", postgres.directory, "-U", "postgres", "-qv", "ON_ERROR_STOP=1"]
        subprocess.run(load, input=written.text("fleet.sql"), text=True, check=True, capture_output=True)
        goes_on(written, "fleet-postgres", tmp_path, "--database-url", postgres.url)
    finally:
        postgres.end()


def goes_on(written: State, name: str, directory: Path, *flags: str) -> None:
    """What ran goes on as the same run, what had its time ends well, and what waited runs when there is room."""
    expected = written.expected[name]
    config = directory / "fleet.yaml"
    config.write_text(FLEET_CONFIG)
    served = Fleet(directory / "server", "--config", str(config), *FLEET_FLAGS, *flags, verb="up")
    shutil.move(written.unpack(name, directory), served.data_dir)
    try:
        served.start()
        client = served.administrator.client(served.address)
        assert client.get_queue("ada").priority_factor == 2.0
        follow(client, "ada", "set", have_ended([expected["done"], expected["cancelled"], *expected["soon"]]))
        assert states(client, [expected["done"], *expected["soon"]]) == {JobState.SUCCEEDED}
        assert states(client, [expected["cancelled"]]) == {JobState.CANCELLED}
        running = [*expected["long"], expected["whole"]]
        assert states(client, running) == {JobState.RUNNING}
        told = stories(read(client, "ada", "set"))
        assert {job_id: told[job_id] for job_id in running} == dict.fromkeys(running, STORY)
        assert all(told[job_id] == [*STORY, "succeeded"] for job_id in expected["soon"])
        client.cancel_jobs("ada", "set", expected["long"][0])
        follow(client, "ada", "set", has(expected["long"][0], "cancelled"))
        follow(client, "ada", "set", have_ended(expected["waiting"]))
        assert states(client, expected["waiting"]) == {JobState.SUCCEEDED}
        assert states(client, running[1:]) == {JobState.RUNNING}
    finally:
        served.program.end()


def states(client: ArmadaClient, jobs: list[str]) -> set[JobState]:
    """What the server says of jobs."""
    return {state(client, job_id) for job_id in jobs}
