"""CPython's own executor tests against ours; `PUMICE_CPYTHON` names a Python that ships them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import cloudpickle
import pytest

HERE = Path(__file__).parent
HAS_TESTS = "import sys, importlib.util as u; sys.exit(u.find_spec('test.test_concurrent_futures.executor') is None)"


def ships_tests(python: str) -> bool:
    return subprocess.run([python, "-c", HAS_TESTS], check=False, capture_output=True).returncode == 0


def test_the_executor_passes_the_tests_of_cpython(tmp_path):
    python = os.environ.get("PUMICE_CPYTHON") or sys.executable
    if not ships_tests(python):
        if "PUMICE_CPYTHON" in os.environ:
            pytest.fail(
                f"{python} (PUMICE_CPYTHON) has no test.test_concurrent_futures.executor; it has to be 3.13 or later"
            )
        pytest.skip("this Python ships no executor tests that fit; set PUMICE_CPYTHON to a Python 3.13 or later that does")
    (tmp_path / "cloudpickle").symlink_to(Path(cloudpickle.__file__).parent)
    environ = {**os.environ, "PYTHONPATH": f"{HERE.parent}{os.pathsep}{tmp_path}"}
    command = [python, str(HERE / "cpython_suite.py")]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr[-8000:]
    run, failed, skipped = map(int, re.findall(r"(?:run|failed|skipped) (\d+)", done.stdout))
    assert run >= 29 and failed == skipped == 0, done.stdout
