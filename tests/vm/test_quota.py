"""Quotas of projects: what a pod may keep on disk, where the file system of the data directory counts it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from machine import Platform, run, termination, wait_for

MIB = 1 << 20
# Above the limit of 32 MiB: 16 MiB, and some for what else is in the folder.
BOUND = 50 * MIB
DISKS = {"ext4": (["mkfs.ext4", "-q", "-O", "quota,project"], "prjquota"), "xfs": (["mkfs.xfs", "-q"], "pquota")}


def mounted(kind: str) -> Path:
    """A disk of this kind of 1 GiB with quotas of projects, mounted."""
    make, option = DISKS[kind]
    disk, at = Path(f"/var/tmp/{kind}.img"), Path(f"/mnt/{kind}")
    at.mkdir()
    run("truncate", "--size", "1G", disk)
    run(*make, disk)
    run("mount", "-o", f"loop,{option}", disk, at)
    return at


@pytest.fixture(scope="module", params=sorted(DISKS))
def platform(request: pytest.FixtureRequest) -> Iterator[Platform]:
    """A platform whose pods are on such a disk."""
    at = mounted(request.param)
    platform = Platform(f"pumice-{request.param}", at / "data")
    platform.up()
    yield platform
    platform.down()
    run("umount", at)


def limits(size: str = "32Mi") -> dict[str, object]:
    """A container's limit of disk."""
    return {"resources": {"limits": {"ephemeral-storage": size}}}


def folder(platform: Platform, name: str, part: str) -> Path:
    """A folder of a pod."""
    return platform.data_dir / "node/pods" / platform.pod(name)["metadata"]["uid"] / part


def project(path: Path) -> int:
    """The project of a file."""
    return int(run("lsattr", "-d", "-p", path).split()[0])


def bytes_in(path: Path) -> int:
    """What lies in a folder, on disk."""
    return int(run("du", "--summarize", "--block-size=1", path).split()[0])


def test_the_node_says_that_quotas_hold(platform: Platform) -> None:
    assert "disk-limit=project-quota" in platform.node()["metadata"]["annotations"]["pumice.sh/node-capabilities"]


FILL = "dd if=/dev/zero of={} bs=1M count=500 2>&1; echo dd ended with $?; sleep 1000"


def evicted(platform: Platform, name: str) -> str:
    """Wait until a pod is evicted, and give why."""
    status = platform.wait(name, "Failed")["status"]
    assert status["reason"] == "Evicted", status
    return status["message"]


def test_a_container_that_writes_fast_meets_the_bound_and_is_evicted(platform: Platform) -> None:
    platform.start("fast", FILL.format("/var/tmp/much"), limits())
    layers = folder(platform, "fast", "c/main")
    most = 0

    def look() -> bool | None:
        nonlocal most
        # It is removed when the pod has ended.
        if found := run("du", "-s", "-B1", layers, check=False).split():
            most = max(most, int(found[0]))
        return True if platform.pod("fast")["status"].get("phase") == "Failed" else None

    wait_for("the pod to be evicted", look)
    assert "exceeds the total limit of containers 32Mi" in evicted(platform, "fast")
    assert most <= BOUND, f"{most / MIB} MiB"
    # ext4 and XFS differ in what they say.
    log = platform.kubectl("logs", "fast")
    assert re.search("No space left on device|Disk quota exceeded", log), log
    platform.delete("fast")


def test_a_volume_over_its_size_limit_is_bounded_and_evicted(platform: Platform) -> None:
    volumes = [{"name": "scratch", "emptyDir": {"sizeLimit": "32Mi"}}]
    mounts = {"volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}]}
    platform.start("volume", FILL.format("/scratch/much"), mounts, volumes=volumes)
    assert 'Usage of EmptyDir volume "scratch" exceeds the limit "32Mi"' in evicted(platform, "volume")
    kept = bytes_in(folder(platform, "volume", "volumes/scratch"))
    assert 32 * MIB < kept <= BOUND, f"{kept / MIB} MiB"
    platform.delete("volume")


NAMELESS = """
import os, time
file = open("/var/tmp/much", "wb")
os.unlink("/var/tmp/much")
file.write(bytes(40 << 20))
file.flush()
time.sleep(1000)
"""


def test_a_file_without_a_name_counts(platform: Platform) -> None:
    container = {**limits(), "env": [{"name": "CODE", "value": NAMELESS}]}
    platform.start("nameless", 'exec python3 -c "$CODE"', container)
    assert "exceeds" in evicted(platform, "nameless")
    platform.delete("nameless")


LEAVE = """
import fcntl, os, struct
os.makedirs("/var/tmp/d")
for request, form in ((0x401c5820, "IIIII8x"), (0x40086602, "q")):
    folder = os.open("/var/tmp/d", os.O_RDONLY)
    try:
        fcntl.ioctl(folder, request, struct.pack(form, *([0] * (5 if form[0] == "I" else 1))))
        print("left")
    except OSError as error:
        print(error.strerror)
"""


def test_a_pod_can_not_leave_its_project(platform: Platform) -> None:
    env = {"env": [{"name": "CODE", "value": LEAVE}]}
    assert platform.run("leave", 'python3 -c "$CODE"', env).split("\n")[:2] == ["Operation not permitted"] * 2
    unfiltered = {**env, "securityContext": {"seccompProfile": {"type": "Unconfined"}}}
    # So it is the filter, without which a pod is counted file by file.
    assert "left" in platform.run("leave-unfiltered", 'python3 -c "$CODE"', unfiltered)


def test_who_can_leave_its_project_is_counted_file_by_file(platform: Platform) -> None:
    leave = LEAVE + "\nopen('/var/tmp/d/much', 'wb').write(bytes(40 << 20))\nimport time; time.sleep(1000)"
    container = {
        **limits(),
        "env": [{"name": "CODE", "value": leave}],
        "securityContext": {"seccompProfile": {"type": "Unconfined"}},
    }
    platform.start("left", 'exec python3 -c "$CODE"', container)
    assert "exceeds" in evicted(platform, "left")
    platform.delete("left")


def test_pods_go_on_in_their_projects_after_a_restart_and_numbers_are_not_shared(platform: Platform) -> None:
    platform.start("before", "until [ -e /var/tmp/go ]; do sleep 0.5; done; " + FILL.format("/var/tmp/much"), limits())
    platform.wait("before", "Running")
    first = project(folder(platform, "before", "c/main"))
    assert first >= 0x50000000
    platform.stop()
    run("systemctl", "reset-failed", platform.unit, check=False)
    platform.up()
    platform.started("after", limits())
    assert project(folder(platform, "after", "c/main")) not in (first, 0)
    assert project(folder(platform, "before", "c/main")) == first
    platform.kubectl("exec", "before", "--", "touch", "/var/tmp/go")
    assert "exceeds" in evicted(platform, "before")
    platform.delete("before")
    platform.delete("after")


def test_a_pod_within_its_limit_is_left_alone(platform: Platform) -> None:
    within = "head -c 20M /dev/zero >/var/tmp/some && sleep 6 && echo whole"
    assert "whole" in platform.run("within", within, limits())
    assert termination(platform.pod("within"))["exitCode"] == 0
