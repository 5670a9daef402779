"""Control groups of version 2, as systemd mounts and shares them out, for a platform of root."""

from __future__ import annotations

from pathlib import Path

from machine import Platform, group, run, termination

MIB = 1 << 20


def test_a_container_has_limits_of_version_2(root: Platform) -> None:
    assert "cgroup=v2" in root.node()["metadata"]["annotations"]["pumice.sh/node-capabilities"]
    limits = {"requests": {"cpu": "500m", "memory": "64Mi"}, "limits": {"cpu": "1500m", "memory": "64Mi"}}
    pod = root.started("limits", {"resources": limits})
    of_container, of_pod = group(pod, "main"), group(pod)
    assert (of_container / "memory.max").read_text() == f"{64 * MIB}\n"
    assert (of_container / "memory.swap.max").read_text() == "0\n"
    assert (of_container / "cpu.max").read_text() == "150000 100000\n"
    assert (of_container / "cpu.weight").read_text() == "20\n"
    assert (of_pod / "pids.max").read_text() == "4096\n"
    assert (of_container / "cgroup.procs").read_text().split(), "its processes are in it"
    root.delete("limits")
    assert not of_pod.exists()


def test_a_container_without_limits_has_the_nodes_memory(root: Platform) -> None:
    pod = root.started("no-limits")
    most = int((group(pod, "main") / "memory.max").read_text())
    assert most < 4 << 30, "no more than the machine has"
    root.delete("no-limits")


def test_a_container_that_takes_too_much_memory_is_ended_as_a_whole(root: Platform) -> None:
    limits = {"resources": {"limits": {"memory": "48Mi"}}}
    # The shell would go on after its child's end.
    greedy = "python3 -c 'b\"x\" * (1 << 29)'; echo went on; sleep 1000"
    root.start("greedy", greedy, limits)
    ended = root.wait("greedy", "Failed")
    assert (termination(ended)["reason"], termination(ended)["exitCode"]) == ("OOMKilled", 137)
    assert "went on" not in root.kubectl("logs", "greedy")


def test_a_pod_makes_no_more_processes_than_its_limit(root: Platform) -> None:
    pod = root.started("many")
    (group(pod) / "pids.max").write_text("20")
    forks = "import os\nfor _ in range(100):\n if not os.fork(): import time; time.sleep(100)"
    refused = root.kubectl("exec", "many", "--", "python3", "-c", forks + "\n", check=False)
    assert "max" in (group(pod) / "pids.events").read_text(), refused
    count = int((group(pod) / "pids.events").read_text().split()[1])
    assert count > 0, "a process was refused"
    root.delete("many")


def test_a_pod_writes_no_faster_than_it_says(root: Platform) -> None:
    annotations = {"pumice.sh/io-write-bytes-per-second": "1Mi"}
    pod = root.started("writes", annotations=annotations)
    disk = run("findmnt", "--noheadings", "--output", "MAJ:MIN", "--target", root.data_dir).strip()
    assert (group(pod) / "io.max").read_text() == f"{disk} rbps=max wbps={MIB} riops=max wiops=max\n"
    root.delete("writes")
    # Through the kernel's memory, too, which version 2 knows whose it is.
    write = "dd if=/dev/zero of=file bs=64k count=32 conv=fsync 2> /dev/null; echo $(($(date +%s%3N) - begin))"
    volume = {"volumeMounts": [{"name": "data", "mountPath": "/data"}], "workingDir": "/data"}

    def timed(name: str, annotations: dict[str, str] | None = None) -> int:
        volumes = [{"name": "data", "emptyDir": {}}]
        return int(root.run(name, f"begin=$(date +%s%3N); {write}", volume, annotations=annotations, volumes=volumes))

    free, limited = timed("free"), timed("limited", annotations)
    assert limited >= 1500 and free < limited, f"2 MiB at 1 MiB a second: {free} ms, {limited} ms"


def test_a_device_opens_only_if_the_pod_names_it(root: Platform) -> None:
    folder = Path("/srv/devices")
    folder.mkdir()
    run("mknod", folder / "zero", "c", "1", "5")
    run("mknod", folder / "fuse", "c", "10", "229")
    mounts = {"volumeMounts": [{"name": "devices", "mountPath": "/devices"}, {"name": "named", "mountPath": "/named"}]}
    volumes = [
        {"name": "devices", "hostPath": {"path": str(folder)}},
        {"name": "named", "hostPath": {"path": str(folder / "fuse"), "type": "CharDevice"}},
    ]
    tries = "for each in /devices/zero /devices/fuse /named /dev/zero; do (: <$each) 2>&1 && echo $each opens; done; :"
    other = root.run("devices", tries, {"volumeMounts": mounts["volumeMounts"][:1]}, volumes=volumes[:1])
    assert "/devices/fuse: Operation not permitted" in other, other
    assert "/devices/zero opens" in other and "/dev/zero opens" in other, other
    named = root.run("named-device", tries, mounts, volumes=volumes)
    assert "/named opens" in named, named
