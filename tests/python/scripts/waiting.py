"""Waiting, timeouts, Ctrl-C, retries, and calls that map on their own."""

from __future__ import annotations

import os
import signal
import threading
import time

import pumice
from cases import here, run, task


def slow(seconds):
    time.sleep(seconds)
    return seconds


def flaky(number):
    attempt = pumice.shard().attempt
    if number == 1 and attempt == 1:
        raise ValueError("first time")
    return attempt


@here("a call that takes too long is ended, and others aren't", [None, "timeout", None])
def _():
    result = task(slow, timeout="0h0m1.5s").map([0, 600, 0.01], min_success=0, chunk=3)
    return [item.error and item.error.failure.kind for item in result.wait(100).items]


@here("waits end in time and as_completed as a whole", ("TimeoutError", "TimeoutError", "TimeoutError", True))
def _():
    result = task(slow).map([600, 601])
    names, began = [], time.monotonic()
    for wait in (lambda: result.wait(0.2), lambda: result.results(0.2), lambda: list(result.as_completed(0.2))):
        try:
            wait()
        except TimeoutError as error:
            names.append(type(error).__name__)
    short = time.monotonic() - began < 10
    result.cancel()
    result.wait(100)
    return *names, short


@here("what is cancelled has no value", ("cancelled", "BelowMinSuccess"))
def _():
    result = task(slow).map([600])
    result.cancel()
    result.wait(100)
    try:
        result.results()
    except pumice.PumiceError as error:
        return result.items[0].state.value, type(error).__name__


@here("what failed is run again", [1, 2, 1])
def _():
    return task(flaky, retries=1).map(range(3), chunk=1).results(100)


@here("some failures are allowed", ([1], ["1"]))
def _():
    result = task(flaky).map([1, 2], min_success=1)
    return result.results(100), [item.key for item in result.failed]


@here("Ctrl-C ends the wait, and the job goes on", (True, True))
def _():
    # Only the main thread of a process gets it, so there is another process.
    import subprocess
    import sys

    program = [
        "import os, signal, sys, threading, time, cases, pumice",
        # Where the tests run in the background, programs begin deaf to it.
        "signal.signal(signal.SIGINT, signal.default_int_handler)",
        "with pumice.use(cases._back_end()):",
        "    result = cases.task(time.sleep).map([1.5])",
        "    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()",
        "    try: result.wait(100)",
        "    except KeyboardInterrupt: print('interrupted', end=' ')",
        "    print(result.results(100))",
    ]
    command = [sys.executable, "-c", "\n".join(program)]
    folder = os.path.dirname(__file__)
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=100, check=False)
    return done.stdout == "interrupted [None]\n" or done, done.stderr == "" or done.stderr


def maps_on_its_own(x):
    try:
        return pumice.task(abs).map([-x]).results(30)
    except pumice.NoBackend as error:
        return str(error)


@here("a call that maps on its own does so, or is told what to do", True)
def _():
    answer = task(maps_on_its_own).map([3]).results(100)[0]
    return answer == [3] if os.environ["CASES_ON"] == "local" else "map over it in the program" in answer


def knows(x):
    return {
        "key": os.environ["PUMICE_SHARD_KEY"],
        "count": os.environ["PUMICE_SHARD_COUNT"],
        "own": os.environ["GREETING"],
        "main": threading.current_thread() is threading.main_thread(),
        "interrupt": signal.getsignal(signal.SIGTERM) is signal.SIG_DFL,
    }


@here("a call knows what it is", {"key": "5", "count": "1", "own": "hello", "main": True, "interrupt": True})
def _():
    return task(knows, env={"GREETING": "hello"}).map([5]).results(100)[0]


run()
