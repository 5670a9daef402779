//! Which system calls the programs of a container may make.
//!
//! A [`Profile`] says what becomes of each call; `runtime_default` is the one of containers that name none, `docker_profile` reads
//! one from a file of the node. Invariant: pure but for `filter_folder`. Calls of another kind of processor, such as those of 32-bit
//! programs, end the process.

pub(crate) mod docker_profile;
pub(crate) mod filter_folder;
pub(crate) mod runtime_default;
mod search;

use std::cmp::Reverse;
use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PodSecurityContext, SecurityContext};
use seccompiler::{BackendError, BpfProgram, SeccompAction, SeccompFilter, SeccompRule, TargetArch, sock_filter};
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

/// The most instructions that the kernel takes.
const INSTRUCTIONS_MAX: usize = 4096;

/// A program for the kernel that does what a profile says; none where all calls are allowed.
///
/// # Errors
/// When it has more instructions than the kernel takes.
pub(crate) fn compile(profile: &Profile) -> Result<Vec<BpfProgram>, BackendError> {
    let program = search::with_search(chained(programs(profile)?));
    match program.len() {
        0 => Ok(Vec::new()),
        1..=INSTRUCTIONS_MAX => Ok(vec![program]),
        more => Err(BackendError::FilterTooLarge(more)),
    }
}

/// A program for each action, of which one after the other decides.
fn programs(profile: &Profile) -> Result<Vec<BpfProgram>, BackendError> {
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
    if strictness(&profile.default) >= strictness(&SeccompAction::Errno(0)) {
        programs.push(unknown_calls());
    }
    if profile.default != SeccompAction::Allow {
        // What another rule decides passes here, and is decided by that rule's own program.
        programs.push(SeccompFilter::new(decided, profile.default.clone(), SeccompAction::Allow, arch)?.try_into()?);
    }
    by_action.sort_by_key(|(action, _)| Reverse(strictness(action)));
    for (action, calls) in by_action {
        programs.push(SeccompFilter::new(calls, SeccompAction::Allow, action, arch)?.try_into()?);
    }
    Ok(programs)
}

/// As the kernel weighs actions.
fn strictness(action: &SeccompAction) -> u8 {
    match action {
        SeccompAction::Allow => 0,
        SeccompAction::Log => 1,
        SeccompAction::Trace(_) => 2,
        SeccompAction::Errno(_) => 3,
        SeccompAction::Trap => 4,
        SeccompAction::KillThread => 5,
        SeccompAction::KillProcess => 6,
    }
}

/// Says that a call does not exist which is newer than all that a profile can name: programs then go on with an older one, and
/// would fail if they may not make it. It is what `runc` does.
fn unknown_calls() -> BpfProgram {
    const AT_LEAST: u32 = libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K;
    /// Here begin the numbers of x32, which are refused as others are.
    const OF_X32: u32 = 0x4000_0000;
    let first = Sysno::iter().map(|call| call.id().unsigned_abs()).max().map_or(OF_X32, |last| last + 1);
    vec![
        // The number of the call comes first in what a filter is shown.
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0),
        sock_filter { jf: 2, ..instruction(AT_LEAST, first) },
        sock_filter { jt: 1, ..instruction(AT_LEAST, OF_X32) },
        instruction(RETURN, libc::SECCOMP_RET_ERRNO | libc::ENOSYS.unsigned_abs()),
        instruction(RETURN, libc::SECCOMP_RET_ALLOW),
    ]
}

const RETURN: u32 = libc::BPF_RET | libc::BPF_K;

