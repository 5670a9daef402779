"""How calls fail, and what is told of it."""

from __future__ import annotations

import functools
import os
import signal
import sys
import threading

import pumice
from cases import here, run, task


class Odd(Exception):
    def __init__(self, number, *, unit):
        super().__init__(f"{number} {unit}")
        self.number = number


class Untold(Exception):
    def __str__(self):
        raise RuntimeError("no words")


class Unreadable:
    def __reduce__(self):
        return int, ("not a number",)


class Locked(Exception):
    def __init__(self):
        super().__init__("has a lock")
        self.lock = threading.Lock()


def deep(n):
    return deep(n + 1)


def chained():
    try:
        raise KeyError("first")
    except KeyError as error:
        raise ValueError("second") from error


def grouped():
    raise ExceptionGroup("both", [ValueError(1), TypeError(2)])


def raised(error):
    raise error


def ended(number):
    print("before the end", flush=True)
    os.kill(os.getpid(), number)


def left(code):
    sys.stderr.write("on its way out\n")
    sys.stderr.flush()
    os._exit(code)


FAILURES = {
    "an error": (lambda: raised(ValueError("odd")), "error", "raised ValueError: odd", "ValueError"),
    "an error of the program": (lambda: raised(Odd(3, unit="m")), "error", "raised Odd: 3 m", None),
    "an error that can't be sent": (lambda: raised(Locked()), "error", "raised Locked: has a lock", None),
    "an error that can't say what it is": (
        lambda: raised(Untold()),
        "error",
        "raised Untold: <exception str() failed>",
        "Untold",
    ),
    "an error with a cause": (chained, "error", "raised ValueError: second", "ValueError"),
    "a group of errors": (grouped, "error", "raised ExceptionGroup: both (2 sub-exceptions)", "ExceptionGroup"),
    "an error of a megabyte": (lambda: raised(ValueError("x" * (1 << 20))), "error", "raised ValueError: xxx", "ValueError"),
    "an endless recursion": (lambda: deep(0), "error", "raised RecursionError: maximum recursion", "RecursionError"),
    "no memory": (lambda: bytearray(1 << 60), "error", "raised MemoryError", "MemoryError"),
    "an exit of Python": (lambda: sys.exit(4), "error", "raised SystemExit: 4", "SystemExit"),
    "an interrupt": (lambda: raised(KeyboardInterrupt()), "error", "raised KeyboardInterrupt", "KeyboardInterrupt"),
    "an end of iteration": (lambda: next(iter(())), "error", "raised StopIteration", "StopIteration"),
    "a value that can't be sent": (threading.Lock, "error", "The returned lock can't be sent back", "NotPicklable"),
    "a value that can't be read": (Unreadable, "error", "The value came back, but can't be read here", None),
    "a missing module": (lambda: __import__("nowhere"), "error", "raised ModuleNotFoundError", "ModuleNotFoundError"),
    "a signal": (functools.partial(ended, signal.SIGSEGV), "killed", "its process was killed by signal 11 (SIGSEGV)", None),
    "an exit of the process": (functools.partial(left, 7), "killed", "its process ended with exit code 7", None),
}


def call(function):
    return function()


@functools.cache
def told():
    functions = {id(function): name for name, (function, *_) in FAILURES.items()}
    things = [function for function, *_ in FAILURES.values()]
    result = task(call).map(things, key=lambda function: functions[id(function)], min_success=0, chunk=len(things))
    result.wait(100)
    return result


def one(name):
    _, kind, message, cause = FAILURES[name]
    item = told()[name]
    failure = item.error.failure
    said = message in failure.message
    bounded = len(repr(item.error)) < 2_100 and len(str(item.error)) < 20_000 and len(repr(item)) < 2_100
    own = cause is None or type(item.error.__cause__).__name__ == cause or type(item.error).__name__ == cause
    return (
        failure.kind if failure.kind != kind else kind,
        said or failure.message,
        bounded,
        own or repr(item.error.__cause__),
    )


for name, (_, kind, _, _) in FAILURES.items():
    here(f"{name} is told", (kind, True, True, True))(functools.partial(one, name))


@here("the last lines are told", ("before the end", "on its way out"))
def _():
    return told()["a signal"].error.log_lines[-1], told()["an exit of the process"].error.log_lines[-1]


@here("a traceback has file, line and code", (True, True, True, True))
def _():
    trace = told()["an error with a cause"].error.traceback
    lines = trace.splitlines()
    first = next(number for number, line in enumerate(lines) if "in chained" in line)
    return (
        __file__ in lines[first],
        'raise KeyError("first")' in lines[first + 1],
        "direct cause" in trace,
        "/pumice/" not in trace,
    )


@here("a failed call runs here with its own traceback", "raised")
def _():
    try:
        told()["an error"].run_local()
    except ValueError as error:
        trace = error.__traceback__
        while trace.tb_next is not None:
            trace = trace.tb_next
        return trace.tb_frame.f_code.co_name


@here("an executor raises what was raised", ("ValueError", "odd", True))
def _():
    with pumice.Executor(on=pumice.current(), cpu=1, memory="256Mi") as executor:
        error = executor.submit(raised, ValueError("odd")).exception(100)
    return type(error).__name__, str(error), "in raised" in str(error.__cause__)


run()
