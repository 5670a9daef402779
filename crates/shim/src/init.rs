//! Process 1 of a container, where it has processes of its own: makes its root, starts its program, and stands by until that has ended.
//!
//! Invariant: it reports how the program ended as soon as it has. It stays out of the container's memory group, so that the
//! kernel's choice never falls on it.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use nix::sys::prctl;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::{ForkResult, Pid};
use pumice_units::with_causes;

use super::discarded;
use super::fork;
use super::own_users::{UserNamespace, become_root_beside};
use super::program::{Handles, become_program, close_on_exec_all, give_away, hide_process, leave_streams};
use super::report::Report;
use super::rootfs::{self, Layers};
use super::signals;
use super::spec::{ContainerSpec, ShimSpec};
use super::terminal::{Terminal, hand_over, open_terminal};

/// Everything a container's process 1 needs.
pub(crate) struct Birth<'a> {
    pub spec: &'a ShimSpec,
    /// The pod's user namespace, which it enters.
    pub users: Option<&'a UserNamespace>,
    pub container: &'a ContainerSpec,
    /// Whether it has processes of its own, of which this one is the first.
    pub has_own_processes: bool,
    pub layers: Layers,
    pub handles: Handles,
    pub report: File,
    /// Where the keyboard of its terminal goes, if it is on one.
    pub terminal: Option<File>,
}

/// Runs as process 1 and never returns.
pub(crate) fn run(mut birth: Birth<'_>) -> ! {
    let code = match start(&mut birth) {
        Ok(Running { program, signals, layer }) => {
            Report::Started.send(&birth.report);
            let Birth { container, has_own_processes, report, mut handles, .. } = birth;
            // Else a terminal would seem to have ended whenever no program has it open.
            let _terminal = if handles.terminal { handles.stdin.take() } else { None };
            drop(handles);
            signals::attend(program, &signals, &report, has_own_processes);
            if let Some(found) = layer.and_then(|layer| discarded::look(layer, container)) {
                Report::Discarded(found).send(&report);
            }
            0
        }
        Err(report) => {
            report.send(&birth.report);
            1
        }
    };
    fork::exit(code)
}

/// A container whose program was started.
struct Running {
    program: Pid,
    signals: SignalFd,
    /// What it writes outside of its volumes, where that is thrown away.
    layer: Option<OwnedFd>,
}

fn start(birth: &mut Birth<'_>) -> Result<Running, Report> {
    let failed = |what: &'static str| move |errno: nix::Error| Report::Failed(format!("can't {what}: {errno}"));
    // If its shim is killed, nobody would write down how the container ended: end it too.
    prctl::set_pdeathsig(Signal::SIGKILL).map_err(failed("tie the container to its shim"))?;
    let everything = SigSet::all();
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&everything), None).map_err(failed("block signals"))?;
    let signals = SignalFd::with_flags(&everything, SfdFlags::SFD_CLOEXEC).map_err(failed("watch signals"))?;
    let isolated = birth.spec.isolation.namespaces;
    let mut layer = None;
    if isolated {
        layer = rootfs::enter(birth.spec, birth.users, birth.container, &birth.layers).map_err(|error| match error
            .is_for_want_of_room()
        {
            true => Report::NoRoom(with_causes(&error)),
            false => Report::Failed(with_causes(&error)),
        })?;
    } else {
        refuse_mounts(birth.container).map_err(Report::Failed)?;
    }
    if !birth.has_own_processes {
        prctl::set_child_subreaper(true).map_err(failed("adopt orphans"))?;
    }
    // Programs of the container may look into this process, if they have the right to trace it.
    hide_process(birth.spec.isolation.user).map_err(failed("hide process 1"))?;
    leave_streams().map_err(|error| Report::Failed(format!("can't open the null device: {error}")))?;
    if birth.terminal.is_some() {
        take_terminal(birth)
            .map_err(|error| Report::Failed(format!("can't open a terminal in the container: {error}")))?;
    }
    give_streams_away(birth)?;
    if let Some(users) = birth.users {
        users.enter_with_mounts().map_err(failed("enter the pod's user namespace"))?;
    }
    match fork::fork().map_err(failed("make a process"))? {
        ForkResult::Parent { child } => {
            if birth.users.is_some()
                && let Err(errno) = become_root_beside(&birth.report)
            {
                // With this process ends all of the container, but where it shares its processes.
                let _ = kill(child, Signal::SIGKILL);
                return Err(failed("become root of the pod's user namespace")(errno));
            }
            Ok(Running { program: child, signals, layer })
        }
        ForkResult::Child => {
            close_on_exec_all();
            let error = become_program(birth.container, &birth.handles, isolated);
            Report::Failed(with_causes(&error)).send(&birth.report);
            fork::exit(127)
        }
    }
}

/// Has a terminal of the container's own for its streams; what is typed and read on it is the shim's.
fn take_terminal(birth: &mut Birth<'_>) -> io::Result<()> {
    let Terminal { keyboard, screen } = open_terminal()?;
    if let Some(socket) = birth.terminal.take() {
        hand_over(&keyboard, &socket)?;
    }
    let handles = &mut birth.handles;
    (handles.stdin, handles.stdout) = (Some(screen.try_clone()?), screen.try_clone()?);
    (handles.stderr, handles.terminal) = (screen, true);
    Ok(())
}

/// Before a user namespace is entered, where the pipes are nobody's.
fn give_streams_away(birth: &Birth<'_>) -> Result<(), Report> {
    let Birth { container, users, handles, .. } = birth;
    let (mut uid, mut gid) = (Some(container.uid), Some(container.gid));
    if let Some(users) = users {
        (uid, gid) = (users.uid(container.uid), users.gid(container.gid));
    }
    let (Some(uid), Some(gid)) = (uid, gid) else {
        let ids = format!("user {} and group {}", container.uid, container.gid);
        return Err(Report::Failed(format!("the pod's user namespace does not have {ids}")));
    };
    handles.stdin.iter().for_each(|stdin| give_away(stdin, uid, gid));
    give_away(&handles.stdout, uid, gid);
    give_away(&handles.stderr, uid, gid);
    Ok(())
}

/// Without a mount namespace a volume can't appear where its container looks for it.
fn refuse_mounts(container: &ContainerSpec) -> Result<(), String> {
    let needed = container.mounts.iter().find(|mount| !is_convenience(&mount.target));
    let image = container.image_layers.iter().flatten().next_back();
    match (needed, container.root.as_ref().or(image)) {
        (Some(mount), _) => Err(format!(
            "can't mount {}: this node agent has no right to mount; run it as root",
            mount.target.display()
        )),
        (None, Some(root)) => {
            Err(format!("can't use {} as root: this node agent has no right to mount; run it as root", root.display()))
        }
        (None, None) => Ok(()),
    }
}

/// Files that programs do without, as most do with what Volcano's plugins mount.
fn is_convenience(target: &Path) -> bool {
    const KNOWN: [&str; 6] = [
        "/etc/hosts",
        "/etc/hostname",
        "/etc/resolv.conf",
        "/etc/volcano",
        "/root/.ssh",
        "/var/run/secrets/kubernetes.io/serviceaccount",
    ];
    KNOWN.iter().any(|known| target == Path::new(known))
}
