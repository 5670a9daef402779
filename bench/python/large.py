"""Work as large as researchers have, through `jobctl` and `map`: `large.py`, told by `make bench NAME=large`.

`days` is a job over 10,000 days and `rows` one over 100,000 rows of 1 kB, both on simulated nodes; `packages` are 1,000
calls in real pods, of a function in a local package that uses a compiled one the pods' Python doesn't have.
"""

from __future__ import annotations

import contextlib
import csv
import datetime
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from figures import size, tell, wants
from objects import Api
from pumice import _core
from up import BINARIES, Platform

DAYS, ROWS, CALLS = 10_000, 100_000, 1000
ROW_BYTES = 1000
PODS_OF_A_NODE = 110
LARGEST_BYTES = 1_000_000
"""No object of the API may be larger."""
FIRST_DAY = datetime.date(1985, 1, 2)
WHEEL = "msgpack==1.1.2"
PACKAGE = {
    "__init__.py": "from .shapes import area\n",
    "shapes.py": "import msgpack\n\n"
    "def area(width):\n"
    "    packed = msgpack.packb({'width': width, 'area': width * width})\n"
    "    return msgpack.unpackb(packed)['area'], msgpack.Packer.__module__, msgpack.__file__\n",
}


class Ran(NamedTuple):
    """A run of `jobctl`."""

    output: str
    seconds: float
    peak_mib: float


def jobctl(*words: str, given: str | None = None) -> Ran:
    """Run it to its end, which has to be a good one.

    Its memory is looked at all the time: that of a child that has ended counts what the child was before it was `jobctl`.
    """
    begin = time.monotonic()
    command = [BINARIES / "jobctl", *words]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        peak, over = [0.0], threading.Event()
        watcher = threading.Thread(target=_watch_memory, args=(process.pid, peak, over))
        watcher.start()
        output, _ = process.communicate(given)
        seconds = time.monotonic() - begin
        over.set()
        watcher.join()
    if process.returncode != 0:
        raise SystemExit(f"jobctl {' '.join(words[:6])} ended with {process.returncode}")
    return Ran(output, seconds, peak[0])


