//! A Postgres in a temporary directory, reached by a socket there.
//!
//! Invariant: it runs as a user without rights, since it refuses root, and is gone with its directory when it is dropped.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid, User, chown};
use tempfile::TempDir;

use crate::eventually;

const PACKAGE: &str = "postgresql";
/// Who it runs as where the tests run as root.
const USER: &str = "nobody";

/// A PostgreSQL server of a test's own, stopped when dropped.
pub struct Postgres {
    directory: TempDir,
    server: Child,
    programs: PathBuf,
    user: Option<User>,
}

impl Postgres {
    /// Starts one; installs the package by the system's package manager where it may.
    pub fn start() -> Postgres {
        let programs = programs().unwrap_or_else(|| {
            install();
            programs().unwrap_or_else(|| panic!("{PACKAGE} was installed, and has no initdb"))
        });
        let user =
            Uid::effective().is_root().then(|| User::from_name(USER).ok().flatten().expect("a user without rights"));
        let directory = tempfile::Builder::new().prefix("pumice-postgres-").tempdir().expect("a temporary directory");
        if let Some(user) = &user {
            chown(directory.path(), Some(user.uid), Some(user.gid)).expect("give the directory away");
        }
        let data = directory.path().join("data");
        let mut made = command(&programs, "initdb", user.as_ref());
        made.args(["--auth=trust", "--username=postgres", "--no-sync", "-D"]).arg(&data);
        let made = made.output().expect("run initdb");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let server = serve(&programs, directory.path(), user.as_ref());
        let postgres = Postgres { directory, server, programs, user };
        postgres.ready();
        postgres
    }

    /// The URL that sqlx and the fleet take, over a Unix socket.
    pub fn url(&self) -> String {
        format!("postgres://postgres@localhost/postgres?host={}", self.directory.path().display())
    }

    /// Ends it as a crash would, does something, and starts it again on the same data.
    pub fn while_down(&mut self, action: impl FnOnce()) {
        // The server's own way to end at once: its children would outlive a kill.
        let _ = kill(Pid::from_raw(self.server.id() as i32), Signal::SIGQUIT);
        self.server.wait().expect("wait for postgres");
        action();
        self.server = serve(&self.programs, self.directory.path(), self.user.as_ref());
        self.ready();
    }

    fn ready(&self) {
        eventually("postgres answers", || {
            let mut asked = command(&self.programs, "pg_isready", None);
            asked.arg("-q").arg("-h").arg(self.directory.path());
            let answered = asked.status().map_err(|error| error.to_string())?;
            if answered.success() { Ok(()) } else { Err(answered.to_string()) }
        });
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        let _ = kill(Pid::from_raw(self.server.id() as i32), Signal::SIGQUIT);
        let _ = self.server.wait();
    }
}

fn serve(programs: &Path, directory: &Path, user: Option<&User>) -> Child {
    let log = std::fs::File::options().create(true).append(true).open(directory.join("log")).expect("its log");
    let mut server = command(programs, "postgres", user);
    server.arg("-D").arg(directory.join("data")).arg("-k").arg(directory).args(["-c", "listen_addresses="]);
    server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    server.spawn().expect("start postgres")
}

fn command(programs: &Path, name: &str, user: Option<&User>) -> Command {
    let mut command = Command::new(programs.join(name));
    command.current_dir("/").env("LC_ALL", "C");
    if let Some(user) = user {
        command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
    }
    command
}

/// Debian keeps the server's programs out of the search path, by version.
fn programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let found = versions.map(|version| version.path().join("bin")).filter(|bin| bin.join("initdb").exists());
    let searched = std::env::var_os("PATH").unwrap_or_default();
    found.max().or_else(|| std::env::split_paths(&searched).find(|bin| bin.join("initdb").exists()))
}

fn install() {
    assert!(Uid::effective().is_root(), "tests need {PACKAGE}: apt-get install {PACKAGE}");
    let script = format!(
        "apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends {PACKAGE}"
    );
    let installed = Command::new("sh").args(["-c", &script]).output().expect("run apt-get");
    assert!(installed.status.success(), "{}", String::from_utf8_lossy(&installed.stderr));
}
