//! The one place that reads the process's environment.

use std::ffi::OsString;
use std::path::PathBuf;

use pumice_jobs::platform::target::Environment;

/// What of the environment matters to `jobctl`.
#[derive(Debug, Clone, Default)]
pub struct Surroundings {
    /// Where to find the platform.
    pub target: Environment,
    /// Whether `$NO_COLOR` asks for plain text.
    pub plain: bool,
    /// The working directory, if it exists.
    pub directory: Option<PathBuf>,
    /// Where a user's programs keep what they can make again.
    pub cache: Option<PathBuf>,
}

pub fn read() -> Surroundings {
    let path = |name| variable(name).map(PathBuf::from);
    Surroundings {
        target: Environment::read(variable),
        plain: variable("NO_COLOR").is_some(),
        directory: std::env::current_dir().ok(),
        cache: path("XDG_CACHE_HOME").or_else(|| Some(path("HOME")?.join(".cache"))).map(|cache| cache.join("pumice")),
    }
}

/// A variable that is set and not empty.
pub fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// The name of this machine.
pub fn host() -> Option<String> {
    nix::unistd::gethostname().ok()?.into_string().ok().filter(|name| !name.is_empty())
}

/// The name of the user on this machine.
pub fn user() -> Option<String> {
    Some(nix::unistd::User::from_uid(nix::unistd::getuid()).ok()??.name)
}
