//! Starting the shim's program: for a pod, for one more program in a pod, for a probe of what this user may do.
//!
//! Invariant: what runs in a pod before its program is a child of what is started here, so a pod may reach its file
//! (`/proc/self/exe`) and its environment (`/proc/1/environ`): the file lies in memory, sealed, or is a read-only view; it is in no
//! directory and can't be changed any more. Of this process's environment it gets a list.

use std::ffi::OsString;
use std::fs::{File, Permissions};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};

use pumice_linux::cgroup;
use pumice_linux::detached_mount::{Attributes, DetachedMount, descriptor_path};
use pumice_linux::huge_pages;
use pumice_shim::USERS;
use pumice_shim::own_users::PROCESS_INSIDE;

/// What of this process's environment the shim's program gets: where and in which words it works, and what its dynamic
/// linker or a coverage report needs. Everything else may be the administrator's own.
const ENVIRONMENT: [&str; 7] =
    ["PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "RUST_BACKTRACE", "LLVM_PROFILE_FILE"];

/// Which program shims are.
#[derive(Debug, Clone)]
pub struct ShimProgram {
    /// The content of `pumice-shim`, which is run from memory. Without it, or where memory can't be run, shims are `program`.
    pub embedded: Option<&'static [u8]>,
    /// A program that ends in [`pumice_shim::shim_main`], an absolute path.
    pub program: PathBuf,
    /// Its arguments before the pod's directory.
    pub args: Vec<OsString>,
}

/// The name of a shim in lists of processes.
const NAME: &str = "pumice-shim";

/// Starts the shim's program, as it was when the agent started.
#[derive(Debug, Clone)]
pub(crate) struct Launcher {
    shim: ShimProgram,
    source: Source,
}

/// What shims are run from, made once.
#[derive(Debug, Clone)]
enum Source {
    /// The small program, in memory.
    Memory(Arc<OwnedFd>),
    /// The large one: each view that ends has all CPUs tell the kernel that they don't use it. Why it is not the small one.
    View(Arc<DetachedMount>, String),
    /// The large one from its place, as there are no views here: the reason.
    File(String),
}

impl Launcher {
    pub(crate) fn new(shim: ShimProgram) -> Launcher {
        let sealed = match shim.embedded {
            Some(program) => sealed(program).map_err(|error| format!("programs can't be run from memory: {error}")),
            None => Err("pumice was built without the shim's own program".to_owned()),
        };
        let source = match sealed {
            Ok(program) => Source::Memory(Arc::new(program)),
            Err(why) => match read_only_view(&shim) {
                Ok(view) => Source::View(Arc::new(view), why),
                // Without root there are no views; a pod is then this very user.
                Err(errno) => Source::File(errno.to_string()),
            },
        };
        Launcher { shim, source }
    }

    /// What is less than it should be, as a sentence.
    pub(crate) fn shortfall(&self) -> Option<String> {
        match &self.source {
            Source::Memory(_) => None,
            Source::View(_, why) => Some(format!("each pod costs more ({why})")),
            Source::File(error) => {
                Some(format!("no read-only view of this program ({error}): pods can reach its file"))
            }
        }
    }

    pub(crate) fn launch(&self) -> Launch {
        let mut command = match &self.source {
            Source::Memory(program) => {
                let mut command = Command::new(descriptor_path(program.as_fd()));
                command.arg0(NAME);
                command
            }
            Source::View(view, _) => self.large(descriptor_path(view.as_fd()).into()),
            Source::File(_) => self.large(self.shim.program.clone()),
        };
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.env_clear().envs(ENVIRONMENT.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
        // Who was started without huge pages goes on without, and so do pods.
        if huge_pages::are_allowed() {
            command.env(huge_pages::NONE_IN_SHIM.0, huge_pages::NONE_IN_SHIM.1);
        }
        Launch { command, _source: self.source.clone() }
    }

    /// A user namespace whose ids `name_ids` names, for the process with the pid that it is given. This process has threads, and can
    /// make none. `dir` is any folder.
    pub(crate) fn user_namespace(&self, dir: &Path, name_ids: impl FnOnce(u32) -> io::Result<()>) -> io::Result<File> {
        let mut launch = self.launch();
        launch.command().arg(USERS).arg(dir).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = launch.spawn()?;
        let lines = child.stdout.take().map(|output| BufReader::new(output).lines());
        let mut lines = lines.into_iter().flatten().map_while(Result::ok);
        let inside = lines.find_map(|line| line.rsplit_once(PROCESS_INSIDE).and_then(|(_, pid)| pid.parse().ok()));
        let made = inside.ok_or_else(|| io::Error::other("the kernel makes none"));
        let handle = made.and_then(|pid: u32| {
            name_ids(pid)?;
            File::open(format!("/proc/{pid}/ns/user"))
        });
        drop(child.stdin.take());
        let _ = child.wait();
        handle
    }

    fn large(&self, path: PathBuf) -> Command {
        let mut command = Command::new(path);
        command.arg0(&self.shim.program).args(&self.shim.args);
        command
    }
}

/// The shim's program, ready to be started.
pub(crate) struct Launch {
    command: Command,
    /// It has to be there until the program runs.
    _source: Source,
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

    /// Starts it, to be talked to by its streams.
    pub(crate) fn spawn(mut self) -> io::Result<Child> {
        self.command.spawn()
    }

    /// Starts it and waits for its end, with what it says.
    pub(crate) fn output(mut self) -> io::Result<Output> {
        self.command.stdout(Stdio::piped()).output()
    }
}

/// It may be run (`MFD_EXEC`).
const MFD_EXEC: MFdFlags = MFdFlags::from_bits_retain(0x10);
/// Whether it may be run stays as it is (`F_SEAL_EXEC`).
const RUNNABLE: SealFlag = SealFlag::from_bits_retain(0x20);

/// A file in memory with this content, which nobody can change any more.
fn sealed(program: &[u8]) -> io::Result<OwnedFd> {
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    // Kernels before 6.3 don't know the flag, and run any such file.
    let descriptor = memfd_create(NAME, flags | MFD_EXEC).or_else(|errno| match errno {
        Errno::EINVAL => memfd_create(NAME, flags),
        other => Err(other),
    })?;
    let mut file = File::from(descriptor);
    file.write_all(program)?;
    file.set_permissions(Permissions::from_mode(0o555))?;
    let seals = SealFlag::F_SEAL_WRITE | SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
    // Kernels before 6.3 let the owner take the right to run it away.
    let _ = fcntl(&file, FcntlArg::F_ADD_SEALS(RUNNABLE));
    fcntl(&file, FcntlArg::F_ADD_SEALS(seals))?;
    Ok(file.into())
}

fn read_only_view(shim: &ShimProgram) -> nix::Result<DetachedMount> {
    let view = DetachedMount::of_path(&shim.program)?;
    view.restrict(Attributes::READ_ONLY)?;
    Ok(view)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a shell that was started as the shim finds of itself.
    fn output_of(shim: ShimProgram, args: &[&str]) -> String {
        let mut launch = Launcher::new(shim).launch();
        launch.command().args(args);
        String::from_utf8(launch.output().unwrap().stdout).unwrap()
    }

    #[test]
    fn the_program_gets_a_list_of_the_environment_and_a_file_that_it_can_not_change() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("program");
        std::fs::copy("/bin/sh", &program).unwrap();
        let script =
            "env; readlink /proc/self/exe; chmod 0600 /proc/$$/exe 2>&1; echo >>/proc/$$/exe; cat /proc/$$/comm";
        let before = std::fs::metadata(&program).unwrap();
        let large = ShimProgram { embedded: None, program: program.clone(), args: vec!["-c".into(), script.into()] };
        let small = ShimProgram { embedded: Some(std::fs::read("/bin/sh").unwrap().leak()), ..large.clone() };
        let is_root = nix::unistd::Uid::effective().is_root();
        for (said, refused) in [
            (output_of(large, &[]), is_root.then_some("Read-only file system")),
            (output_of(small, &["-c", script]), Some("Operation not permitted")),
        ] {
            let names: Vec<&str> = said.lines().filter_map(|line| line.split_once('=')).map(|(name, _)| name).collect();
            let shells_own = ["PWD", "SHLVL", "_", "OLDPWD"];
            let is_known =
                |name| ENVIRONMENT.contains(name) || *name == huge_pages::NONE_IN_SHIM.0 || shells_own.contains(name);
            assert!(names.iter().all(is_known), "{names:?}");
            assert!(said.contains(refused.unwrap_or_default()), "{said}");
        }
        assert!(std::env::vars_os().count() > ENVIRONMENT.len(), "there is something to leave out");
        if is_root {
            use std::os::unix::fs::MetadataExt;
            assert_eq!(std::fs::metadata(&program).unwrap().ctime_nsec(), before.ctime_nsec());
        }
    }

    #[test]
    fn what_runs_from_memory_can_not_be_written() {
        let program = sealed(b"#!/bin/sh\n").unwrap();
        let path = descriptor_path(program.as_fd());
        let found = std::fs::OpenOptions::new().write(true).open(&path).and_then(|mut file| file.write_all(b"x"));
        assert_eq!(found.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(std::fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o555);
    }
}
