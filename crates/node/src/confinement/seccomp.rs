//! Which system calls the programs of a container may make.
//!
//! A [`Profile`] says what becomes of each call; `runtime_default` is the one of containers that name none, `docker_profile` reads
//! one from a file of the node. Invariant: pure but for `filter_file`. Calls of another kind of processor, such as those of 32-bit
//! programs, end the process.

pub(crate) mod docker_profile;
pub(crate) mod filter_file;
pub(crate) mod runtime_default;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PodSecurityContext, SecurityContext};
use seccompiler::{BackendError, BpfProgram, SeccompAction, SeccompFilter, SeccompRule, TargetArch};
use syscalls::Sysno;

/// Whose rules a container has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ProfileChoice {
    Unconfined,
    RuntimeDefault,
    /// A file of the node, by its path within the folder of profiles.
    Localhost(String),
}

impl ProfileChoice {
    /// Whether the security contexts ask for a filter by name, and rely on it.
    pub(crate) fn is_asked_for(pod: &PodSecurityContext, container: &SecurityContext) -> bool {
        let named = container.seccomp_profile.as_ref().or(pod.seccomp_profile.as_ref());
        named.is_some() && ProfileChoice::of(pod, container) != ProfileChoice::Unconfined
    }

    /// As the security contexts say. Where they say nothing it is the default, as a kubelet with `seccompDefault` has it.
    pub(crate) fn of(pod: &PodSecurityContext, container: &SecurityContext) -> ProfileChoice {
        if container.privileged == Some(true) {
            return ProfileChoice::Unconfined;
        }
        let named = container.seccomp_profile.as_ref().or(pod.seccomp_profile.as_ref());
        match named.map(|profile| (profile.type_.as_str(), &profile.localhost_profile)) {
            Some(("Unconfined", _)) => ProfileChoice::Unconfined,
            Some(("Localhost", file)) => ProfileChoice::Localhost(file.clone().unwrap_or_default()),
            _ => ProfileChoice::RuntimeDefault,
        }
    }
}

/// What becomes of each call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Profile {
    /// What becomes of a call that no rule is about.
    pub default: SeccompAction,
    pub rules: Vec<Rule>,
}

/// What becomes of some calls. Where several rules are about a call, the strictest counts, and any of them before the default.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Rule {
    pub calls: Vec<Sysno>,
    pub action: SeccompAction,
    /// It holds when all conditions of one of these do; without any, always.
    pub when: Vec<SeccompRule>,
}

/// Calls with their conditions, as a filter takes them: none is always.
type Calls = BTreeMap<i64, Vec<SeccompRule>>;

/// Programs for the kernel that do what a profile says together: of what several decide, the kernel takes the strictest.
///
/// # Errors
/// When it has more instructions than the kernel takes.
pub(crate) fn compile(profile: &Profile) -> Result<Vec<BpfProgram>, BackendError> {
    let mut by_action: Vec<(SeccompAction, Calls)> = Vec::new();
    let mut decided = Calls::new();
    for rule in profile.rules.iter().filter(|rule| rule.action != profile.default) {
        add(&mut decided, rule);
        if rule.action == SeccompAction::Allow {
            continue;
        }
        match by_action.iter_mut().find(|(action, _)| *action == rule.action) {
            Some((_, calls)) => add(calls, rule),
            None => {
                let mut calls = Calls::new();
                add(&mut calls, rule);
                by_action.push((rule.action.clone(), calls));
            }
        }
    }
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    let mut programs = Vec::new();
    if profile.default != SeccompAction::Allow {
        // What another rule decides passes here, and is decided by that rule's own program.
        programs.push(SeccompFilter::new(decided, profile.default.clone(), SeccompAction::Allow, arch)?.try_into()?);
    }
    for (action, calls) in by_action {
        programs.push(SeccompFilter::new(calls, SeccompAction::Allow, action, arch)?.try_into()?);
    }
    Ok(programs)
}

fn add(calls: &mut Calls, rule: &Rule) {
    for call in &rule.calls {
        let number = i64::from(call.id());
        match calls.get_mut(&number) {
            // It holds always already.
            Some(when) if when.is_empty() => {}
            Some(when) if rule.when.is_empty() => when.clear(),
            Some(when) => when.extend(rule.when.iter().cloned()),
            None => drop(calls.insert(number, rule.when.clone())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use k8s_openapi::api::core::v1::SeccompProfile;
    use seccompiler::{SeccompCmpArgLen, SeccompCmpOp, SeccompCondition};

    fn when(value: u64) -> SeccompRule {
        let condition = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value).unwrap();
        SeccompRule::new(vec![condition]).unwrap()
    }

    fn rule(call: Sysno, action: SeccompAction, when: Vec<SeccompRule>) -> Rule {
        Rule { calls: vec![call], action, when }
    }

    #[test]
    fn a_rule_without_conditions_takes_all_calls() {
        let mut calls = Calls::new();
        let allow = |when| rule(Sysno::dup, SeccompAction::Allow, when);
        for (added, expected) in [(vec![when(1)], 1), (vec![when(2), when(3)], 3), (vec![], 0), (vec![when(4)], 0)] {
            add(&mut calls, &allow(added));
            assert_eq!(calls[&i64::from(Sysno::dup.id())].len(), expected);
        }
    }

    #[test]
    fn each_action_but_the_default_has_a_program() {
        let errno = SeccompAction::Errno;
        let rules = vec![
            rule(Sysno::dup, SeccompAction::Allow, vec![]),
            rule(Sysno::mount, errno(38), vec![]),
            rule(Sysno::umount2, errno(38), vec![when(1)]),
            rule(Sysno::bpf, errno(1), vec![]),
            rule(Sysno::reboot, SeccompAction::KillProcess, vec![]),
        ];
        for (default, programs) in [(errno(1), 3), (SeccompAction::Allow, 3), (SeccompAction::Log, 4)] {
            let compiled = compile(&Profile { default: default.clone(), rules: rules.clone() }).unwrap();
            assert_eq!(compiled.len(), programs, "{default:?}");
        }
        assert!(compile(&Profile { default: SeccompAction::Allow, rules: vec![] }).unwrap().is_empty());
    }

    #[test]
    fn the_container_goes_before_the_pod() {
        let profile = |kind: &str, file: Option<&str>| {
            Some(SeccompProfile { type_: kind.into(), localhost_profile: file.map(str::to_owned) })
        };
        let local = ProfileChoice::Localhost("p.json".into());
        for (pod, container, privileged, expected) in [
            (None, None, false, ProfileChoice::RuntimeDefault),
            (profile("Unconfined", None), None, false, ProfileChoice::Unconfined),
            (profile("Unconfined", None), profile("RuntimeDefault", None), false, ProfileChoice::RuntimeDefault),
            (None, profile("Localhost", Some("p.json")), false, local.clone()),
            (profile("Localhost", Some("p.json")), None, false, local),
            (None, profile("RuntimeDefault", None), true, ProfileChoice::Unconfined),
        ] {
            let pod = PodSecurityContext { seccomp_profile: pod, ..Default::default() };
            let container =
                SecurityContext { seccomp_profile: container, privileged: Some(privileged), ..Default::default() };
            assert_eq!(ProfileChoice::of(&pod, &container), expected, "{pod:?} {container:?}");
            let named = pod.seccomp_profile.is_some() || container.seccomp_profile.is_some();
            let asks = named && expected != ProfileChoice::Unconfined;
            assert_eq!(ProfileChoice::is_asked_for(&pod, &container), asks, "{pod:?} {container:?}");
        }
    }
}
