"""State that an earlier version has written, for the tests that read it with the present one (tests/upgrade)."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import tarfile
from pathlib import Path
from typing import Any

from deadline import DEADLINE
from fleet import BINARIES, Program

STATES = Path(__file__).parents[1] / "upgrade"
# The machine that the state was written on, as far as the state names it: a node is called like its machine.
HOST = "upgrade"
# Everything stays, however long ago it was written.
STAYS = ("--history-days=36500", "--finished-ttl=off", "--record-days=3650")
FLEET_CONFIG = "retention: {jobSetsHours: 0, clientIdsHours: 0}\n"
FLEET_FLAGS = ("--clusters=2", "--nodes=2", "--node-shape=cpu=8,memory=16Gi,ephemeral-storage=1Ti,pods=20")
NODE_FLAGS = ("--cpu=4", "--memory=8Gi")
SIMULATED_FLAGS = ("--simulated-nodes=2", "--simulated-node-shape=cpu=8,memory=16Gi,pods=20")


class State:
    """The files of one earlier version."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def expected(self) -> dict[str, Any]:
        """What has to be found in it."""
        return json.loads((self.folder / "expected.json").read_text())

    def unpack(self, name: str, into: Path) -> Path:
        """Unpacks a folder, and gives its path."""
        with tarfile.open(self.folder / f"{name}.tar.xz") as archive:
            archive.extractall(into, filter="tar")
        return into / name

    def text(self, name: str) -> str:
        """A text that is packed."""
        return gzip.decompress((self.folder / f"{name}.gz").read_bytes()).decode()


def versions() -> list[State]:
    """All that there are, the oldest first."""
    return [State(file.parent) for file in sorted(STATES.glob("*/expected.json"))]


class Up:
    """`pumice up` on a machine that is called like that of the state."""

    def __init__(self, directory: Path, *flags: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.data_dir = directory / "data"
        self._program = Program(directory / "up.log", "up", "--data-dir", self.data_dir, *STAYS, *flags)
        # Waits for the end of nothing: the shell becomes the program.
        named = f'hostname {HOST} && exec "$@"'
        self._program.wrap("unshare", "--uts", "sh", "-c", named, "sh")

    def start(self) -> None:
        """Starts it, and waits until it is ready."""
        self._program.serve()
        self._program.line()

    def crash(self) -> None:
        """Kills it without a chance to clean up."""
        self._program.crash()

    def end(self) -> None:
        """Ends it as an operator does, if it runs. Pods go on."""
        self._program.end()

    def down(self) -> None:
        """Ends everything, pods too."""
        try:
            self.end()
        finally:
            pumice("down", "--now", "--data-dir", self.data_dir, check=False)

    def jobctl(self, *words: str | Path, check: bool = True) -> str:
        """What `jobctl` prints."""
        return run(BINARIES / "jobctl", "--data-dir", self.data_dir, *words, check=check)

    def kubectl(self, *words: str | Path, stdin: str = "") -> str:
        """What `kubectl` prints."""
        return run("kubectl", "--kubeconfig", self.data_dir / "kubeconfig", *words, stdin=stdin)

    def get(self, kind: str, name: str) -> Any:
        """An object."""
        return json.loads(self.kubectl("get", kind, name, "-o", "json"))

    def phase(self, job: str) -> str:
        """Of a job."""
        return self.get("jobs.batch.volcano.sh", job).get("status", {}).get("state", {}).get("phase", "")

    def pods(self, job: str) -> dict[str, dict[str, Any]]:
        """Those of a job, by name."""
        found = json.loads(self.kubectl("get", "pods", "-l", f"volcano.sh/job-name={job}", "-o", "json"))
        return {pod["metadata"]["name"]: pod for pod in found["items"]}


def pumice(*words: str | Path, check: bool = True) -> str:
    """What a verb of `pumice` prints."""
    return run(BINARIES / "pumice", *words, check=check)


def run(*words: str | Path, stdin: str = "", check: bool = True) -> str:
    """What a program prints; it has to end well unless that is not wanted."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PUMICE_")}
    ran = subprocess.run(
        words, input=stdin, capture_output=True, text=True, timeout=2 * DEADLINE, check=False, env=environment
    )
    assert ran.returncode == 0 or not check, f"{words} ended with {ran.returncode} and said:\n{ran.stdout}{ran.stderr}"
    return ran.stdout


def replay(folder: Path) -> dict[str, Any]:
    """What comes out when a recording is run again, but for the time that it takes."""
    said = json.loads(pumice("scheduler", "replay", folder, "-o", "json"))
    return {name: value for name, value in said.items() if name != "seconds"}


def halves(x: int) -> float:
    """Whose values are kept."""
    return x / 2
