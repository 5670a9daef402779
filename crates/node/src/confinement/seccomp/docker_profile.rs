//! Profiles in Docker's JSON, which container engines take for `Localhost`.
//!
//! Invariant: what this node can't do as it is written is refused by its place in the file; what is about other processors or
//! other kernels is left out, as container engines do.
//! <https://docs.docker.com/engine/security/seccomp/>

use std::collections::{BTreeMap, HashSet};

use caps::Capability;
use seccompiler::{BackendError, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompRule};
use serde::Deserialize;
use serde::de::IgnoredAny;
use syscalls::Sysno;

use super::{Profile, Rule};

/// Arguments of a system call.
const ARGUMENTS: u64 = 6;

/// Why a file is no profile for this node.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProfileError {
    #[error("it is not a profile in Docker's JSON")]
    Json(#[source] serde_json::Error),
    #[error("{path}: {what}")]
    Unsupported { path: String, what: String },
    #[error("{path} can't be put into a filter")]
    Condition {
        path: String,
        #[source]
        source: BackendError,
    },
}

/// What of a profile's rules applies here.
pub(crate) struct Here<'a> {
    /// The rights that the container keeps.
    pub rights: &'a HashSet<Capability>,
    /// Major and minor number of the kernel.
    pub kernel: (u32, u32),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File {
    default_action: String,
    default_errno_ret: Option<u32>,
    #[serde(default)]
    architectures: Option<Vec<String>>,
    #[serde(default)]
    arch_map: Option<Vec<ArchMap>>,
    #[serde(default)]
    flags: Option<Vec<String>>,
    #[serde(default)]
    listener_path: Option<String>,
    #[serde(default)]
    listener_metadata: Option<String>,
    #[serde(default)]
    syscalls: Option<Vec<Entry>>,
    /// The number's name, beside it.
    #[serde(default, rename = "defaultErrno")]
    _default_errno: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ArchMap {
    architecture: String,
    #[serde(default, rename = "subArchitectures")]
    _sub_architectures: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Entry {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    names: Option<Vec<String>>,
    action: String,
    errno_ret: Option<u32>,
    #[serde(default)]
    args: Option<Vec<Argument>>,
    #[serde(default)]
    includes: Option<Filter>,
    #[serde(default)]
    excludes: Option<Filter>,
    #[serde(default, rename = "comment")]
    _comment: Option<IgnoredAny>,
    #[serde(default, rename = "errno")]
    _errno: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Argument {
    index: u64,
    value: u64,
    #[serde(default)]
    value_two: u64,
    op: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Filter {
    #[serde(default)]
    caps: Option<Vec<String>>,
    #[serde(default)]
    arches: Option<Vec<String>>,
    #[serde(default)]
    min_kernel: Option<String>,
}

/// Names of this machine's processor in rules and in lists of processors.
#[cfg(target_arch = "x86_64")]
const OWN: (&str, &str) = ("amd64", "SCMP_ARCH_X86_64");
#[cfg(target_arch = "aarch64")]
const OWN: (&str, &str) = ("arm64", "SCMP_ARCH_AARCH64");

/// Reads a profile for a container.
///
/// # Errors
/// When it is none, or asks for what a filter of this node can't do.
pub(crate) fn parse(json: &[u8], here: &Here<'_>) -> Result<Profile, ProfileError> {
    let file: File = serde_json::from_slice(json).map_err(ProfileError::Json)?;
    let unsupported = |path: &str, what: String| ProfileError::Unsupported { path: path.to_owned(), what };
    for flag in file.flags.iter().flatten() {
        // With one thread there is nobody to share a filter with.
        if flag != "SECCOMP_FILTER_FLAG_TSYNC" {
            return Err(unsupported("flags", format!("{flag:?} is not supported; leave it out")));
        }
    }
    if file.listener_path.is_some() || file.listener_metadata.is_some() {
        return Err(unsupported("listenerPath", "no other process can decide about calls; leave it out".to_owned()));
    }
    let mut architectures = file.architectures.iter().flatten();
    let mut mapped = file.arch_map.iter().flatten().map(|map| &map.architecture);
    let lists_own = architectures.any(|name| name == OWN.1) || mapped.any(|name| name == OWN.1);
    if !lists_own && (file.architectures.is_some() || file.arch_map.is_some()) {
        return Err(unsupported("architectures", format!("{} of this machine is not among them", OWN.1)));
    }
    let default = action(&file.default_action, file.default_errno_ret, "defaultAction")?;
    let mut rules = Vec::new();
    for (index, entry) in file.syscalls.iter().flatten().enumerate() {
        if entry.applies(here, index)? {
            rules.push(entry.rule(index)?);
        }
    }
    Ok(Profile { default, rules })
}

fn action(name: &str, errno: Option<u32>, path: &str) -> Result<SeccompAction, ProfileError> {
    let errno = errno.unwrap_or(libc::EPERM.unsigned_abs());
    match name {
        "SCMP_ACT_ALLOW" => Ok(SeccompAction::Allow),
        "SCMP_ACT_LOG" => Ok(SeccompAction::Log),
        "SCMP_ACT_ERRNO" => Ok(SeccompAction::Errno(errno)),
        "SCMP_ACT_TRACE" => Ok(SeccompAction::Trace(errno)),
        "SCMP_ACT_TRAP" => Ok(SeccompAction::Trap),
        "SCMP_ACT_KILL" | "SCMP_ACT_KILL_THREAD" => Ok(SeccompAction::KillThread),
        "SCMP_ACT_KILL_PROCESS" => Ok(SeccompAction::KillProcess),
        _ => Err(ProfileError::Unsupported {
            path: path.to_owned(),
            what: format!("{name:?} is no action that this node has; try SCMP_ACT_ERRNO"),
        }),
    }
}

impl Entry {
    fn applies(&self, here: &Here<'_>, index: usize) -> Result<bool, ProfileError> {
        let included = match &self.includes {
            Some(filter) => filter.holds_all(here, index)?,
            None => true,
        };
        let excluded = match &self.excludes {
            Some(filter) => filter.holds_any(here, index)?,
            None => false,
        };
        Ok(included && !excluded)
    }

    fn rule(&self, index: usize) -> Result<Rule, ProfileError> {
        let path = |field: &str| format!("syscalls[{index}].{field}");
        let names = self.names.iter().flatten().chain(&self.name);
        // A name of another processor, or of a newer kernel: there is no such call to decide about.
        let calls: Vec<Sysno> = names.filter_map(|name| name.parse().ok()).collect();
        let action = action(&self.action, self.errno_ret, &path("action"))?;
        let arguments = self.args.as_deref().unwrap_or_default();
        let conditions = arguments.iter().enumerate().map(|(at, one)| one.condition(&path(&format!("args[{at}]"))));
        let conditions = conditions.collect::<Result<Vec<_>, _>>()?;
        let mut by_argument: BTreeMap<u64, usize> = BTreeMap::new();
        for argument in arguments {
            *by_argument.entry(argument.index).or_default() += 1;
        }
        // Container engines take several conditions on one argument for alternatives.
        let are_alternatives = by_argument.values().any(|count| *count > 1);
        let together = if are_alternatives {
            conditions.into_iter().map(|condition| vec![condition]).collect()
        } else if conditions.is_empty() {
            Vec::new()
        } else {
            vec![conditions]
        };
        let when = together.into_iter().map(SeccompRule::new).collect::<Result<_, _>>();
        let when = when.map_err(|source| ProfileError::Condition { path: path("args"), source })?;
        Ok(Rule { calls, action, when })
    }
}

impl Argument {
    fn condition(&self, path: &str) -> Result<SeccompCondition, ProfileError> {
        let (comparison, value) = match self.op.as_str() {
            "SCMP_CMP_NE" => (SeccompCmpOp::Ne, self.value),
            "SCMP_CMP_LT" => (SeccompCmpOp::Lt, self.value),
            "SCMP_CMP_LE" => (SeccompCmpOp::Le, self.value),
            "SCMP_CMP_EQ" => (SeccompCmpOp::Eq, self.value),
            "SCMP_CMP_GE" => (SeccompCmpOp::Ge, self.value),
            "SCMP_CMP_GT" => (SeccompCmpOp::Gt, self.value),
            "SCMP_CMP_MASKED_EQ" => (SeccompCmpOp::MaskedEq(self.value), self.value_two),
            other => {
                let what = format!("{other:?} is no comparison; try SCMP_CMP_EQ");
                return Err(ProfileError::Unsupported { path: format!("{path}.op"), what });
            }
        };
        let index = u8::try_from(self.index).ok().filter(|index| u64::from(*index) < ARGUMENTS);
        let index = index.ok_or_else(|| ProfileError::Unsupported {
            path: format!("{path}.index"),
            what: format!("{} is no argument; calls have {ARGUMENTS}, from 0", self.index),
        })?;
        SeccompCondition::new(index, SeccompCmpArgLen::Qword, comparison, value)
            .map_err(|source| ProfileError::Condition { path: path.to_owned(), source })
    }
}

impl Filter {
    fn holds_all(&self, here: &Here<'_>, index: usize) -> Result<bool, ProfileError> {
        let caps = self.caps.iter().flatten().all(|name| has(here, name));
        let arches = self.arches.as_ref().is_none_or(|arches| arches.is_empty() || arches.iter().any(|a| a == OWN.0));
        Ok(caps && arches && self.is_kernel_new_enough(here, index)?.unwrap_or(true))
    }

    fn holds_any(&self, here: &Here<'_>, index: usize) -> Result<bool, ProfileError> {
        let caps = self.caps.iter().flatten().any(|name| has(here, name));
        let arches = self.arches.iter().flatten().any(|name| name == OWN.0);
        Ok(caps || arches || self.is_kernel_new_enough(here, index)?.unwrap_or(false))
    }

    /// None where it doesn't say.
    fn is_kernel_new_enough(&self, here: &Here<'_>, index: usize) -> Result<Option<bool>, ProfileError> {
        let Some(text) = self.min_kernel.as_deref().filter(|text| !text.is_empty()) else { return Ok(None) };
        let wanted = kernel(text).ok_or_else(|| ProfileError::Unsupported {
            path: format!("syscalls[{index}].includes.minKernel"),
            what: format!("{text:?} is no kernel's version; try 4.8"),
        })?;
        Ok(Some(here.kernel >= wanted))
    }
}

fn has(here: &Here<'_>, name: &str) -> bool {
    name.parse().is_ok_and(|right| here.rights.contains(&right))
}

/// The first two numbers of a kernel's version, such as `5.10.0-8-amd64`.
pub(crate) fn kernel(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    use crate::confinement::seccomp::compile;
    use pumice_shim::capability_set::retained;

    fn parsed(file: &Value, add: &[&str]) -> Result<Profile, ProfileError> {
        let add: Vec<String> = add.iter().map(|name| (*name).to_owned()).collect();
        parse(file.to_string().as_bytes(), &Here { rights: &retained(&add, &[]), kernel: (5, 10) })
    }

    fn with(entry: Value) -> Value {
        json!({"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [entry]})
    }

    #[test]
    fn rules_hold_for_rights_processors_and_kernels() {
        let cases = [
            (json!({}), json!({}), true),
            (json!({"caps": ["CAP_SYS_ADMIN"]}), json!({}), false),
            (json!({"caps": ["CAP_CHOWN"]}), json!({}), true),
            (json!({}), json!({"caps": ["CAP_SYS_ADMIN"]}), true),
            (json!({}), json!({"caps": ["CAP_CHOWN"]}), false),
            (json!({"arches": ["s390x"]}), json!({}), false),
            (json!({"arches": ["s390x", OWN.0]}), json!({}), true),
            (json!({}), json!({"arches": [OWN.0]}), false),
            (json!({"minKernel": "4.8"}), json!({}), true),
            (json!({"minKernel": "5.11"}), json!({}), false),
        ];
        for (includes, excludes, applies) in cases {
            let file =
                with(json!({"names": ["dup"], "action": "SCMP_ACT_ALLOW", "includes": includes, "excludes": excludes}));
            assert_eq!(parsed(&file, &[]).unwrap().rules.len(), usize::from(applies), "{file}");
        }
    }

    #[test]
    fn conditions_on_one_argument_are_alternatives() {
        let argument = |index: u64, value: u64| json!({"index": index, "value": value, "op": "SCMP_CMP_EQ"});
        for (args, alternatives) in [
            (json!(null), 0),
            (json!([argument(0, 1), argument(1, 2)]), 1),
            (json!([argument(0, 1), argument(0, 2)]), 2),
            (json!([{"index": 0, "value": 7, "valueTwo": 1, "op": "SCMP_CMP_MASKED_EQ"}]), 1),
        ] {
            let profile = parsed(&with(json!({"name": "dup", "action": "SCMP_ACT_ALLOW", "args": args})), &[]).unwrap();
            assert_eq!(profile.rules[0].when.len(), alternatives, "{args}");
            assert_eq!(compile(&profile).unwrap().len(), 1);
        }
    }

    #[test]
    fn what_can_not_be_done_is_refused_by_its_place() {
        let allow = |more: Value| {
            let mut entry = json!({"names": ["dup"], "action": "SCMP_ACT_ALLOW"});
            entry.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            with(entry)
        };
        for (file, place) in [
            (json!({"defaultAction": "SCMP_ACT_NOTIFY"}), "defaultAction: "),
            (json!({"defaultAction": "SCMP_ACT_ALLOW", "flags": ["SECCOMP_FILTER_FLAG_LOG"]}), "flags: "),
            (json!({"defaultAction": "SCMP_ACT_ALLOW", "listenerPath": "/run/a"}), "listenerPath: "),
            (json!({"defaultAction": "SCMP_ACT_ALLOW", "architectures": ["SCMP_ARCH_S390X"]}), "architectures: "),
            (json!({"defaultAction": "SCMP_ACT_ALLOW", "new": 1}), "it is not a profile in Docker's JSON"),
            (json!({}), "it is not a profile in Docker's JSON"),
            (allow(json!({"action": "SCMP_ACT_NOTIFY"})), "syscalls[0].action: "),
            (allow(json!({"args": [{"index": 6, "value": 1, "op": "SCMP_CMP_EQ"}]})), "syscalls[0].args[0].index: "),
            (allow(json!({"args": [{"index": 0, "value": 1, "op": "EQ"}]})), "syscalls[0].args[0].op: "),
            (allow(json!({"includes": {"minKernel": "new"}})), "syscalls[0].includes.minKernel: "),
        ] {
            let refused = parsed(&file, &[]).unwrap_err().to_string();
            assert!(refused.starts_with(place), "{file}: {refused}");
        }
    }

    #[test]
    fn calls_of_other_machines_are_left_out() {
        let file = json!({
            "defaultAction": "SCMP_ACT_KILL_PROCESS", "defaultErrnoRet": 1, "defaultErrno": "EPERM",
            "archMap": [{"architecture": OWN.1, "subArchitectures": null}],
            "flags": ["SECCOMP_FILTER_FLAG_TSYNC"],
            "syscalls": [{"names": ["dup", "chown32", "of_tomorrow"], "action": "SCMP_ACT_ERRNO", "errnoRet": 38, "comment": "c"}],
        });
        let profile = parsed(&file, &[]).unwrap();
        assert_eq!(profile.default, SeccompAction::KillProcess);
        assert_eq!(profile.rules, [Rule { calls: vec![Sysno::dup], action: SeccompAction::Errno(38), when: vec![] }]);
    }

    #[test]
    fn kernels_tell_their_version() {
        for (text, expected) in
            [("5.10.0-8-amd64", Some((5, 10))), ("6.1", Some((6, 1))), ("6", None), ("new", None), ("", None)]
        {
            assert_eq!(kernel(text), expected, "{text:?}");
        }
    }
}
