"""What is known of a failure, and what is refused before anything runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading

import pytest

import pumice
from pumice.backend import Failure, JobSpec
from pumice.interpreter import check_python


def failure_of(function, *args, **options) -> pumice.TaskFailed:
    with pytest.raises(pumice.TaskFailed) as caught:
        pumice.task(**options)(function).submit(*args).result(60)
    return caught.value


def test_a_checkpoint_stays_over_attempts_and_goes_with_success(here):
    def steps():
        folder = pumice.checkpoint()
        if not (folder / "step").exists():
            (folder / "step").write_text("1")
            raise ValueError("half way")
        return folder, pumice.shard().attempt

    folder, attempt = pumice.task(retries=1)(steps).submit().result(60)
    assert attempt == 2 and not folder.exists()
    assert pumice.task(pumice.checkpoint).submit().result(60) is None


def test_an_exception_tells_traceback_and_last_lines(here):
    def noisy():
        for number in range(100):
            print("line", number)
        print("to stderr", file=sys.stderr)
        os.system("echo from a child")
        raise LookupError("lost")

    error = failure_of(noisy)
    assert error.failure.kind == "error"
    assert 'raise LookupError("lost")' in error.traceback and "pumice/calls.py" not in error.traceback
    assert len(error.log_lines) == 50
    assert error.log_lines[-3:] == ("line 99", "to stderr", "from a child")
    assert error.node == os.uname().nodename and error.attempt == 1
    assert isinstance(error.__cause__, LookupError)
    text = str(error)
    assert text.startswith("noisy: raised LookupError: lost on ") and "from a child" in text


def test_what_is_said_of_a_failure_is_bounded(here):
    def loud(x):
        print("y" * 100_000)
        raise ValueError(x * (1 << 20))

    result = pumice.task(loud).map(["x"]).wait(60)
    error = result.failed[0].error
    assert len(repr(error)) < 2_000 and len(repr(result.failed)) < 2_000 and len(repr(error.failure)) < 2_000
    assert len(str(error)) < 20_000 and "1,0" in str(error) and "raise ValueError(x * (1 << 20))" in error.traceback
    assert len(str(error.__cause__)) == 1 << 20
    with pytest.raises(pumice.BelowMinSuccess) as caught:
        pumice.task(loud).map([str(number) for number in range(300)], min_success=1).results(60)
    assert len(repr(caught.value)) < 2_000 and len(str(caught.value)) < 2_000


def test_a_traceback_ends_and_begins_with_the_users_code(here):
    def ping(x):
        return pong(x + 1)

    def pong(x):
        return ping(x + 1)

    error = failure_of(ping, 0)
    assert error.traceback.startswith("Traceback") and error.traceback.rstrip().endswith("maximum recursion depth exceeded")
    assert "pumice/" not in error.traceback and "return pong(x + 1)" in error.traceback and len(error.traceback) < 16_000


class Unreadable:
    def __reduce__(self):
        return int, ("not a number",)


class Untold(Exception):
    def __str__(self):
        raise RuntimeError("no words")


def test_a_value_that_cannot_be_read_here_is_a_failure_of_its_record(here):
    result = pumice.task(lambda x: Unreadable()).map([1]).wait(60)
    error = result.failed[0].error
    assert isinstance(error, pumice.NotPicklable) and error.failure.kind == "error"
    assert "can't be read here" in error.failure.message and error.failure.attempt == 1
    with pytest.raises(pumice.NotPicklable) as caught:
        pumice.task(Unreadable).submit().result(60)
    assert caught.value.failure.node


def test_an_exception_that_cannot_say_what_it_is_is_told_all_the_same(here):
    def fails():
        raise Untold

    assert "Untold" in failure_of(fails).failure.message


def test_a_program_that_does_not_wait_is_told_what_ended_with_it(tmp_path):
    text = """
        import pumice, time
        with pumice.use(pumice.local(1)):
            result = pumice.task(time.sleep).map([600, 601], name="left")
            over = pumice.task(abs).map([1])
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text)], capture_output=True, text=True, timeout=60, check=False
    )
    said = "3 calls that it didn't wait for have ended with it (local/abs-2, local/left-1): .results() or .wait() waits."
    assert (done.returncode, done.stderr) == (0, f"pumice: the program is over, and {said}\n")


def test_a_call_that_maps_on_its_own_does_so_here_and_not_in_a_pod(here, monkeypatch):
    def outer(x):
        return pumice.task(abs).map([-x, x]).results()

    assert pumice.task(outer).map([2]).results(60) == [[2, 2]]
    monkeypatch.setattr(pumice.choice._Chosen, "given", None)
    monkeypatch.setattr(pumice.choice._Chosen, "found", None)
    monkeypatch.setenv("PUMICE_BUNDLE", "folder:/x#r/1")
    monkeypatch.delenv("PUMICE_BACKEND", raising=False)
    with pytest.raises(pumice.NoBackend, match=r"runs in a pod.*map over it in the program.*pumice\.local"):
        pumice.current()


