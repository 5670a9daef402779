//! What a running server takes in anew: who gets in, when its configuration changes; its certificate, before it ends.
//!
//! Invariant: what can't be used changes nothing and is said; a signal (SIGHUP) does both at once.

use std::ffi::OsStr;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use pumice_auth::{Ca, ServingCertificate};
use pumice_clock::now;
use pumice_fleet_server::config::Config;
use pumice_fleet_server::gateway::Gate;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use super::parse;

/// After a change of files: what is written in pieces is whole by then.
const SETTLE: Duration = Duration::from_millis(200);
/// How often the thread that watches looks whether anybody listens, in milliseconds.
const LISTENED: u16 = 1_000;
/// How often it is looked whether the certificate ends soon.
const LOOK_EVERY: Duration = Duration::from_secs(24 * 3_600);
/// A certificate that ends sooner is replaced.
const RENEW_WITHIN_SECONDS: i64 = 90 * 24 * 3_600;

/// The server's certificate, as it can be made anew.
pub struct Certificate {
    pub ca: Ca,
    /// The names and addresses in it.
    pub names: Vec<String>,
    /// Where it is shown.
    pub served_certificate: Arc<ServingCertificate>,
}

impl Certificate {
    /// Shows a new one; when it ends, seconds since 1970. Connections that are there go on.
    pub fn renew(&self) -> Result<i64> {
        let issued = self.ca.issue_server(&self.names, now()).context("issue the server's certificate")?;
        self.served_certificate
            .show(&issued.certificate_pem, &issued.key_pem)
            .context("show the server's certificate")?;
        Ok(issued.not_after.as_second())
    }
}

/// Takes in what changes, until it is dropped.
pub struct Reload {
    config: Option<PathBuf>,
    /// What the file said last.
    read: Option<String>,
    changes: Option<mpsc::Receiver<()>>,
    hangup: Signal,
    gate: Arc<Gate>,
    certificate: Certificate,
    ends: i64,
}

impl Reload {
    /// Watches the configuration's folder, so that files that are replaced are seen, too. `ends` is when the certificate does.
    pub fn new(config: Option<&Path>, gate: Arc<Gate>, certificate: Certificate, ends: i64) -> Result<Self> {
        Ok(Self {
            config: config.map(Path::to_owned),
            read: config.map(std::fs::read_to_string).transpose().context("read --config")?,
            changes: config.map(watch).transpose().context("watch the folder of --config")?,
            hangup: signal(SignalKind::hangup()).context("catch SIGHUP")?,
            gate,
            certificate,
            ends,
        })
    }

    /// Runs for as long as it is asked for more.
    pub async fn run(mut self) {
        let mut look = tokio::time::interval(LOOK_EVERY);
        loop {
            tokio::select! {
                Some(()) = self.hangup.recv() => {
                    self.renew();
                    self.reload(true);
                }
                () = changed(self.changes.as_mut()) => {
                    tokio::time::sleep(SETTLE).await;
                    self.reload(false);
                }
                _ = look.tick() => if self.ends - now().as_second() < RENEW_WITHIN_SECONDS {
                    self.renew();
                }
            }
        }
    }

    fn renew(&mut self) {
        match self.certificate.renew() {
            Ok(ends) => {
                self.ends = ends;
                tracing::info!("new connections are shown a new certificate");
            }
            Err(error) => tracing::warn!(error = format!("{error:#}"), "the server shows the certificate that it has"),
        }
    }

    /// Takes the configuration in, where its text is another one, or it was `asked` for.
    fn reload(&mut self, asked: bool) {
        let Some(path) = &self.config else { return };
        let taken = || -> Result<Option<String>> {
            let text = std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
            if !asked && self.read.as_ref() == Some(&text) {
                return Ok(None);
            }
            let config: Config = parse(&text).with_context(|| format!("{} can't be used", path.display()))?;
            self.gate.replace(config.access()?);
            Ok(Some(text))
        };
        match taken() {
            Ok(None) => {}
            Ok(Some(text)) => {
                self.read = Some(text);
                tracing::info!(
                    "users, tokens, permissions and issuer are as the configuration has them now; the rest of it counts from the next start"
                );
            }
            Err(error) => {
                tracing::warn!(
                    error = format!("{error:#}"),
                    "the configuration is not taken; what it said before counts"
                );
            }
        }
    }
}

/// Tells when something in a file's folder has changed: one that is replaced gets its name there.
fn watch(path: &Path) -> Result<mpsc::Receiver<()>> {
    let folder = path.parent().filter(|folder| *folder.as_os_str() != *OsStr::new("")).unwrap_or(Path::new("."));
    let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
    let changes = AddWatchFlags::IN_CLOSE_WRITE | AddWatchFlags::IN_MOVED_TO | AddWatchFlags::IN_CREATE;
    inotify.add_watch(folder, changes)?;
    let (tell, told) = mpsc::channel(1);
    std::thread::Builder::new().name("configuration".to_owned()).spawn(move || follow(&inotify, &tell))?;
    Ok(told)
}

/// Until nobody listens any more.
fn follow(inotify: &Inotify, tell: &mpsc::Sender<()>) {
    while !tell.is_closed() {
        match poll(&mut [PollFd::new(inotify.as_fd(), PollFlags::POLLIN)], LISTENED) {
            Ok(0) | Err(Errno::EINTR) => continue,
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(%error, "changes of the configuration are not seen: send SIGHUP");
                return;
            }
        }
        // What happened does not matter, and who was told already looks at the file later than this.
        while inotify.read_events().is_ok_and(|events| !events.is_empty()) {}
        let _ = tell.try_send(());
    }
}

/// The next change; never, where nothing is watched.
async fn changed(told: Option<&mut mpsc::Receiver<()>>) {
    let Some(told) = told else { return std::future::pending().await };
    if told.recv().await.is_none() {
        std::future::pending().await
    }
}
