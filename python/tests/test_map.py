"""Maps on real processes: values, order, what fails, what is kept, waiting and awaiting."""

from __future__ import annotations

import asyncio
import os
import time

import pytest

import pumice
from pumice import State


@pytest.mark.parametrize("chunk", ["auto", 1, 3, 100])
def test_values_come_in_order(here, chunk):
    square = pumice.task(lambda x: x * x)
    result = square.map(range(40), chunk=chunk)
    assert list(result) == [x * x for x in range(40)]
    assert result.results() == [x * x for x in range(40)]
    assert result.done and not result.failed and not result.missing
    assert result["7"].value == 49


def test_values_come_as_they_are_completed(here, tmp_path):
    @pumice.task
    def after_the_next(number):
        mine, next_one = tmp_path / str(number), tmp_path / str(number + 1)
        while number == 0 and not next_one.exists():
            time.sleep(0.01)
        mine.touch()
        return number

    assert [done.key for done in after_the_next.map([0, 1], chunk=1).as_completed(timeout=30)] == ["1", "0"]


def test_several_iterables_go_side_by_side_and_grids_by_name(here):
    assert pumice.task(pow).map([2, 3], [3, 2]).results() == [8, 9]

    @pumice.task
    def f(a, b=0):
        return f"{a}{b}"

    result = f.map(pumice.grid(a=[1, 2], b=["x", "y"]))
    assert result.results() == ["1x", "1y", "2x", "2y"]
    assert [item.key for item in result.items] == ["a=1,b=x", "a=1,b=y", "a=2,b=x", "a=2,b=y"]


@pumice.task
def fails_on_7(x):
    if x == 7:
        raise ValueError("seven")
    return x


def test_the_first_failure_is_raised_where_all_are_needed(here):
    result = fails_on_7.map(range(10))
    with pytest.raises(pumice.TaskFailed, match="7: raised ValueError: seven") as caught:
        result.results()
    assert isinstance(caught.value.__cause__, ValueError)
    values = []
    with pytest.raises(pumice.TaskFailed):
        values.extend(fails_on_7.map(range(10)))
    assert values == list(range(7))


@pytest.mark.parametrize("enough", [0.9, 9, "90%", 0.0, 0])
def test_min_success_gives_what_there_is(here, enough):
    result = fails_on_7.map(range(10), min_success=enough)
    assert result.results() == list(result) == [x for x in range(10) if x != 7]
    assert sorted(done.value for done in result.as_completed()) == [x for x in range(10) if x != 7]
    assert [item.key for item in result.failed] == ["7"]


@pytest.mark.parametrize("enough", [0.91, 10, "91%"])
def test_too_few_say_which_are_missing(here, enough):
    with pytest.raises(pumice.BelowMinSuccess, match="9 of 10 succeeded, 10 were needed; without a value: 7") as caught:
        fails_on_7.map(range(10), min_success=enough).results()
    assert caught.value.without == ("7",)
    assert isinstance(caught.value.__cause__, pumice.TaskFailed)


def test_a_failed_record_runs_here_with_its_arguments(here):
    result = fails_on_7.map(range(10)).wait()
    with pytest.raises(ValueError, match="seven") as caught:
        result.failed[0].run_local()
    assert caught.traceback[-1].name == "fails_on_7"


def test_retry_runs_what_failed_and_nothing_else(here, tmp_path):
    @pumice.task
    def once_bad(x):
        with (tmp_path / f"runs-{x}").open("a") as file:
            file.write(".")
        if x == 3 and not (tmp_path / "good").exists():
            raise OSError("not yet")
        return x

    result = once_bad.map(range(5)).wait()
    assert [item.key for item in result.failed] == ["3"]
    (tmp_path / "good").touch()
    assert result.retry().results() == [0, 1, 2, 3, 4]
    assert [(tmp_path / f"runs-{x}").read_text() for x in range(5)] == [".", ".", ".", "..", "."]


def test_what_is_kept_does_not_run_again(here, tmp_path):
    runs = tmp_path / "runs"
    runs.mkdir()

    def work(x):
        (runs / f"{x}-{len(os.listdir(runs))}").touch()
        if x == 2 and len(os.listdir(runs)) < 5:
            raise OSError("not yet")
        return x * 10

    task = pumice.task(work)
    first = task.map(range(4), store=tmp_path / "store").wait()
    assert len(first.failed) == 1 and len(os.listdir(runs)) == 4
    second = task.map(range(5), store=tmp_path / "store", chunk=1)
    assert second.results() == [0, 10, 20, 30, 40]
    assert len(os.listdir(runs)) == 6
    assert [item.from_store for item in second.items] == [True, True, False, True, False]
    assert task.map(["1"], store=tmp_path / "store").wait()["1"].from_store is False
    assert task.options(version="2").map([1], store=tmp_path / "store").wait()["1"].from_store is False


def test_a_store_that_is_full_warns_and_the_values_come(fake, tmp_path, monkeypatch):
    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pumice.result_store.write_once", full)
    with pytest.warns(RuntimeWarning, match="Results aren't kept in .*No space left on device") as warned:
        assert fails_on_7.map([1, 2], store=tmp_path).results() == [1, 2]
    assert len(warned) == 1


