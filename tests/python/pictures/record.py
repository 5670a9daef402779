"""Records the documents' pictures: real programs in a terminal, on a `pumice up` of their own with simulated nodes.

`make pictures` calls it with the folder to write to.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from deadline import until
from up import BINARIES, Platform

from .terminal import Terminal

NODES = ("--simulated-nodes", "40", "--simulated-node-shape", "cpu=64,memory=256Gi,nvidia.com/gpu=8", "--local-node=false")
COLUMNS = 120
SWEEP = 10_000
SWEEP_FAILS = 12
SHOWN_SHARE = 40
YEAR = (
    "jobctl submit --name backtest --days 2024-01-01:2024-12-31 --calendar XNYS \\\n"
    "    --max-parallel 100 --min-success 99% --retries 2 --cpu 1 --memory 4Gi -- python day.py {day}"
)


class Scene:
    """What a picture is taken of: the platform, and a terminal for each picture."""

    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        self._folder = folder
        self._environ = environ

    def quietly(self, *arguments: str, manifest: object = None) -> str:
        """Run `jobctl` out of the picture; what it prints."""
        command = [BINARIES / "jobctl", *arguments, *(["-f", "-"] if manifest is not None else [])]
        text = json.dumps(manifest)
        done = subprocess.run(command, env=self._environ, input=text, capture_output=True, text=True, check=True)
        return done.stdout

    def running(self, job: str) -> int:
        """How many pods of a job run."""
        running = json.loads(self.quietly("progress", job, "-o", "json"))["running"]
        assert isinstance(running, int)
        return running

    def take(self, name: str, rows: int, act: Callable[[Terminal], str | None]) -> None:
        """Take a picture of a terminal at its end, or as it was when `act` took one."""
        terminal = Terminal(COLUMNS, rows, self._environ)
        picture = act(terminal) or terminal.svg()
        (self._folder / f"{name}.svg").write_text(picture)


def pods(name: str, **fields: Any) -> dict[str, Any]:
    """A task of `simulated` pods: so many `replicas`, that last so many `seconds` (for ever), with this `exit_code`."""
    annotations = {
        f"pumice.sh/simulated-{what}": str(fields.pop(field)) + unit
        for field, what, unit in (("seconds", "duration", "s"), ("exit_code", "exit-code", ""))
        if field in fields
    }
    container = {"name": "main", "image": "research/sweep", "resources": {"requests": fields.pop("requests")}}
    spec = {"restartPolicy": "Never", "containers": [container]}
    return {"name": name, **fields, "template": {"metadata": {"annotations": annotations}, "spec": spec}}


def job(name: str, *tasks: dict[str, Any], gang: int = 1) -> dict[str, Any]:
    """A job as a manifest: pods that last as long as the scene needs can't be asked for by flags."""
    metadata = {"name": name, "namespace": "default"}
    spec = {"minAvailable": gang, "tasks": list(tasks)}
    return {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": metadata, "spec": spec}


SMALL = {"cpu": "1", "memory": "4Gi"}
EIGHT_GPUS = {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "8"}


def progress(terminal: Terminal) -> str:
    """Ten thousand pods, some way through."""

    def far_enough() -> bool:
        share = re.search(r"(\d+) %", terminal.text())
        return share is not None and int(share[1]) >= SHOWN_SHARE

    with terminal.started("jobctl progress sweep --follow") as program:
        assert program.read(far_enough), terminal.text()
        picture = terminal.svg()
        program.interrupt()
    return picture


def submit(terminal: Terminal, scene: Scene) -> None:
    """A year of days, a table of parameters, and the list once they run."""
    terminal.run(YEAR)
    terminal.run("jobctl submit --name fit --params grid.csv --max-parallel 50 --cpu 2 -- python fit.py {rate} {depth}")
    until(lambda: (scene.running("backtest"), scene.running("fit")) == (100, 50))
    terminal.run("jobctl list")


def why(terminal: Terminal) -> None:
    """A gang that waits for its accelerators, and a job that fits no node."""
    terminal.run("jobctl why train")
    terminal.run("jobctl why wide")


def top(terminal: Terminal) -> None:
    """What the jobs hold."""
    terminal.run("jobctl top")
    terminal.run("jobctl top queue")


def watch(terminal: Terminal) -> str:
    """All of it, live: the job that waits is chosen."""
    with terminal.started("jobctl watch", full_screen=True) as program:
        assert program.read(lambda: "backtest" in terminal.text()), terminal.text()
        while not re.search(r"^> train", terminal.text(), re.MULTILINE):
            before = terminal.text()
            program.press("j")
            assert program.read(lambda before=before: terminal.text() != before), terminal.text()
        assert program.read(lambda: "waits:" in terminal.text()), terminal.text()
        picture = terminal.svg()
        program.press("q")
    return picture


def record(scene: Scene) -> None:
    """All pictures, in an order in which each finds what it needs."""
    sweep = pods("run", replicas=SWEEP, maxParallel=1000, minAvailable=1, requests=SMALL, seconds=4)
    bad = pods("bad", replicas=SWEEP_FAILS, minAvailable=0, requests=SMALL, seconds=4, exit_code=1)
    scene.quietly("submit", manifest=job("sweep", sweep, bad))
    scene.take("progress", 4, progress)
    until(lambda: scene.quietly("list", "sweep", "--state", "ended", "-o", "name"))

    scene.quietly("submit", manifest=job("embed", pods("gpu", replicas=30, requests=EIGHT_GPUS)))
    until(lambda: scene.running("embed") == 30)
    scene.quietly("submit", manifest=job("train", pods("gpu", replicas=16, requests=EIGHT_GPUS), gang=16))
    scene.quietly("submit", manifest=job("wide", pods("main", replicas=1, requests={"cpu": "8", "memory": "1280Gi"})))
    scene.take("submit", 20, lambda terminal: submit(terminal, scene))
    scene.take("why", 20, why)
    scene.take("top", 20, top)
    scene.take("watch", 18, watch)


def main(folder: Path) -> None:
    """Bring a platform up, record, and end it."""
    with tempfile.TemporaryDirectory() as temporary:
        home = Path(temporary)
        rows = [f"{rate / 100},{depth}" for rate in range(1, 41) for depth in range(5)]
        (home / "grid.csv").write_text("\n".join(["rate,depth", *rows]))
        os.chdir(home)
        platform = Platform(home, *NODES)
        path = os.pathsep.join([str(BINARIES), os.environ["PATH"]])
        environ = {**os.environ, "HOME": temporary, "PATH": path, "PUMICE_DATA_DIR": str(platform.data_dir)}
        try:
            platform.up()
            record(Scene(folder, environ))
        finally:
            platform.tear_down()


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
