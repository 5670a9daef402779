"""Writes state with the programs of PUMICE_BINARIES, for tests that read it with later ones: see tests/upgrade/README.md."""

from __future__ import annotations

import binascii
import gzip
import json
import os
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile
import time
import zlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from armada_client.typings import JobState

import pumice
import upgrade
from deadline import DEADLINE, until
from fleet import BINARIES, Fleet, follow, has, job, pod, state, submit
from postgres import Postgres, programs
from pumice import _core, workstore
from pumice.backend import Record
from pumice.environment import Environment
from pumice.pickling import dumps_args, dumps_function
from upgrade import FLEET_CONFIG, FLEET_FLAGS, NODE_FLAGS, SIMULATED_FLAGS, Up, halves

# What `pumice up` has, beside jobs.
OBJECTS = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: stays}
data: {a: before}
---
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata: {name: research}
spec: {weight: 3, reclaimable: true}
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: urgent}
value: 1000
---
apiVersion: batch.volcano.sh/v1alpha1
kind: CronJob
metadata: {name: nightly}
spec: {schedule: "0 0 * * *", suspend: true, jobTemplate: {spec: {minAvailable: 1, tasks: [TASK]}}}
"""
TABLE = "day,rate\n2024-01-02,1\n2024-01-03,2\n2024-01-04,3\n"
# Rows of the table are given as variables; the last one fails.
ROWS = 'echo "rate $PUMICE_PARAM_RATE" >"$PUMICE_RESULT"; [ "$PUMICE_PARAM_RATE" != 3 ]'


def main() -> None:
    """Writes all into the folder that is named."""
    out = Path(sys.argv[1])
    out.mkdir(parents=True)
    directory = Path(tempfile.mkdtemp(prefix="pumice-upgrade-"))
    expected: dict[str, Any] = {"version": upgrade.pumice("--version").split()[-1]}
    try:
        expected["platform"] = platform(directory / "platform", out)
        expected["bundle"] = bundle(directory / "results", out)
        expected["fleet"] = fleet(directory / "fleet", out, "fleet")
        postgres = Postgres()
        try:
            postgres.start()
            until(postgres.is_ready)
            expected["fleet-postgres"] = fleet(directory / "postgres", out, "fleet-postgres", "--database-url", postgres.url)
            dump(postgres, out / "fleet.sql.gz")
        finally:
            postgres.end()
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    (out / "expected.json").write_text(json.dumps(expected, indent=2) + "\n")


def pack(folder: Path, file: Path) -> None:
    """A folder as an archive, without sockets and what pods have mounted."""
    with tarfile.open(file, "w:xz", preset=9) as archive:
        archive.add(
            folder, folder.name, filter=lambda entry: entry if entry.isfile() or entry.isdir() or entry.issym() else None
        )


def simulated(name: str, queue: str, pods: int, cpu: int, lasts: str = "", priority: str = "") -> str:
    """A Job for simulated nodes, whose pods start together."""
    annotations = {"pumice.sh/simulated-duration": lasts} if lasts else {}
    amounts = {"cpu": str(cpu), "memory": "1Gi"}
    container = {"name": "main", "image": "busybox", "resources": {"requests": amounts, "limits": amounts}}
    selector = {"pumice.sh/simulated": "true"}
    template = {
        "metadata": {"annotations": annotations},
        "spec": {"restartPolicy": "Never", "containers": [container], "nodeSelector": selector},
    }
    spec = {
        "minAvailable": pods,
        "queue": queue,
        "schedulerName": "volcano",
        "policies": [{"event": "PodEvicted", "action": "RestartJob"}],
        "tasks": [{"name": "main", "replicas": pods, "template": template}],
    }
    if priority:
        spec["priorityClassName"] = priority
    kind = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": name}, "spec": spec}
    return json.dumps(kind)


def platform(directory: Path, out: Path) -> dict[str, Any]:
    """A data directory, its backup, and recordings: two lives of one platform, the second of which is killed."""
    real = Up(directory, *NODE_FLAGS)
    template = "{spec: {restartPolicy: Never, containers: [{name: main, image: pumice.sh/host}]}}"
    task = f"{{name: main, replicas: 1, template: {template}}}"
    table = directory / "table.csv"
    table.write_text(TABLE)
    try:
        real.start()
        real.kubectl("create", "-f", "-", stdin=OBJECTS.replace("TASK", task))
        real.jobctl("run", "--name", "done", "--label", "team=a", "--", "echo", "written before")
        real.jobctl("run", "--name", "gone", "--", "true")
        real.kubectl("delete", "jobs.batch.volcano.sh", "gone")
        until(lambda: "deleted" in real.jobctl("history", "gone", check=False))
        # The platform of this machine would take a folder of the user for its results.
        elsewhere = (
            "--kubeconfig",
            real.data_dir / "kubeconfig",
            "--params",
            table,
            "--key",
            "day",
            "--env",
            f"PATH={BINARIES}:{os.defpath}",
        )
        command = (BINARIES / "jobctl", "run", *elsewhere, "--name", "rows", "--", "sh", "-c", ROWS)
        subprocess.run(command, check=False, capture_output=True, timeout=DEADLINE)
        until(lambda: "2024-01-04" in real.jobctl("results", "rows", "--failed", "-o", "keys"))
        real.end()
    finally:
        real.down()
    both = Up(directory, *SIMULATED_FLAGS, *NODE_FLAGS)
    try:
        both.start()
        for name, queue, pods, cpu, lasts in (
            ("first", "default", 2, 2, "3s"),
            ("second", "research", 3, 2, "4s"),
            ("third", "default", 2, 4, "3s"),
        ):
            both.kubectl("create", "-f", "-", stdin=simulated(name, queue, pods, cpu, lasts))
        both.kubectl("create", "-f", "-", stdin=simulated("runs", "research", 2, 3))
        for name in ("first", "second", "third"):
            until(lambda name=name: both.phase(name) == "Completed")
        until(lambda: both.phase("runs") == "Running")
        middle = datetime.now(UTC)
        both.kubectl("create", "-f", "-", stdin=simulated("yields", "default", 2, 4))
        until(lambda: both.phase("yields") == "Running")
        both.kubectl("create", "-f", "-", stdin=simulated("urgent", "default", 1, 4, priority="urgent"))
        both.kubectl("create", "-f", "-", stdin=simulated("large", "research", 2, 7))
        until(lambda: both.phase("urgent") == "Running")
        until(lambda: both.phase("large") == "Pending")
        of_done = both.pods("done")["done-main-0"]["metadata"]["uid"]
        # What the recorder has is on its way to the disk after three seconds.
        time.sleep(4)
        running = {name: sorted(both.pods(name)) for name in ("runs", "urgent")}
        uids = {name: pod["metadata"]["uid"] for job in running for name, pod in both.pods(job).items()}
        why = json.loads(both.jobctl("why", "large", "-o", "json"))
        both.crash()
        data = both.data_dir
        node(data / "node" / "pods" / of_done, out)
        recorded = recordings(data / "recording", out, middle)
        backup = directory / "platform.backup"
        upgrade.pumice("backup", "--data-dir", data, backup)
        (out / "platform.backup.gz").write_bytes(gzip.compress(backup.read_bytes(), mtime=0))
        # At a stop nothing of it is mounted, and its pods have ended.
        pack(data, out / "data.tar.xz")
    finally:
        both.down()
    return {
        "running": running,
        "uids": uids,
        "why": sorted(why if isinstance(why, dict) else why[0]),
        "completed": ["done", "first", "second", "third"],
        "recordings": recorded,
    }


def node(pod: Path, out: Path) -> None:
    """What agent and shim tell each other of a pod, for tests of these alone."""
    for name in ("spec.json", "status.json"):
        (out / name).write_text((pod / name).read_text() + "\n")


def recordings(folder: Path, out: Path, middle: datetime) -> dict[str, Any]:
    """The whole of it; one with a hole; a stretch that begins with a saved World, with and without names.

    Gives what a replay says of the first two.
    """
    pack(folder, out / "recording.tar.xz")
    begins = ("--from", middle.strftime("%Y-%m-%dT%H:%M:%SZ"))
    upgrade.pumice("scheduler", "record", "cut", folder, *begins, "-o", out / "world.case")
    upgrade.pumice("scheduler", "record", "cut", folder, *begins, "--redact", "-o", out / "redacted.case")
    holed = folder.parent.parent / "recording-hole"
    shutil.copytree(folder, holed)
    last = max(holed.glob("*.record"))
    last.write_bytes(with_hole(last.read_bytes()))
    pack(holed, out / "recording-hole.tar.xz")
    return {played.name: upgrade.replay(played) for played in (folder, holed)}


def with_hole(segment: bytes) -> bytes:
    """A segment of a recording without some of its entries, as docs/recording.md has it where the recorder can't keep up."""
    start = len(b"PUMICE record\n") + 4
    head, blocks, at = segment[:start], [], start
    while at + 12 <= len(segment):
        packed, _, checksum = struct.unpack_from("<III", segment, at)
        data = segment[at + 12 : at + 12 + packed]
        at += 12 + packed
        if packed == 0 or len(data) < packed:
            break
        assert binascii.crc32(data) == checksum
        blocks.append(zlib.decompress(data, -15))
    header, lines = blocks[0], b"".join(blocks[1:]).splitlines(keepends=True)
    hole = json.dumps({"hole": {"entries": 5}}).encode() + b"\n"
    middle = len(lines) * 2 // 3
    lines[middle : middle + 5] = [hole]
    made = head
    for plain in (header, b"".join(lines)):
        packer = zlib.compressobj(9, zlib.DEFLATED, -15)
        packed_bytes = packer.compress(plain) + packer.flush()
        made += struct.pack("<III", len(packed_bytes), len(plain), binascii.crc32(packed_bytes)) + packed_bytes
    return made


