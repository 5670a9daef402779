"""Decorated functions, the fake back end, joblib, tables."""

from __future__ import annotations

import inspect
import pickle
import subprocess
import sys
import textwrap

import joblib
import pandas
import pyarrow
import pytest

import pumice
from pumice import State


@pumice.task(cpu=2, memory="4Gi", on_oom=pumice.grow(1.5, "64Gi"), retries=1)
def add(a: int, b: int = 2) -> int:
    """Adds."""
    return a + b


def test_a_task_is_still_its_function(fake):
    assert add(1) == 3 and add(a=1, b=1) == 2
    assert (add.__name__, add.__doc__) == ("add", "Adds.")
    assert str(inspect.signature(add)) == "(a: 'int', b: 'int' = 2) -> 'int'"
    assert fake.jobs == []


def test_options_reach_the_back_end_and_copies_do_not_change_the_task(fake):
    assert add.options(cpu=8, name="eight").submit(1).result() == 3
    assert add.submit(1, b=5).result() == 6
    first, second = (job.spec.options for job in fake.jobs)
    assert (first.cpu, first.memory, first.retries, first.name) == ("8", "4Gi", 1, "eight")
    assert (second.cpu, second.name, second.on_oom.ceiling) == ("2", "add", "64Gi")


def test_a_task_of_a_module_is_sent_by_name_and_one_of_a_function_by_value():
    assert len(pickle.dumps(add)) < 100 and pickle.loads(pickle.dumps(add)) is add

    def outer():
        @pumice.task
        def inner(x):
            return x

        return inner

    import cloudpickle

    assert cloudpickle.loads(cloudpickle.dumps(outer()))(3) == 3


def test_tasks_call_tasks_as_plain_functions_where_they_run(here):
    assert pumice.task(lambda x: add(x) * 10).submit(1).result() == 30


def test_a_script_with_its_own_module_runs(tmp_path):
    (tmp_path / "mine.py").write_text("import pumice\n@pumice.task\ndef half(x):\n    return x / 2\n")
    (tmp_path / "script.py").write_text(
        textwrap.dedent("""
            import mine, pumice
            @pumice.task
            def twice_half(x):
                return 2 * mine.half(x)
            with pumice.use("local"):
                print(mine.half.map([1, 2]).results(), twice_half.map([1, 2]).results())
        """)
    )
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr) == ("[0.5, 1.0] [1.0, 2.0]\n", "")


def test_the_fake_fails_what_it_is_told_to(fake):
    fake.fail("2", "was killed for memory", oom=True, node="n7", log_lines=["allocating"], why="limit 4Gi")
    fake.fail("3", times=1)
    result = add.map([1, 2, 3], min_success=2)
    assert result.results() == [3, 5]
    error = result.failed[0].error
    assert (error.oom, error.node, error.signal, error.why, error.log_lines) == (True, "n7", 9, "limit 4Gi", ("allocating",))
    assert error.attempt == 2 and result["3"].attempt == 2
    assert list(result.failed[0].logs()) == ["allocating"]


def test_the_fake_holds_what_it_is_told_to(fake):
    fake.hold("2", "the queue is full")
    result = add.map([1, 2])
    assert (result.why(), result["2"].state, result["2"].why) == ("the queue is full", State.WAITING, "the queue is full")
    assert [item.key for item in result.missing] == ["2"]
    with pytest.raises(TimeoutError):
        result.wait(0.01)
    result.cancel()
    assert result["2"].state is State.CANCELLED
    future = add.submit(2)
    assert future.cancel() and future.cancelled()


def test_the_fake_refuses(fake):
    fake.refuse("there is no queue alpha")
    with pytest.raises(pumice.Refused, match="no queue alpha"):
        add.submit(1)


@pytest.mark.parametrize(
    ("function", "columns", "rows"),
    [
        (lambda x: x, ["value"], [[1], [2]]),
        (lambda x: {"a": x, "b": "t"}, ["a", "b"], [[1, "t"], [2, "t"]]),
        (lambda x: pandas.Series({"a": x}), ["a"], [[1], [2]]),
        (lambda x: pandas.DataFrame({"a": [x, x]}), ["a"], [[1], [1], [2], [2]]),
    ],
)
def test_values_become_tables(fake, function, columns, rows):
    result = pumice.task(function).map([1, 2])
    frame = result.to_pandas()
    assert list(frame.columns) == columns and frame.to_numpy().tolist() == rows
    assert "key" in frame.index.names
    table = result.to_arrow()
    assert isinstance(table, pyarrow.Table)
    assert table.column("key").to_pylist()[0] == "1" and table.num_rows == len(rows)
    assert [list(row) for row in zip(*(table.column(name).to_pylist() for name in columns), strict=True)] == rows


def test_arrow_tables_go_one_below_the_other(fake):
    table = pumice.task(lambda x: pyarrow.table({"a": [x]})).map([1, 2]).to_arrow()
    assert table.to_pydict() == {"key": ["1", "2"], "a": [1, 2]}


def test_the_status_table_has_a_row_a_record(fake):
    fake.fail("2", "broke", oom=True)
    result = add.map([1, 2])
    frame = result.to_pandas(status=True)
    assert frame.loc["1", "state"] == "succeeded" and frame.loc["2", "error"] == "broke" and bool(frame.loc["2", "oom"])
    assert result.to_arrow(status=True).column("state").to_pylist() == ["succeeded", "failed"]


def test_joblib_runs_on_the_back_end(here):
    pumice.register_joblib()
    with joblib.parallel_config(backend="pumice", n_jobs=-1):
        assert joblib.Parallel()(joblib.delayed(divmod)(n, 3) for n in range(50)) == [divmod(n, 3) for n in range(50)]
        with pytest.raises(ZeroDivisionError):
            joblib.Parallel()(joblib.delayed(divmod)(n, 0) for n in range(5))
        assert joblib.Parallel(n_jobs=2)(joblib.delayed(add)(n) for n in range(5)) == [2, 3, 4, 5, 6]
        unordered = joblib.Parallel(return_as="generator_unordered")(joblib.delayed(abs)(n) for n in range(5))
        assert sorted(unordered) == [0, 1, 2, 3, 4]


def test_use_comes_to_an_end(fake):
    before = pumice.current()
    with pumice.use("fake") as inner:
        assert pumice.current() is inner is not before
    assert pumice.current() is before


def test_a_back_end_can_be_registered():
    made = pumice.fake()
    pumice.register("mine", lambda: made)
    with pumice.use("mine") as backend:
        assert backend is made and add.submit(1).result() == 3


def test_jobs_that_are_over_are_closed_and_others_are_not(fake):
    fake.hold("2", "the queue is full")
    add.map([1]).results()
    waiting = add.map([2])
    with pytest.raises(TimeoutError):
        waiting.wait(0.01)
    assert [job.closed for job in fake.jobs] == [True, False]
    waiting.cancel()
    waiting.wait()
    assert fake.jobs[1].closed
