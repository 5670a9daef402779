//! Which API to talk to: a kubeconfig or a fleet that was named, else the user's own `pumice up`, else the one that the users of this
//! machine share.
//!
//! Invariant: `$KUBECONFIG` and `~/.kube/config` are never read unless a flag names them, so that a
//! test on a laptop can't reach somebody's production cluster. The environment is an argument.
//! Called once per command, and again by `connection` after an outage (`up` may have moved).

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{Failure, Remedy};
use crate::exit_code::Exit;
use crate::fleet::Fleet;
use crate::platform::local_socket::{self, DEFAULT_SOCKET};

/// The run file's name in the data directory.
pub const RUN_FILE: &str = "up.json";
/// The kubeconfig's name in the data directory.
pub const KUBECONFIG_FILE: &str = "kubeconfig";
/// A run file larger than this is not ours.
const RUN_FILE_BYTES_MAX: u64 = 64 << 10;

/// The variables that matter, read once by the binary.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Environment {
    /// `$PUMICE_CONTEXT`.
    pub context: Option<String>,
    /// `$PUMICE_DATA_DIR`.
    pub data_dir: Option<PathBuf>,
    /// `$XDG_CONFIG_HOME`.
    pub xdg_config_home: Option<PathBuf>,
    /// `$XDG_DATA_HOME`.
    pub xdg_data_home: Option<PathBuf>,
    /// `$HOME`.
    pub home: Option<PathBuf>,
    /// Whether `$PUMICE_AUTOSTART` says that no platform is to be started unasked.
    pub autostart_off: bool,
    /// Whether this process is in a pod.
    pub in_pod: bool,
    /// `$PUMICE_SOCKET`, else where the platform that users of this machine share has its socket.
    pub socket: Option<PathBuf>,
}

/// Values of `$PUMICE_AUTOSTART` that switch it off.
const OFF: [&str; 4] = ["0", "false", "no", "off"];
/// Variables that only pods have: by the platform's jobs, and by Kubernetes.
const OF_PODS: [&str; 2] = ["VC_TASK_INDEX", "KUBERNETES_SERVICE_HOST"];

impl Environment {
    /// What the process's variables say; `variable` gives one that is set. An empty one counts as not set.
    pub fn read(variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let variable = |name| variable(name).filter(|value| !value.is_empty());
        let path = |name| variable(name).map(PathBuf::from);
        Environment {
            context: variable("PUMICE_CONTEXT").and_then(|value| value.into_string().ok()),
            data_dir: path("PUMICE_DATA_DIR"),
            xdg_config_home: path("XDG_CONFIG_HOME"),
            xdg_data_home: path("XDG_DATA_HOME"),
            home: path("HOME"),
            autostart_off: variable("PUMICE_AUTOSTART").is_some_and(|value| OFF.iter().any(|off| value == *off)),
            in_pod: OF_PODS.iter().any(|name| variable(name).is_some()),
            socket: path("PUMICE_SOCKET").or_else(|| Some(DEFAULT_SOCKET.into())),
        }
    }
}

/// What the flags say; they win over the environment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Flags {
    /// `--kubeconfig FILE`.
    pub kubeconfig: Option<PathBuf>,
    /// `--context`: the path of a kubeconfig, or the name of a context in one.
    pub context: Option<String>,
    /// `--data-dir DIR` of the `up` to talk to.
    pub data_dir: Option<PathBuf>,
    /// The fleet that the user's context names.
    pub fleet: Option<Fleet>,
}

/// Where the API is described.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A kubeconfig somebody named.
    Kubeconfig {
        path: PathBuf,
        /// A context in it; its current one if `None`.
        context: Option<String>,
    },
    /// The `pumice up` that uses this data directory.
    Local {
        data_dir: PathBuf,
        /// A context in its kubeconfig; its current one if `None`.
        context: Option<String>,
        /// Whether it is the default directory, so that `pumice up` needs no flag to use it.
        by_default: bool,
    },
    /// The platform that the users of this machine share, by its local socket.
    Socket(PathBuf),
    Fleet(Fleet),
}

/// Where a target is once it was looked for: [`Target::locate`] finds the kubeconfig of a `pumice up`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Located<'t> {
    /// A kubeconfig, and a context in it; its current one if `None`.
    Kubeconfig(PathBuf, Option<String>),
    Socket(&'t Path),
    Fleet(&'t Fleet),
}

/// What `pumice up` leaves in `DATA_DIR/up.json` while it runs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunFile {
    /// Process id of `up`.
    pub pid: u32,
    pub url: String,
    pub kubeconfig: PathBuf,
    /// When it came up.
    pub started: jiff::Timestamp,
    /// Where users of this machine reach it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<PathBuf>,
    /// Where other machines reach it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub listen: Vec<String>,
}

