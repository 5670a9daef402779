//! Pod Security Standards: what each profile forbids a pod, and which profiles the labels of a namespace choose.
//!
//! [`controls`] is the one table of all controls of `baseline` and `restricted`, with the version of Kubernetes that each came
//! with. Invariant: pure; messages are upstream's, in upstream's order. Fields of a type that Kubernetes refuses count as
//! absent. Annotations of seccomp, which counted before v1.19, do not: nobody reads them any more. Called by the API server's
//! Pod Security and by the fleet's grants.
//!
//! <https://kubernetes.io/docs/concepts/security/pod-security-standards/>

mod baseline;
mod controls;
mod finding;
mod labels;
mod restricted;
#[cfg(test)]
mod tests;

use std::fmt;

use serde_json::Value;

use controls::{CONTROLS, Control, HOST_PROBES};
use finding::{Finding, Pod, Subject};

pub use baseline::is_safe_sysctl;
pub use labels::{AUDIT, ENFORCE, Policy, WARN};

/// The minor version of Kubernetes whose controls are `latest`.
pub const LATEST_MINOR: u32 = 36;

/// What a pod may ask for, the loosest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Profile {
    /// Anything, also what makes it root on its node.
    #[default]
    Privileged,
    /// Nothing that lets it out of its container.
    Baseline,
    /// What needs no right at all, and says so.
    Restricted,
}

impl Profile {
    /// All of them, the loosest first.
    pub const ALL: [Self; 3] = [Self::Privileged, Self::Baseline, Self::Restricted];

    /// The profile of that name, if there is one.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|profile| profile.as_str() == name)
    }

    /// The word in labels and messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Privileged => "privileged",
            Self::Baseline => "baseline",
            Self::Restricted => "restricted",
        }
    }
}

/// The version of Kubernetes as which a profile is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// That of this program.
    #[default]
    Latest,
    /// `v1.x`. One that is newer than this program counts as the latest.
    Minor(u32),
}

impl Version {
    fn minor(self) -> u32 {
        match self {
            Self::Latest => LATEST_MINOR,
            Self::Minor(minor) => minor.min(LATEST_MINOR),
        }
    }
}

/// A profile as of a version, printed as `restricted:latest` or `baseline:v1.30`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VersionedProfile {
    pub profile: Profile,
    pub version: Version,
}

impl From<Profile> for VersionedProfile {
    fn from(profile: Profile) -> Self {
        Self { profile, version: Version::Latest }
    }
}

impl fmt::Display for VersionedProfile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.version {
            Version::Latest => write!(formatter, "{}:latest", self.profile.as_str()),
            Version::Minor(minor) => write!(formatter, "{}:v1.{minor}", self.profile.as_str()),
        }
    }
}

/// A control that pods break.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// What is forbidden, such as `host namespaces`.
    pub reason: &'static str,
    /// Who asks for it, such as `hostNetwork=true`.
    pub detail: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} ({})", self.reason, self.detail)
    }
}

/// All controls that pods break; prints as upstream lists them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Violations(pub Vec<Violation>);

impl Violations {
    /// Whether the pods are within the profile.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What is forbidden, without who asks for it: equal for pods that break the same controls.
    pub fn reasons(&self) -> String {
        self.0.iter().map(|violation| violation.reason).collect::<Vec<_>>().join(", ")
    }
}

impl fmt::Display for Violations {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<String> = self.0.iter().map(Violation::to_string).collect();
        formatter.write_str(&texts.join(", "))
    }
}

/// What a profile forbids of pods or templates of pods (`metadata` and `spec`), each control once for all of them: a Job of
/// many tasks is told once. O(controls × containers).
pub fn violations(rule: VersionedProfile, pods: &[&Value]) -> Violations {
    let minor = rule.version.minor();
    broken(pods, minor, |control| control.is_of(rule.profile, minor))
}

/// The probes and hooks of pods that say whom they ask, whatever the profile.
pub fn probe_hosts(pods: &[&Value]) -> Violations {
    broken(pods, LATEST_MINOR, |control| control.id == HOST_PROBES)
}

fn broken(pods: &[&Value], minor: u32, counts: impl Fn(&Control) -> bool) -> Violations {
    let pods: Vec<Pod<'_>> = pods.iter().map(|pod| Pod::new(pod, minor)).collect();
    let mut found: Vec<(&Control, Violation)> = Vec::new();
    for control in CONTROLS.iter().filter(|control| counts(control)) {
        let mut findings = Vec::new();
        pods.iter().for_each(|pod| (control.find)(pod, &mut findings));
        if !findings.is_empty() {
            found.push((control, (control.tell)(&findings.iter().collect::<Vec<_>>())));
        }
    }
    found.sort_by_key(|(control, _)| (control.profile, control.id));
    Violations(found.into_iter().map(|(_, violation)| violation).collect())
}

/// The first field of a pod spec that `baseline` forbids, as its path within the spec; nothing where the pod is within it.
/// Folders of the host that `may_mount` are no such thing, though the profile forbids all of them.
///
/// For clusters that others run, of any version: they may ignore `hostUsers`, so that it loosens nothing here, and hosts of
/// probes are for their own Pod Security to judge.
pub fn first_forbidden_field(spec: &Value, may_mount: impl Fn(&str) -> bool) -> Option<String> {
    let pod = Pod { annotations: &Value::Null, spec, minor: LATEST_MINOR, has_own_users: false };
    let mut findings = Vec::new();
    let of_baseline = |control: &&Control| control.profile == Profile::Baseline && control.id != HOST_PROBES;
    CONTROLS.iter().filter(of_baseline).for_each(|control| (control.find)(&pod, &mut findings));
    let may_stay = |finding: &Finding<'_>| match finding.subject {
        Subject::Volume { index, .. } => spec["volumes"][index]["hostPath"]["path"].as_str().is_some_and(&may_mount),
        Subject::Pod | Subject::Container { .. } | Subject::Annotation => false,
    };
    // Of equals the first counts: that is the order of the table.
    findings.into_iter().filter(|finding| !may_stay(finding)).min_by_key(Finding::rank).map(|finding| finding.path())
}
