//! One running `pumice up` with its clients.
//!
//! Invariant: when a [`Platform`] is dropped nothing of it is left: no process, mount, interface or cgroup.

use std::io::{BufRead, BufReader};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pumice_auth::{Ca, MASTERS, kubeconfig};
use tempfile::TempDir;

use crate::certificate::{now, write_certificate};
use crate::clients::code;
use crate::{Clients, Marks, OrdinaryUser, Output, Peer, Remains, binary};

/// How to start a platform.
#[derive(Debug, Clone, Default)]
pub struct Setup {
    /// More flags for `pumice up`.
    pub flags: Vec<String>,
}

/// A platform in a directory of its own.
pub struct Platform {
    directory: TempDir,
    setup: Setup,
    /// Who runs it; none is who runs the test.
    user: Option<OrdinaryUser>,
    clients: Clients,
    up: Option<Child>,
    /// The URL that `up` printed.
    pub url: String,
}

impl Platform {
    /// Brings up a platform and waits until it says that it is ready.
    pub fn start(setup: Setup) -> Platform {
        Platform::start_in(temporary_directory(), setup)
    }

    /// The same with its data in memory, where a folder takes no time of a disk.
    pub fn start_in_memory(setup: Setup) -> Platform {
        let directory = tempfile::Builder::new().prefix(PREFIX).tempdir_in("/dev/shm");
        Platform::start_in(directory.expect("a temporary directory in memory"), setup)
    }

    /// The same by another user.
    pub fn start_as(user: OrdinaryUser, setup: Setup) -> Platform {
        let directory = temporary_directory();
        user.own(directory.path());
        Platform::start_by(Some(user), directory, setup)
    }

    fn start_in(directory: TempDir, setup: Setup) -> Platform {
        Platform::start_by(None, directory, setup)
    }

    fn start_by(user: Option<OrdinaryUser>, directory: TempDir, setup: Setup) -> Platform {
        let data = directory.path().join("data");
        let clients = Clients::new(&data.join("kubeconfig"), directory.path()).with("PUMICE_DATA_DIR", data);
        let mut platform = Platform { directory, setup, user, clients, up: None, url: String::new() };
        platform.up();
        platform
    }

    /// A platform with default flags.
    pub fn new() -> Platform {
        Platform::start(Setup::default())
    }

    /// A platform that runs `program` for each named image.
    pub fn start_with_images(images: &[(&str, &Path)]) -> Platform {
        let map: String = images
            .iter()
            .map(|(image, program)| format!("{image}:\n  command: [\"{}\"]\n", program.display()))
            .collect();
        Platform::start_with_image_map(Setup::default(), &map)
    }

    /// A platform with this text as its image map.
    pub fn start_with_image_map(mut setup: Setup, map: &str) -> Platform {
        let directory = temporary_directory();
        let path = directory.path().join("images.yaml");
        std::fs::write(&path, map).expect("write an image map");
        setup.flags.extend(["--image-map".into(), path.display().to_string()]);
        Platform::start_in(directory, setup)
    }

    /// The directory given by `--data-dir`.
    pub fn data_dir(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// Writes a file for the test and gives its path.
    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.scratch().join(name);
        std::fs::write(&path, content).expect("write a test's file");
        path
    }

    /// The kubeconfig of another user, who may do everything.
    pub fn kubeconfig_of(&self, user: &str) -> PathBuf {
        self.kubeconfig_in_groups(user, &[MASTERS])
    }

    /// The kubeconfig of a user who has no rights but those that are given to it.
    pub fn kubeconfig_without_rights(&self, user: &str) -> PathBuf {
        self.kubeconfig_in_groups(user, &[])
    }

    fn kubeconfig_in_groups(&self, user: &str, groups: &[&str]) -> PathBuf {
        let ca = self.authority();
        let issued = ca.issue_client(user, groups, now()).expect("issue a certificate");
        self.file(&format!("{}.kubeconfig", user.replace(':', "-")), kubeconfig(&self.url, &ca, &issued))
    }

    /// Files in a new directory with a certificate for this machine, its key, and their authority.
    pub fn certificate_files(&self, directory: &Path) -> (PathBuf, PathBuf, PathBuf) {
        write_certificate(&self.authority(), directory)
    }

    fn authority(&self) -> Ca {
        Ca::open_or_create(&self.data_dir().join("pki"), now()).expect("open the platform's authority")
    }

    /// A peer that leaves what it sends to the test: with a certificate of `user` in these groups, or with none.
    pub fn peer(&self, user: Option<(&str, &[&str])>) -> Peer {
        Peer::new(&self.authority(), &self.url, user)
    }

    /// The process id of the running `up`.
    pub fn pid(&self) -> Option<i32> {
        self.up.as_ref().map(|child| child.id() as i32)
    }

