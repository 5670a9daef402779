//! The API server as `pumice up` and `pumice apiserver` run it: store, authority, admission, audit log, listener.
//!
//! Invariant: whoever runs it, the directory is locked, the port is taken before anything is written, and the store closes
//! last.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use futures::future::BoxFuture;
use pumice_admission::server::GroupsFile;
use pumice_admission::{Rules, TenantAdmission, VolcanoAdmission};
use pumice_apiserver::{Admission, AdmitAll, ApiServer, AuditLog, Builder, ConnectionLimits};
use pumice_auth::{Issuer, Policy};
use pumice_clock::now;
use pumice_jobs::platform::target::RunFile;
use pumice_store::Store;
use pumice_units::with_causes;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::args::api::ApiArgs;
use crate::certificates::{Certificates, service};
use crate::data_dir::DataDir;
use crate::descriptors;
use crate::output::announce;
use crate::password_command::PasswordCommand;
use crate::{forbidden_tenants, room};

pub use crate::certificates::ADMINISTRATOR;

/// The store's name of Tenants.
const TENANTS: &str = "pumice.sh/tenants";

/// Where a platform is reached besides the loopback.
#[derive(Debug, Default)]
pub struct Places {
    /// By users of this machine.
    pub socket: Option<PathBuf>,
    /// From other machines, as URLs.
    pub listen: Vec<String>,
}

/// An API server, and what it stands on.
pub struct Api {
    pub server: ApiServer,
    pub certificates: Arc<Certificates>,
    store: Store,
    /// Reads the resource groups again when they change, opens the audit log anew at SIGHUP, looks at the room on the disk, renews
    /// certificates; never ends.
    pub following: BoxFuture<'static, ()>,
}

impl Api {
    /// Opens everything in `data` and takes the port. `schedulers` are the names whose pods admission looks at, if there are
    /// some; `complete` adds what the caller has.
    pub async fn open(
        data: &DataDir,
        args: &ApiArgs,
        address: IpAddr,
        schedulers: &[String],
        complete: impl FnOnce(Builder, &Store, &Certificates) -> Result<Builder>,
    ) -> Result<(Api, TcpListener)> {
        let store = Store::open(data.path(), pumice_store::Options::default()).context("open the store")?;
        // One that crashed has left its note.
        data.withdraw()?;
        let listener = listen(address, args.port).await?;
        let mut rules = Rules { forbidden_tenants: forbidden_tenants::of_this_machine(), ..Rules::alone() };
        if !schedulers.is_empty() {
            rules.scheduler_names = schedulers.to_vec();
        }
        let logins = args.oidc.options()?;
        let admission = VolcanoAdmission::new(rules);
        let rules = admission.rules();
        let groups = args.admission_conf.as_deref().map(|path| GroupsFile::load(path, &rules));
        let groups = groups.transpose().context("read --admission-conf")?;
        let certificates = Arc::new(Certificates::open(&data.pki())?);
        let authority = certificates.authority();
        let counted = Arc::clone(&certificates);
        let mut builder = ApiServer::builder(store.clone(), Policy::new(pumice_auth::built_in()))
            .service_accounts(authority.tokens(), authority.bundle())
            .aggregate(service::api(&certificates))
            .more_metrics(move |page| counted.show(page))
            .connections(ConnectionLimits::for_descriptors(descriptors::limit()))
            .warn_room(args.warn_room)
            .default_pod_security(args.profile().enforced())
            .events(args.events.limits())
            .metrics()
            .retained_logs();
        let issuer = logins.as_ref().map(|logins| logins.issuer.clone());
        if let Some(logins) = logins {
            builder = builder.logins(logins);
        }
        if let Some(program) = &args.password_command {
            let program = std::path::absolute(program).context("make the path of --password-command absolute")?;
            builder = builder.passwords(Arc::new(PasswordCommand(program)));
        }
        // Who works for a company is told of.
        let always = (store.count(TENANTS, None) > 0).then(|| data.audit_log());
        let audit =
            args.audit.log(always.as_deref())?.map(|(options, policy)| AuditLog::open(options, policy)).transpose()?;
        let live = admission.rules();
        // Who a tenant's pods are is said here, wherever Volcano's objects are judged.
        let inner: Arc<dyn Admission> = if args.admission { Arc::new(admission) } else { Arc::new(AdmitAll) };
        builder = builder.admission(Arc::new(TenantAdmission::over(inner, live)));
        if let Some(audit) = &audit {
            builder = builder.audit(audit.clone());
        }
        let reopening = reopening(audit)?;
        let server = complete(builder, &store, &certificates)?.build().await.context("start the API server")?;
        let (room, warn_bytes) = (store.clone(), args.warn_room);
        let renewing = Arc::clone(&certificates);
        let following = Box::pin(async move {
            let groups = async {
                match groups {
                    Some(groups) => groups.follow(rules).await,
                    None => std::future::pending().await,
                }
            };
            let issuer = async {
                if let Some(issuer) = issuer {
                    meet(&issuer).await;
                }
                std::future::pending().await
            };
            tokio::select! {
                () = groups => {}
                () = issuer => {}
                () = reopening => {}
                () = room::watch(room, warn_bytes) => {}
                () = renewing.follow() => {}
            }
        });
        Ok((Api { server, certificates, store, following }, listener))
    }

