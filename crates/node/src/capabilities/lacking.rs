//! What this machine does not give: what follows for pods, and what gives it.
//!
//! Invariant: pure, and the one table of it: what is logged at the start and shown on the Node is each row's sentence, and what the
//! profile `restricted` lacks is those rows that it needs.

use std::io;

use super::Probes;
use crate::subordinate_ids::listed::Missing;

/// One thing that can't be had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Lack {
    what: &'static str,
    why: String,
    follows: &'static str,
    remedy: String,
    /// Whether `restricted` needs it.
    pub restricted: bool,
}

impl Lack {
    /// For the log and the Node.
    pub(super) fn sentence(&self) -> String {
        format!("no {} ({}): {}; {}", self.what, self.why, self.follows, self.remedy)
    }

    /// For a list of what is needed.
    pub(super) fn item(&self) -> String {
        format!("{} ({}): {}", self.what, self.why, self.remedy)
    }
}

/// Whose rights the platform has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rights {
    Root,
    /// An ordinary user's, who makes user namespaces.
    User,
    /// One's who makes none.
    None,
}

const AS_ROOT: &str = "run pumice as root";

/// All that `probes` have not found.
pub(super) fn lacking(probes: &Probes) -> Vec<Lack> {
    let (rights, mut lacks) = match (&probes.namespaces, &probes.rootless) {
        (Ok(()), _) => (Rights::Root, of_root(probes)),
        (Err(error), Ok(())) => (Rights::User, of_user(probes, error)),
        (Err(error), Err(user)) => {
            let why = format!("{error}; {user}");
            let follows = "containers see all processes, and volumes can't be mounted";
            (
                Rights::None,
                vec![Lack { what: "namespaces", why, follows, remedy: AS_ROOT.to_owned(), restricted: true }],
            )
        }
    };
    lacks.extend(network(probes, rights));
    lacks.extend(groups(probes, rights));
    if let Err(error) = &probes.seccomp {
        lacks.push(Lack {
            what: "filters of system calls",
            why: error.to_string(),
            follows: "pods may make all of them",
            remedy: "use a kernel with CONFIG_SECCOMP_FILTER".to_owned(),
            restricted: true,
        });
    }
    lacks
}

fn of_root(probes: &Probes) -> Vec<Lack> {
    let overlay = probes.overlay.as_ref().err().map(|error| Lack {
        what: "overlay on the data directory's disk",
        why: error.to_string(),
        follows: match probes.overlay_in_memory {
            Ok(()) => "containers' writes are kept in memory",
            Err(_) => "containers write to the host's own files",
        },
        remedy: "have the data directory on ext4, XFS or btrfs (--data-dir)".to_owned(),
        restricted: true,
    });
    let users = probes.users.as_ref().err().map(|error| Lack {
        what: "users of their own for pods",
        why: error.clone(),
        follows: "pods with hostUsers: false wait",
        remedy: "use Linux 6.3 or newer, and have / and the data directory on ext4, XFS or btrfs".to_owned(),
        restricted: true,
    });
    overlay.into_iter().chain(users).collect()
}

fn of_user(probes: &Probes, error: &io::Error) -> Vec<Lack> {
    let users = match &probes.ids {
        Err(Missing { why, remedy }) => Lack {
            what: "users for pods but this one",
            why: why.clone(),
            follows: "a pod's programs are this user, root to themselves, and another runAsUser is refused",
            remedy: remedy.clone(),
            restricted: true,
        },
        Ok(()) => Lack {
            what: "users of their own for each pod",
            why: error.to_string(),
            follows: "all pods have the same 65,536 ids, those that the machine gives to this user",
            remedy: AS_ROOT.to_owned(),
            restricted: true,
        },
    };
    let quota = Lack {
        what: "quota of projects",
        why: error.to_string(),
        follows: "what pods keep on disk is counted every few seconds",
        remedy: "run pumice as root, with the data directory on ext4 or XFS that is mounted with prjquota".to_owned(),
        restricted: false,
    };
    vec![users, quota]
}

fn network(probes: &Probes, rights: Rights) -> Option<Lack> {
    let remedy = match rights {
        Rights::Root => "use a kernel with CONFIG_NET_NS, CONFIG_VETH and CONFIG_BRIDGE",
        Rights::User | Rights::None => AS_ROOT,
    };
    probes.network.as_ref().err().map(|error| Lack {
        what: "network namespaces",
        why: error.clone(),
        follows: "pods share the host's network",
        remedy: remedy.to_owned(),
        restricted: true,
    })
}

fn groups(probes: &Probes, rights: Rights) -> Vec<Lack> {
    const DELEGATION: &str = "have systemd hand it over by Delegate=cpu cpuset io memory pids in \
                              /etc/systemd/system/user@.service.d/delegate.conf";
    let hierarchy = match &probes.cgroup {
        Ok(hierarchy) => hierarchy,
        Err(error) => {
            let remedy = match rights {
                Rights::Root => "mount version 2 at /sys/fs/cgroup",
                Rights::User | Rights::None => {
                    "have systemd hand some over (systemd-run --user --property=Delegate=yes --property=KillMode=process pumice up)"
                }
            };
            return vec![Lack {
                what: "control groups",
                why: error.clone(),
                follows: "memory is watched, cpu, devices and the number of processes are not limited",
                remedy: remedy.to_owned(),
                restricted: true,
            }];
        }
    };
    let mut lacks = Vec::new();
    if !hierarchy.counts_processes() {
        lacks.push(Lack {
            what: "control group that counts processes",
            why: "there is none".to_owned(),
            follows: "their number is not limited",
            remedy: match rights {
                Rights::Root => "use a kernel with CONFIG_CGROUP_PIDS".to_owned(),
                Rights::User | Rights::None => DELEGATION.to_owned(),
            },
            restricted: true,
        });
    }
    if !hierarchy.limits_devices() {
        let remedy = match rights {
            Rights::Root => "use a kernel with CONFIG_CGROUP_BPF, or with version 1 CONFIG_CGROUP_DEVICE",
            Rights::User | Rights::None => AS_ROOT,
        };
        lacks.push(Lack {
            what: "control group that limits devices",
            why: "there is none".to_owned(),
            follows: "pods can open each device whose node they find in a volume, if its mode lets them",
            remedy: remedy.to_owned(),
            restricted: true,
        });
    }
    lacks
}