def _watch_memory(pid: int, peak: list[float], over: threading.Event) -> None:
    while not over.wait(0.005):
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        peaks = [int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:")]
        peak[0] = max([*peak, *peaks])


def shard(job: Any, index: int, *words: str) -> str:
    """What `jobctl shard` says in the pod of that index."""
    container = job["spec"]["tasks"][0]["template"]["spec"]["containers"][0]
    environ = {entry["name"]: entry["value"] for entry in container["env"] if "value" in entry}
    command = [BINARIES / "jobctl", "shard", *words]
    environ |= {"VC_TASK_INDEX": str(index), "PATH": os.environ["PATH"], "HOME": os.environ["HOME"]}
    return subprocess.run(command, env=environ, check=True, capture_output=True, text=True).stdout


def check(right: bool, what: str) -> None:
    """Figures of wrong results are worth nothing."""
    if not right:
        raise SystemExit(f"wrong: {what}")


def tell_largest(name: str, platform: Platform) -> None:
    """The largest object the API holds."""
    what, largest = Api(platform.data_dir).largest()
    print(f"# the largest object of {name}: {what}", file=sys.stderr)  # noqa: T201 - beside the figures
    check(largest < LARGEST_BYTES, f"{what} has {largest} bytes")
    tell(f"{name}/largest_object", largest / 1e3, "kB")


def simulated(platform: Platform, pods: int) -> None:
    """Bring it up with room for so many pods at once."""
    nodes = -(-pods // PODS_OF_A_NODE) + 1
    platform.flags = ("--simulated-nodes", str(nodes), "--local-node=false")
    platform.up()


def days(platform: Platform) -> None:
    """A job over days: submitted and waited for at once, by `run`."""
    count = size(DAYS)
    simulated(platform, count)
    far = FIRST_DAY + datetime.timedelta(days=count * 2 + 30)
    last = _core.days(FIRST_DAY.isoformat(), far.isoformat(), "XNYS")[count - 1]
    asked = ["--cpu", "100m", "--days", f"{FIRST_DAY}:{last}", "--calendar", "XNYS"]
    # Simulated pods end when their job says so, for which jobctl has no flag.
    job = json.loads(jobctl("run", "--name", "days", *asked, "--dry-run", "-o", "json", "--", "true").output)
    task = job["spec"]["tasks"][0]
    task["template"].setdefault("metadata", {}).setdefault("annotations", {})["pumice.sh/simulated-duration"] = "100ms"
    check(task["replicas"] == count, f"{task['replicas']} of {count} days")
    waits = jobctl("submit", "--after", "ok:nobody", *asked, "--", "true")
    jobctl("cancel", waits.output.strip())
    ran = jobctl("run", "--no-progress", "-f", "-", given=json.dumps(job))
    done = json.loads(jobctl("get", "days", "-o", "json").output)
    check(done["status"]["succeeded"] == count, f"{done['status'].get('succeeded')} of {count} days succeeded")
    keys = [shard(done, index, "key").strip() for index in (0, count - 1)]
    check(keys == [FIRST_DAY.isoformat(), last], f"the days are {keys}")
    tell("days/pods", count, "pods")
    tell("days/submit", waits.seconds, "s")
    tell("days/submit_memory", waits.peak_mib, "MiB")
    tell("days/run", ran.seconds, "s")
    tell("days/run_rate", count / ran.seconds, "pods/s")
    tell("days/run_memory", ran.peak_mib, "MiB")
    tell_largest("days", platform)


def write_rows(path: Path, count: int) -> None:
    """A table with rows of `ROW_BYTES`, no two alike."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["seed", "note"])
        for number in range(count):
            text = f"{number * 2654435761 % (1 << 64):020d}" * (ROW_BYTES // 20)
            writer.writerow([number, text[: ROW_BYTES - len(str(number)) - 3]])


def rows(platform: Platform) -> None:
    """A job over rows of a table: submitted, and read back when all its pods run."""
    count = size(ROWS)
    simulated(platform, count)
    folder = platform.data_dir.parent
    table = folder / "rows.csv"
    write_rows(table, count)
    asked = ["--name", "rows", "--params", str(table), "--key", "seed", "--bundle-dir", str(folder / "bundles")]
    begin = time.monotonic()
    submitted = jobctl("submit", "--cpu", "10m", *asked, "--", "true", "{seed}")
    connection = platform.connect()
    for happening in connection.watch("rows"):
        if happening["kind"] == "state" and happening["job"]["running"] == count:
            break
    seconds = time.monotonic() - begin
    job = connection.get("rows")
    for index in (0, count // 2, count - 1):
        check(f"PUMICE_PARAM_SEED='{index}'" in shard(job, index, "env").replace('"', "'"), f"row {index}")
    tell("rows/table", table.stat().st_size / 1e6, "MB")
    tell("rows/pods", count, "pods")
    tell("rows/submit", submitted.seconds, "s")
    tell("rows/submit_memory", submitted.peak_mib, "MiB")
    tell("rows/all_running", seconds, "s")
    tell_largest("rows", platform)


def packages(platform: Platform) -> None:
    """Calls in real pods, whose Python has neither the local package nor the installed one."""
    import pumice
    from pumice.platform import PlatformBackend

    folder, count = platform.data_dir.parent, size(CALLS)
    os.environ["PUMICE_CACHE"] = str(folder / "cache")
    own, bought = folder / "own", folder / "bought"
    (own / "geometry").mkdir(parents=True)
    for name, text in PACKAGE.items():
        (own / "geometry" / name).write_text(text)
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--target",
        str(bought),
        WHEEL,
    ]
    subprocess.run(install, check=True)
    sys.path += [str(own), str(bought)]
    import geometry

    platform.up()
    with contextlib.closing(PlatformBackend(platform.connect())) as backend, pumice.use(backend):
        for chunk, name in ((1, "pods"), ("auto", "map")):
            begin = time.monotonic()
            values: Sequence[Any] = pumice.task(geometry.area, cpu=1).map(range(count), chunk=chunk).results()
            seconds = time.monotonic() - begin
            check([value[0] for value in values] == [width * width for width in range(count)], "the values")
            check({value[1] for value in values} == {"msgpack._cmsgpack"}, "the compiled part was not used")
            check(all(not Path(value[2]).is_relative_to(bought) for value in values), "the pods saw the client's folder")
            tell(f"packages/{name}", seconds, "s", count)


SCENARIOS = {"days": days, "rows": rows, "packages": packages}


def main() -> None:
    """Each scenario on a platform of its own."""
    for name, scenario in SCENARIOS.items():
        if wants(name):
            with tempfile.TemporaryDirectory() as folder:
                platform = Platform(Path(folder))
                os.environ["PUMICE_DATA_DIR"] = str(platform.data_dir)
                try:
                    scenario(platform)
                finally:
                    platform.tear_down()


if __name__ == "__main__":
    main()