/// Why no API could be found.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// Neither `$PUMICE_DATA_DIR`, `$XDG_DATA_HOME` nor `$HOME` is set.
    #[error("no data directory: none of PUMICE_DATA_DIR, XDG_DATA_HOME and HOME is set")]
    NoDataDirectory,
    /// No run file: nothing runs there.
    #[error("no platform is running in {}", data_dir.display())]
    NotRunning {
        /// The directory looked in.
        data_dir: PathBuf,
        /// The command that starts one there.
        start: String,
    },
    /// The run file is there and can't be read.
    #[error("cannot read {}", path.display())]
    ReadRunFile {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// The run file is not what `up` writes.
    #[error("{} is not a run file of pumice up", path.display())]
    ParseRunFile {
        path: PathBuf,
        #[source]
        source: serde_json::Error,
    },
}

impl Failure for TargetError {
    fn exit(&self) -> Exit {
        match self {
            TargetError::NotRunning { .. } => Exit::Unreachable,
            TargetError::NoDataDirectory | TargetError::ReadRunFile { .. } | TargetError::ParseRunFile { .. } => {
                Exit::Usage
            }
        }
    }

    fn remedy(&self) -> Remedy {
        match self {
            TargetError::NotRunning { start, .. } => Remedy::from_text(start),
            TargetError::NoDataDirectory | TargetError::ReadRunFile { .. } | TargetError::ParseRunFile { .. } => {
                Remedy::from_text("pumice up")
            }
        }
    }
}

/// The default data directory: `$PUMICE_DATA_DIR`, else `$XDG_DATA_HOME/pumice`, else
/// `~/.local/share/pumice`. Empty variables count as unset, as the XDG specification says.
pub fn default_data_dir(environment: &Environment) -> Option<PathBuf> {
    let set = |path: &Option<PathBuf>| path.clone().filter(|p| !p.as_os_str().is_empty());
    set(&environment.data_dir)
        .or_else(|| set(&environment.xdg_data_home).map(|dir| dir.join("pumice")))
        .or_else(|| set(&environment.home).map(|dir| dir.join(".local/share/pumice")))
}

/// Decides by flags, then environment, then the user's own `up` if it runs, then the machine's socket if there is one. Looks at the
/// disk for that, and to tell a path from a context's name and a socket from a kubeconfig.
pub fn choose(flags: &Flags, environment: &Environment) -> Result<Target, TargetError> {
    if let Some(fleet) = &flags.fleet {
        return Ok(Target::Fleet(fleet.clone()));
    }
    let context = flags.context.clone().or_else(|| environment.context.clone()).filter(|context| !context.is_empty());
    let path = flags.kubeconfig.as_deref().or(context.as_deref().map(Path::new));
    if let Some(path) = path.filter(|path| local_socket::is_socket(path)) {
        return Ok(Target::Socket(path.to_owned()));
    }
    if let Some(path) = &flags.kubeconfig {
        // A context from the environment belongs to another file.
        return Ok(Target::Kubeconfig { path: path.clone(), context: flags.context.clone() });
    }
    if let Some(path) = context.as_deref().filter(|c| c.contains('/') || Path::new(c).is_file()) {
        return Ok(Target::Kubeconfig { path: PathBuf::from(path), context: None });
    }
    let data_dir = flags.data_dir.clone().or_else(|| default_data_dir(environment));
    let is_named = flags.data_dir.is_some() || context.is_some() || environment.data_dir.is_some();
    let shared = environment.socket.as_ref().filter(|_| !is_named && !environment.in_pod);
    if let Some(socket) = shared.filter(|socket| local_socket::is_socket(socket))
        && data_dir.as_ref().is_none_or(|own| !runs_in(own))
    {
        return Ok(Target::Socket(socket.clone()));
    }
    let data_dir = data_dir.ok_or(TargetError::NoDataDirectory)?;
    Ok(Target::Local { data_dir, context, by_default: flags.data_dir.is_none() })
}