    /// Starts `up` (again) on the same directory and waits for its one line.
    pub fn up(&mut self) {
        self.up_with(&[]);
    }

    /// The same with more flags, this time.
    pub fn up_with(&mut self, flags: &[&str]) {
        assert!(self.up.is_none(), "it is up already");
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.scratch().join("up.log"))
            .expect("open the log of up");
        // Tests name images of others, and reach no registry but one of their own.
        let own_images = self.setup.flags.iter().any(|flag| flag.starts_with("--images"));
        let images = (!own_images).then_some(["--images", "host"]);
        let mut child = self
            .program()
            .args(["up", "--port", "0", "--data-dir"])
            .arg(self.data_dir())
            .args(&self.setup.flags)
            .args(images.into_iter().flatten())
            .args(flags)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .expect("start pumice up");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("a pipe was asked for");
        BufReader::new(stdout).read_line(&mut line).expect("read what up prints");
        let url = line.split_whitespace().find(|word| word.starts_with("https://"));
        let Some(url) = url else {
            let _ = child.kill();
            panic!("up printed {line:?} and said:\n{}", self.log());
        };
        self.url = url.to_owned();
        self.up = Some(child);
    }

    /// `pumice` by the platform's user.
    pub fn program(&self) -> Command {
        let program = binary("pumice");
        match &self.user {
            Some(user) => user.command(&program, self.directory.path()),
            None => Command::new(program),
        }
    }

    /// Has another user run it from the next start on.
    pub fn set_user(&mut self, user: OrdinaryUser) {
        self.user = Some(user);
    }

    /// What `up` has said on standard error so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.scratch().join("up.log")).unwrap_or_default()
    }

    /// Kills `up` as a crash would: no chance to clean up. Pods go on.
    pub fn crash(&mut self) {
        let mut child = self.up.take().expect("it is up");
        child.kill().expect("kill up");
        child.wait().expect("wait for up");
    }

    /// Stops `up` as Ctrl-C would and gives its exit code.
    pub fn stop(&mut self) -> i32 {
        let mut child = self.up.take().expect("it is up");
        signal(&child, Signal::SIGINT);
        code(child.wait().expect("wait for up"))
    }

    /// Runs `jobctl` against this platform.
    pub fn jobctl<S: AsRef<std::ffi::OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Output {
        self.run(&binary("jobctl"), args, None)
    }

    /// Runs `jobctl` with something on standard input.
    pub fn jobctl_with_input<S: AsRef<std::ffi::OsStr>>(
        &self,
        args: impl IntoIterator<Item = S>,
        input: &str,
    ) -> Output {
        self.run(&binary("jobctl"), args, Some(input))
    }

    /// What its things on the machine are marked with.
    pub fn marks(&self) -> Marks {
        Marks::of(&self.data_dir())
    }

    /// Stops everything, pods too, and says what is left of it on the machine.
    pub fn tear_down(&mut self) -> Remains {
        let marks = self.marks();
        self.drain();
        marks.look()
    }

    /// Runs `pumice down` with these flags, while `up` runs or not; afterwards it does not.
    pub fn down<S: AsRef<std::ffi::OsStr>>(&mut self, flags: impl IntoIterator<Item = S>) -> Output {
        let data_dir = self.data_dir().into_os_string();
        let words: Vec<std::ffi::OsString> = ["down".into(), "--data-dir".into(), data_dir]
            .into_iter()
            .chain(flags.into_iter().map(|flag| flag.as_ref().to_owned()))
            .collect();
        let output = self.run(&binary("pumice"), words, None);
        if let Some(mut child) = self.up.take() {
            child.wait().expect("wait for up");
        }
        output
    }

    fn drain(&mut self) {
        if let Some(mut child) = self.up.take() {
            signal(&child, Signal::SIGTERM);
            let _ = child.wait();
        }
        if self.data_dir().is_dir() {
            let _ = self.program().args(["down", "--now", "--data-dir"]).arg(self.data_dir()).output();
        }
    }
}

impl Deref for Platform {
    type Target = Clients;

    fn deref(&self) -> &Clients {
        &self.clients
    }
}

impl Default for Platform {
    fn default() -> Self {
        Platform::new()
    }
}

impl Drop for Platform {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- what up said ---\n{}\n---", self.log());
        }
        self.drain();
    }
}

/// What directories of tests are called.
const PREFIX: &str = "pumice-test-";

fn temporary_directory() -> TempDir {
    tempfile::Builder::new().prefix(PREFIX).tempdir().expect("a temporary directory")
}

fn signal(child: &Child, signal: Signal) {
    let _ = kill(Pid::from_raw(child.id() as i32), signal);
}
