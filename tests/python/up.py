"""A running `pumice up` for tests of the Python library: the real programs, in a directory of their own.

PUMICE_BINARIES names the directory of the programs; it is target/debug otherwise.
"""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

from pumice import _core

BINARIES = Path(os.environ.get("PUMICE_BINARIES", Path(__file__).parents[2] / "target" / "debug"))


class Platform:
    """One `pumice up`, with more flags if wanted."""

    def __init__(self, directory: Path, *flags: str) -> None:
        directory.mkdir(exist_ok=True)
        self.data_dir = directory / "data"
        self.flags = flags
        self._log = directory / "up.log"
        self._up: subprocess.Popen[str] | None = None

    def up(self) -> None:
        """Start it (again) on the same directory and wait until it says that it is ready."""
        assert self._up is None
        with self._log.open("a") as log:
            command = [str(BINARIES / "pumice"), "up", "--port", "0", "--data-dir", str(self.data_dir)]
            # Tests name images of others, and reach no registry but one of their own.
            own_images = any(flag.startswith("--images") for flag in self.flags)
            command += [*([] if own_images else ["--images", "host"]), *self.flags]
            self._up = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self._up.stdout is not None
        line = self._up.stdout.readline()
        assert "https://" in line, f"up printed {line!r} and said:\n{self._log.read_text()}"

    def crash(self) -> None:
        """Kill it without a chance to clean up. Pods go on."""
        self._end(signal.SIGKILL)

    def tear_down(self) -> None:
        """End everything, pods too."""
        if self._up is not None:
            self._end(signal.SIGTERM)
        subprocess.run([BINARIES / "pumice", "down", "--now", "--data-dir", self.data_dir], check=False, capture_output=True)

    def _end(self, how: signal.Signals) -> None:
        assert self._up is not None
        assert self._up.stdout is not None
        self._up.send_signal(how)
        self._up.wait()
        self._up.stdout.close()
        self._up = None

    def connect(self) -> _core.Connection:
        """A new connection to it."""
        return _core.Connection.open(data_dir=self.data_dir)
