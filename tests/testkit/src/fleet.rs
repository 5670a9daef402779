//! One running server of a fleet, with people who use it.
//!
//! Invariant: it ends when the [`Fleet`] is dropped, and with it the clusters that `pumice fleet up` brings along.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::{Clients, Output, Process, binary};

/// A server in a directory of its own.
pub struct Fleet {
    directory: TempDir,
    verb: &'static str,
    flags: Vec<String>,
    clients: Clients,
    server: Option<Child>,
    /// Where it is reached.
    pub url: String,
}

impl Deref for Fleet {
    type Target = Clients;

    fn deref(&self) -> &Clients {
        &self.clients
    }
}

impl Fleet {
    /// `pumice fleet up`: a server with clusters of simulated nodes.
    pub fn up(flags: &[&str]) -> Fleet {
        Fleet::start("up", flags)
    }

    /// `pumice fleet server`.
    pub fn server(flags: &[&str]) -> Fleet {
        Fleet::start("server", flags)
    }

    fn start(verb: &'static str, flags: &[&str]) -> Fleet {
        let directory = tempfile::tempdir().expect("a directory for a fleet");
        let clients = Clients::new(&directory.path().join("no-kubeconfig"), directory.path())
            .with("PUMICE_DATA_DIR", directory.path().join("no-platform"));
        let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let mut fleet = Fleet { directory, verb, flags, clients, server: None, url: String::new() };
        fleet.run_again();
        fleet
    }

    fn data_dir(&self) -> PathBuf {
        self.directory.path().join("fleet")
    }

    /// Starts it, at the port that it had before if it had one, and waits until it says that it is ready.
    ///
    /// # Panics
    /// When it does not.
    pub fn run_again(&mut self) {
        let log = self.directory.path().join("fleet.log");
        let said = File::options().create(true).append(true).open(&log).expect("open the fleet's log");
        let port = self.url.rsplit(':').next().filter(|port| !port.is_empty()).unwrap_or("0");
        let mut child = Command::new(binary("pumice"))
            .args(["fleet", self.verb, "--port", port, "--data-dir"])
            .arg(self.data_dir())
            .args(&self.flags)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(said)
            .spawn()
            .expect("start the fleet");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("a pipe was asked for");
        BufReader::new(stdout).read_line(&mut line).expect("read what the fleet prints");
        let Some(url) = line.split_whitespace().find(|word| word.starts_with("https://")) else {
            let _ = child.kill();
            panic!("the fleet printed {line:?} and said:\n{}", std::fs::read_to_string(&log).unwrap_or_default());
        };
        url.clone_into(&mut self.url);
        self.server = Some(child);
    }

    /// Kills it as a crash would.
    ///
    /// # Panics
    /// When it does not run.
    pub fn crash(&mut self) {
        let mut child = self.server.take().expect("it runs");
        child.kill().expect("kill the fleet");
        child.wait().expect("wait for the fleet");
    }

    /// A new identity, such as of `--user ada`.
    ///
    /// # Panics
    /// When none is made.
    pub fn identity(&self, flags: &[&str]) -> PathBuf {
        let made = Command::new(binary("pumice"))
            .args(["fleet", "identity", "--data-dir"])
            .arg(self.data_dir())
            .args(flags)
            .output()
            .expect("run pumice fleet identity");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let file = self.directory.path().join(format!("{}.pem", flags.join("").replace('-', "")));
        std::fs::write(&file, made.stdout).expect("write an identity");
        file
    }

    /// Makes a queue that its owner may do everything with.
    pub fn queue(&self, name: &str, owner: &str) {
        let queue = format!(r#"{{"name": "{name}", "priorityFactor": 1, "userOwners": ["{owner}"]}}"#);
        let (code, said) = self.post(&self.administrator(), "/v1/queue", &queue);
        assert_eq!(code, "200", "{said}");
    }

    /// The identity of who may do everything.
    pub fn administrator(&self) -> PathBuf {
        self.data_dir().join("administrator.pem")
    }

    /// A call over plain HTTP: the code and the body of its answer.
    ///
    /// # Panics
    /// When there is none.
    pub fn post(&self, identity: &Path, path: &str, message: &str) -> (String, String) {
        let (identity, url) = (identity.display().to_string(), format!("{}{path}", self.url));
        let flags = ["-sS", "--noproxy", "*", "-w", "\n%{http_code}", "--cacert", &identity, "--cert", &identity];
        let request = ["-H", "Content-Type: application/json", "-d", message, &url];
        let said = self.clients.run(Path::new("curl"), flags.into_iter().chain(request), None).ok();
        let (body, code) = said.rsplit_once('\n').expect("curl writes the code");
        (code.to_owned(), body.to_owned())
    }

    /// The executor of a cluster.
    pub fn executor(&self, name: &str, kubeconfig: &Path) -> Process {
        let identity = self.identity(&["--executor", name]);
        let mut command = Command::new(binary("pumice"));
        command.args(["fleet", "executor", "--server", &self.url, "--identity"]).arg(identity);
        command.arg("--kubeconfig").arg(kubeconfig);
        Process::start(&format!("executor-{name}"), &mut command, self.directory.path())
    }

    /// Runs `jobctl`, which knows of nothing but its contexts.
    pub fn jobctl<S: AsRef<std::ffi::OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Output {
        self.clients.run(&binary("jobctl"), args, None)
    }

    /// Writes a file beside it.
    ///
    /// # Panics
    /// When that fails.
    pub fn file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.directory.path().join(name);
        std::fs::write(&path, content).expect("write a file");
        path
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        if let Some(mut child) = self.server.take() {
            let _ = kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM);
            let _ = child.wait();
        }
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.directory.path().join("fleet.log")).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            eprintln!("--- the fleet said ---\n{}\n---", lines[lines.len().saturating_sub(40)..].join("\n"));
        }
    }
}
