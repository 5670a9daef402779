"""From nothing: Python's platform back end brings up the platform of this machine, as `jobctl run` does."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deadline import DEADLINE
from pumice import _core
from up import BINARIES

Run = Callable[..., "subprocess.CompletedProcess[str]"]

STARTED = "in the background; `pumice down` ends it"
MAP = "import pumice; print(pumice.task(lambda x: x * x).map(range(3)).results())"


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """Runs a program in the home of somebody who has set up nothing; what it starts ends with the test."""

    def run(*command: str | Path, **more: str) -> subprocess.CompletedProcess[str]:
        environment = {"HOME": str(tmp_path), "PATH": f"{BINARIES}:{os.defpath}", "PYTHONPATH": os.environ["PYTHONPATH"]}
        return subprocess.run(
            command, env=environment | more, cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE, check=False
        )

    yield run
    run(BINARIES / "pumice", "down", "--now")


def test_the_first_map_starts_a_platform_that_the_next_one_uses(run: Run) -> None:
    first = run(sys.executable, "-c", MAP)
    assert (first.returncode, first.stdout) == (0, "[0, 1, 4]\n"), first
    assert first.stderr.count(STARTED) == 1, first
    second = run(sys.executable, "-c", MAP)
    assert (second.returncode, second.stdout) == (0, "[0, 1, 4]\n"), second
    assert STARTED not in second.stderr, second
    jobs = run(BINARIES / "jobctl", "list", "-o", "name")
    assert len(jobs.stdout.splitlines()) == 2, jobs


def test_switched_off_it_is_an_error_with_the_next_command(run: Run, tmp_path: Path) -> None:
    off = run(sys.executable, "-c", MAP, PUMICE_AUTOSTART="0")
    assert off.returncode == 1, off
    assert "NoBackend: no platform is running in " in off.stderr and "Next: pumice up" in off.stderr, off
    assert not (tmp_path / ".local").exists()


def test_the_context_in_use_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    contexts = tmp_path / ".config" / "pumice" / "contexts.yaml"
    contexts.parent.mkdir(parents=True)
    contexts.write_text("current: east\ncontexts:\n  east: {kubeconfig: /nowhere/east.yaml}\n")
    for name in ("PUMICE_CONTEXT", "PUMICE_DATA_DIR", "XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert _core.bring_up(BINARIES) is None
    assert not (tmp_path / ".local").exists()
    with pytest.raises(_core.UsageError, match=r"/nowhere/east\.yaml"):
        _core.Connection.open()
