//! Which of root's rights a container keeps: those that container engines keep, plus and minus what its security context says.
//!
//! Packets of any kind (`NET_RAW`) and device nodes (`MKNOD`) are not among them: a program that needs one asks for it.

use std::collections::HashSet;

use caps::{CapSet, Capability};

/// What a container keeps that says nothing.
const USUAL: [Capability; 12] = [
    Capability::CAP_CHOWN,
    Capability::CAP_DAC_OVERRIDE,
    Capability::CAP_FOWNER,
    Capability::CAP_FSETID,
    Capability::CAP_KILL,
    Capability::CAP_SETGID,
    Capability::CAP_SETUID,
    Capability::CAP_SETPCAP,
    Capability::CAP_NET_BIND_SERVICE,
    Capability::CAP_SYS_CHROOT,
    Capability::CAP_AUDIT_WRITE,
    Capability::CAP_SETFCAP,
];

/// The rights that are left with these lists of a security context, whose names may begin with `CAP_` and be in any case.
pub fn retained(add: &[String], drop: &[String]) -> HashSet<Capability> {
    caps::all().into_iter().filter(|capability| is_retained(*capability, add, drop)).collect()
}

fn is_retained(capability: Capability, add: &[String], drop: &[String]) -> bool {
    let name = capability.to_string();
    let name = name.trim_start_matches("CAP_");
    let names = |list: &[String], wanted: &str| {
        list.iter().any(|entry| entry.trim_start_matches("CAP_").eq_ignore_ascii_case(wanted))
    };
    let all = |list: &[String]| names(list, "ALL");
    let dropped = names(drop, name) || (all(drop) && !names(add, name));
    !dropped && (USUAL.contains(&capability) || names(add, name) || all(add))
}

/// Does something without the right to go beyond quotas and into the room that a disk has for root. Whoever writes to an overlay
/// does so with the rights that its mounter had.
pub fn without_resource_right<T>(work: impl FnOnce() -> T) -> T {
    const RIGHT: Capability = Capability::CAP_SYS_RESOURCE;
    // Who does not have it can't use it.
    let dropped = caps::has_cap(None, CapSet::Effective, RIGHT).unwrap_or(false)
        && caps::drop(None, CapSet::Effective, RIGHT).is_ok();
    let done = work();
    if dropped {
        // It is in the permitted set still.
        let _ = caps::raise(None, CapSet::Effective, RIGHT);
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_security_context_adds_and_drops() {
        let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let cases: [(Capability, &[&str], &[&str], bool); 10] = [
            (Capability::CAP_CHOWN, &[], &[], true),
            (Capability::CAP_SYS_ADMIN, &[], &[], false),
            (Capability::CAP_NET_RAW, &[], &[], false),
            (Capability::CAP_NET_RAW, &["NET_RAW"], &[], true),
            (Capability::CAP_SYS_ADMIN, &["SYS_ADMIN"], &[], true),
            (Capability::CAP_SYS_ADMIN, &["CAP_sys_admin"], &[], true),
            (Capability::CAP_SYS_ADMIN, &["ALL"], &[], true),
            (Capability::CAP_CHOWN, &[], &["ALL"], false),
            (Capability::CAP_CHOWN, &["CHOWN"], &["ALL"], true),
            (Capability::CAP_CHOWN, &["ALL"], &["CHOWN"], false),
        ];
        for (capability, add, drop, expected) in cases {
            let found = retained(&list(add), &list(drop)).contains(&capability);
            assert_eq!(found, expected, "{capability} +{add:?} -{drop:?}");
        }
    }
}