    /// Tells clients where the platform is, and the user that it is up. `places` is where else it is than at `url`.
    pub fn announce(&self, data: &DataDir, url: &str, places: Places) -> Result<()> {
        let Places { socket, listen } = places;
        let mut also = String::new();
        socket.iter().for_each(|socket| also.push_str(&format!(", for users of this machine at {}", socket.display())));
        listen.iter().for_each(|url| also.push_str(&format!(", for other machines at {url}")));
        let running = RunFile {
            pid: std::process::id(),
            url: url.to_owned(),
            kubeconfig: data.kubeconfig(),
            started: now(),
            socket,
            listen,
        };
        data.announce(&running)?;
        announce(format_args!("pumice is up at {url} (KUBECONFIG={}){also}", data.kubeconfig().display()));
        Ok(())
    }

    /// Closes everything in the opposite order.
    pub async fn close(self, data: &DataDir) -> Result<()> {
        data.withdraw()?;
        self.server.stop().await;
        self.store.close().await.context("close the store")
    }
}

/// Asks the issuer for its keys, so that the first to log in need not wait for them. A server starts without it, and asks again
/// with the first token.
async fn meet(issuer: &Issuer) {
    if let Err(error) = issuer.fetch().await {
        let error = with_causes(&error);
        tracing::warn!(error, "the issuer of --oidc-issuer-url does not answer: its tokens are refused until it does");
    }
}

/// Opens the audit log anew at each SIGHUP; never ends.
fn reopening(audit: Option<AuditLog>) -> Result<impl Future<Output = ()> + Send + use<>> {
    let mut hangup = signal(SignalKind::hangup()).context("catch SIGHUP")?;
    Ok(async move {
        while hangup.recv().await.is_some() {
            audit.iter().for_each(AuditLog::reopen);
        }
        std::future::pending().await
    })
}

/// Takes the port before anything else is touched, so that a taken one costs nothing.
pub async fn listen(address: IpAddr, port: u16) -> Result<TcpListener> {
    TcpListener::bind(SocketAddr::from((address, port))).await.with_context(|| {
        format!("port {port} of {address} can't be taken: choose another with --port, or --port 0 for a free one")
    })
}

/// Names under which a server on `host` is reached besides its addresses.
pub fn names(host: &str, addresses: impl IntoIterator<Item = Ipv4Addr>) -> Vec<String> {
    let names = ["127.0.0.1", "localhost", "::1", "kubernetes", "kubernetes.default.svc", host].map(str::to_owned);
    names.into_iter().chain(addresses.into_iter().map(|address| address.to_string())).collect()
}
