"""The executor on real processes; CPython's own tests of executors are run by test_cpython.py."""

from __future__ import annotations

import gc
import itertools
import os
import signal
import subprocess
import sys
import textwrap
import time
import weakref
from concurrent.futures import as_completed, wait
from pathlib import Path

import pytest

import pumice


def run_script(text: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text)], capture_output=True, text=True, timeout=60, check=False
    )


def test_results_are_those_of_the_function(pool):
    with pumice.Executor(on=pool) as executor:
        futures = [executor.submit(divmod, number, 7) for number in range(300)]
        assert [future.result() for future in futures] == [divmod(number, 7) for number in range(300)]
        assert {future.result() for future in as_completed(futures)} == {divmod(number, 7) for number in range(300)}


class Value:
    pass


def test_a_value_is_kept_by_its_reader_alone(pool):
    with pumice.Executor(on=pool) as executor:
        for value in executor.map(lambda _: Value(), range(3)):
            seen = weakref.ref(value)
            del value
            # The thread which has set a result may hold it for an instant more.
            deadline = time.monotonic() + 30
            while seen() is not None:
                assert time.monotonic() < deadline
                gc.collect()


def test_an_executor_whose_call_was_refused_still_ends(fake):
    fake.refuse("the queue is closed")
    with pumice.Executor(on=fake) as executor, pytest.raises(pumice.Refused, match="the queue is closed"):
        executor.submit(abs, -1)


def test_map_keeps_the_order_whatever_the_chunks(pool):
    with pumice.Executor(on=pool) as executor:
        for chunksize in (1, 2, 7, 1000):
            assert list(executor.map(pow, range(50), range(50), chunksize=chunksize)) == [n**n for n in range(50)]


def test_a_map_over_what_has_no_end_is_refused_before_the_first_call(fake):
    with pumice.Executor(on=fake) as executor:
        for chunksize in (1, 10):
            with pytest.raises(pumice.BadOption, match="may have no end"):
                executor.map(pow, itertools.count(), itertools.repeat(2), chunksize=chunksize)
            assert fake.jobs == []
        assert list(executor.map(pow, itertools.count(), [1, 2])) == [0, 1]
        assert list(executor.map(pow, iter([2, 3]), iter([1, 2, 3]))) == [2, 9] and list(executor.map(abs, iter([]))) == []


def test_an_exception_comes_back_as_it_is_with_the_remote_traceback(pool):
    def fails():
        raise KeyError("not there")

    with pumice.Executor(on=pool) as executor, pytest.raises(KeyError, match="not there") as caught:
        executor.submit(fails).result()
    assert 'raise KeyError("not there")' in str(caught.value.__cause__)


def test_a_worker_that_dies_takes_one_call_with_it(pool):
    def run(number):
        if number == 20:
            os.kill(os.getpid(), signal.SIGKILL)
        return number

    with pumice.Executor(on=pool) as executor:
        futures = [executor.submit(run, number) for number in range(60)]
        wait(futures)
        with pytest.raises(pumice.TaskFailed, match=r"20: its process was killed.* by signal 9 \(SIGKILL\)") as caught:
            futures[20].result()
    assert caught.value.signal == signal.SIGKILL
    assert [future.result() for number, future in enumerate(futures) if number != 20] == [n for n in range(60) if n != 20]


def test_a_call_that_has_begun_is_not_cancelled_and_a_waiting_one_is(tmp_path):
    go, began = tmp_path / "go", tmp_path / "began"

    def hold():
        began.touch()
        while not go.exists():
            time.sleep(0.01)
        return "held"

    with pumice.Executor(1, on="local") as executor:
        first = executor.submit(hold)
        while not began.exists():
            time.sleep(0.01)
        second = executor.submit(pow, 2, 3)
        assert not first.cancel()
        assert second.cancel() and second.cancelled()
        go.touch()
        assert first.result(30) == "held"


def test_max_workers_bounds_the_calls_that_run_at_once(pool, tmp_path):
    def alone(number):
        lock = tmp_path / "lock"
        os.mkdir(lock)
        time.sleep(0.005)
        os.rmdir(lock)
        return number

    with pumice.Executor(1, on=pool) as executor:
        assert list(executor.map(alone, range(20))) == list(range(20))


