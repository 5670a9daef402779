//! One running server of a fleet, with people who use it.
//!
//! Invariant: it ends when the [`Fleet`] is dropped, and with it the clusters that `pumice fleet up` brings along.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::Command;

use pumice_auth::Ca;
use tempfile::TempDir;

use crate::certificate::now;
use crate::{Clients, Output, Peer, Process, binary, eventually};

/// What it says once it is there, before its address.
const READY: &str = "the fleet is up at ";

/// A server in a directory of its own.
pub struct Fleet {
    // Ends before its directory does.
    server: Option<Process>,
    directory: TempDir,
    verb: &'static str,
    flags: Vec<String>,
    clients: Clients,
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
        Fleet::start("up", flags, None)
    }

    /// `pumice fleet server`.
    pub fn server(flags: &[&str]) -> Fleet {
        Fleet::start("server", flags, None)
    }

    /// `pumice fleet server` with a configuration, which is in [`Fleet::config`].
    pub fn server_with(config: &str) -> Fleet {
        Fleet::start("server", &[], Some(config))
    }

    fn start(verb: &'static str, flags: &[&str], config: Option<&str>) -> Fleet {
        let directory = tempfile::tempdir().expect("a directory for a fleet");
        let clients = Clients::new(&directory.path().join("no-kubeconfig"), directory.path())
            .with("PUMICE_DATA_DIR", directory.path().join("no-platform"));
        let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let mut fleet = Fleet { server: None, directory, verb, flags, clients, url: String::new() };
        if let Some(config) = config {
            std::fs::write(fleet.config(), config).expect("write a configuration");
            fleet.flags.extend(["--config".to_owned(), fleet.config().display().to_string()]);
        }
        fleet.run_again();
        fleet
    }

    fn data_dir(&self) -> PathBuf {
        self.directory.path().join("fleet")
    }

    /// The file of its configuration, where it has one.
    pub fn config(&self) -> PathBuf {
        self.directory.path().join("fleet.yaml")
    }

    /// The program.
    ///
    /// # Panics
    /// When it does not run.
    pub fn process(&self) -> &Process {
        self.server.as_ref().expect("it runs")
    }

    /// Starts it, at the port that it had before if it had one, and waits until it says that it is ready.
    ///
    /// # Panics
    /// When it does not.
    pub fn run_again(&mut self) {
        let log = std::fs::read_to_string(self.directory.path().join("fleet.log")).unwrap_or_default();
        let begins = log.len();
        let port = self.url.rsplit(':').next().filter(|port| !port.is_empty()).unwrap_or("0");
        let mut command = Command::new(binary("pumice"));
        command.args(["fleet", self.verb, "--port", port, "--data-dir"]).arg(self.data_dir()).args(&self.flags);
        let mut process = Process::start("fleet", &mut command, self.directory.path());
        self.url = eventually("the fleet is up", || {
            let log = process.log();
            let mut lines = log.get(begins..).unwrap_or_default().lines();
            if let Some(address) = lines.find_map(|line| line.strip_prefix(READY)) {
                return Ok(address.split(' ').next().unwrap_or(address).to_owned());
            }
            assert_eq!(process.ended(), None, "{}", process.tail());
            Err(process.tail())
        });
        self.server = Some(process);
    }

    /// A peer that leaves what it sends to the test: with a certificate of `user` in these groups, or with none.
    ///
    /// # Panics
    /// When the fleet's authority can't be read.
    pub fn peer(&self, user: Option<(&str, &[&str])>) -> Peer {
        let authority = Ca::open_or_create(&self.data_dir().join("pki"), now()).expect("open the fleet's authority");
        Peer::new(&authority, &self.url, user)
    }

    /// Kills it as a crash would.
    ///
    /// # Panics
    /// When it does not run.
    pub fn crash(&mut self) {
        self.server.take().expect("it runs").crash();
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

    /// Makes it known to ada as `grid`, where her queue is `research`; what `jobctl` said of it.
    pub fn known(&self) -> Output {
        self.queue("research", "ada");
        let identity = self.identity(&["--user", "ada"]).display().to_string();
        let flags = ["--fleet", &self.url, "--identity", &identity, "--queue", "research"];
        let added = self.jobctl(["context", "add", "grid"].into_iter().chain(flags));
        self.jobctl(["context", "use", "grid"]).ok();
        added
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
        let identity = identity.display().to_string();
        self.curl(path, &["--cert", &identity, "-H", "Content-Type: application/json", "-d", message])
    }

    /// The same with these flags of `curl`, which say who asks, and for what.
    ///
    /// # Panics
    /// When there is no answer.
    pub fn curl(&self, path: &str, flags: &[&str]) -> (String, String) {
        // Its last part is the certificate of the authority.
        let (authority, url) = (self.administrator().display().to_string(), format!("{}{path}", self.url));
        let ours = ["-sS", "--noproxy", "*", "-w", "\n%{http_code}", "--cacert", &authority];
        let flags = ours.into_iter().chain(flags.iter().copied()).chain([url.as_str()]);
        let said = self.clients.run(Path::new("curl"), flags, None).ok();
        let (body, code) = said.rsplit_once('\n').expect("curl writes the code");
        (code.to_owned(), body.to_owned())
    }

    /// The executor of a cluster.
    pub fn executor(&self, name: &str, kubeconfig: &Path) -> Process {
        self.executor_with(name, kubeconfig, "{}")
    }

    /// The same with a configuration.
    ///
    /// # Panics
    /// When it does not come up.
    pub fn executor_with(&self, name: &str, kubeconfig: &Path, config: &str) -> Process {
        let identity = self.identity(&["--executor", name]);
        let config = self.file(&format!("executor-{name}.yaml"), config);
        let mut command = Command::new(binary("pumice"));
        command.args(["fleet", "executor", "--server", &self.url, "--identity"]).arg(identity);
        command.arg("--kubeconfig").arg(kubeconfig).arg("--config").arg(config);
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
