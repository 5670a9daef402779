//! `pumice up`: the whole platform in one process.
//!
//! Invariant: the note `up.json` and the one line on standard output appear only when jobs can be
//! submitted, and every part ends before the store does.

mod background;
mod components;
mod late;

use std::io::IsTerminal as _;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use pumice_admission::server::GroupsFile;
use pumice_admission::{Rules, VolcanoAdmission};
use pumice_apiserver::ApiServer;
use pumice_auth::{Ca, Identity, Policy, TokenKey};
use pumice_cluster::{client_over, connect, install_definitions};
use pumice_jobs::target::RunFile;
use pumice_store::Store;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::args::UpArgs;
use crate::data_dir::DataDir;
use components::Components;
use late::Late;

/// How long a start-up may take before it is given up.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// User of the kubeconfig, a member of `system:masters`.
const ADMINISTRATOR: &str = "pumice:administrator";

/// Runs the platform until a signal or a failure ends it, or has that done in the background.
pub fn up(args: UpArgs) -> Result<()> {
    let data = DataDir::choose(args.data_dir.data_dir.as_deref())?;
    data.create()?;
    if args.background {
        return background::start(&data);
    }
    start_logging(&args.log)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("start the runtime")?;
    runtime.block_on(run(&args, &data))
}

pub fn start_logging(filter: &str) -> Result<()> {
    let filter = tracing_subscriber::EnvFilter::try_new(filter)
        .with_context(|| format!("--log {filter:?} is no filter; try info or pumice_scheduler=debug"))?;
    let colours = std::io::stderr().is_terminal();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(colours).init();
    Ok(())
}

/// Opens what the platform stands on, serves, and closes it again in the opposite order.
async fn run(args: &UpArgs, data: &DataDir) -> Result<()> {
    // Signals are caught before anything starts, so that none can cut a start-up short half way.
    let stop = stop_on_signal()?;
    let store = Store::open(data.path(), pumice_store::Options::default()).context("open the store")?;
    // One that crashed has left its note.
    data.withdraw()?;
    let listener = listen(args.port).await?;
    let late = Late::new(components::node_name());
    let mut rules = Rules::alone();
    if !args.scheduling.scheduler_name.is_empty() {
        rules.scheduler_names.clone_from(&args.scheduling.scheduler_name);
    }
    let admission = VolcanoAdmission::new(rules);
    let rules = admission.rules();
    let groups = args.admission_conf.as_deref().map(|path| GroupsFile::load(path, &rules));
    let groups = groups.transpose().context("read --admission-conf")?;
    let ca = Ca::open_or_create(&data.pki(), now()).context("open the certificate authority")?;
    let tokens = TokenKey::open_or_create(&data.pki()).context("open the key of tokens")?;
    let api = ApiServer::builder(store.clone(), Policy::new(pumice_auth::built_in()))
        .service_accounts(tokens, ca.pem())
        .admission(Arc::new(admission))
        .node_proxy(Arc::new(late.node_proxy()))
        .aggregate(late.why())
        .metrics()
        .build()
        .await
        .context("start the API server")?;
    let followed = async {
        match groups {
            Some(groups) => groups.follow(rules).await,
            None => std::future::pending().await,
        }
    };
    let result = tokio::select! {
        result = Box::pin(serve(args, data, &ca, &api, &late, listener, stop)) => result,
        () = followed => Ok(()),
    };
    data.withdraw()?;
    api.stop().await;
    store.close().await.context("close the store")?;
    result
}