impl Target {
    /// Where to find the API. For a local target the run file is read anew each time, because a restarted `up` may listen
    /// elsewhere.
    pub fn locate(&self) -> Result<Located<'_>, TargetError> {
        match self {
            Target::Fleet(fleet) => Ok(Located::Fleet(fleet)),
            Target::Socket(path) => Ok(Located::Socket(path)),
            Target::Kubeconfig { path, context } => Ok(Located::Kubeconfig(path.clone(), context.clone())),
            Target::Local { data_dir, context, .. } => {
                let run = read_run_file(data_dir)?.ok_or_else(|| TargetError::NotRunning {
                    data_dir: data_dir.clone(),
                    start: self.start_command(),
                })?;
                // Relative paths in the run file are relative to where `up` keeps its data.
                Ok(Located::Kubeconfig(data_dir.join(run.kubeconfig), context.clone()))
            }
        }
    }

    /// The command that helps where the API can't be used. `answers` is whether it did: then it runs, and says itself what it
    /// lacks.
    pub fn help_command(&self, answers: bool) -> String {
        match self {
            Target::Local { data_dir, by_default, .. } if answers || self.is_running() => match by_default {
                true => "pumice status".to_owned(),
                false => format!("pumice status --data-dir {}", data_dir.display()),
            },
            _ => self.start_command(),
        }
    }

    /// Whether a local platform runs, so that starting another one doesn't help.
    fn is_running(&self) -> bool {
        matches!(self, Target::Local { data_dir, .. } if runs_in(data_dir))
    }

    /// The command that brings this target up, or that shows whether it answers.
    pub fn start_command(&self) -> String {
        match self {
            Target::Local { data_dir, by_default, .. } => start_command(data_dir, *by_default),
            Target::Kubeconfig { path, .. } => {
                format!("kubectl --kubeconfig {} get --raw /readyz", path.display())
            }
            Target::Socket(path) => format!("curl --unix-socket {} http://localhost/readyz", path.display()),
            Target::Fleet(fleet) => format!("curl --insecure {}/health", fleet.url.trim_end_matches('/')),
        }
    }
}

/// Whether the process lives that a platform's note names.
fn runs_in(data_dir: &Path) -> bool {
    let note = read_run_file(data_dir).ok().flatten();
    // One that has ended and was not waited for yet has no program any more.
    note.is_some_and(|note| match std::fs::read_link(format!("/proc/{}/exe", note.pid)) {
        Err(error) => error.kind() != std::io::ErrorKind::NotFound,
        Ok(_) => true,
    })
}

/// Where `pumice apiserver` keeps the kubeconfigs of components that run in processes of their own.
pub const KUBECONFIGS: &str = "kubeconfigs";

/// The command that starts the platform of a directory. `by_default` is whether it is the one that `pumice` takes by itself.
pub fn start_command(data_dir: &Path, by_default: bool) -> String {
    let word = if data_dir.join(KUBECONFIGS).is_dir() { "apiserver" } else { "up" };
    match by_default {
        true => format!("pumice {word}"),
        false => format!("pumice {word} --data-dir {}", data_dir.display()),
    }
}