def test_a_store_that_is_no_folder_is_refused(fake, tmp_path):
    (tmp_path / "store").write_text("a file")
    with pytest.raises(pumice.BadOption, match=r"store=.* can't be used"):
        fails_on_7.map([1], store=tmp_path / "store")
    assert fake.jobs == []


def test_every_record_comes_once_though_processes_are_killed_under_them(here, tmp_path):
    @pumice.task(retries=1)
    def risky(x):
        if x % 20 == 0 and os.environ["PUMICE_ATTEMPT"] == "1":
            os.kill(os.getpid(), 9)
        return x

    result = risky.map(range(400))
    assert [done.value for done in sorted(result.as_completed(timeout=100), key=lambda done: done.value)] == list(range(400))
    assert [item.attempt for item in result.items] == [2 if x % 20 == 0 else 1 for x in range(400)]


def test_cancel_ends_what_waits_and_what_runs(here, tmp_path):
    @pumice.task
    def hang(x):
        (tmp_path / str(x)).touch()
        time.sleep(600)

    result = hang.map(range(10))
    while not any(tmp_path.iterdir()):
        time.sleep(0.01)
    result.cancel()
    result.wait(30)
    assert {item.state for item in result.items} == {State.CANCELLED}
    assert len(result.missing) == 10
    with pytest.raises(pumice.BelowMinSuccess, match="0 of 10"):
        result.results()


def test_a_wait_that_takes_too_long_says_how_far_it_is(here):
    result = pumice.task(time.sleep).map([600], name="sleepy")
    try:
        with pytest.raises(TimeoutError, match=r"local/sleepy-\d+: 1 of 1 are not over yet"):
            result.wait(0.01)
    finally:
        result.cancel()


def test_the_timeout_of_as_completed_is_of_the_whole(here, tmp_path):
    def waits(number):
        while not (tmp_path / f"go-{number}").exists():
            time.sleep(0.01)
        return number

    result = pumice.task(waits).map(range(4), chunk=1)
    try:
        (tmp_path / "go-0").touch()
        assert next(iter(result)) == 0
        began, seen = time.monotonic(), []
        with pytest.raises(TimeoutError):
            for done in result.as_completed(timeout=1.5):
                seen.append(done.value)
                time.sleep(0.8)
                (tmp_path / f"go-{len(seen)}").touch()
        assert seen and time.monotonic() - began < 10

        async def in_an_event_loop():
            async for _ in result.as_completed(timeout=0.1):
                await asyncio.sleep(0.2)

        with pytest.raises(TimeoutError):
            asyncio.run(in_an_event_loop())
    finally:
        result.cancel()


def test_a_record_may_take_so_long(here):
    result = pumice.task(time.sleep).map([0, 600], timeout=0.3).wait(60)
    assert [item.key for item in result.failed] == ["600"]
    failure = result.failed[0].error.failure
    assert (failure.kind, failure.message) == ("timeout", "took longer than its timeout of 0.3 s")


def test_retries_are_numbered_and_bounded(here, tmp_path):
    @pumice.task(retries=2)
    def third_time(x):
        attempt = int(os.environ["PUMICE_ATTEMPT"])
        if attempt <= x:
            os._exit(attempt)
        return attempt

    result = third_time.map([0, 1, 2, 3], min_success=3)
    assert result.results() == [1, 2, 3]
    assert (result.failed[0].key, result.failed[0].error.exit_code, result.failed[0].attempt) == ("3", 3, 3)


def test_it_can_be_awaited(here):
    async def all_of_it():
        square = pumice.task(lambda x: x * x)
        assert await square.submit(3) == 9
        assert await square.map(range(5)) == [0, 1, 4, 9, 16]
        assert [value async for value in square.map(range(5))] == [0, 1, 4, 9, 16]
        assert sorted([done async for done in square.map(range(3)).as_completed()]) == [("0", 0), ("1", 1), ("2", 4)]
        with pytest.raises(pumice.TaskFailed):
            await fails_on_7.map([7])

    asyncio.run(all_of_it())


def test_records_know_who_they_are(here):
    @pumice.task(env={"GREETING": "hello"})
    def who(day):
        names = ("PUMICE_SHARD_KEY", "PUMICE_SHARD_INDEX", "PUMICE_SHARD_COUNT", "PUMICE_ATTEMPT", "GREETING")
        return [os.environ[name] for name in names]

    days = pumice.days("2024-01-05", "2024-01-08")
    assert who.map(days).results() == [["2024-01-05", "0", "2", "1", "hello"], ["2024-01-08", "1", "2", "1", "hello"]]
    assert pumice.task(lambda: os.environ.get("GREETING")).submit().result() is None


def test_an_empty_map_is_done(here):
    result = fails_on_7.map([])
    assert result.results() == [] and result.done


def test_many_records_all_come_with_their_own_values(here):
    result = pumice.task(lambda x: (x, x * 3)).map(range(5000))
    assert result.results(timeout=100) == [(x, x * 3) for x in range(5000)]


def test_what_has_no_content_is_named_by_its_place_and_is_not_kept_without_a_key(here, tmp_path):
    call = pumice.task(lambda function: function())
    result = call.map([lambda: 1, lambda: 2])
    assert result.results() == [1, 2] and [item.key for item in result.items] == ["#0", "#1"]
    with pytest.raises(pumice.BadOption, match="give key="):
        call.map([lambda: 1], store=tmp_path)
    assert call.map([lambda: 1], store=tmp_path, key=lambda function: "one").results() == [1]
