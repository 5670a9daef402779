//! Which of root's rights a container keeps: the set that container engines keep, plus and minus
//! what its security context says.
//!
//! Making device nodes is not among them: no control group keeps a container from opening them.

use nix::errno::Errno;

/// Numbers of the kernel's capabilities by name.
const NAMES: [&str; 41] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "SETPCAP",
    "LINUX_IMMUTABLE",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_ADMIN",
    "NET_RAW",
    "IPC_LOCK",
    "IPC_OWNER",
    "SYS_MODULE",
    "SYS_RAWIO",
    "SYS_CHROOT",
    "SYS_PTRACE",
    "SYS_PACCT",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_NICE",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "MKNOD",
    "LEASE",
    "AUDIT_WRITE",
    "AUDIT_CONTROL",
    "SETFCAP",
    "MAC_OVERRIDE",
    "MAC_ADMIN",
    "SYSLOG",
    "WAKE_ALARM",
    "BLOCK_SUSPEND",
    "AUDIT_READ",
    "PERFMON",
    "BPF",
    "CHECKPOINT_RESTORE",
];
const USUAL: [&str; 13] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "SETPCAP",
    "NET_BIND_SERVICE",
    "NET_RAW",
    "SYS_CHROOT",
    "AUDIT_WRITE",
    "SETFCAP",
];

/// Drops every capability that the program is not to have from what it can ever get.
pub(crate) fn limit(add: &[String], drop: &[String]) -> nix::Result<()> {
    for (number, name) in NAMES.iter().enumerate() {
        if !retains(name, add, drop) {
            drop_bounding(number)?;
        }
    }
    Ok(())
}

fn retains(name: &str, add: &[String], drop: &[String]) -> bool {
    let names = |list: &[String], wanted: &str| {
        list.iter().any(|entry| entry.trim_start_matches("CAP_").eq_ignore_ascii_case(wanted))
    };
    let all = |list: &[String]| names(list, "ALL");
    let dropped = names(drop, name) || (all(drop) && !names(add, name));
    !dropped && (USUAL.contains(&name) || names(add, name) || all(add))
}

#[allow(unsafe_code)]
fn drop_bounding(number: usize) -> nix::Result<()> {
    // SAFETY: takes integers only and changes this process's bounding set.
    let result = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, number as libc::c_ulong, 0, 0, 0) };
    match Errno::result(result) {
        // A kernel that does not know the capability can't give it either.
        Err(Errno::EINVAL) => Ok(()),
        other => other.map(drop),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_security_context_adds_and_drops() {
        let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let cases: [(&str, &[&str], &[&str], bool); 8] = [
            ("CHOWN", &[], &[], true),
            ("SYS_ADMIN", &[], &[], false),
            ("SYS_ADMIN", &["SYS_ADMIN"], &[], true),
            ("SYS_ADMIN", &["CAP_sys_admin"], &[], true),
            ("SYS_ADMIN", &["ALL"], &[], true),
            ("CHOWN", &[], &["ALL"], false),
            ("CHOWN", &["CHOWN"], &["ALL"], true),
            ("CHOWN", &["ALL"], &["CHOWN"], false),
        ];
        for (name, add, drop, expected) in cases {
            assert_eq!(retains(name, &list(add), &list(drop)), expected, "{name} +{add:?} -{drop:?}");
        }
    }

    #[test]
    fn numbers_are_the_kernels() {
        for (name, number) in [("CHOWN", 0), ("SYS_ADMIN", 21), ("SETFCAP", 31), ("CHECKPOINT_RESTORE", 40)] {
            assert_eq!(NAMES[number], name);
        }
    }
}
