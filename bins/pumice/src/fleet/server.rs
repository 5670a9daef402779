//! The fleet's server as a process: database, leader, listener.
//!
//! Invariant: the directory is locked and the port taken before anything is written; the database closes last.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use futures::FutureExt as _;
use pumice_admission::job::Elsewhere;
use pumice_apiserver::{
    Body, ConnectionError, ConnectionLimits, Handler, serve_connections, serve_plaintext_connections,
};
use pumice_auth::{Ca, ServingCertificate, write_private};
use pumice_clock::now;
use pumice_fleet_model::submission::VolcanoJobs;
use pumice_fleet_server::api::{Api, Sources};
use pumice_fleet_server::bidding::Bidding;
use pumice_fleet_server::config::Config;
use pumice_fleet_server::database::{Database, Location};
use pumice_fleet_server::gateway::{ADMINISTRATORS, EXECUTORS, Gate, Gateway};
use pumice_fleet_server::leader::{Leader, Options};
use pumice_fleet_server::metrics::Metrics;
use pumice_store::DirectoryLock;
use pumice_wire::client::Credentials;
use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::reload::{Certificate, Reload};
use super::{fleet_dir, read};
use crate::api;
use crate::args::fleet::ServingFleetArgs;
use crate::data_dir::{DataDir, keep_private};
use crate::descriptors;
use crate::output::announce;
use crate::process::host_name;
use crate::room;

/// The administrator of a fleet.
const ADMINISTRATOR: &str = "administrator";
/// How long requests under way may take at the end.
const DRAIN: Duration = Duration::from_secs(5);

/// A server that is ready to run.
pub struct Server {
    data: DataDir,
    certificate: Certificate,
    /// The configuration, what follows from it, and when the certificate ends.
    reloads: (Option<PathBuf>, Arc<Gate>, i64),
    url: String,
    database: Arc<Database>,
    leader: Leader,
    bidding: Option<Bidding>,
    metrics: Arc<Metrics>,
    front: Gateway,
    listener: TcpListener,
    /// Where no TLS is asked for.
    plaintext: Option<TcpListener>,
    tls: Arc<ServerConfig>,
    stopping: CancellationToken,
    _lock: DirectoryLock,
}

impl Server {
    /// Opens everything that it stands on.
    pub async fn open(args: &ServingFleetArgs) -> Result<Server> {
        // What is wrong in files and flags is said before anything is touched.
        let mut config: Config = args.config.as_deref().map_or_else(|| Ok(Config::default()), read)?;
        let elsewhere = Elsewhere::new().context("know Volcano's jobs")?;
        config.submission.volcano_jobs = VolcanoJobs::judged_by(move |job, name| elsewhere.judge(job, name));
        let classes = config.classes().context("--config")?;
        let constraints = Arc::new(config.constraints().context("--config")?);
        let retries = config.retries().context("--config")?;
        let access = config.access().context("--config")?;
        let bidding = config.bidding().context("--config")?;
        let origins = config.origins().context("--config")?;
        let data = fleet_dir(&args.dir)?;
        data.create()?;
        room::check_for_start(data.path())?;
        let lock = DirectoryLock::acquire(data.path()).context("be the only server here")?;
        let listener = api::listen(args.bind_address, args.port).await?;
        let address = listener.local_addr().context("read the port")?;
        let plaintext = match args.plaintext {
            Some(plaintext) => Some(TcpListener::bind(plaintext).await.with_context(|| {
                format!("{plaintext} can't be taken: choose another with --plaintext, or port 0 for a free one")
            })?),
            None => None,
        };
        let place = match &args.database_url {
            Some(url) => Location::Postgres(url.clone()),
            None => Location::File(data.path().join("fleet.db")),
        };
        if let Location::File(path) = &place {
            keep_private(path);
        }
        let database = Arc::new(Database::open(&place).await.context("open the fleet's database")?);
        let ca = Ca::open_or_create(&data.pki(), now()).context("open the fleet's certificate authority")?;
        let names = names(args, address);
        let served_certificate = Arc::new(ServingCertificate::default());
        let tls = pumice_auth::peer_server_config(&ca, Arc::clone(&served_certificate)).context("set up TLS")?;
        let holder = format!("{}_{}", host_name(), std::process::id());
        let limits = config.limits();
        let policies = Arc::clone(&retries.policies);
        let known_classes = classes.clone();
        let options = Options { holder, classes, retries, limits, constraints };
        let metrics = Arc::new(Metrics::new(Arc::clone(database.writes())));
        let (leader, inputs) = Leader::new(Arc::clone(&database), options);
        let mut leader = leader.counting(Arc::clone(&metrics)).keeping(config.retention.into());
        if let Some(bidding) = &bidding {
            leader = leader.bidding(bidding.follow());
        }
        let stopping = CancellationToken::new();
        let served = Api::new(Arc::clone(&database), config.submission, Sources::system(), stopping.clone());
        let served = served.with_policies(policies).with_classes(known_classes);
        let gate = Arc::new(Gate::new(access));
        let front = Gateway::new(served, inputs, Arc::clone(&gate)).counting(Arc::clone(&metrics)).allowing(origins);
        let reached = if address.ip().is_unspecified() { pumice_node::host_ip().into() } else { address.ip() };
        let url = format!("https://{}", SocketAddr::from((reached, address.port())));
        let certificate = Certificate { ca, names, served_certificate };
        let ends = certificate.renew()?;
        meet_issuer(&gate).await;
        let config = args.config.clone();
        let reloads = (config, gate, ends);
        let server = Server {
            data,
            certificate,
            reloads,
            url,
            database,
            leader,
            bidding,
            metrics,
            front,
            listener,
            plaintext,
            tls,
            stopping,
            _lock: lock,
        };
        let administrator = server.certificate.ca.issue_client(ADMINISTRATOR, &[ADMINISTRATORS], now());
        let administrator = administrator.context("issue the administrator's certificate")?;
        let text = pumice_auth::credentials(&server.certificate.ca, &administrator);
        write_private(&server.administrator(), text.as_bytes())?;
        Ok(server)
    }