def test_calls_are_waited_for_at_exit():
    done = run_script("""
        import pumice, pathlib, tempfile, os, time
        path = pathlib.Path(tempfile.mkdtemp()) / "written"
        def write():
            time.sleep(0.2)
            path.write_text("apple")
        import atexit
        atexit.register(lambda: print(path.read_text()))
        executor = pumice.Executor(2, on="local")
        executor.submit(write)
    """)
    assert (done.stdout, done.stderr, done.returncode) == ("apple\n", "", 0)


def test_calls_go_on_without_their_executor_and_its_processes_end():
    done = run_script("""
        import pumice, time
        executor = pumice.Executor(2, on="local")
        pool = executor._calls.backend._pool
        future = executor.submit(pow, 2, 5)
        del executor
        print(future.result(30))
        pool._thread.join(30)
        print(pool._thread.is_alive())
    """)
    assert (done.stdout, done.stderr) == ("32\nFalse\n", "")


def test_no_calls_are_taken_when_the_interpreter_ends():
    done = run_script("""
        import atexit
        @atexit.register
        def last():
            try:
                executor.submit(id, None)
            except RuntimeError as error:
                print(error)
        import pumice.executor
        executor = pumice.Executor(1, on="local")
    """)
    assert "cannot schedule new futures" in done.stdout


def test_functions_of_the_main_program_and_their_classes_come_back_as_they_are(tmp_path: Path):
    script = tmp_path / "program.py"
    script.write_text(
        textwrap.dedent("""
            import dataclasses, pumice
            @dataclasses.dataclass
            class Point:
                x: int
            class Odd(Exception):
                pass
            def make(x):
                if x % 2:
                    raise Odd(x)
                return Point(x)
            with pumice.Executor(1, on="local") as executor:
                assert executor.submit(make, 2).result() == Point(2)
                try:
                    executor.submit(make, 3).result()
                except Odd as error:
                    print("odd", error.args)
        """)
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("odd (3,)\n", "")


def test_a_changed_module_is_imported_anew(tmp_path: Path):
    script = tmp_path / "program.py"
    script.write_text(
        textwrap.dedent("""
            import importlib, pathlib, sys, pumice
            sys.dont_write_bytecode = True
            path = pathlib.Path(__file__).with_name("factor.py")
            path.write_text("def times(x):\\n    return x * 2\\n")
            import factor
            with pumice.use("local"):
                print(pumice.task(lambda x: __import__("factor").times(x)).map([1, 2]).results())
                path.write_text("def times(x):\\n    return x * 1000\\n")
                importlib.reload(factor)
                print(pumice.task(lambda x: __import__("factor").times(x)).map([1, 2]).results())
        """)
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("[2, 4]\n[1000, 2000]\n", "")


def test_a_large_argument_and_a_large_result_pass_each_other(pool):
    big = bytes(20 << 20)
    with pumice.Executor(on=pool) as executor:
        results = list(executor.map(len, [big, big, big]))
        assert results == [len(big)] * 3
        assert [len(value) for value in executor.map(bytes, [len(big)] * 3)] == [len(big)] * 3


def test_nothing_is_left_behind(tmp_path):
    script = """
        import pumice, subprocess, tempfile
        tempfile.tempdir = PLACE
        pumice.use(pumice.local(2))
        print(pumice.task(abs).map([-1, -2]).results())
    """
    done = run_script(script.replace("PLACE", repr(str(tmp_path))))
    assert (done.stdout, done.stderr) == ("[1, 2]\n", "")
    assert list(tmp_path.iterdir()) == []


class Gathering(type(pumice.fake())):
    """As a back end far away: calls are gathered to jobs."""

    gather = 0.05


def test_calls_are_gathered_to_jobs_where_each_would_be_dear():
    backend = Gathering()
    with pumice.Executor(on=backend) as executor:
        futures = [executor.submit(abs, -number) for number in range(10)]
        other = executor.submit(str, 1)
        taken_back = executor.submit(abs, -100)
        assert taken_back.cancel() and taken_back.cancelled()
        assert [future.result(30) for future in futures] == list(range(10))
        assert other.result(30) == "1"
    assert [len(job.spec.records) for job in backend.jobs] == [10, 1]
    assert all(job.closed for job in backend.jobs)
    backend.refuse("no such queue")
    with pumice.Executor(on=backend) as executor, pytest.raises(pumice.Refused, match="no such queue"):
        executor.submit(abs, 1).result(30)