fn instruction(code: u32, k: u32) -> sock_filter {
    // All codes of this kind of program are below 256.
    sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

/// One program of several: what one allows, the next decides.
fn chained(programs: Vec<BpfProgram>) -> BpfProgram {
    let allows = instruction(RETURN, libc::SECCOMP_RET_ALLOW);
    let mut chain = BpfProgram::new();
    let mut left = programs.into_iter().peekable();
    while let Some(mut program) = left.next() {
        if left.peek().is_some() {
            for (at, found) in program.iter_mut().rev().enumerate().filter(|(_, found)| **found == allows) {
                *found = instruction(libc::BPF_JMP | libc::BPF_JA, at as u32);
            }
        }
        chain.append(&mut program);
    }
    chain
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

    /// What a program says of a call, as the kernel would find out.
    fn decision(program: &BpfProgram, call: u32, argument: u32) -> u32 {
        decision_on(0xc000_003e, program, call, argument)
    }

    fn decision_on(processor: u32, program: &BpfProgram, call: u32, argument: u32) -> u32 {
        let (mut at, mut loaded) = (0, 0);
        loop {
            let sock_filter { code, jt, jf, k } = program[at];
            let code = u32::from(code);
            at += 1;
            let mut jump_if = |holds| at += usize::from(if holds { jt } else { jf });
            match (code & 0x07, code & 0xf0) {
                // The number, the processor and the first argument are followed by the others.
                (libc::BPF_LD, _) => {
                    loaded = *[call, processor, 0, 0, argument, 0].get(k as usize / 4).unwrap_or(&argument);
                }
                (libc::BPF_ALU, libc::BPF_AND) => loaded &= k,
                (libc::BPF_JMP, libc::BPF_JA) => at += k as usize,
                (libc::BPF_JMP, libc::BPF_JEQ) => jump_if(loaded == k),
                (libc::BPF_JMP, libc::BPF_JGE) => jump_if(loaded >= k),
                (libc::BPF_JMP, libc::BPF_JGT) => jump_if(loaded > k),
                (libc::BPF_RET, _) => return k,
                other => panic!("{other:?}"),
            }
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn one_program_does_what_each_action_says() {
        let errno = SeccompAction::Errno;
        let rules = vec![
            rule(Sysno::dup, SeccompAction::Allow, vec![]),
            rule(Sysno::mount, errno(38), vec![]),
            rule(Sysno::umount2, errno(38), vec![when(1)]),
            rule(Sysno::umount2, SeccompAction::Allow, vec![when(2)]),
            rule(Sysno::bpf, errno(1), vec![]),
            rule(Sysno::reboot, errno(1), vec![]),
            rule(Sysno::reboot, SeccompAction::Trap, vec![when(1)]),
        ];
        let (allow, log) = (libc::SECCOMP_RET_ALLOW, libc::SECCOMP_RET_LOG);
        let (refuse, absent, end) = (0x5_0001, 0x5_0000 | 38, libc::SECCOMP_RET_KILL_PROCESS);
        for (default, of_others, of_unknown) in [
            (errno(1), refuse, absent),
            (SeccompAction::KillProcess, end, absent),
            (SeccompAction::Allow, allow, allow),
            (SeccompAction::Log, log, log),
        ] {
            let programs = compile(&Profile { default: default.clone(), rules: rules.clone() }).unwrap();
            let [program] = &programs[..] else { panic!("{} programs", programs.len()) };
            for (call, argument, expected) in [
                (Sysno::dup.id() as u32, 0, allow),
                (Sysno::mount.id() as u32, 0, absent),
                (Sysno::umount2.id() as u32, 1, absent),
                (Sysno::umount2.id() as u32, 2, allow),
                (Sysno::umount2.id() as u32, 3, of_others),
                (Sysno::bpf.id() as u32, 0, refuse),
                (Sysno::reboot.id() as u32, 0, refuse),
                (Sysno::reboot.id() as u32, 1, libc::SECCOMP_RET_TRAP),
                (Sysno::getpid.id() as u32, 0, of_others),
                (1000, 0, of_unknown),
                (0x4000_0000, 0, of_others),
            ] {
                assert_eq!(decision(program, call, argument), expected, "{default:?} {call} {argument}");
            }
        }
        assert!(compile(&Profile { default: SeccompAction::Allow, rules: vec![] }).unwrap().is_empty());
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn a_search_decides_as_the_program_does_and_sooner() {
        let rights = pumice_shim::capability_set::retained(&[], &[]);
        let profile = runtime_default::profile(&rights).unwrap();
        let whole = chained(programs(&profile).unwrap());
        let [searched] = &compile(&profile).unwrap()[..] else { panic!("one program") };
        // The kernel translates all of it for each pod.
        assert!(searched.len() < whole.len() / 3, "{} of {}", searched.len(), whole.len());
        let numbers = (0..2000).chain([0x4000_0000, 0x4000_0001, u32::MAX]);
        for number in numbers {
            for argument in [0, 1, 8, 38, 40, 0x2_0000, 0x7e02_0000, u32::MAX] {
                let found = [&whole, searched].map(|program| decision(program, number, argument));
                assert_eq!(found[0], found[1], "{number} {argument}");
            }
            for processor in [0, 0x4000_0003, 0xc000_003d, 0xc000_003f, u32::MAX] {
                let found = [&whole, searched].map(|program| decision_on(processor, program, number, 0));
                assert_eq!(found[0], found[1], "{number} {processor}");
            }
        }
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
