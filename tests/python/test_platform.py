"""The Python library on a real `pumice up`: maps, failures, memory, cancelling."""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import pumice
from pumice import State
from pumice.platform import PlatformBackend
from up import DEADLINE, Platform


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


def test_a_pod_that_is_killed_ends_only_what_it_had_left(backend):
    result = pumice.task(fails).map([0, 2, 3, 4], chunk=3)
    result.wait(DEADLINE)
    kinds = {item.key: item.error and item.error.failure.kind for item in result.items}
    assert kinds == {"0": None, "2": "killed", "3": "lost", "4": None}


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


def test_what_is_not_done_yet_is_refused(backend):
    with pytest.raises(pumice.BadOption, match="timeout"):
        pumice.task(abs, timeout=3).map([1])


def test_a_map_of_1000(backend):
    assert pumice.task(lambda x: x + 1).map(range(1000)).results() == list(range(1, 1001))
