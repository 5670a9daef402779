//! `pumice history run`: the history by itself, on a cluster.
//!
//! Invariant: questions are answered to the cluster's API server alone, known by the certificate that it shows as a proxy: it
//! has looked at the rights of who asks. Without certificates nothing is answered, and all the same written down.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use pumice_api::names;
use pumice_apiserver::{Body, ConnectionLimits, Handler, serve_connections};
use pumice_history::{Handle, Location, Options};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::args::history::{AnswerArgs, HistoryRunArgs};
use crate::data_dir::keep_private;
use crate::descriptors;
use crate::standalone;

/// Port of the metrics, if they are asked for.
const METRICS_PORT: u16 = 8082;
/// How long requests under way may take at the end.
const DRAIN: Duration = Duration::from_secs(5);

/// Writes, and answers, until a signal or until the Lease is lost.
pub fn run(args: &HistoryRunArgs) -> Result<()> {
    let location = args.database()?;
    let lease = args.lease.lease(names::HISTORY_LEASE, standalone::identity()).map_err(anyhow::Error::msg)?;
    standalone::run(&args.cluster, async |client, stop| {
        if let Location::File(path) = &location {
            keep_private(path);
        }
        let history = Options { client: client.clone(), location, days: args.keep.history_days }.build();
        let handle = history.handle();
        // Who stands by is watched, too.
        let watched = standalone::watched(&args.serving, METRICS_PORT, handle.clone()).await?;
        let closing = CancellationToken::new();
        let answering = answering(&args.answer, handle, closing.clone()).await?;
        let work = async {
            history.run(stop.clone()).await;
            Ok(())
        };
        let running = async {
            let result = tokio::select! {
                result = Box::pin(standalone::while_leading(client, lease, &stop, work)) => result,
                () = watched => Ok(()),
            };
            closing.cancel();
            result
        };
        tokio::join!(running, answering).0
    })
}

/// Listens where the flags say, if they say with which certificate; what comes back answers until `closing`.
async fn answering(
    args: &AnswerArgs,
    handle: Handle,
    closing: CancellationToken,
) -> Result<impl Future<Output = ()> + use<>> {
    let served = match args.files() {
        None => None,
        Some((certificate, key, authority)) => {
            let read = |path: &Path| std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()));
            let (certificate, key, authority) = (read(certificate)?, read(key)?, read(authority)?);
            let tls = pumice_auth::agent_server_config(&authority, &certificate, &key);
            let address = SocketAddr::from((Ipv4Addr::UNSPECIFIED, args.secure_port));
            let listener = TcpListener::bind(address).await;
            let listener = listener.with_context(|| format!("{address} can't be listened on: choose --secure-port"))?;
            let address = listener.local_addr().unwrap_or(address);
            tracing::info!(%address, "questions to the history are answered");
            Some((listener, tls.context("use the certificates of the flags")?))
        }
    };
    let allowed: Arc<[String]> = args.requestheader_allowed_names.clone().into();
    Ok(async move {
        let Some((listener, tls)) = served else { return closing.cancelled().await };
        let limits = Arc::new(ConnectionLimits::for_descriptors(descriptors::limit()));
        serve_connections(listener, tls, limits, closing, DRAIN, move |_, certificate| {
            let asks = certificate.map(|certificate| pumice_auth::identity_of(certificate)).transpose()?;
            let trusted = asks.is_some_and(|identity| allowed.is_empty() || allowed.contains(&identity.user));
            let handle = handle.clone();
            let handler: Handler = Box::new(move |request| {
                let handle = handle.clone();
                Box::pin(async move { answer(&handle, trusted, &request).await.map(Body::from) })
            });
            Ok(handler)
        })
        .await;
    })
}

async fn answer(handle: &Handle, trusted: bool, request: &Request<Incoming>) -> Response<Bytes> {
    let refused = |code, text: &'static str| {
        let mut response = Response::new(Bytes::from_static(text.as_bytes()));
        *response.status_mut() = code;
        response
    };
    if !trusted {
        return refused(StatusCode::FORBIDDEN, "only the API server is answered here\n");
    }
    if *request.method() != Method::GET {
        return refused(StatusCode::METHOD_NOT_ALLOWED, "the history is only read\n");
    }
    handle.answer(request.uri().path(), request.uri().query().unwrap_or_default()).await
}
