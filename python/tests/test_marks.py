"""Results of a run are known by the marks of its key; what others write is not unpickled."""

from __future__ import annotations

import os
import pickle
import subprocess
from pathlib import Path

import pytest
from test_worker import Work

import pumice
from pumice import _core, outcome, run_key
from pumice.backend import Change, JobSpec, Options, Record, State
from pumice.environment import Environment
from pumice.platform import PlatformJob

OURS, THEIRS = "0" * 63 + "1", "0" * 63 + "2"


class Trap:
    """What nobody may unpickle: a file tells that it was."""

    def __init__(self, sprung: Path) -> None:
        self.sprung = sprung

    def __reduce__(self):
        return Path.touch, (self.sprung,)


@pytest.fixture
def sprung(tmp_path):
    return tmp_path / "sprung"


def forged(sprung: Path, success: bool = True) -> bytes:
    return (b"+" if success else b"-") + pickle.dumps(Trap(sprung))


def rows(work: Work, key: str | None):
    return list(_core.BundleResults(work.bundle, work.count, work.chunk, key).shard(0))


def test_a_worker_marks_what_it_records_and_its_calls_do_not_see_the_key(tmp_path):
    def look(x):
        variables = subprocess.run(["env"], capture_output=True, text=True, check=True).stdout
        return [run_key.VARIABLE in os.environ, run_key.VARIABLE in variables, x]

    work = Work(tmp_path, look, range(2), chunk=2)
    done = work.run(0, PUMICE_RUN_KEY=OURS)
    assert (done.returncode, done.stderr) == (0, "")
    ours = rows(work, OURS)
    assert [outcome.read_value(data) for *_, data, unmarked in ours] == [[False, False, 0], [False, False, 1]]
    assert [unmarked for *_, unmarked in ours] == [None, None]
    assert [unmarked[1] for *_, unmarked in rows(work, THEIRS)] == ["wrong"] * 2
    assert [unmarked[1] for *_, unmarked in rows(work, None)] == ["unchecked"] * 2
    written = [path for path in (tmp_path / "bundles").rglob("*") if path.is_file()]
    assert OURS not in str(done.args) and not any(OURS.encode() in path.read_bytes() for path in written)


def test_a_worker_without_a_key_writes_as_those_of_before_did(tmp_path):
    work = Work(tmp_path, len, [[]])
    assert work.run(0).returncode == 0
    file = next((tmp_path / "bundles" / "runs").rglob("0.0"))
    assert file.read_bytes()[4] == 1
    assert [unmarked for *_, unmarked in rows(work, OURS)] == [(str(file), "missing")]


def test_a_key_that_is_none_is_said_without_saying_it(tmp_path):
    work = Work(tmp_path, len, [[]])
    for wrong in ("rubbish", OURS.replace("0", "G"), OURS + "\n"):
        done = work.run(0, PUMICE_RUN_KEY=wrong)
        assert done.returncode == 2 and "64 hexadecimal digits" in done.stderr and wrong not in done.stderr


def test_what_was_forged_before_the_worker_came_keeps_no_record_from_it(tmp_path, sprung):
    work = Work(tmp_path, lambda x: x * 2, range(3), chunk=3)
    for key in (None, THEIRS):
        _core.BundleSlice(work.bundle, 0, 3, 7, key).write([(0, "0", True, forged(sprung)), (2, "2", False, forged(sprung))])
    assert work.run(0, PUMICE_RUN_KEY=OURS).returncode == 0
    assert [(number, outcome.read_value(data), unmarked) for number, *_, data, unmarked in rows(work, OURS)] == [
        (0, 0, None),
        (1, 2, None),
        (2, 4, None),
    ]
    assert not sprung.exists()


class Scripted:
    """As much of a connection as a job needs whose pods are told of by a test."""

    def __init__(self, pods) -> None:
        self._pods = pods
        self.namespace = "default"

    def watch_pods(self, name):
        return _Closable([])

    def watch(self, name):
        ending = {"end": "completed", "message": "", "reason": ""}
        return _Closable([{"kind": "ended", "job": ending}])

    def pods(self, name, task=None):
        return self._pods

    def logs(self, name, **more):
        return iter(())


