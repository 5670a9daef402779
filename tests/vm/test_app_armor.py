"""AppArmor, which runs on this kernel: a pod that relies on a profile does not start without it."""

from __future__ import annotations

from pathlib import Path

from machine import Platform, wait_for


def test_a_pod_with_a_profile_waits_and_says_which_field(root: Platform) -> None:
    assert Path("/sys/module/apparmor/parameters/enabled").read_text() == "Y\n"
    local = {"type": "Localhost", "localhostProfile": "unprivileged_userns"}
    cases = [("RuntimeDefault", {"type": "RuntimeDefault"}), ("Localhost", local)]
    for number, (kind, profile) in enumerate(cases):
        name = f"profile-{number}"
        root.start(name, "true", {"securityContext": {"appArmorProfile": profile}})

        def waiting(name: str = name) -> dict[str, str] | None:
            statuses = root.pod(name)["status"].get("containerStatuses", [])
            found = statuses[0]["state"].get("waiting", {}) if statuses else {}
            return found if found.get("reason") == "CreateContainerConfigError" else None

        message = wait_for(f"{kind} to be refused", waiting)["message"]
        assert message.startswith("spec.containers[0].securityContext.appArmorProfile.type: "), message
        root.delete(name)


def test_a_pod_without_one_is_as_unconfined_as_the_platform(root: Platform) -> None:
    assert root.run("plain", "cat /proc/self/attr/apparmor/current").strip() == "unconfined"
    unconfined = {"securityContext": {"appArmorProfile": {"type": "Unconfined"}}}
    assert root.run("said", "cat /proc/self/attr/apparmor/current", unconfined).strip() == "unconfined"
