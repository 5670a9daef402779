"""What is known of a failure, and what is refused before anything runs."""

from __future__ import annotations

import os
import signal
import sys
import threading

import pytest

import pumice
from pumice.backend import Failure, JobSpec
from pumice.interpreter import check_python


def failure_of(function, **options) -> pumice.TaskFailed:
    with pytest.raises(pumice.TaskFailed) as caught:
        pumice.task(**options)(function).submit().result(60)
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