    /// Says that it is there.
    pub fn announce(&self) {
        announce(format_args!("the fleet is up at {} (administrator: {})", self.url, self.administrator().display()));
        if let Some(address) = self.plaintext.as_ref().and_then(|listener| listener.local_addr().ok()) {
            announce(format_args!("it answers without TLS at {address}, on this machine only"));
        }
    }

    /// Where it is reached.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Where a part of the same process keeps what it has.
    pub fn folder(&self, name: &str) -> PathBuf {
        self.data.path().join(name)
    }

    /// What an executor of that name shows.
    pub fn executor(&self, name: &str) -> Result<Credentials> {
        let ca = &self.certificate.ca;
        let issued = ca.issue_client(name, &[EXECUTORS], now()).context("issue an executor's certificate")?;
        Ok(Credentials::read(&pumice_auth::credentials(ca, &issued))?)
    }

    /// Serves until `stop`.
    pub async fn run(self, stop: CancellationToken) -> Result<()> {
        let Server {
            database,
            leader,
            front,
            listener,
            plaintext,
            tls,
            stopping,
            certificate,
            reloads,
            bidding,
            metrics,
            _lock,
            ..
        } = self;
        let (config, gate, ends) = reloads;
        let reload = Reload::new(config.as_deref(), gate, certificate, ends)?;
        let closing = CancellationToken::new();
        let limits = Arc::new(ConnectionLimits::for_descriptors(descriptors::limit()));
        let served_certificate = Arc::clone(&limits);
        let front = front.showing_listener(Arc::new(move |page| served_certificate.show(page)));
        let plainly = front.clone();
        let plain = async {
            if let Some(listener) = plaintext {
                let limits = Arc::clone(&limits);
                serve_plaintext_connections(listener, limits, closing.clone(), DRAIN, move |_, _| {
                    handler(&plainly, None)
                })
                .await;
            }
        };
        let limits = Arc::clone(&limits);
        let serving = serve_connections(listener, tls, limits, closing.clone(), DRAIN, move |_, certificate| {
            handler(&front, certificate.map(AsRef::as_ref))
        });
        let asking = async {
            if let Some(bidding) = bidding {
                bidding.run(metrics, stop.clone()).await;
            }
        };
        let leading = async {
            tokio::join!(leader.run(stop.clone()), asking);
            // Whoever waits for more is told to ask another server.
            stopping.cancel();
            closing.cancel();
        };
        tokio::select! {
            ((), (), ()) = async { tokio::join!(serving, plain, leading) } => {}
            () = reload.run() => {}
        }
        database.close().await;
        Ok(())
    }

    fn administrator(&self) -> PathBuf {
        self.data.path().join("administrator.pem")
    }
}

/// What answers one connection, of whom this certificate names, if one was shown.
fn handler(front: &Gateway, certificate: Option<&[u8]>) -> Result<Handler, ConnectionError> {
    let (front, peer) = (front.clone(), front.peer(certificate)?);
    Ok(Box::new(move |request| {
        Box::pin(front.clone().answer(peer.clone(), request).map(|response| response.map(Body::new)))
    }))
}

/// Asks the issuer for its keys. A server starts without it and asks again with the first token.
async fn meet_issuer(gate: &Gate) {
    let Some(issuer) = &gate.access().issuer else { return };
    if let Err(error) = issuer.fetch().await {
        let error = format!("{:#}", anyhow::Error::new(error));
        tracing::warn!(error, "the issuer of auth.oidc does not answer: its tokens are refused until it does");
    }
}

/// Names and addresses under which the server is reached.
fn names(args: &ServingFleetArgs, address: SocketAddr) -> Vec<String> {
    let own = ["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned(), host_name()];
    let outside = [address.ip(), pumice_node::host_ip().into()].map(|ip| ip.to_string());
    own.into_iter().chain(outside).chain(args.name.iter().cloned()).collect()
}
