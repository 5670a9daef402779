//! `pumice status`: how the platform of this machine does, in one look.
//!
//! Invariant: it changes nothing, and says why a part isn't well. Exit codes: 0 ready, 1 not ready, 3 no platform runs there
//! or it can't be reached. `--wait` looks again when a note, a node or a Lease changes, and once a second for what no watch
//! tells.

mod accelerators;
mod gather;
mod report;

use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use futures::StreamExt as _;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use pumice_api::names::NAMESPACE_SYSTEM;
use pumice_cluster::connect::client_from;
use pumice_cluster::{Client, WatchScope, watch};
use pumice_jobs::platform::target::{read_run_file, start_command};
use pumice_store::{DirectoryLock, LockError};
use tokio::sync::oneshot;

use crate::args::{StatusArgs, StatusForm};
use crate::data_dir::DataDir;
use crate::output;
use report::Report;

const NOT_READY: u8 = 1;
const NOT_RUNNING: u8 = 3;
/// How often what no watch tells is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long one look may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// Why there is nothing to tell.
struct Absent(anyhow::Error);

/// Tells how the platform does.
pub fn status(args: &StatusArgs) -> ExitCode {
    let told = || -> Result<Result<Report, Absent>> {
        let data = DataDir::choose(args.data_dir.data_dir.as_deref())?;
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().context("start the runtime")?;
        let timeout = if args.wait { args.timeout } else { Duration::ZERO };
        Ok(runtime.block_on(look(args, &data, timeout)))
    };
    match told() {
        Ok(Ok(report)) => {
            let printed = print(&report, args.output);
            match (printed, report.ready) {
                (Ok(()), true) => ExitCode::SUCCESS,
                (Ok(()), false) => ExitCode::from(NOT_READY),
                (Err(error), _) => output::fail(&error, NOT_READY),
            }
        }
        Ok(Err(Absent(error))) => output::fail(&error, NOT_RUNNING),
        Err(error) => output::fail(&error, NOT_READY),
    }
}

/// Looks until the platform is ready, for as long as `timeout`, at least once. Answers the last look.
async fn look(args: &StatusArgs, data: &DataDir, timeout: Duration) -> Result<Report, Absent> {
    let until = tokio::time::Instant::now() + timeout;
    loop {
        // Made before the look, so that a change right after it ends the wait.
        let note = if timeout > Duration::ZERO { Note::watch(data).ok() } else { None };
        let (seen, client) = match connect(args, data).await {
            Err(error) => (Err(Absent(error)), None),
            Ok((client, url)) => {
                let gathered =
                    tokio::time::timeout(ANSWER_WITHIN, gather::gather(&client, url.clone(), data, args)).await;
                let gathered = gathered.context("it does not answer in time").flatten();
                (gathered.map_err(|error| Absent(unanswered(args, data, &url, error))), Some(client))
            }
        };
        if matches!(&seen, Ok(report) if report.ready) || tokio::time::Instant::now() >= until {
            return seen;
        }
        let _ = tokio::time::timeout_at(until, changed(note, client)).await;
    }
}

/// Says why a platform was not heard: it ended without a word, it runs and doesn't answer, or it is another machine's.
fn unanswered(args: &StatusArgs, data: &DataDir, url: &str, error: anyhow::Error) -> anyhow::Error {
    // What failed, not all that the client did on the way.
    let cause = error.root_cause().to_string();
    if args.kubeconfig.is_some() {
        return error.context(format!("{url} can't be asked"));
    }
    match DirectoryLock::acquire(data.path()) {
        Ok(_nobody) => {
            let start = start_command(data.path(), args.data_dir.data_dir.is_none());
            anyhow::anyhow!(
                "no platform runs in {}: the last one ended without taking its note back, as when it is killed; \
                 start it again by `{start}`",
                data.path().display()
            )
        }
        Err(LockError::InUse { pid, .. }) => {
            anyhow::anyhow!(
                "the platform in {} runs (process {pid}) and does not answer at {url}: {cause}",
                data.path().display()
            )
        }
        Err(error) => anyhow::Error::new(error).context(format!("{url} can't be reached: {cause}")),
    }
}

/// The platform's client and address.
async fn connect(args: &StatusArgs, data: &DataDir) -> Result<(Client, String)> {
    if let Some(path) = &args.kubeconfig {
        return Ok((client_from(Some(path), None).await?, path.display().to_string()));
    }
    let note = read_run_file(data.path())?;
    let note = note.with_context(|| {
        let start = start_command(data.path(), args.data_dir.data_dir.is_none());
        format!("no platform runs in {}: start one by `{start}`", data.path().display())
    })?;
    let client = client_from(Some(&data.path().join(&note.kubeconfig)), None).await?;
    Ok((client, note.url))
}

fn print(report: &Report, form: StatusForm) -> Result<()> {
    let text = match form {
        StatusForm::Text => report.to_string(),
        StatusForm::Json => format!("{}\n", serde_json::to_string_pretty(report).context("write JSON")?),
        StatusForm::Yaml => serde_saphyr::to_string(report).context("write YAML")?,
    };
    output::print(&text)
}

/// Waits until something has changed that may make the platform ready.
async fn changed(note: Option<Note>, client: Option<Client>) {
    let noted = async {
        match note {
            Some(note) => note.changed().await,
            None => tokio::time::sleep(LOOK_EVERY).await,
        }
    };
    let Some(client) = client else { return noted.await };
    let nodes = watch(Api::<Node>::all(client.clone()), WatchScope::default());
    let leases = watch(Api::<Lease>::namespaced(client, NAMESPACE_SYSTEM), WatchScope::default());
    // The first of each is what is there already.
    let (mut nodes, mut leases) = (std::pin::pin!(nodes.skip(1)), std::pin::pin!(leases.skip(1)));
    tokio::select! {
        () = noted => {}
        _ = nodes.next() => {}
        _ = leases.next() => {}
        () = tokio::time::sleep(LOOK_EVERY) => {}
    }
}

/// The note that a platform leaves when it is ready.
struct Note(Inotify);

impl Note {
    fn watch(data: &DataDir) -> Result<Self> {
        data.create()?;
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC).context("watch files")?;
        inotify.add_watch::<Path>(data.path(), AddWatchFlags::IN_MOVED_TO).context("watch files")?;
        Ok(Self(inotify))
    }

    /// Returns when something in the directory got its name, at the latest after [`LOOK_EVERY`].
    async fn changed(self) {
        let (done, changed) = oneshot::channel::<()>();
        std::thread::spawn(move || {
            let most = PollTimeout::try_from(LOOK_EVERY).unwrap_or(PollTimeout::ZERO);
            let _ = poll(&mut [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)], most);
            // Who no longer waits is no failure.
            let _ = done.send(());
        });
        let _ = changed.await;
    }
}
