"""The history as Python's records and as files that others read, from a real `pumice up`."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pandas
import pyarrow.parquet
import pytest

import pumice
from deadline import DEADLINE, until
from pumice import _core
from up import BINARIES, Platform


def run(connection: _core.Connection, name: str, *command: str) -> None:
    connection.submit(_core.render(list(command), name=name))
    connection.wait(name, timeout=DEADLINE)


def test_what_became_of_jobs_is_rows_with_types(platform: Platform, connection: _core.Connection) -> None:
    before = datetime.now(UTC)
    run(connection, "past-1", "true")
    run(connection, "past-2", "sh", "-c", "exit 3")

    def ended() -> list[pumice.PastJob]:
        jobs = pumice.history("past-*", since=timedelta(hours=1), data_dir=platform.data_dir)
        return jobs if all(job["ended"] for job in jobs) and len(jobs) == 2 else []

    jobs = until(ended)
    assert [(job["name"], job["phase"]) for job in jobs] == [("past-2", "Failed"), ("past-1", "Completed")]
    first = jobs[1]
    assert first["submitted"] and first["submitted"] >= before - timedelta(seconds=1)
    assert (first["namespace"], first["queue"], first["replicas"], first["gone"]) == ("default", "default", 1, None)
    frame = pandas.DataFrame(jobs)
    assert list(frame["failed"]) == [1, 0]
    assert pandas.api.types.is_datetime64_any_dtype(frame["submitted"])

    failed = pumice.history("past-?", states=["failed"], limit=1, data_dir=platform.data_dir)
    assert [job["name"] for job in failed] == ["past-2"]
    assert pumice.history("past-*", until="2020-01-01", data_dir=platform.data_dir) == []
    sums = pumice.history_sums("phase", "past-*", data_dir=platform.data_dir)
    assert {group["key"]: group["jobs"] for group in sums} == {"Completed": 1, "Failed": 1}
    whole = pumice.history_of("past-2", data_dir=platform.data_dir)
    assert whole["attempts"][0]["exitCode"] == 3
    with pytest.raises(_core.NotFoundError, match="no job past-3"):
        pumice.history_of("past-3", data_dir=platform.data_dir)
    with pytest.raises(_core.UsageError, match="try 2h"):
        pumice.history(since="yesterday", data_dir=platform.data_dir)


def test_a_parquet_file_is_read_by_others(platform: Platform, connection: _core.Connection, tmp_path: Path) -> None:
    run(connection, "parquet-1", "true")
    until(lambda: pumice.history("parquet-1", states=["completed"], data_dir=platform.data_dir))
    rows = pumice.history("parquet-*", data_dir=platform.data_dir)
    file = tmp_path / "jobs.parquet"
    command = [BINARIES / "jobctl", "--data-dir", platform.data_dir, "history", "parquet-*", "-o", "parquet"]
    subprocess.run([*command, "--file", file], check=True)
    table = pyarrow.parquet.read_table(file)
    assert table.to_pylist() == rows
    assert str(table.schema.field("submitted").type) == "timestamp[ms, tz=UTC]"
    assert str(table.schema.field("ran_ms").type) == "int64"

    # Sums have numbers that are not whole.
    sums = tmp_path / "sums.parquet"
    subprocess.run([*command, "--group-by", "name", "--file", sums], check=True)
    assert pyarrow.parquet.read_table(sums).column("name").to_pylist() == ["parquet-1"]
    assert str(pyarrow.parquet.read_table(sums).schema.field("core_hours").type) == "double"
