//! Named platforms: a small file of the user's that says where each is, and which one is used.
//!
//! Invariant: the file is written whole or not at all, for the user alone; it holds no secrets, only the paths of kubeconfigs
//! and identities.
//! A flag and `$PUMICE_CONTEXT` go before what it says. Called by `jobctl` before it looks for its target.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{CORRECT, Error, Failure, Remedy};
use crate::exit_code::Exit;
use crate::fleet::Fleet;
use crate::platform::target::{self, Environment, Flags, Target};

/// A longer file is not ours.
const FILE_BYTES_MAX: u64 = 256 << 10;

/// The platforms that a user has given names, and the one that commands use; empty where there is no file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contexts {
    /// The one that is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<String>,
    #[serde(default)]
    pub contexts: BTreeMap<String, Context>,
}

/// Where a platform is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Context {
    /// A kubeconfig; without one it is a `pumice up` of this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubeconfig: Option<PathBuf>,
    /// A context in the kubeconfig.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// Data directory of the `pumice up`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_dir: Option<PathBuf>,
    /// Namespace of commands that name none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The address of a fleet's server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fleet: Option<String>,
    /// What is shown to it: a file with a private key and certificates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<PathBuf>,
    /// The queue of jobs that name none, in a fleet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
}

impl Context {
    /// Where it is, in one line.
    pub fn address(&self) -> String {
        if let Some(fleet) = &self.fleet {
            let queue = self.queue.as_ref().map(|queue| format!(", queue {queue}"));
            return format!("fleet {fleet}{}", queue.unwrap_or_default());
        }
        match (&self.kubeconfig, &self.context, &self.data_dir) {
            (Some(path), Some(context), _) => format!("{} ({context})", path.display()),
            (Some(path), None, _) => path.display().to_string(),
            (None, _, Some(dir)) => format!("pumice up in {}", dir.display()),
            (None, _, None) => "pumice up of this machine".to_owned(),
        }
    }
}

/// Why the file can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ContextError {
    /// It can't be read or written.
    #[error("cannot {doing} {}", path.display())]
    Io {
        doing: &'static str,
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// It holds something else.
    #[error("{} is no list of contexts: {detail}", path.display())]
    Parse { path: PathBuf, detail: String },
    /// There is no such context.
    #[error("no context {name}")]
    Unknown { name: String },
    /// Neither `$XDG_CONFIG_HOME` nor `$HOME` is set.
    #[error("no directory for the contexts: neither XDG_CONFIG_HOME nor HOME is set")]
    NoDirectory,
}

impl Failure for ContextError {
    fn exit(&self) -> Exit {
        match self {
            ContextError::Unknown { .. } => Exit::NotFound,
            ContextError::Io { .. } | ContextError::Parse { .. } | ContextError::NoDirectory => Exit::Usage,
        }
    }

    fn remedy(&self) -> Remedy {
        Remedy::from_text(match self {
            ContextError::Unknown { .. } => "jobctl context list",
            ContextError::Io { .. } | ContextError::Parse { .. } | ContextError::NoDirectory => CORRECT,
        })
    }
}

/// The file: `$XDG_CONFIG_HOME/pumice/contexts.yaml`, else in `~/.config`.
pub fn file(environment: &Environment) -> Result<PathBuf, ContextError> {
    let set = |path: &Option<PathBuf>| path.clone().filter(|path| !path.as_os_str().is_empty());
    let config = set(&environment.xdg_config_home).or_else(|| set(&environment.home).map(|home| home.join(".config")));
    config.map(|config| config.join("pumice/contexts.yaml")).ok_or(ContextError::NoDirectory)
}

/// Reads the file; one that isn't there holds nothing.
pub fn read(path: &Path) -> Result<Contexts, ContextError> {
    let failed = |source| ContextError::Io { doing: "read", path: path.to_owned(), source };
    let wrong = |detail: String| ContextError::Parse { path: path.to_owned(), detail };
    match std::fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Contexts::default()),
        Err(error) => return Err(failed(error)),
        Ok(metadata) if metadata.len() > FILE_BYTES_MAX => {
            return Err(wrong(format!("it is longer than {FILE_BYTES_MAX} bytes")));
        }
        Ok(_) => {}
    }
    let text = std::fs::read_to_string(path).map_err(failed)?;
    if text.trim().is_empty() {
        return Ok(Contexts::default());
    }
    let first_line = |error: serde_saphyr::Error| error.to_string().lines().next().unwrap_or_default().to_owned();
    serde_saphyr::from_str(&text).map_err(|error| wrong(first_line(error)))
}

/// Which platform is meant, and the namespace of commands that name none: by flags, environment and the user's contexts.
pub fn resolve(flags: Flags, environment: &Environment) -> Result<(Target, Option<String>), Error> {
    let contexts = match file(environment) {
        Ok(path) => read(&path)?,
        Err(_) => Contexts::default(),
    };
    let (flags, namespace) = contexts.apply(flags, environment);
    let named = flags.kubeconfig.is_some() || flags.data_dir.is_some() || flags.fleet.is_some();
    // A name from the environment that stood for a place must not be taken for a context there, too.
    let environment = if named { Environment { context: None, ..environment.clone() } } else { environment.clone() };
    Ok((target::choose(&flags, &environment)?, namespace))
}