/// Reads `DATA_DIR/up.json`; `None` if there is none.
pub fn read_run_file(data_dir: &Path) -> Result<Option<RunFile>, TargetError> {
    let path = data_dir.join(RUN_FILE);
    let read = || -> std::io::Result<Option<Vec<u8>>> {
        match std::fs::metadata(&path) {
            Ok(metadata) if metadata.len() > RUN_FILE_BYTES_MAX => {
                Err(std::io::Error::other(format!("larger than {RUN_FILE_BYTES_MAX} bytes")))
            }
            Ok(_) => std::fs::read(&path).map(Some),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    };
    match read() {
        Ok(None) => Ok(None),
        Ok(Some(bytes)) => {
            serde_json::from_slice(&bytes).map(Some).map_err(|source| TargetError::ParseRunFile { path, source })
        }
        Err(source) => Err(TargetError::ReadRunFile { path, source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment() -> Environment {
        Environment { home: Some("/home/ada".into()), ..Environment::default() }
    }

    #[test]
    fn data_directory_follows_the_environment() {
        let mut env = environment();
        assert_eq!(default_data_dir(&env), Some("/home/ada/.local/share/pumice".into()));
        env.xdg_data_home = Some("/xdg".into());
        assert_eq!(default_data_dir(&env), Some("/xdg/pumice".into()));
        env.data_dir = Some("/data".into());
        assert_eq!(default_data_dir(&env), Some("/data".into()));
        env.data_dir = Some("".into());
        assert_eq!(default_data_dir(&env), Some("/xdg/pumice".into()));
        assert_eq!(default_data_dir(&Environment::default()), None);
    }

    #[test]
    fn the_environment_is_read_once() {
        let read = |set: &[(&str, &str)]| {
            Environment::read(|name| set.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into()))
        };
        let home = Environment { socket: Some(DEFAULT_SOCKET.into()), ..environment() };
        assert_eq!(read(&[("HOME", "/home/ada"), ("PUMICE_AUTOSTART", "1")]), home);
        assert_eq!(read(&[("PUMICE_SOCKET", "/s")]).socket, Some("/s".into()));
        for off in OFF {
            assert!(read(&[("PUMICE_AUTOSTART", off)]).autostart_off, "{off}");
        }
        for name in OF_PODS {
            assert!(read(&[(name, "0")]).in_pod, "{name}");
        }
    }

    #[test]
    fn flags_win_over_environment_and_local() {
        let env = Environment { context: Some("/env/kubeconfig".into()), ..environment() };
        let local = |context: Option<&str>, dir: &str, by_default| Target::Local {
            data_dir: dir.into(),
            context: context.map(str::to_owned),
            by_default,
        };
        let file = |path: &str, context: Option<&str>| Target::Kubeconfig {
            path: path.into(),
            context: context.map(str::to_owned),
        };
        let flags = |kubeconfig: Option<&str>, context: Option<&str>, data_dir: Option<&str>| Flags {
            kubeconfig: kubeconfig.map(PathBuf::from),
            context: context.map(str::to_owned),
            data_dir: data_dir.map(PathBuf::from),
            fleet: None,
        };
        let home = "/home/ada/.local/share/pumice";
        for (name, given, env, wanted) in [
            ("nothing", flags(None, None, None), &environment(), local(None, home, true)),
            ("env path", flags(None, None, None), &env, file("/env/kubeconfig", None)),
            ("flag name", flags(None, Some("east"), None), &env, local(Some("east"), home, true)),
            ("flag path", flags(None, Some("./k"), None), &env, file("./k", None)),
            ("kubeconfig", flags(Some("/k"), None, None), &env, file("/k", None)),
            ("both", flags(Some("/k"), Some("east"), None), &env, file("/k", Some("east"))),
            ("data dir", flags(None, None, Some("/d")), &environment(), local(None, "/d", false)),
        ] {
            assert_eq!(choose(&given, env).unwrap(), wanted, "{name}");
        }
    }

    #[test]
    fn the_machines_socket_is_used_where_nothing_is_said_and_no_platform_of_ones_own_runs() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("api.sock");
        let own = home.path().join(".local/share/pumice");
        std::fs::create_dir_all(&own).unwrap();
        let socket = Some(path.clone());
        let env = Environment { home: Some(home.path().to_owned()), socket, ..Environment::default() };
        let chosen = |flags: Flags, env: &Environment| choose(&flags, env).unwrap();
        let is_shared = |flags: Flags, env: &Environment| chosen(flags, env) == Target::Socket(path.clone());
        assert!(!is_shared(Flags::default(), &env), "there is none");
        let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        assert!(is_shared(Flags::default(), &env));
        assert!(is_shared(Flags::default(), &Environment { home: None, ..env.clone() }), "a user without a home");
        let named = |context: &str| Flags { context: Some(context.to_owned()), ..Flags::default() };
        assert!(is_shared(named(path.to_str().unwrap()), &Environment::default()), "by its path");
        assert!(is_shared(Flags { kubeconfig: Some(path.clone()), ..Flags::default() }, &Environment::default()));
        for (what, flags, env) in [
            ("a context", named("east"), env.clone()),
            ("a directory", Flags { data_dir: Some("/d".into()), ..Flags::default() }, env.clone()),
            ("$PUMICE_DATA_DIR", Flags::default(), Environment { data_dir: Some("/d".into()), ..env.clone() }),
            ("$PUMICE_CONTEXT", Flags::default(), Environment { context: Some("east".into()), ..env.clone() }),
            ("in a pod", Flags::default(), Environment { in_pod: true, ..env.clone() }),
        ] {
            assert!(!is_shared(flags, &env), "{what}");
        }
        let mut note = RunFile {
            pid: std::process::id(),
            url: "https://127.0.0.1:1".into(),
            kubeconfig: KUBECONFIG_FILE.into(),
            ..RunFile::default()
        };
        let mut write = |pid| {
            note.pid = pid;
            std::fs::write(own.join(RUN_FILE), serde_json::to_vec(&note).unwrap()).unwrap();
        };
        write(std::process::id());
        assert!(!is_shared(Flags::default(), &env), "one's own platform goes first");
        // No process has so high a number.
        write(u32::MAX);
        assert!(is_shared(Flags::default(), &env), "what a crash has left is no platform");
    }

    #[test]
    fn a_missing_run_file_names_the_next_command() {
        let dir = tempfile::tempdir().unwrap();
        let target = Target::Local { data_dir: dir.path().to_owned(), context: None, by_default: true };
        match target.locate() {
            Err(TargetError::NotRunning { start, .. }) => assert_eq!(start, "pumice up"),
            other => panic!("{other:?}"),
        }
        std::fs::write(dir.path().join(RUN_FILE), "{").unwrap();
        assert!(matches!(target.locate(), Err(TargetError::ParseRunFile { .. })));
        let run = RunFile {
            pid: 1,
            url: "https://127.0.0.1:1".into(),
            kubeconfig: dir.path().join(KUBECONFIG_FILE),
            ..RunFile::default()
        };
        std::fs::write(dir.path().join(RUN_FILE), serde_json::to_vec(&run).unwrap()).unwrap();
        assert_eq!(target.locate().unwrap(), Located::Kubeconfig(dir.path().join(KUBECONFIG_FILE), None));
    }
}
