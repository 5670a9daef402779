//! `pumice up`: the whole platform in one process.
//!
//! Invariant: the note `up.json` and the one line on standard output appear only when jobs can be
//! submitted, and every part ends before the store does.

mod background;
mod components;
mod late;
mod local_socket;
mod sharing;

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use pumice_auth::{Identity, write_private};
use pumice_cluster::{client_over, connect, install_definitions};
use pumice_history::Location;
use tokio::net::{TcpListener, UnixListener};
use tokio_util::sync::CancellationToken;

use crate::api::{self, ADMINISTRATOR, Api, Places};
use crate::args::UpArgs;
use crate::data_dir::{DataDir, keep_private};
use crate::output::note;
use crate::process::{go_last_for_memory, host_name, runtime, stop_on_signal};
use crate::{logging, room};
use components::Components;
pub use components::{node_options, shim_program, tell_what_is_missing};
use late::Late;
use local_socket::LocalSocket;

/// How long a start-up may take before it is given up.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// Runs the platform until a signal or a failure ends it, or has that done in the background.
pub fn up(mut args: UpArgs) -> Result<()> {
    args.sharing.settle(&mut args.api)?;
    let data = DataDir::choose(args.data_dir.data_dir.as_deref())?;
    data.create()?;
    if args.background {
        return background::start(&data);
    }
    room::check_for_start(data.path())?;
    logging::start(&args.log, Some(&data.log()))?;
    go_last_for_memory();
    let runtime = runtime()?;
    runtime.block_on(run(&args, &data))
}

/// Opens what the platform stands on, serves, and closes it again in the opposite order.
async fn run(args: &UpArgs, data: &DataDir) -> Result<()> {
    // Signals are caught before anything starts, so that none can cut a start-up short half way.
    let stop = stop_on_signal()?;
    // What is wrong in the flags is said before anything is touched; a database that is away is no reason not to start.
    let history = args.history.history.then(|| args.history.keep.database(data.path())).transpose()?;
    if let Some(Location::File(path)) = &history {
        keep_private(path);
    }
    let late = Late::new(host_name());
    let schedulers = &args.scheduling.scheduler_name;
    let (mut api, listener) = Api::open(data, &args.api, Ipv4Addr::LOCALHOST.into(), schedulers, |builder, _, _| {
        let builder = builder.node_proxy(Arc::new(late.node_proxy())).aggregate(late.why());
        let builder = if args.history.history { late.with_history(builder) } else { builder };
        let builder =
            if args.without_pods { builder.informational_check(late::NODE_AGENT, without_pods) } else { builder };
        Ok(late.parts.iter().filter(|part| part.is_wanted(args)).fold(builder, |builder, part| {
            let part = part.clone();
            builder.ready_check(part.name, move || part.look())
        }))
    })
    .await?;
    if let (true, Err(said)) = (args.without_pods, without_pods()) {
        note(format_args!("pumice: {said}"));
    }
    let socket = args.sharing.socket().map(LocalSocket::open).transpose()?;
    let node_lock = args.runs_pods().then(|| data.lock_node()).transpose()?;
    let following = std::mem::replace(&mut api.following, Box::pin(std::future::pending()));
    let result = tokio::select! {
        result = Box::pin(serve(args, data, &api, (&late, history), (listener, socket), stop)) => result,
        () = following => Ok(()),
    };
    // Before the platform's own: `pumice down` asks whoever holds one to end, and a process that is asked twice ends at once.
    drop(node_lock);
    api.close(data).await?;
    result
}

/// Runs listener and components until `stop`, or until one of them fails.
async fn serve(
    args: &UpArgs,
    data: &DataDir,
    api: &Api,
    (late, history): (&Late, Option<Location>),
    (listener, socket): (TcpListener, Option<(LocalSocket, UnixListener)>),
    stop: CancellationToken,
) -> Result<()> {
    let port = listener.local_addr().context("read the port")?.port();
    let url = format!("https://127.0.0.1:{port}");
    let node = late.node_name.as_str();

    let identity = Identity::new(ADMINISTRATOR, [pumice_auth::MASTERS]);
    let administrator = client_over(api.server.client_service(identity.clone()));
    install_definitions(&administrator, pumice_api::crds::all()).await.context("install Volcano's definitions")?;
    sharing::make_directory(&administrator, &args.sharing).await?;
    sharing::check_exposure(&api.server, &args.sharing)?;
    let others = sharing::listeners(&args.sharing.listen, port).await?;
    let hidden = socket.iter().map(|(socket, _)| socket.folder().to_owned()).collect();
    let mut components = Components::start(&api.server, late, (args, history), (data.path(), hidden), port)?;
    let gateway = late.node.get().and_then(pumice_node::Handle::gateway);
    let mut names = api::names(node, gateway);
    names.extend(sharing::certificate_names(&args.sharing, &others));
    let tls = api.certificates.listen(names)?;
    let for_pods = match gateway {
        Some(address) => listen_for_pods(address, port).await,
        None => None,
    };
    let simulated = components.simulated();
    let closing = CancellationToken::new();
    let mut places = Places::default();
    let mut serving = tokio::task::JoinSet::from_iter([listener].into_iter().chain(for_pods).map(|listener| {
        let (server, tls, closing) = (api.server.clone(), Arc::clone(&tls), closing.clone());
        async move { server.serve(listener, tls, closing).await }
    }));
    for listener in others {
        places.listen.push(sharing::url(&args.sharing, &listener)?);
        serving.spawn(sharing::serve(api.server.clone(), listener, Arc::clone(&tls), closing.clone()));
    }
    if let Some((socket, listener)) = socket {
        places.socket = Some(socket.path().to_owned());
        let served = api.server.serve_local(listener, identity, closing.clone()).context("serve the local socket")?;
        serving.spawn(async move {
            served.await;
            drop(socket);
        });
    }

    let ready = async {
        if args.runs_pods() {
            connect::node_ready(&administrator, node, READY_WITHIN).await?;
        }
        if let Some(mut simulated) = simulated {
            let registered = tokio::time::timeout(READY_WITHIN, simulated.registered());
            registered.await.context("the simulated nodes were not registered in time")?;
        }
        if args.scheduler_after.is_none() {
            connect::queue_exists(&administrator, pumice_api::names::DEFAULT_QUEUE, READY_WITHIN).await?;
        }
        let (kubeconfig, reached) = (data.kubeconfig(), url.clone());
        api.certificates.runs(api.server.clone(), None, move |certificates| {
            Ok(write_private(&kubeconfig, certificates.administrator(&reached)?.as_bytes())?)
        })?;
        api.announce(data, &url, places)
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

/// What is told instead of how the agent does where there is none by `--without-pods`.
fn without_pods() -> Result<(), String> {
    Err("off by --without-pods: pods that run go on, and none is started, ended or told of".to_owned())
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