def call(x: int) -> float:
    """What the bundle calls: a function of the program, which goes along."""
    if x == 3:
        raise ValueError("three is odd")
    return x / 2


def bundle(directory: Path, out: Path) -> dict[str, Any]:
    """Python's work and its results in a folder, marked with the key of its run, and kept values, marked with the user's."""
    folder = directory / "bundles"
    folder.parent.mkdir(parents=True)
    key = os.urandom(32).hex()
    records = [Record(str(x), dumps_args((x,), {}, str(x))) for x in range(6)]
    path = workstore.pack(folder, dumps_function(call), records, python=Environment().python)
    for shard in range(3):
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.environ["PYTHONPATH"],
            "PUMICE_BUNDLE": path,
            "PUMICE_RUN_KEY": key,
            "PUMICE_WORK_CHUNK": "2",
            "PUMICE_ATTEMPT": "1",
            "PUMICE_CACHE": str(directory / "cache"),
            "VC_TASK_INDEX": str(shard),
        }
        command = [sys.executable, "-m", "pumice.worker"]
        subprocess.run(command, env=environment, cwd=directory, check=False, capture_output=True, timeout=DEADLINE)
    results = _core.BundleResults(path, len(records), 2, key)
    found = {row[1]: row[3] for shard in range(3) for row in results.shard(shard)}
    assert found == {str(x): x != 3 for x in range(6)}, found
    pack(folder, out / "bundles.tar.xz")
    os.environ["XDG_CONFIG_HOME"] = str(directory / "config")
    with pumice.use(pumice.local(1)):
        kept = pumice.task(halves, version="1").map([1, 2, 4], store=directory / "kept").results()
    assert kept == [0.5, 1.0, 2.0]
    pack(directory / "kept", out / "kept.tar.xz")
    pack(directory / "config", out / "config.tar.xz")
    return {"run": path.partition("#")[2], "key": key, "python": sys.version_info[:2]}


