//! Starting the shim's program: for a pod, for one more program in a pod, for a probe of what this user may do.
//!
//! Invariant: what runs in a pod before its program is a child of what is started here, so a pod may reach its file
//! (`/proc/self/exe`) and its environment (`/proc/1/environ`): the file is a read-only view that is in no directory and
//! can't be changed any more, and of this process's environment it gets a list.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Output, Stdio};
use std::sync::Arc;

use nix::errno::Errno;

use crate::cgroup;
use crate::detached_mount::{Attributes, DetachedMount, descriptor_path};
use crate::huge_pages;

/// What of this process's environment the shim's program gets: where and in which words it works, and what its dynamic
/// linker or a coverage report needs. Everything else may be the administrator's own.
const ENVIRONMENT: [&str; 7] =
    ["PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "RUST_BACKTRACE", "LLVM_PROFILE_FILE"];

/// How a shim is started: `program args... POD_DIR`, which must end in `shim_main`.
#[derive(Debug, Clone)]
pub struct ShimCommand {
    /// The program, an absolute path.
    pub program: PathBuf,
    /// Arguments before the pod's directory.
    pub args: Vec<OsString>,
}

/// Starts the shim's program, as it was when the agent started.
#[derive(Debug, Clone)]
pub(crate) struct Launcher {
    shim: ShimCommand,
    /// What it is run from, made once: each one that ends has all CPUs tell the kernel that they don't use it.
    view: Result<Arc<DetachedMount>, Errno>,
}

impl Launcher {
    /// From a read-only view where this host allows it. Without root there are no views; a pod is then this very user.
    pub(crate) fn new(shim: ShimCommand) -> Launcher {
        let view = read_only_view(&shim).map(Arc::new);
        Launcher { shim, view }
    }

    /// Whether this host lets us run it from a view that pods can't change.
    pub(crate) fn has_view(&self) -> io::Result<()> {
        self.view.as_ref().map(drop).map_err(|errno| (*errno).into())
    }

    pub(crate) fn launch(&self) -> Launch {
        let mut command = match &self.view {
            Ok(view) => Command::new(descriptor_path(view.as_fd())),
            Err(_) => Command::new(&self.shim.program),
        };
        command.arg0(&self.shim.program).args(&self.shim.args).stdin(Stdio::null()).stdout(Stdio::null());
        command.env_clear().envs(ENVIRONMENT.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
        // Who was started without huge pages goes on without, and so do pods.
        if huge_pages::are_allowed() {
            command.env(huge_pages::NONE_IN_SHIM.0, huge_pages::NONE_IN_SHIM.1);
        }
        Launch { command, _view: self.view.clone().ok() }
    }
}

/// The shim's program, ready to be started.
pub(crate) struct Launch {
    command: Command,
    /// It has to be there until the program runs.
    _view: Option<Arc<DetachedMount>>,
}

impl Launch {
    /// To add arguments and streams.
    pub(crate) fn command(&mut self) -> &mut Command {
        &mut self.command
    }

    /// Has it join control groups before anything of it is loaded, so that its memory counts there.
    #[allow(unsafe_code)]
    pub(crate) fn join(&mut self, groups: Vec<File>) {
        // SAFETY: between fork and exec this only writes to descriptors that were opened before; nothing is allocated.
        unsafe { self.command.pre_exec(move || groups.iter().try_for_each(cgroup::join)) };
    }

    /// Starts it and waits for its end: a shim leaves a child behind.
    pub(crate) fn status(mut self) -> io::Result<ExitStatus> {
        self.command.status()
    }

    /// The same with what it says.
    pub(crate) fn output(mut self) -> io::Result<Output> {
        self.command.stdout(Stdio::piped()).output()
    }
}

fn read_only_view(shim: &ShimCommand) -> nix::Result<DetachedMount> {
    let view = DetachedMount::of_path(&shim.program)?;
    view.restrict(Attributes::READ_ONLY)?;
    Ok(view)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_gets_a_list_of_the_environment_and_a_file_that_it_can_not_change() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("program");
        std::fs::copy("/bin/sh", &program).unwrap();
        let script = "env; readlink /proc/self/exe; chmod 0700 /proc/$$/exe 2>&1; cat /proc/$$/comm";
        let shim = ShimCommand { program: program.clone(), args: vec!["-c".into(), script.into()] };
        let before = std::fs::metadata(&program).unwrap();
        let output = Launcher::new(shim).launch().output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        let names: Vec<&str> = said.lines().filter_map(|line| line.split_once('=')).map(|(name, _)| name).collect();
        let shells_own = ["PWD", "SHLVL", "_", "OLDPWD"];
        let is_known =
            |name| ENVIRONMENT.contains(name) || *name == huge_pages::NONE_IN_SHIM.0 || shells_own.contains(name);
        assert!(names.iter().all(is_known), "{names:?}");
        assert!(std::env::vars_os().count() > ENVIRONMENT.len(), "there is something to leave out");
        if nix::unistd::Uid::effective().is_root() {
            assert!(said.contains("Read-only file system"), "{said}");
            use std::os::unix::fs::MetadataExt;
            assert_eq!(std::fs::metadata(&program).unwrap().ctime_nsec(), before.ctime_nsec());
        }
    }
}
