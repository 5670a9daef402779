"""The virtual machine that the tests run in: its programs, platforms that run on it, and pods of theirs."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

PUMICE = "/tests/pumice"
GROUPS = Path("/sys/fs/cgroup")
T = TypeVar("T")
# A computed processor is slow.
DEADLINE_S = 180


def run(*command: str | Path, user: str | None = None, stdin: str = "", check: bool = True) -> str:
    """Run a program, as a user with a session of their own if one is named, and give what it printed."""
    as_user = []
    if user is not None:
        uid = subprocess.check_output(["id", "--user", user], text=True).strip()
        as_user = ["runuser", "--user", user, "--", "env", f"XDG_RUNTIME_DIR=/run/user/{uid}", f"HOME=/home/{user}"]
    done = subprocess.run([*as_user, *command], input=stdin, capture_output=True, text=True, check=False, cwd="/")
    assert not check or done.returncode == 0, f"{command} ended with {done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout


def wait_for(what: str, look: Callable[[], T | None]) -> T:
    """Look until something is found."""
    until = time.monotonic() + DEADLINE_S
    while (found := look()) is None:
        assert time.monotonic() < until, f"waited {DEADLINE_S} s for {what}"
        time.sleep(0.2)
    return found


class Platform:
    """One `pumice up` as a service of systemd: the machine's, or a user's."""

    def __init__(self, unit: str, data_dir: Path, *properties: str, user: str | None = None) -> None:
        self.unit, self.data_dir, self.properties, self.user = unit, data_dir, properties, user
        self.scope = () if user is None else ("--user",)

    def up(self) -> None:
        """Start it, and wait until its node is ready."""
        properties = [f"--property={each}" for each in ("KillMode=process", *self.properties)]
        # Files of the machine that are mounted differ between it and its users.
        up = [PUMICE, "up", "--port", "0", "--data-dir", self.data_dir]
        run("systemd-run", *self.scope, "--quiet", "--collect", f"--unit={self.unit}", *properties, *up, user=self.user)
        wait_for("the node to be ready", self._ready)

    def _ready(self) -> bool | None:
        if "failed" in run("systemctl", *self.scope, "is-active", self.unit, user=self.user, check=False):
            raise AssertionError(self.log())
        nodes = json.loads(self.kubectl("get", "nodes", "-o", "json", check=False) or "{}").get("items", [])
        conditions = [each for node in nodes for each in node["status"].get("conditions", [])]
        return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions) or None

    def stop(self) -> None:
        """End the service; its pods go on."""
        run("systemctl", *self.scope, "stop", self.unit, user=self.user)

    def down(self) -> None:
        """End everything, pods too."""
        run("systemctl", *self.scope, "stop", self.unit, user=self.user, check=False)
        run(PUMICE, "down", "--now", "--data-dir", self.data_dir, user=self.user, check=False)

    def log(self) -> str:
        """What the service has said."""
        return run("journalctl", "--no-pager", "--lines=100", f"--unit={self.unit}", check=False)

    def kubectl(self, *arguments: str, stdin: str = "", check: bool = True) -> str:
        """Run kubectl against it."""
        return run("kubectl", "--kubeconfig", self.data_dir / "kubeconfig", *arguments, stdin=stdin, check=check)

    def node(self) -> dict[str, Any]:
        """Its only node."""
        return json.loads(self.kubectl("get", "nodes", "-o", "json"))["items"][0]

    def pod(self, name: str) -> dict[str, Any]:
        """A pod as it is now."""
        return json.loads(self.kubectl("get", "pod", name, "-o", "json"))

    def start(
        self,
        name: str,
        command: str,
        container: dict[str, Any] | None = None,
        annotations: dict[str, str] | None = None,
        **spec: Any,
    ) -> None:
        """Make a pod of one container, `main`, that runs a line of shell."""
        main = {"name": "main", "image": "pumice.sh/host", "command": ["sh", "-c", command], **(container or {})}
        whole = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [main], **spec}
        metadata = {"name": name, "annotations": annotations or {}}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": whole}
        self.kubectl("create", "-f", "-", stdin=json.dumps(pod))

    def wait(self, name: str, *phases: str) -> dict[str, Any]:
        """Wait until a pod is in one of these phases."""

        def look() -> dict[str, Any] | None:
            pod = self.pod(name)
            return pod if pod["status"].get("phase") in phases else None

        return wait_for(f"the pod {name} to be {' or '.join(phases)}", look)

    def run(self, name: str, command: str, container: dict[str, Any] | None = None, **spec: Any) -> str:
        """Run a line of shell in a pod to its end, and give its log."""
        self.start(name, command, container, **spec)
        self.wait(name, "Succeeded", "Failed")
        return self.kubectl("logs", name)

    def started(self, name: str, container: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
        """A pod that goes on until it is deleted."""
        self.start(name, "exec sleep 100000", container, **spec)
        return self.wait(name, "Running")

    def delete(self, name: str) -> None:
        """End a pod at once."""
        self.kubectl("delete", "pod", name, "--now", "--wait=true")


def termination(pod: dict[str, Any]) -> dict[str, Any]:
    """How a pod's container has ended."""
    return pod["status"]["containerStatuses"][0]["state"]["terminated"]


def group(pod: dict[str, Any], container: str | None = None, below: Path = GROUPS) -> Path:
    """The control group of a pod, or of one of its containers."""
    (found,) = below.glob(f"pumice/*/{pod['metadata']['uid']}")
    return found / container if container else found