/// Runs listener and components until `stop`, or until one of them fails.
async fn serve(
    args: &UpArgs,
    data: &DataDir,
    ca: &Ca,
    api: &ApiServer,
    late: &Late,
    listener: TcpListener,
    stop: CancellationToken,
) -> Result<()> {
    let port = listener.local_addr().context("read the port")?.port();
    let url = format!("https://127.0.0.1:{port}");
    let node = late.node_name.as_str();

    let administrator = client_over(api.client_service(Identity::new(ADMINISTRATOR, [pumice_auth::MASTERS])));
    install_definitions(&administrator, pumice_api::crds::at_work()).await.context("install Volcano's definitions")?;
    let mut components = Components::start(api, late, args, data.path(), port)?;
    let gateway = late.node.get().and_then(pumice_node::Handle::gateway);
    let names = ["127.0.0.1", "localhost", "::1", "kubernetes", "kubernetes.default.svc", node].map(str::to_owned);
    let names: Vec<String> = names.into_iter().chain(gateway.map(|address| address.to_string())).collect();
    let certificate = ca.issue_server(&names, now()).context("issue the server's certificate")?;
    let tls = pumice_auth::server_config(ca, &certificate).context("set up TLS")?;
    let for_pods = match gateway {
        Some(address) => listen_for_pods(address, port).await,
        None => None,
    };
    let simulated = components.simulated();
    let closing = CancellationToken::new();
    let serving = tokio::task::JoinSet::from_iter([listener].into_iter().chain(for_pods).map(|listener| {
        let (api, tls, closing) = (api.clone(), Arc::clone(&tls), closing.clone());
        async move { api.serve(listener, tls, closing).await }
    }));

    let ready = async {
        if args.local_node {
            connect::node_ready(&administrator, node, READY_WITHIN).await?;
        }
        if let Some(mut simulated) = simulated {
            let registered = tokio::time::timeout(READY_WITHIN, simulated.registered());
            registered.await.context("the simulated nodes were not registered in time")?;
        }
        if args.scheduler_after.is_none() {
            connect::queue_exists(&administrator, pumice_api::names::DEFAULT_QUEUE, READY_WITHIN).await?;
        }
        let client = ca.issue_client(ADMINISTRATOR, &[pumice_auth::MASTERS], now())?;
        announce(data, &url, &pumice_auth::kubeconfig(&url, ca, &client))
    };
    let outcome = tokio::select! {
        () = stop.cancelled() => Ok(()),
        failure = components.failure() => Err(failure),
        result = async {
            ready.await?;
            stop.cancelled().await;
            Ok(())
        } => result,
    };
    // Components first: what they still have to say needs a server.
    let ended = components.end().await;
    closing.cancel();
    serving.join_all().await;
    outcome.and(ended)
}

fn announce(data: &DataDir, url: &str, kubeconfig: &str) -> Result<()> {
    let running =
        RunFile { pid: std::process::id(), url: url.to_owned(), kubeconfig: data.kubeconfig(), started: now() };
    data.announce(kubeconfig, &running)?;
    println!("pumice is up at {url} (KUBECONFIG={})", data.kubeconfig().display());
    Ok(())
}

/// The name of this machine.
pub fn host_name() -> String {
    components::node_name()
}

/// Takes the port before anything else is touched, so that a taken one costs nothing.
async fn listen(port: u16) -> Result<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await.with_context(|| {
        format!("port {port} of 127.0.0.1 can't be taken: choose another with --port, or --port 0 for a free one")
    })
}

/// The same port where pods find this machine. The platform is of use without it, too.
async fn listen_for_pods(gateway: Ipv4Addr, port: u16) -> Option<TcpListener> {
    let listener = TcpListener::bind((gateway, port)).await;
    listener
        .inspect_err(|error| {
            tracing::warn!(%gateway, port, %error, "pods with a network of their own do not reach the API");
        })
        .ok()
}

/// A token that is cancelled by the first SIGINT or SIGTERM; a second one ends the process at once.
pub fn stop_on_signal() -> Result<CancellationToken> {
    let mut interrupt = signal(SignalKind::interrupt()).context("catch SIGINT")?;
    let mut terminate = signal(SignalKind::terminate()).context("catch SIGTERM")?;
    let stop = CancellationToken::new();
    let token = stop.clone();
    #[allow(clippy::disallowed_methods)] // the process's own signals: nothing outlives this task
    tokio::spawn(async move {
        for last in [false, true] {
            tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
            if last {
                std::process::exit(130);
            }
            token.cancel();
        }
    });
    Ok(stop)
}

#[allow(clippy::disallowed_methods)] // the binary reads the clock for certificates and its note
fn now() -> jiff::Timestamp {
    jiff::Timestamp::now()
}
