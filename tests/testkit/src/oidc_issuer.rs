//! An OpenID Connect issuer and people who log in there: npm's oidc-provider, and a headless Chromium for its pages.
//!
//! Invariant: it listens on the loopback alone and ends with the [`OidcIssuer`]. Both programs are installed by
//! `tests/prerequisites`.

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The browser, as Debian's package has it.
const CHROMIUM: &str = "/usr/bin/chromium-headless-shell";
/// Where its scripts are.
const SCRIPTS: &str = env!("CARGO_MANIFEST_DIR");

/// An issuer that runs. Anybody is there who he says.
pub struct OidcIssuer {
    program: Child,
    pub url: String,
}

impl OidcIssuer {
    /// The client that it knows.
    pub const CLIENT: &str = "pumice";

    /// Starts one whose ID tokens last so many seconds.
    ///
    /// # Panics
    /// Where it does not start: `make test` installs it.
    pub fn start(id_token_seconds: u32) -> OidcIssuer {
        let mut command = Command::new("node");
        command.arg(Path::new(SCRIPTS).join("oidc_issuer.mjs")).arg(folder()).arg(id_token_seconds.to_string());
        let mut program = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("start node");
        let stdout = program.stdout.take().expect("the issuer's output");
        let mut url = String::new();
        BufReader::new(stdout).read_line(&mut url).expect("the issuer's address");
        let url = url.trim().to_owned();
        assert!(url.starts_with("http://127.0.0.1:"), "the issuer did not start; does tests/prerequisites run?");
        OidcIssuer { program, url }
    }

    /// Flags of `pumice up` that take its tokens, with names as they are.
    pub fn flags(&self) -> Vec<String> {
        let words = ["--oidc-issuer-url", &self.url, "--oidc-client-id", Self::CLIENT, "--oidc-username-prefix", "-"];
        words.into_iter().chain(["--oidc-groups-claim", "groups"]).map(str::to_owned).collect()
    }

    /// Writes a program into `folder` that opens the address it is given, as `user` would in a browser.
    pub fn browser_of(user: &str, folder: &Path) -> PathBuf {
        let path = folder.join(format!("browser-of-{user}"));
        let sandbox = if nix::unistd::geteuid().is_root() { "none" } else { "sandbox" };
        let script = Path::new(SCRIPTS).join("browser.mjs");
        let log = path.with_extension("log");
        let text = format!(
            "#!/bin/sh\nexec node '{}' '{CHROMIUM}' {sandbox} '{user}' \"$1\" >'{}' 2>&1\n",
            script.display(),
            log.display()
        );
        std::fs::write(&path, text).expect("write a browser's script");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("let it run");
        path
    }
}

impl Drop for OidcIssuer {
    fn drop(&mut self) {
        // It ends with its input; whoever does not is ended.
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

/// Where tests/prerequisites puts oidc-provider.
#[allow(clippy::disallowed_methods)] // where a user's caches are
fn folder() -> PathBuf {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || PathBuf::from(std::env::var_os("HOME").expect("a home")).join(".cache");
    cache.unwrap_or_else(home).join("pumice/oidc-provider")
}