class _Closable(list):
    def close(self) -> None:
        """Nothing is open."""


def followed(work: Work, key: str | None = OURS, **options) -> list[Change]:
    """The last changes of a job whose only pod has ended with what stands in its log."""
    pod = dict.fromkeys(("started", "finished", "message", "signal", "oom"))
    pod |= {"index": 0, "task": "main", "phase": "Succeeded", "attempt": 1, "node": "n", "exit_code": 0, "discarded": ""}
    changes: list[Change] = []
    spec = JobSpec(b"", [Record(str(n), b"") for n in range(work.count)], Options(**options), Environment(files={}))
    connection, chunk = Scripted([pod]), work.chunk
    job = PlatformJob(connection, "j", work.bundle, spec, key=key, chunk=chunk, is_fleet=False, on_change=changes.extend)
    for thread in job._threads:
        thread.join(60)
    return changes


@pytest.mark.parametrize("success", [True, False])
@pytest.mark.parametrize(
    ("key", "said"), [(None, "has no mark of this run"), (THEIRS, "has a mark that is not of this run")]
)
def test_what_others_wrote_is_not_read_and_said(tmp_path, sprung, success, key, said):
    work = Work(tmp_path, len, [[]])
    _core.BundleSlice(work.bundle, 0, 1, 1, key).write([(0, "[]", success, forged(sprung, success))])
    (change,) = followed(work)
    assert (change.state, change.outcome.kind) == (State.FAILED, "unmarked")
    file = next((tmp_path / "bundles" / "runs").rglob("0.0"))
    message = change.outcome.message
    assert f"{file}, which belongs to {run_key.whose(os.geteuid())}, {said}" in message and "allow_pickle=True" in message
    assert isinstance(outcome.exception_of("[]", change.outcome), pumice.TaskFailed) and not sprung.exists()


def test_what_others_wrote_is_read_by_who_says_so(tmp_path):
    work = Work(tmp_path, len, [[]])
    _core.BundleSlice(work.bundle, 0, 1, 1).write([(0, "[]", True, outcome.of_value("theirs"))])
    (change,) = followed(work, key=None, allow_pickle=True)
    assert change.state is State.SUCCEEDED and outcome.read_value(change.outcome) == "theirs"


def test_a_result_of_another_run_or_of_another_shard_is_not_taken(tmp_path):
    one, other = (Work(tmp_path, len, [[]], chunk=1) for _ in range(2))
    _core.BundleSlice(one.bundle, 0, 1, 1, OURS).write([(0, "[]", True, outcome.of_value("of one"))])
    entry = next((tmp_path / "bundles" / "runs").rglob("0.0"))
    replayed = tmp_path / "bundles" / "runs" / other.bundle.rpartition("/")[2] / "0" / "0.0"
    replayed.parent.mkdir(parents=True)
    replayed.write_bytes(entry.read_bytes())
    assert followed(one)[0].state is State.SUCCEEDED
    assert followed(other)[0].outcome.kind == "unmarked"


def test_a_result_that_is_cut_fails_its_own_records_alone(tmp_path):
    work = Work(tmp_path, len, [[], [], []], chunk=2)
    for shard in range(2):
        numbers = range(2 * shard, min(2 * shard + 2, 3))
        written = [(number, str(number), True, outcome.of_value(number)) for number in numbers]
        _core.BundleSlice(work.bundle, shard, 2, 1, OURS).write(written)
    entry = next((tmp_path / "bundles" / "runs").rglob("0.0"))
    entry.write_bytes(entry.read_bytes()[:-1])
    changes = {change.index: change for change in followed(work)}
    assert [changes[index].state for index in range(3)] == [State.FAILED, State.FAILED, State.SUCCEEDED]
    assert "entry 0 of shard 0" in changes[0].outcome.message and "is damaged" in changes[0].outcome.message


@pytest.mark.parametrize("wrong", [1, "yes", None])
def test_allow_pickle_is_yes_or_no(wrong):
    with pytest.raises(pumice.BadOption, match=f"allow_pickle={wrong!r} can't be meant: True or False is wanted"):
        pumice.task(allow_pickle=wrong)(abs)
