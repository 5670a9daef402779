//! Process 1 of a container, where it has processes of its own: makes its root, starts its program, and stands by until that has ended.
//!
//! Invariant: it reports how the program ended as soon as it has. It stays out of the container's memory group, so that the
//! kernel's choice never falls on it.

use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::Path;

use nix::sys::prctl;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::WaitStatus;
use nix::unistd::{ForkResult, Pid};
use pumice_units::with_causes;

use super::discarded::{self, Discarded};
use super::program::{Handles, become_program, close_on_exec_all, give_away, hide_process, leave_streams};
use super::rootfs::{self, Layers};
use super::signals;
use super::spec::{ContainerSpec, ShimSpec};

/// What process 1 tells its shim, one line each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Report {
    /// The program's process was made.
    Started,
    /// The program could not be started, and why.
    Failed(String),
    /// The disk has no room for what the program needs to be started, and why.
    NoRoom(String),
    /// The program exited with a code.
    Exited(i32),
    /// The program was killed by a signal.
    Killed(i32),
    /// What the container wrote is gone with it.
    Discarded(Discarded),
}

impl Report {
    pub(crate) fn send(&self, mut pipe: &File) {
        // The shim may be gone; then there is nobody to tell.
        let _ = pipe.write_all(self.line().as_bytes());
    }

    /// As it is sent, its end of line included.
    pub(crate) fn line(&self) -> String {
        match self {
            Report::Started => "S\n".to_owned(),
            Report::Failed(text) => format!("F{}\n", text.replace('\n', " ")),
            Report::NoRoom(text) => format!("N{}\n", text.replace('\n', " ")),
            Report::Exited(code) => format!("X{code}\n"),
            Report::Killed(signal) => format!("K{signal}\n"),
            // Text and numbers always have a form in JSON, which has no line breaks of its own.
            Report::Discarded(found) => format!("D{}\n", serde_json::to_string(found).unwrap_or_default()),
        }
    }

    /// The end of a process.
    pub(crate) fn of(end: WaitStatus) -> Option<Report> {
        match end {
            WaitStatus::Exited(_, code) => Some(Report::Exited(code)),
            WaitStatus::Signaled(_, signal, _) => Some(Report::Killed(signal as i32)),
            _ => None,
        }
    }

    /// Reads a line as [`Report::line`] writes it; `None` where it is another.
    pub(crate) fn parse(line: &str) -> Option<Report> {
        let (kind, rest) = line.split_at_checked(1)?;
        match kind {
            "S" => Some(Report::Started),
            "F" => Some(Report::Failed(rest.to_owned())),
            "N" => Some(Report::NoRoom(rest.to_owned())),
            "X" => rest.parse().ok().map(Report::Exited),
            "K" => rest.parse().ok().map(Report::Killed),
            "D" => serde_json::from_str(rest).ok().map(Report::Discarded),
            _ => None,
        }
    }
}

/// Everything a container's process 1 needs.
pub(crate) struct Birth<'a> {
    pub spec: &'a ShimSpec,
    pub container: &'a ContainerSpec,
    pub layers: Layers,
    pub handles: Handles,
    pub report: File,
}

/// Runs as process 1 and never returns.
pub(crate) fn run(birth: Birth<'_>) -> ! {
    let code = match start(&birth) {
        Ok(Running { program, signals, layer }) => {
            Report::Started.send(&birth.report);
            let Birth { spec, container, report, handles, .. } = birth;
            drop(handles);
            signals::attend(program, &signals, &report, spec.has_own_processes());
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
    exit(code)
}

#[allow(unsafe_code)]
pub(crate) fn exit(code: i32) -> ! {
    // SAFETY: ends the process without running the shim's own exit handlers in this copy of it.
    unsafe { libc::_exit(code) }
}

/// A container whose program was started.
struct Running {
    program: Pid,
    signals: SignalFd,
    /// What it writes outside of its volumes, where that is thrown away.
    layer: Option<OwnedFd>,
}

fn start(birth: &Birth<'_>) -> Result<Running, Report> {
    let failed = |what: &'static str| move |errno: nix::Error| Report::Failed(format!("can't {what}: {errno}"));
    // If its shim is killed, nobody would write down how the container ended: end it too.
    prctl::set_pdeathsig(Signal::SIGKILL).map_err(failed("tie the container to its shim"))?;
    let everything = SigSet::all();
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&everything), None).map_err(failed("block signals"))?;
    let signals = SignalFd::with_flags(&everything, SfdFlags::SFD_CLOEXEC).map_err(failed("watch signals"))?;
    let isolated = birth.spec.isolation.namespaces;
    let mut layer = None;
    if isolated {
        layer = rootfs::enter(birth.spec, birth.container, &birth.layers).map_err(|error| {
            match error.is_for_want_of_room() {
                true => Report::NoRoom(with_causes(&error)),
                false => Report::Failed(with_causes(&error)),
            }
        })?;
    } else {
        refuse_mounts(birth.container).map_err(Report::Failed)?;
    }
    if !birth.spec.has_own_processes() {
        prctl::set_child_subreaper(true).map_err(failed("adopt orphans"))?;
    }
    // Programs of the container may look into this process, if they have the right to trace it.
    hide_process(birth.spec.isolation.user).map_err(failed("hide process 1"))?;
    leave_streams().map_err(|error| Report::Failed(format!("can't open the null device: {error}")))?;
    give_away(&birth.handles.stdout, birth.container.uid, birth.container.gid);
    give_away(&birth.handles.stderr, birth.container.uid, birth.container.gid);
    match fork().map_err(failed("make a process"))? {
        ForkResult::Parent { child } => Ok(Running { program: child, signals, layer }),
        ForkResult::Child => {
            close_on_exec_all();
            let error = become_program(birth.container, &birth.handles, isolated);
            Report::Failed(with_causes(&error)).send(&birth.report);
            exit(127)
        }
    }
}

/// Without a mount namespace a volume can't appear where its container looks for it.
fn refuse_mounts(container: &ContainerSpec) -> Result<(), String> {
    let needed = container.mounts.iter().find(|mount| !is_convenience(&mount.target));
    match (needed, &container.root) {
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

/// A copy of this process, which must have one thread.
#[allow(unsafe_code)]
pub(crate) fn fork() -> nix::Result<ForkResult> {
    // SAFETY: contract: process 1 of a container and who makes another program in it have one thread, so the copy can
    // go on as usual.
    unsafe { nix::unistd::fork() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Seek};

    #[test]
    fn reports_are_read_as_they_were_sent() {
        let reports = [
            Report::Started,
            Report::Failed("a\nb".into()),
            Report::NoRoom("c".into()),
            Report::Exited(3),
            Report::Killed(9),
            Report::Discarded(Discarded { files: 2, partial: true, first: vec!["/a\nb".into(), "/é".into()] }),
        ];
        let mut file = tempfile::tempfile().unwrap();
        for report in &reports {
            report.send(&file);
        }
        file.rewind().unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        let read: Vec<_> = text.lines().map(|line| Report::parse(line).unwrap()).collect();
        assert_eq!(read[1], Report::Failed("a b".into()));
        assert_eq!((&read[..1], &read[2..]), (&reports[..1], &reports[2..]));
        for nonsense in ["", "?", "X", "Kx", "é"] {
            assert_eq!(Report::parse(nonsense), None, "{nonsense}");
        }
    }
}