def fleet(directory: Path, out: Path, name: str, *flags: str) -> dict[str, Any]:
    """A fleet with its clusters in one process, killed while leases run."""
    directory.mkdir(parents=True)
    config = directory / "fleet.yaml"
    config.write_text(FLEET_CONFIG)
    served = Fleet(directory, "--config", str(config), *FLEET_FLAGS, *flags, verb="up")
    try:
        served.start()
        client = served.administrator.client(served.address)
        client.create_queue(client.create_queue_request(name="ada", priority_factor=2.0))
        [done] = submit(client, "ada", job())
        follow(client, "ada", "set", has(done, "succeeded"))
        [cancelled] = submit(client, "ada", job(pod(node_selector={"example.com/none": "true"})))
        client.cancel_jobs("ada", "set", cancelled)
        follow(client, "ada", "set", has(cancelled, "cancelled"))
        long = submit(client, "ada", *(job(pod(cpu="6"), lasts="100000h", client_id=f"long-{n}") for n in range(3)))
        # Their time is over when somebody looks at them again.
        soon = submit(client, "ada", *(job(pod(cpu="1"), lasts="10s") for _ in range(2)))
        for job_id in (*long, *soon):
            follow(client, "ada", "set", has(job_id, "running"))
        waiting = submit(client, "ada", *(job(pod(cpu="7")) for _ in range(2)))
        whole = job(lasts="")
        whole.ClearField("pod_specs")
        whole.annotations["pumice.sh/volcano-job"] = simulated("whole", "", 2, 1)
        [together] = submit(client, "ada", whole)
        follow(client, "ada", "set", has(together, "running"))
        until(lambda: {state(client, job_id) for job_id in (*long, *soon)} == {JobState.RUNNING})
    finally:
        served.program.crash()
    shutil.move(served.data_dir, directory / name)
    pack(directory / name, out / f"{name}.tar.xz")
    return {"done": done, "cancelled": cancelled, "long": long, "soon": soon, "waiting": waiting, "whole": together}


def dump(postgres: Postgres, file: Path) -> None:
    """The tables of a database, without what only this version of Postgres knows."""
    command = [
        programs() / "pg_dump",
        "-h",
        postgres.directory,
        "-U",
        "postgres",
        "--no-owner",
        "--no-privileges",
        "postgres",
    ]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    lines = (line for line in text.splitlines() if not line.startswith(("SET ", "\\restrict", "\\unrestrict", "--")))
    file.write_bytes(gzip.compress("\n".join(lines).encode(), mtime=0))


if __name__ == "__main__":
    main()
