"""Armada's test specifications, on a cluster whose pods are processes."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from deadline import until
from fleet import BINARIES, Cluster, Fleet

SPECIFICATIONS = Path(__file__).parents[3] / "shared" / "fixtures" / "armada" / "testsuite"
# The nodes offer no room of this kind by themselves.
SERVER = "submission: {defaultJobLimits: {cpu: 100m, memory: 64Mi}}\n"
EXECUTOR = """\
errorCategories:
  enabled: true
  categories:
  - {name: oom, rules: [{onConditions: [OOMKilled]}]}
"""
# Images whose programs are not on every machine.
IMAGES = """\
alexeiled/stress-ng:*: {command: ["true"], replaceCommand: true}
nvcr.io/nvidia/k8s/cuda-sample:*: {command: ["true"], replaceCommand: true}
"""
# The members of a gang look at each other by kubectl, as whoever their namespace's account is.
RIGHTS = """\
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: look, namespace: personal-anonymous}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
subjects: [{kind: ServiceAccount, name: default, namespace: personal-anonymous}]
"""


class Ground:
    """A server, and a cluster with what the specifications ask for."""

    def __init__(self, directory: Path) -> None:
        for name, text in {"server.yaml": SERVER, "executor.yaml": EXECUTOR, "images.yaml": IMAGES}.items():
            (directory / name).write_text(text)
        self.fleet = Fleet(directory / "server", "--config", str(directory / "server.yaml"))
        self.fleet.start()
        self.cluster = Cluster(self.fleet, directory / "cluster", "local-cluster", nodes=0)
        self.cluster.up.start("--port=0", "--simulated-nodes=1", f"--image-map={directory / 'images.yaml'}")
        self.cluster.up.line()
        self._prepare()
        self.cluster.executor.start("--config", str(directory / "executor.yaml"))

    def kubectl(self, *arguments: str, given: str = "") -> str:
        """What kubectl says."""
        command = ["kubectl", "--kubeconfig", str(self.cluster.kubeconfig), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True, input=given, timeout=60).stdout

    def _prepare(self) -> None:
        """A namespace whose pods may look around, a node with a GPU, and one in a pool of its own."""
        until(lambda: len(self.kubectl("get", "nodes", "-o", "name").split()) == 2)
        listed: list[dict[str, Any]] = json.loads(self.kubectl("get", "nodes", "-o", "json"))["items"]
        names = {"pumice.sh/simulated" in node["metadata"]["labels"]: node["metadata"]["name"] for node in listed}
        gpu = {"status": {"capacity": {"nvidia.com/gpu": "1"}, "allocatable": {"nvidia.com/gpu": "1"}}}
        self.kubectl("patch", "node", names[False], "--subresource=status", "-p", json.dumps(gpu))
        self.kubectl("label", "node", names[True], "armadaproject.io/node-pool=node-ops")
        self.kubectl("taint", "node", names[True], "node-tests=true:NoSchedule")
        self.kubectl("create", "namespace", "personal-anonymous")
        until(lambda: "default" in self.kubectl("get", "serviceaccounts", "-n", "personal-anonymous", "-o", "name"))
        account = ("serviceaccount", "default", "-n", "personal-anonymous")
        self.kubectl("patch", *account, "-p", '{"automountServiceAccountToken": true}')
        self.kubectl("apply", "-f", "-", given=RIGHTS)

    def end(self) -> None:
        """Ends all of it."""
        self.cluster.end()
        subprocess.run(
            [BINARIES / "pumice", "down", "--now", "--data-dir", self.cluster.data_dir], check=False, capture_output=True
        )
        self.fleet.program.end()


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    ground = Ground(tmp_path)
    try:
        yield ground
    finally:
        ground.end()


@pytest.mark.timeout(900)
def test_all_specifications_hold(ground: Ground, tmp_path: Path) -> None:
    if not SPECIFICATIONS.is_dir():
        assert "CI" not in os.environ, f"{SPECIFICATIONS} is missing although CI is set"
        pytest.skip(f"there is no {SPECIFICATIONS}")
    folders = {path.parent for path in SPECIFICATIONS.rglob("*.yaml")}
    # By themselves and last: of 1,500 finished pods the executor keeps 1,000, and the members of a gang look for each
    # other's pods with a tenth of a CPU.
    heavy = {folder for folder in folders if folder.name == "performance"}
    done = [name for part in (folders - heavy, heavy) for name in _run(ground, sorted(part), tmp_path / "results.xml")]
    assert len(done) == len(set(done)) == len(list(SPECIFICATIONS.rglob("*.yaml")))


def _run(ground: Ground, folders: list[Path], junit: Path) -> list[str]:
    """Runs the specifications in some folders, which must all hold, and returns their names."""
    who = ("--server", ground.fleet.address, "--identity", str(ground.fleet.administrator.file))
    # The simulated node would be through with its pods before they are cancelled.
    flags = ("--annotate=pumice.sh/simulated-duration=1h", "--parallel=3", f"--junit={junit}")
    command = [BINARIES / "pumice", "fleet", "testsuite", *who, *flags, *folders]
    said = subprocess.run(command, check=False, capture_output=True, text=True, timeout=840)
    print(said.stdout, said.stderr)
    assert said.returncode == 0
    return [case.attrib["name"] for case in ElementTree.parse(junit).iter("testcase")]
