"""AppArmor, which runs on this kernel."""

from __future__ import annotations

from pathlib import Path

from machine import Platform, run, wait_for

# Programs may do everything but write to one folder.
PROFILE = """
profile pumice-test flags=(attach_disconnected,mediate_deleted) {
  file,
  capability,
  network,
  signal,
  unix,
  deny /srv/closed/** w,
}
"""


def local(name: str) -> dict[str, object]:
    """A security context that names a profile."""
    return {"securityContext": {"appArmorProfile": {"type": "Localhost", "localhostProfile": name}}}


def refusal(platform: Platform, name: str, reason: str) -> str:
    """Wait until a pod's container waits for this reason, and give the message."""

    def waiting() -> str | None:
        statuses = platform.pod(name)["status"].get("containerStatuses", [])
        found = statuses[0]["state"].get("waiting", {}) if statuses else {}
        return found["message"] if found.get("reason") == reason else None

    return wait_for(f"the pod {name} to be refused", waiting)


CURRENT = "cat /proc/self/attr/apparmor/current"


def test_a_pod_runs_under_the_profile_that_it_names(root: Platform) -> None:
    assert Path("/sys/module/apparmor/parameters/enabled").read_text() == "Y\n"
    run("apparmor_parser", "--replace", stdin=PROFILE)
    folders = "mkdir -p /srv/closed /srv/open"
    write = f"{CURRENT}; {folders}; touch /srv/open/file && echo open; touch /srv/closed/file || echo closed"
    told = root.run("confined", write, local("pumice-test"))
    assert told.split("\n")[0] == "pumice-test (enforce)", told
    assert "open" in told and "closed" in told, told
    as_user = local("pumice-test")
    as_user["securityContext"] |= {"runAsUser": 1000, "allowPrivilegeEscalation": False}
    root.started("confined-user", as_user)
    told = root.kubectl(
        "exec", "confined-user", "--", "cat", "/proc/1/attr/apparmor/current", "/proc/self/attr/apparmor/current"
    )
    assert told.split("\n")[-2] == "pumice-test (enforce)", told
    root.delete("confined-user")


def test_a_profile_that_is_not_loaded_is_refused(root: Platform) -> None:
    root.start("not-loaded", "true", local("nobody-has-this"))
    message = refusal(root, "not-loaded", "CreateContainerError")
    assert '"nobody-has-this" is not loaded' in message, message
    root.delete("not-loaded")


def test_the_default_profile_is_refused_by_its_field(root: Platform) -> None:
    root.start("default-profile", "true", {"securityContext": {"appArmorProfile": {"type": "RuntimeDefault"}}})
    message = refusal(root, "default-profile", "CreateContainerConfigError")
    assert message.startswith("spec.containers[0].securityContext.appArmorProfile.type: "), message
    root.delete("default-profile")


def test_a_pod_without_one_is_as_unconfined_as_the_platform(root: Platform) -> None:
    assert root.run("plain", CURRENT).strip() == "unconfined"
    unconfined = {"securityContext": {"appArmorProfile": {"type": "Unconfined"}}}
    assert root.run("said", CURRENT, unconfined).strip() == "unconfined"
