"""Runs CPython's own executor tests against ours: `PYTHON cpython_suite.py`, of a Python from 3.13 on that has them.

Which apply:

- `executor.ExecutorTest` (its `test_free_reference` made patient), `test_as_completed.AsCompletedTests`,
  `test_wait.WaitTests`: all.
- `test_shutdown.ExecutorShutdownTest`: all but those that run a script in which the executor is imported from
  `concurrent.futures` by name (test_executor.py has the like of them for ours).
- `test_process_pool.ProcessPoolExecutorTest`: `test_map_chunksize`. The others look at `ProcessPoolExecutor`'s own fields,
  its start methods, the private class of its remote tracebacks, or its `BrokenProcessPool`: with us a worker that dies takes
  one call with it, not the pool.
- `test_deadlock.ExecutorDeadlockTest`: what the function raises or exits with. The others ask for `BrokenProcessPool`.
- `test_init` needs `initializer=`, which there is not; `test_future` and `test_thread_pool` are of other classes.
"""

from __future__ import annotations

import gc
import sys
import time
import unittest
import weakref
from typing import Any

from test.test_concurrent_futures import (
    executor,
    test_as_completed,
    test_deadlock,
    test_process_pool,
    test_shutdown,
    test_wait,
)
from test.test_concurrent_futures.util import BaseTestCase, ExecutorMixin

import pumice

NAMED_IN_SCRIPTS = {"test_interpreter_shutdown", "test_submit_after_interpreter_shutdown", "test_hang_gh83386"}


class LocalExecutor(pumice.Executor):
    """With processes of its own, as `ProcessPoolExecutor` has; start methods are not ours to choose."""

    def __init__(self, max_workers: int | None = None, mp_context: object = None) -> None:
        super().__init__(max_workers, on="local" if max_workers is None or max_workers <= 0 else pumice.local(max_workers))
        self._calls._made = True


class PumiceMixin(ExecutorMixin):
    executor_type = LocalExecutor

    def setUp(self) -> None:
        super().setUp()
        # The tests count in seconds from here; how long an interpreter takes to start on this machine isn't their matter.
        if hasattr(self, "executor"):
            list(self.executor.map(time.sleep, [0.1] * self.worker_count))


class ExecutorTest(executor.ExecutorTest):
    def test_free_reference(self) -> None:
        # As CPython's, but patient: with any executor, the thread that has set a result may hold it for an instant more.
        for value in self.executor.map(executor.make_dummy_object, range(10)):
            seen = weakref.ref(value)
            del value
            deadline = time.monotonic() + 30
            while seen() is not None:
                self.assertLess(time.monotonic(), deadline)
                gc.collect()


class DeadlockMixin(PumiceMixin):
    def get_context(self) -> None:
        return None


def cases(mixin: type, only: set[str] | None = None, without: set[str] | None = None, base: Any = PumiceMixin) -> type:
    """A test case of CPython's mixin with our executor, of some of its tests."""
    names = [name for name in dir(mixin) if name.startswith("test")]
    wanted = [name for name in names if (only is None or name in only) and name not in (without or set())]
    if only is not None and set(wanted) != only:
        raise SystemExit(f"{mixin.__name__} of Python {sys.version.split()[0]} has no {only - set(wanted)}")
    hidden = {name: None for name in names if name not in wanted}
    return type(f"Pumice{mixin.__name__}", (mixin, base, BaseTestCase), hidden)


def suite() -> unittest.TestSuite:
    """All that apply."""
    load = unittest.defaultTestLoader.loadTestsFromTestCase
    all_cases = [
        cases(ExecutorTest),
        cases(test_as_completed.AsCompletedTests),
        cases(test_wait.WaitTests),
        cases(test_shutdown.ExecutorShutdownTest, without=NAMED_IN_SCRIPTS),
        cases(test_process_pool.ProcessPoolExecutorTest, only={"test_map_chunksize"}),
        cases(
            test_deadlock.ExecutorDeadlockTest,
            only={"test_error_during_func_exec_on_worker", "test_exit_during_func_exec_on_worker"},
            base=DeadlockMixin,
        ),
    ]
    return unittest.TestSuite(load(case) for case in all_cases)


if __name__ == "__main__":
    result = unittest.TextTestRunner(verbosity=2).run(suite())
    print(f"run {result.testsRun}, failed {len(result.failures) + len(result.errors)}, skipped {len(result.skipped)}")
    sys.exit(not result.wasSuccessful())
