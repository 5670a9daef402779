//! The table of controls. Called by the functions of the module above; [`super::baseline`] and [`super::restricted`] say how
//! each is looked for.

use super::finding::{Finding, Pod};
use super::{Profile, Violation, baseline, restricted};

/// The control that looks at probes and hooks.
pub(super) const HOST_PROBES: &str = "hostProbesAndHostLifecycle";

/// Adds what breaks a control in a pod.
type Find = for<'a> fn(&Pod<'a>, &mut Vec<Finding<'a>>);
/// Tells what was found, which is never nothing.
type Tell = fn(&[&Finding<'_>]) -> Violation;

/// What a profile forbids.
pub(super) struct Control {
    /// Upstream's name of it: messages come in the order of these.
    pub(super) id: &'static str,
    /// The loosest profile that has it.
    pub(super) profile: Profile,
    /// The first minor version that has it.
    since: u32,
    /// From this minor version on a stricter control of `restricted` is in its place there.
    replaced_since: Option<u32>,
    pub(super) find: Find,
    pub(super) tell: Tell,
}

impl Control {
    /// Whether a profile has the control as of a version.
    pub(super) fn is_of(&self, profile: Profile, minor: u32) -> bool {
        let is_replaced = profile == Profile::Restricted && self.replaced_since.is_some_and(|since| minor >= since);
        self.profile <= profile && minor >= self.since && !is_replaced
    }
}

const fn of_baseline(id: &'static str, replaced_since: Option<u32>, find: Find, tell: Tell) -> Control {
    Control { id, profile: Profile::Baseline, since: 0, replaced_since, find, tell }
}

const fn of_restricted(id: &'static str, since: u32, find: Find, tell: Tell) -> Control {
    Control { id, profile: Profile::Restricted, since, replaced_since: None, find, tell }
}

/// All controls, what reaches farthest first: in this order one field of many is named.
pub(super) const CONTROLS: [Control; 19] = [
    of_baseline("hostNamespaces", None, baseline::host_namespaces, baseline::tell_host_namespaces),
    of_baseline("hostPathVolumes", Some(0), baseline::host_folders, baseline::tell_host_folders),
    of_baseline("privileged", None, baseline::privileged, baseline::tell_privileged),
    of_baseline("capabilities_baseline", Some(22), baseline::capabilities, baseline::tell_capabilities),
    // At `restricted` a user namespace excuses nothing.
    of_baseline("procMount", Some(35), baseline::proc_mount, baseline::tell_proc_mount),
    of_baseline("windowsHostProcess", None, baseline::host_process, baseline::tell_host_process),
    of_baseline("seccompProfile_baseline", Some(19), baseline::seccomp, baseline::tell_seccomp),
    of_baseline("appArmorProfile", None, baseline::app_armor, baseline::tell_app_armor),
    of_baseline("seLinuxOptions", None, baseline::se_linux, baseline::tell_se_linux),
    of_baseline("sysctls", None, baseline::sysctls, baseline::tell_sysctls),
    of_baseline("hostPorts", None, baseline::host_ports, baseline::tell_host_ports),
    Control { since: 34, ..of_baseline(HOST_PROBES, None, baseline::probe_hosts, baseline::tell_probe_hosts) },
    of_restricted("allowPrivilegeEscalation", 8, restricted::escalation, restricted::tell_escalation),
    of_restricted("capabilities_restricted", 22, restricted::capabilities, restricted::tell_capabilities),
    of_restricted("procMount_restricted", 35, restricted::proc_mount, baseline::tell_proc_mount),
    of_restricted("restrictedVolumes", 0, restricted::volumes, restricted::tell_volumes),
    of_restricted("runAsNonRoot", 0, restricted::non_root, restricted::tell_non_root),
    of_restricted("runAsUser", 23, restricted::user, restricted::tell_user),
    of_restricted("seccompProfile_restricted", 19, restricted::seccomp, restricted::tell_seccomp),
];