/// Writes the file in place of the old one.
pub fn write(path: &Path, contexts: &Contexts) -> Result<(), ContextError> {
    let failed = |source| ContextError::Io { doing: "write", path: path.to_owned(), source };
    let text = serde_saphyr::to_string(contexts).map_err(|error| failed(std::io::Error::other(error.to_string())))?;
    let beside = path.with_extension(format!("yaml.{}", std::process::id()));
    let written = || -> std::io::Result<()> {
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory)?;
        }
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create(true).truncate(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(&beside)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&beside, path)
    };
    written().map_err(|error| {
        // What was begun must not stay; the first failure is what matters.
        let _ = std::fs::remove_file(&beside);
        failed(error)
    })
}

impl Contexts {
    /// The flags and the namespace that a command gets, by what it was given and this file. A name that is not in the file
    /// stays as it is: it may be a kubeconfig or a context in one.
    pub fn apply(&self, flags: Flags, environment: &Environment) -> (Flags, Option<String>) {
        if flags.kubeconfig.is_some() || flags.data_dir.is_some() {
            return (flags, None);
        }
        let asked = flags.context.as_ref().or(environment.context.as_ref()).filter(|name| !name.is_empty());
        let Some(context) = asked.or(self.current.as_ref()).and_then(|name| self.contexts.get(name)) else {
            return (flags, None);
        };
        let Context { kubeconfig, context, data_dir, namespace, fleet, identity, queue } = context.clone();
        let fleet = fleet.map(|url| Fleet { url, identity: identity.unwrap_or_default(), queue });
        (Flags { kubeconfig, context, data_dir, fleet }, namespace)
    }

    /// Makes a context the one that is used.
    pub fn choose(&mut self, name: &str) -> Result<(), ContextError> {
        if !self.contexts.contains_key(name) {
            return Err(ContextError::Unknown { name: name.to_owned() });
        }
        self.current = Some(name.to_owned());
        Ok(())
    }

    /// Takes a context away; if it was the one in use, none is.
    pub fn remove(&mut self, name: &str) -> Result<(), ContextError> {
        self.contexts.remove(name).ok_or_else(|| ContextError::Unknown { name: name.to_owned() })?;
        self.current.take_if(|current| current.as_str() == name);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contexts() -> Contexts {
        let east = Context { kubeconfig: Some("/k".into()), namespace: Some("team".into()), ..Context::default() };
        let lab = Context { data_dir: Some("/d".into()), ..Context::default() };
        let fleet = Context {
            fleet: Some("https://h:1".to_owned()),
            identity: Some("/ada.pem".into()),
            queue: Some("research".to_owned()),
            ..Context::default()
        };
        let contexts = [("east", east), ("lab", lab), ("fleet", fleet)];
        let contexts = contexts.map(|(name, context)| (name.to_owned(), context)).into();
        Contexts { current: Some("east".to_owned()), contexts }
    }

    #[test]
    fn flags_go_before_the_environment_and_that_before_the_file() {
        let flags = |context: Option<&str>| Flags { context: context.map(str::to_owned), ..Flags::default() };
        let env = |context: Option<&str>| Environment { context: context.map(str::to_owned), ..Environment::default() };
        let east = (Flags { kubeconfig: Some("/k".into()), ..Flags::default() }, Some("team".to_owned()));
        let lab = (Flags { data_dir: Some("/d".into()), ..Flags::default() }, None);
        for (name, given, env, wanted) in [
            ("file", flags(None), env(None), east.clone()),
            ("environment", flags(None), env(Some("lab")), lab.clone()),
            ("flag", flags(Some("lab")), env(Some("east")), lab),
            (
                "a fleet",
                flags(Some("fleet")),
                env(None),
                (
                    Flags {
                        fleet: Some(Fleet {
                            url: "https://h:1".to_owned(),
                            identity: "/ada.pem".into(),
                            queue: Some("research".to_owned()),
                        }),
                        ..Flags::default()
                    },
                    None,
                ),
            ),
            ("a kubeconfig's own", flags(Some("./k")), env(None), (flags(Some("./k")), None)),
            ("unknown in the environment", flags(None), env(Some("other")), (flags(None), None)),
            ("empty variable", flags(None), env(Some("")), east),
        ] {
            assert_eq!(contexts().apply(given, &env), wanted, "{name}");
        }
        let named = Flags { data_dir: Some("/x".into()), ..Flags::default() };
        assert_eq!(contexts().apply(named.clone(), &env(None)), (named, None));
    }

    #[test]
    fn the_file_comes_back_as_it_was_written() {
        let home = tempfile::tempdir().unwrap();
        let environment = Environment { home: Some(home.path().to_owned()), ..Environment::default() };
        let path = file(&environment).unwrap();
        assert!(path.ends_with(".config/pumice/contexts.yaml"));
        assert_eq!(read(&path).unwrap(), Contexts::default());
        let mut kept = contexts();
        write(&path, &kept).unwrap();
        assert_eq!(read(&path).unwrap(), kept);
        kept.remove("east").unwrap();
        assert_eq!(kept.current, None);
        assert!(matches!(kept.choose("east"), Err(ContextError::Unknown { .. })));
        write(&path, &kept).unwrap();
        assert_eq!(read(&path).unwrap(), kept);
        let left: Vec<_> = std::fs::read_dir(path.parent().unwrap()).unwrap().collect();
        assert_eq!(left.len(), 1, "nothing stays beside it");
        for (text, word) in [("current: [", "no list of contexts"), ("colour: red\n", "no list of contexts")] {
            std::fs::write(&path, text).unwrap();
            assert!(read(&path).unwrap_err().to_string().contains(word), "{text}");
        }
        std::fs::write(&path, "#".repeat(300 << 10)).unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("longer than"));
        assert!(matches!(file(&Environment::default()), Err(ContextError::NoDirectory)));
    }
}
