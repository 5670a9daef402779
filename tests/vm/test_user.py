"""A platform of an ordinary user, as a service of their own systemd."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from machine import GROUPS, Platform, group, run, termination, wait_for

USER = "ada"
MIB = 1 << 20


@pytest.fixture(scope="module")
def manager() -> str:
    """The group of the user's own systemd, which goes on without a session."""
    uid = run("id", "--user", USER).strip()
    run("loginctl", "enable-linger", USER)
    wait_for("the user's systemd", lambda: Path(f"/run/user/{uid}/bus").exists() or None)
    return f"user.slice/user-{uid}.slice/user@{uid}.service/app.slice"


@pytest.fixture(scope="module")
def platform(manager: str) -> Iterator[Platform]:
    """A platform to which systemd hands its group over."""
    platform = Platform("pumice-user", Path("/home/ada/data"), "Delegate=yes", user=USER)
    platform.up()
    yield platform
    platform.down()


def test_an_ordinary_user_has_namespaces_and_groups(platform: Platform) -> None:
    found = platform.node()["metadata"]["annotations"]["pumice.sh/node-capabilities"]
    assert "namespaces=yes root=overlay-by-folder" in found and "cgroup=v2" in found, found


def test_a_users_containers_have_limits_of_version_2(platform: Platform, manager: str) -> None:
    limits = {"requests": {"cpu": "500m", "memory": "64Mi"}, "limits": {"cpu": "1500m", "memory": "64Mi"}}
    pod = platform.started("limits", {"resources": limits})
    below = GROUPS / manager / "pumice-user.service"
    of_container, of_pod = group(pod, "main", below), group(pod, below=below)
    assert (of_container / "memory.max").read_text() == f"{64 * MIB}\n"
    assert (of_container / "cpu.max").read_text() == "150000 100000\n"
    assert (of_pod / "pids.max").read_text() == "4096\n"
    assert (of_container / "cgroup.procs").read_text().split(), "its processes are in it"
    platform.delete("limits")
    assert not of_pod.exists()


def test_a_users_container_that_takes_too_much_memory_is_ended(platform: Platform) -> None:
    limits = {"resources": {"limits": {"memory": "48Mi"}}}
    platform.start("greedy", "python3 -c 'b\"x\" * (1 << 29)'; echo went on; sleep 1000", limits)
    ended = platform.wait("greedy", "Failed")
    assert (termination(ended)["reason"], termination(ended)["exitCode"]) == ("OOMKilled", 137)
    platform.delete("greedy")


def test_a_users_pod_gains_no_rights(platform: Platform) -> None:
    tried = platform.run("rights", "id -u; cat /etc/shadow || echo refused; mknod /tmp/n c 1 3 || echo refused")
    assert tried.split("\n")[0] == "0" and tried.count("refused") == 2, tried


def test_without_delegation_the_node_says_what_helps(manager: str) -> None:
    platform = Platform("pumice-plain", Path("/home/ada/plain"), user=USER)
    platform.up()
    try:
        found = platform.node()["metadata"]["annotations"]["pumice.sh/node-capabilities"]
        assert "cgroup=none" in found and "Delegate=yes" in found, found
    finally:
        platform.down()
