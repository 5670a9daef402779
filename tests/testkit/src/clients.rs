//! The programs of a user, pointed at one API server.
//!
//! Invariant: nothing of the user who runs the tests is seen: kubeconfig, home and directory are the test's own. A test that
//! takes these [`Clients`] runs on our API server and on a real one.

use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use serde_json::Value;

use crate::{binary, eventually};

/// What a command left behind.
#[derive(Debug, Clone)]
pub struct Output {
    /// Exit code; 128 + signal when killed.
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Output {
    /// The output of a command that must have succeeded.
    ///
    /// # Panics
    /// When it has not, with all it said.
    pub fn ok(self) -> String {
        assert_eq!(self.code, 0, "failed: {self:?}");
        self.stdout
    }
}

/// Programs that reach an API server as its administrator.
#[derive(Debug, Clone)]
pub struct Clients {
    home: PathBuf,
    kubectl: PathBuf,
    environment: Vec<(&'static str, OsString)>,
}

impl Clients {
    /// Programs that use `kubeconfig` and live in `home`.
    pub fn new(kubeconfig: &Path, home: &Path) -> Clients {
        let environment = vec![("KUBECONFIG", kubeconfig.into()), ("HOME", home.into())];
        #[allow(clippy::disallowed_methods)] // which kubectl to try is the caller's choice
        let kubectl = std::env::var_os("KUBECTL").map_or_else(|| "kubectl".into(), PathBuf::from);
        Clients { home: home.to_owned(), kubectl, environment }
    }

    /// The same with another `kubectl` than the one on the path, or the one that `$KUBECTL` names.
    pub fn with_kubectl(mut self, program: &Path) -> Clients {
        program.clone_into(&mut self.kubectl);
        self
    }

    /// The same with one more variable in their environment.
    pub fn with(mut self, variable: &'static str, value: impl Into<OsString>) -> Clients {
        self.environment.push((variable, value.into()));
        self
    }

    /// The same programs in another namespace, which is made.
    pub fn in_namespace(&self, kubeconfig: &Path, namespace: &str) -> Clients {
        self.kubectl(["create", "namespace", namespace]).ok();
        let home = self.home.join(namespace);
        std::fs::create_dir(&home).expect("a directory for a namespace");
        let own = home.join("kubeconfig");
        std::fs::copy(kubeconfig, &own).expect("copy a kubeconfig");
        let clients = Clients::new(&own, &home).with_kubectl(&self.kubectl);
        clients.kubectl(["config", "set-context", "--current", "--namespace", namespace]).ok();
        clients
    }

    /// A directory for the test's own files.
    pub fn scratch(&self) -> &Path {
        &self.home
    }

    /// Runs the stock `kubectl`.
    pub fn kubectl<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Output {
        self.run(&self.kubectl, args, None)
    }

    /// Runs `kubectl` with a manifest on standard input.
    pub fn kubectl_with_input<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>, input: &str) -> Output {
        self.run(&self.kubectl, args, Some(input))
    }

    /// One object as JSON by kubectl, `None` when there is none.
    pub fn get(&self, kind: &str, name: &str) -> Option<Value> {
        let output = self.kubectl(["get", kind, name, "-o", "json"]);
        (output.code == 0).then(|| serde_json::from_str(&output.stdout).expect("kubectl prints JSON"))
    }

    /// All objects of a kind as JSON by kubectl.
    pub fn list(&self, kind: &str) -> Vec<Value> {
        let text = self.kubectl(["get", kind, "-o", "json"]).ok();
        let list: Value = serde_json::from_str(&text).expect("kubectl prints JSON");
        list["items"].as_array().cloned().unwrap_or_default()
    }

    /// Waits until every CustomResourceDefinition is served.
    ///
    /// # Panics
    /// When one is not in time.
    pub fn wait_for_definitions(&self) {
        eventually("every definition is established", || {
            // kubectl gives up at once on a definition whose conditions nobody has written yet.
            let waited = self.kubectl(["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"]);
            if waited.code == 0 { Ok(()) } else { Err(waited.stderr) }
        });
    }

    /// Waits until a Job is in `phase` and gives it.
    pub fn wait_for_phase(&self, job: &str, phase: &str) -> Value {
        eventually(&format!("job {job} becomes {phase}"), || {
            let found = self.get("jobs.batch.volcano.sh", job).ok_or("no such job")?;
            let now = found["status"]["state"]["phase"].as_str().unwrap_or("").to_owned();
            if now == phase { Ok(found) } else { Err(format!("{now}: {}", found["status"])) }
        })
    }

    /// Runs what a pod of a job with shards would, beside the test, as whoever the kubeconfig is of; see [`shard_words`].
    pub fn run_shard(&self, job: &Value, index: u32, kubeconfig: &Path) -> Output {
        let kubeconfig = kubeconfig.display().to_string();
        self.run(Path::new("env"), shard_words(job, index, &["--kubeconfig", &kubeconfig]), None)
    }

    /// Any program, not started yet, as these clients are: their kubeconfig, their home.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.envs(self.environment.iter().map(|(name, value)| (name, value))).current_dir(&self.home);
        command
    }

    /// The `kubectl` that these clients run.
    pub fn kubectl_program(&self) -> &Path {
        &self.kubectl
    }

    /// Runs a program with the platform's kubeconfig, and waits for its end.
    pub fn run<S: AsRef<OsStr>>(
        &self,
        program: &Path,
        args: impl IntoIterator<Item = S>,
        input: Option<&str>,
    ) -> Output {
        let mut child = self
            .command(program)
            .args(args)
            .stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("start {}: {error}", program.display()));
        if let Some(input) = input {
            let mut stdin = child.stdin.take().expect("a pipe was asked for");
            // The program may refuse its input and close the pipe: that is for its exit code to say.
            let _ = stdin.write_all(input.as_bytes());
        }
        let output = child.wait_with_output().expect("wait for a command");
        Output {
            code: code(output.status),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// What a pod of a job with shards runs, as arguments of `env`: the variables and the command of the job's first container, with
/// these flags of `jobctl`.
///
/// # Panics
/// When the container is none that `jobctl` rendered.
pub fn shard_words(job: &Value, index: u32, flags: &[&str]) -> Vec<String> {
    let container = &job["spec"]["tasks"][0]["template"]["spec"]["containers"][0];
    // As the kubelet reads it.
    let text = |value: &Value| value.as_str().expect("a text").replace("$$", "$");
    let variables = container["env"].as_array().expect("variables").iter().filter(|one| one["value"].is_string());
    let variables = variables.map(|one| format!("{}={}", text(&one["name"]), text(&one["value"])));
    let mut words = container["command"].as_array().expect("a command").iter().map(text);
    assert_eq!(words.next().as_deref(), Some("jobctl"));
    let front = [format!("VC_TASK_INDEX={index}")].into_iter().chain(variables);
    let program =
        [binary("jobctl").display().to_string()].into_iter().chain(flags.iter().map(|flag| (*flag).to_owned()));
    front.chain(program).chain(words).collect()
}

/// The words of a line as they are typed: those in single quotes may hold blanks.
pub fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for letter in line.chars() {
        match letter {
            '\'' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            other => words.last_mut().expect("never empty").push(other),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// The exit code as a shell tells it.
pub(crate) fn code(status: ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}
