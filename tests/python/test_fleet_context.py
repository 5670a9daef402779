"""The Python library with a fleet that `jobctl context add` has given a name."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from deadline import DEADLINE, until
from fleet import BINARIES, Fleet
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


def test_jobs_go_to_their_end_and_functions_are_refused(grid: _core.Connection) -> None:
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
    with pytest.raises(NoBackend, match="A fleet runs commands and no functions"):
        PlatformBackend(grid)
