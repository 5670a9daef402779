//! The fleet's server as a process: database, leader, listener.
//!
//! Invariant: the directory is locked and the port taken before anything is written; the database closes last.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use pumice_apiserver::{ConnectionError, serve_connections};
use pumice_auth::{Ca, write_private};
use pumice_fleet::api::{Api, Sources};
use pumice_fleet::config::Config;
use pumice_fleet::database::{Database, Place};
use pumice_fleet::front::{ADMINISTRATORS, EXECUTORS, Front, Users};
use pumice_fleet::leader::{Leader, Options};
use pumice_store::DirectoryLock;
use pumice_wire::client::Credentials;
use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::{fleet_dir, read};
use crate::api;
use crate::args::fleet::ServingFleetArgs;
use crate::data_dir::DataDir;
use crate::up::{host_name, now};

/// The administrator of a fleet.
const ADMINISTRATOR: &str = "administrator";
/// How long requests under way may take at the end.
const DRAIN: Duration = Duration::from_secs(5);

/// A server that is ready to run.
pub struct Server {
    data: DataDir,
    ca: Ca,
    url: String,
    database: Arc<Database>,
    leader: Leader<Database>,
    front: Front<Database>,
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    stopping: CancellationToken,
    _lock: DirectoryLock,
}

impl Server {
    /// Opens everything that it stands on.
    pub async fn open(args: &ServingFleetArgs) -> Result<Server> {
        // What is wrong in files and flags is said before anything is touched.
        let config: Config = args.config.as_deref().map_or_else(|| Ok(Config::default()), read)?;
        let classes = config.classes().context("--config")?;
        let constraints = Arc::new(config.constraints().context("--config")?);
        let retries = config.retries().context("--config")?;
        let permissions = config.permissions().context("--config")?;
        let users = Users::new(config.users()).context("--config: auth.users")?;
        let data = fleet_dir(&args.dir)?;
        data.create()?;
        let lock = DirectoryLock::acquire(data.path()).context("be the only server here")?;
        let listener = api::listen(args.bind_address, args.port).await?;
        let address = listener.local_addr().context("read the port")?;
        let place = match &args.database_url {
            Some(url) => Place::Postgres(url.clone()),
            None => Place::File(data.path().join("fleet.db")),
        };
        let database = Arc::new(Database::open(&place).await.context("open the fleet's database")?);
        let ca = Ca::open_or_create(&data.pki(), now()).context("open the fleet's certificate authority")?;
        let names = names(args, address);
        let certificate = ca.issue_server(&names, now()).context("issue the server's certificate")?;
        let tls = pumice_auth::server_config(&ca, &certificate).context("set up TLS")?;
        let holder = format!("{}_{}", host_name(), std::process::id());
        let limits = config.limits();
        let options = Options { holder, classes, retries, limits, constraints };
        let (leader, inputs) = Leader::new(Arc::clone(&database), options);
        let stopping = CancellationToken::new();
        let served = Api::new(Arc::clone(&database), config.submission, Sources::system(), stopping.clone());
        let front = Front::new(served, inputs, users, permissions);
        let reached = if address.ip().is_unspecified() { pumice_node::host_ip().into() } else { address.ip() };
        let url = format!("https://{}", SocketAddr::from((reached, address.port())));
        let server = Server { data, ca, url, database, leader, front, listener, tls, stopping, _lock: lock };
        let shown = server.ca.issue_client(ADMINISTRATOR, &[ADMINISTRATORS], now());
        let shown = shown.context("issue the administrator's certificate")?;
        write_private(&server.administrator(), pumice_auth::credentials(&server.ca, &shown).as_bytes())?;
        Ok(server)
    }

    /// Says that it is there.
    pub fn announce(&self) {
        println!("the fleet is up at {} (administrator: {})", self.url, self.administrator().display());
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
        let issued = self.ca.issue_client(name, &[EXECUTORS], now()).context("issue an executor's certificate")?;
        Ok(Credentials::read(&pumice_auth::credentials(&self.ca, &issued))?)
    }

    /// Serves until `stop`.
    pub async fn run(self, stop: CancellationToken) -> Result<()> {
        let Server { database, leader, front, listener, tls, stopping, _lock, .. } = self;
        let closing = CancellationToken::new();
        let serving = serve_connections(listener, tls, closing.clone(), DRAIN, move |_, certificate| {
            let peer = front.peer(certificate.map(AsRef::as_ref))?;
            let front = front.clone();
            Ok::<_, ConnectionError>(service_fn(move |request: Request<Incoming>| {
                let answer = front.clone().answer(peer.clone(), request);
                async { Ok::<_, Infallible>(answer.await) }
            }))
        });
        let leading = async {
            leader.run(stop).await;
            // Whoever waits for more is told to ask another server.
            stopping.cancel();
            closing.cancel();
        };
        tokio::join!(serving, leading);
        database.close().await;
        Ok(())
    }

    fn administrator(&self) -> PathBuf {
        self.data.path().join("administrator.pem")
    }
}

/// Names and addresses under which the server is reached.
fn names(args: &ServingFleetArgs, address: SocketAddr) -> Vec<String> {
    let own = ["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned(), host_name()];
    let outside = [address.ip(), pumice_node::host_ip().into()].map(|ip| ip.to_string());
    own.into_iter().chain(outside).chain(args.name.iter().cloned()).collect()
}
