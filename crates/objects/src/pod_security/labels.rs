//! The labels by which a namespace chooses profiles.

use serde_json::Value;

use super::{Profile, Version, VersionedProfile};
use crate::field::FieldError;

/// Pods beyond this profile are refused.
pub const ENFORCE: &str = "pod-security.kubernetes.io/enforce";
/// Pods and templates beyond this profile are noted in the audit log.
pub const AUDIT: &str = "pod-security.kubernetes.io/audit";
/// Who makes pods and templates beyond this profile is warned.
pub const WARN: &str = "pod-security.kubernetes.io/warn";
const ENFORCE_VERSION: &str = "pod-security.kubernetes.io/enforce-version";
const AUDIT_VERSION: &str = "pod-security.kubernetes.io/audit-version";
const WARN_VERSION: &str = "pod-security.kubernetes.io/warn-version";

/// The profiles of a namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Pods beyond it are refused.
    pub enforce: VersionedProfile,
    /// Pods and templates beyond it are noted in the audit log.
    pub audit: VersionedProfile,
    /// Who makes pods and templates beyond it is warned.
    pub warn: VersionedProfile,
}

/// Namespaces that are there from the start, but for the one of who names none.
const OF_THE_SYSTEM: [&str; 3] = ["kube-node-lease", "kube-system", "pumice-system"];

impl Policy {
    /// What the labels of a namespace choose. Where none says what is enforced, it is `default`; who isn't to be warned of
    /// something else is warned of what is enforced. Labels that can't be read are told: then `restricted` is enforced, and
    /// nobody is warned and nothing noted, as upstream.
    pub fn of_labels(labels: &Value, default: Profile) -> (Self, Vec<FieldError>) {
        let mut errors = Vec::new();
        let mut choose = |label, version_label, absent, unreadable| {
            let found = rule(labels, [label, version_label], absent, unreadable);
            errors.extend(found.1);
            found.0
        };
        let enforce = choose(ENFORCE, ENFORCE_VERSION, default.into(), Profile::Restricted);
        let audit = choose(AUDIT, AUDIT_VERSION, VersionedProfile::default(), Profile::Privileged);
        let is_chosen = labels[ENFORCE].as_str().and_then(Profile::named).is_some();
        let warn = if is_chosen { enforce } else { default.into() };
        let warn = choose(WARN, WARN_VERSION, warn, Profile::Privileged);
        (Self { enforce, audit, warn }, errors)
    }

    /// What a namespace of this name chooses by its labels. Those of the system don't enforce the platform's `default`, as what keeps
    /// the platform going may need more than people do.
    pub fn of_namespace(name: &str, labels: &Value, default: Profile) -> Self {
        let default = if OF_THE_SYSTEM.contains(&name) { Profile::Privileged } else { default };
        Self::of_labels(labels, default).0
    }

    /// Whether it forbids, notes and warns of nothing.
    pub fn is_privileged(&self) -> bool {
        [self.enforce, self.audit, self.warn].iter().all(|rule| rule.profile == Profile::Privileged)
    }
}

/// What a label and that of its version choose, and what is wrong with them.
fn rule(
    labels: &Value,
    [label, version_label]: [&'static str; 2],
    absent: VersionedProfile,
    unreadable: Profile,
) -> (VersionedProfile, Vec<FieldError>) {
    let mut errors = Vec::new();
    let mut refuse = |key: &str, problem: String| {
        errors.push(FieldError::invalid(format!("metadata.labels[{key}]"), labels[key].clone(), problem));
    };
    let mut rule = absent;
    if let Some(name) = labels[label].as_str() {
        rule = Profile::named(name).map_or_else(
            || {
                refuse(label, format!("must be one of {}", Profile::ALL.map(Profile::as_str).join(", ")));
                unreadable.into()
            },
            VersionedProfile::from,
        );
    }
    if let Some(text) = labels[version_label].as_str() {
        rule.version = version(text).unwrap_or_else(|| {
            refuse(version_label, "must be \"latest\" or \"v1.x\"".to_owned());
            Version::Latest
        });
    }
    (rule, errors)
}

/// `latest`, or `v1.x` as upstream writes it: `v1.07` and `v1.+7` are none.
fn version(text: &str) -> Option<Version> {
    if text == "latest" {
        return Some(Version::Latest);
    }
    let digits = text.strip_prefix("v1.")?;
    let minor = digits.parse::<u32>().ok()?;
    (minor.to_string() == digits).then_some(Version::Minor(minor))
}
