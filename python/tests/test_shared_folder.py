"""Where a job's work lies, and the Job that runs it there."""

from __future__ import annotations

from pathlib import Path

import pytest

import pumice
from pumice.backend import JobSpec, Options, Record
from pumice.environment import Environment
from pumice.shared_folder import Place


def described(local: bool = False, fleet: bool = False) -> dict[str, object]:
    return {"url": "https://there:6443", "local": local, "fleet": fleet}


def spec(records: int = 10, chunk: int | None = None, **options: object) -> JobSpec:
    asked = Options(cpu="1", memory="1Gi", **options)
    return JobSpec(b"", [Record(str(number), b"") for number in range(records)], asked, Environment({}), chunk)


def test_elsewhere_somebody_has_to_name_the_folder(tmp_path, monkeypatch):
    monkeypatch.delenv("PUMICE_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert Place.of(described(local=True), None).folder == (tmp_path / "cache" / "pumice").resolve()
    with pytest.raises(pumice.NoBackend, match=r"The pods of https://there:6443 have to see .*name a folder"):
        Place.of(described(), None)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert Place.of(described(fleet=True), tmp_path / "link").folder == tmp_path / "link"
    monkeypatch.setenv("PUMICE_CACHE", str(tmp_path / "named"))
    assert Place.of(described(), None).folder == tmp_path / "named"


@pytest.mark.parametrize(
    ("place", "chunk", "max_parallel", "expected"),
    [
        ("cluster", None, None, 3),  # 1,000 pods at most
        ("cluster", None, 10, 3),
        ("cluster", 7, 10, 7),
        ("fleet", None, None, 3),
        ("fleet", None, 10, 250),
        ("fleet", 7, 10, 250),
        ("fleet", 500, 10, 500),
    ],
)
def test_how_many_records_a_pod_has(place, chunk, max_parallel, expected):
    where = Place(Path("/shared"), here=False, fleet=place == "fleet")
    assert where.chunk(spec(2_500, chunk, max_parallel=max_parallel)) == expected


def test_a_fleet_is_not_told_how_many_may_run():
    on_oom = pumice.OnOom(factor=2.0)
    asked = spec(retries=2, max_parallel=4, on_oom=on_oom, timeout=3.0, env={"A": "b"})
    jobs = {
        fleet: Place(Path("/shared"), here=False, fleet=fleet).job(asked, "folder:/shared/bundles#r", 5)
        for fleet in (True, False)
    }
    for fleet, job in jobs.items():
        task = job["spec"]["tasks"][0]
        container = task["template"]["spec"]["containers"][0]
        env = {variable["name"]: variable["value"] for variable in container["env"]}
        assert (task["replicas"], job["spec"]["minAvailable"]) == (2, 1)
        assert (env["A"], env["PUMICE_CACHE"], env["PUMICE_WORK_TIMEOUT"]) == ("b", "/shared", "3.0")
        assert job["metadata"]["annotations"]["pumice.sh/on-oom"] == "factor=2.0,tries=3"
        said = task["template"]["metadata"]["annotations"]
        assert (said["pumice.sh/retries"], said.get("pumice.sh/max-parallel")) == ("2", None if fleet else "2")
        assert "workingDir" not in container
        volumes = [volume["hostPath"] for volume in task["template"]["spec"]["volumes"]]
        folders = ["/shared/bundles", "/shared/archives"]
        assert volumes == [{"path": folder, "type": "Directory"} for folder in folders]
        assert [mount["mountPath"] for mount in container["volumeMounts"]] == folders


def test_a_fleet_has_to_know_what_a_pod_takes():
    asked = JobSpec(b"", [Record("0", b"")], Options(cpu="1"), Environment({}))
    with pytest.raises(pumice.Refused, match="say cpu and memory"):
        Place(Path("/shared"), here=False, fleet=True).job(asked, "b", 1)