def test_an_exit_code_and_a_signal_are_told_with_the_last_lines(here):
    def exits():
        print("before the end")
        sys.stdout.flush()
        os._exit(3)

    error = failure_of(exits)
    assert (error.exit_code, error.signal, error.log_lines) == (3, None, ("before the end",))

    error = failure_of(lambda: os.kill(os.getpid(), signal.SIGSEGV))
    assert (error.exit_code, error.signal) == (None, signal.SIGSEGV)
    assert "SIGSEGV" in str(error)


def test_sys_exit_is_a_failure_of_the_call(here):
    error = failure_of(lambda: sys.exit(4))
    assert isinstance(error.__cause__, SystemExit) and error.__cause__.code == 4


def test_out_of_memory_says_so_and_what_to_do(here):
    def greedy():
        return bytearray(1 << 60)

    error = failure_of(greedy)
    assert error.oom and "on_oom=pumice.grow" in str(error)


def test_a_value_that_cannot_be_sent_back_is_the_calls_failure(here):
    error = failure_of(threading.Lock)
    assert "The returned lock can't be sent back" in str(error)


def test_an_exception_that_cannot_be_sent_back_comes_as_text(here):
    def fails():
        error = RuntimeError("has a lock")
        error.lock = threading.Lock()
        raise error

    error = failure_of(fails)
    assert error.__cause__ is None and "RuntimeError: has a lock" in error.traceback


LOCK = threading.Lock()


def _uses_closure():
    secret = {"deep": [threading.Lock()]}
    return lambda: secret


class Holder:
    def __init__(self):
        self.lock = threading.Lock()

    def method(self):
        return self


@pytest.mark.parametrize(
    ("function", "named"),
    [
        (_uses_closure(), "the outer variable 'secret', in it the item 'deep', in it element 0, a _thread.lock"),
        (Holder().method, "its object, in it the attribute 'lock', a _thread.lock"),
    ],
)
def test_what_cannot_be_pickled_is_named(fake, function, named):
    with pytest.raises(pumice.NotPicklable) as caught:
        pumice.task(function).submit()
    assert named in str(caught.value) and "Make it inside of the function" in str(caught.value)


def test_an_argument_that_cannot_be_pickled_is_named(fake):
    with pytest.raises(pumice.NotPicklable, match=r"element 0, in it element 1, a _thread\.lock"):
        pumice.task(len).submit([1, LOCK])


def test_pickles_over_the_limit_are_refused_with_advice(fake):
    data = bytes(65 << 20)
    with pytest.raises(pumice.PickleTooLarge, match=r"65 MiB, 65 of them the outer variable 'data'.*shared path"):
        pumice.task(lambda: data).submit()
    with pytest.raises(pumice.PickleTooLarge, match="at most 64 MiB"):
        pumice.task(len).map([data])
    assert fake.jobs == []


@pytest.mark.parametrize(("client", "worker", "good"), [("3.11.7", "3.11.2", True), ("3.11.7", "3.12.0", False)])
def test_another_python_is_told_before_start(client, worker, good):
    if good:
        check_python(client, worker)
        return
    with pytest.raises(pumice.EnvironmentMismatch, match=r"This is Python 3\.11\.7, the workers run Python 3\.12\.0"):
        check_python(client, worker)


def test_a_back_end_with_another_python_gets_no_job(fake, monkeypatch):
    monkeypatch.setattr(type(fake), "python", property(lambda self: "2.7"))
    with pytest.raises(pumice.EnvironmentMismatch):
        pumice.task(len).map([[]])
    with pytest.raises(pumice.EnvironmentMismatch):
        pumice.task(len).submit([])
    with pytest.raises(pumice.EnvironmentMismatch):
        pumice.Executor(on=fake)
    assert fake.jobs == []


def test_no_back_end_is_an_error_that_says_what_to_do(monkeypatch):
    from pumice.choice import _Chosen

    monkeypatch.setattr(_Chosen, "given", None)
    monkeypatch.setattr(_Chosen, "found", None)
    monkeypatch.setenv("PUMICE_BACKEND", "nowhere")
    with pytest.raises(pumice.NoBackend, match=r"no back end 'nowhere'; there are: .*local"):
        pumice.task(len).submit([])


class Late:
    """A back end which keeps outcomes until it is asked, as one far away does."""

    name, python, slots, gather = "late", None, None, 0.0

    def __init__(self, outcomes):
        self._outcomes = outcomes

    def submit(self, spec: JobSpec, on_change):
        from pumice.backend import Change, State

        backend = self

        class Job:
            id = "late/1"

            def outcomes(self, indexes):
                if isinstance(backend._outcomes, Exception):
                    raise backend._outcomes
                return ((index, backend._outcomes[index]) for index in indexes)

            def close(self): ...

        on_change([Change(index, State.SUCCEEDED, 1) for index in range(len(spec.records))])
        return Job()

    def close(self): ...


def test_outcomes_that_come_later_are_asked_for():
    from pumice.outcome import of_value

    task = pumice.task(len).options(on=Late([of_value(5), Failure("lost", "was evicted", why="the node has gone")]))
    result = task.map([[], [1]], min_success=1)
    assert result.results() == [5]
    assert result.failed[0].error.why == "the node has gone"
    broken = pumice.task(len).options(on=Late(OSError("no route")))
    with pytest.raises(pumice.TaskFailed, match="its outcome can't be had: no route"):
        broken.submit([]).result(10)
