//! The certificates of a platform that runs: whom its servers trust, what they show, and what its kubeconfigs hold.
//!
//! They are renewed while it runs, and another authority takes the place of the first one (`pumice ca rotate`).
//!
//! Invariant: a certificate changes without a connection that ends, but for connections of who is not trusted any more. What is told
//! to clients is trusted already. Run by `pumice up` and `pumice apiserver`.

pub mod service;

use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use jiff::{SignedDuration, Timestamp};
use pumice_api::names::USER_APISERVER;
use pumice_apiserver::{ApiServer, RemoteNodes};
use pumice_auth::{Authority, AuthorityError, Ca, ClientTrust, Issued, MASTERS, ServingCertificate, TRUST_DAYS};
use pumice_clock::now;
use pumice_metrics::Page;
use pumice_units::with_causes;
use rustls::ServerConfig;
use serde_json::{Value, json};

/// User of the kubeconfig, a member of `system:masters`.
pub const ADMINISTRATOR: &str = "pumice:administrator";
/// How often it is looked at what ends.
const LOOK_EVERY: Duration = Duration::from_secs(3600);
/// How long before their end it is said of certificates that nobody renews.
const SAID_BEFORE: SignedDuration = SignedDuration::from_hours(30 * 24);

/// What a platform shows and trusts.
pub struct Certificates {
    authority: Authority,
    trust: Arc<ClientTrust>,
    serving: Arc<ServingCertificate>,
    state: Mutex<State>,
    running: OnceLock<Running>,
    /// A change at a time.
    turn: tokio::sync::Mutex<()>,
}

/// How long it takes until running pods, and components and nodes in processes of their own, have come to know another authority.
const PODS_KNOW_WITHIN: SignedDuration = SignedDuration::from_secs(5);
const NODES_KNOW_WITHIN: SignedDuration = SignedDuration::from_secs(45);

#[derive(Default)]
struct State {
    /// Under which the server is reached.
    names: Vec<String>,
    server_until: Option<Timestamp>,
    /// Until when the administrator's certificate is good, and those of components.
    administrator_until: Option<Timestamp>,
    components_until: Option<Timestamp>,
}

/// Writes all kubeconfigs anew.
type WriteKubeconfigs = Box<dyn Fn(&Certificates) -> Result<()> + Send + Sync>;

/// What there is once the server runs.
struct Running {
    server: ApiServer,
    nodes: Option<Arc<RemoteNodes>>,
    write: WriteKubeconfigs,
}

impl Certificates {
    /// Opens the authority in `directory`.
    pub fn open(directory: &Path) -> Result<Self> {
        let authority = Authority::open(directory, now()).context("open the certificate authority")?;
        let trust = ClientTrust::new(&authority.bundle(), false).context("trust the authority")?;
        Ok(Self {
            authority,
            trust: Arc::new(trust),
            serving: Arc::default(),
            state: Mutex::default(),
            running: OnceLock::new(),
            turn: tokio::sync::Mutex::default(),
        })
    }

    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// TLS of listeners that are reached under `names`.
    pub fn listen(&self, names: Vec<String>) -> Result<Arc<ServerConfig>> {
        self.state().names = names;
        self.show_server()?;
        pumice_auth::trusting_server_config(&self.trust, Arc::clone(&self.serving)).context("set up TLS")
    }

    /// TLS to nodes. While two authorities are trusted, nodes come to know the new one by and by.
    pub fn to_nodes(&self) -> Result<rustls::ClientConfig> {
        let shown = self.authority.serving().issue_component(USER_APISERVER, now())?;
        pumice_auth::client_config(&self.authority.bundle(), Some(&shown)).context("set up TLS to the nodes")
    }

    /// What is written and told when something changes from now on: `write` writes kubeconfigs.
    pub fn runs(
        &self,
        server: ApiServer,
        nodes: Option<Arc<RemoteNodes>>,
        write: impl Fn(&Certificates) -> Result<()> + Send + Sync + 'static,
    ) -> Result<()> {
        write(self)?;
        let _ = self.running.set(Running { server, nodes, write: Box::new(write) });
        Ok(())
    }

    /// A kubeconfig of the administrator.
    pub fn administrator(&self, url: &str) -> Result<String> {
        let issued = self.authority.issuing().issue_client(ADMINISTRATOR, &[MASTERS], now())?;
        self.state().administrator_until = Some(issued.not_after);
        Ok(self.kubeconfig(url, &issued))
    }

    /// A kubeconfig of a component or node, by what `issue` issues.
    pub fn component(&self, url: &str, issue: impl FnOnce(&Ca) -> Result<Issued>) -> Result<String> {
        let issued = issue(&self.authority.issuing())?;
        self.state().components_until = Some(issued.not_after);
        Ok(self.kubeconfig(url, &issued))
    }

    fn kubeconfig(&self, url: &str, issued: &Issued) -> String {
        pumice_auth::kubeconfig_of(url, &self.authority.bundle(), &issued.certificate_pem, &issued.key_pem)
    }

    fn show_server(&self) -> Result<()> {
        let mut state = self.state();
        let issued = self.authority.serving().issue_renewed_server(&state.names, now());
        let issued = issued.context("issue the server's certificate")?;
        self.serving.show(&issued.certificate_pem, &issued.key_pem).context("show the server's certificate")?;
        state.server_until = Some(issued.not_after);
        Ok(())
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has another authority take the place of this one: begins that, or ends it. Where that can't be now, the inner result says
    /// why; where not everybody could be told of it, the outer one does.
    pub async fn rotate(&self, finish: bool, force: bool) -> Result<Result<(), AuthorityError>> {
        let _turn = self.turn.lock().await;
        let apart = self.running.get().is_some_and(|running| running.nodes.is_some());
        let known_within = match (force, apart) {
            (true, _) => SignedDuration::ZERO,
            (false, true) => NODES_KNOW_WITHIN,
            (false, false) => PODS_KNOW_WITHIN,
        };
        let done = match finish {
            false => self.authority.rotate(now(), force).map(drop),
            true => self.authority.finish(now(), known_within, force),
        };
        if done.is_ok() {
            tracing::warn!(finish, force, "the certificate authority is rotated");
            let told = self.take_over().await;
            told.context("the authority was changed, but not everybody was told: restart the platform")?;
        }
        Ok(done)
    }

    /// Brings everything to what the authority is now.
    async fn take_over(&self) -> Result<()> {
        let bundle = self.authority.bundle();
        self.trust.replace(&bundle).context("trust the authorities")?;
        self.show_server()?;
        let Some(running) = self.running.get() else { return Ok(()) };
        if let Some(nodes) = &running.nodes {
            nodes.replace(self.to_nodes()?);
        }
        (running.write)(self)?;
        let takes = |certificate: &[u8]| self.trust.takes(certificate);
        running.server.trust(&bundle, &takes).await.context("have pods trust the authorities")
    }

    /// Renews what is due, again and again; never ends.
    pub async fn follow(&self) {
        let mut times = tokio::time::interval(LOOK_EVERY);
        loop {
            times.tick().await;
            if let Err(error) = self.look(now()).await {
                tracing::warn!(error = with_causes(&*error), "certificates are not renewed, will try again");
            }
        }
    }

    async fn look(&self, now: Timestamp) -> Result<()> {
        let _turn = self.turn.lock().await;
        if self.authority.look(now)? {
            tracing::warn!("the certificate authority before is not trusted any more");
            return self.take_over().await;
        }
        let State { server_until, administrator_until, components_until, .. } = &*self.state();
        let due = |until: &Option<Timestamp>| until.is_some_and(|until| pumice_auth::is_due(until, now));
        let soon = now.checked_add(SAID_BEFORE).unwrap_or(Timestamp::MAX);
        let (server, kubeconfigs) =
            (due(server_until), due(components_until) || administrator_until.is_some_and(|until| until < soon));
        self.renew(server, kubeconfigs)?;
        let until = self.authority.serving().not_after();
        if until < soon {
            tracing::warn!(%until, "the certificate authority ends: `pumice ca rotate`, or restart the platform");
        }
        Ok(())
    }

    fn renew(&self, server: bool, kubeconfigs: bool) -> Result<()> {
        if server {
            self.show_server()?;
        }
        let Some(running) = self.running.get() else { return Ok(()) };
        if let (true, Some(nodes)) = (server, &running.nodes) {
            nodes.replace(self.to_nodes()?);
        }
        if kubeconfigs { (running.write)(self) } else { Ok(()) }
    }

    /// What there is, for people.
    pub fn report(&self) -> Value {
        let (serving, issuing) = (self.authority.serving(), self.authority.issuing());
        let state = self.state();
        let rotation = self.authority.rotation().map(|rotation| {
            let days = SignedDuration::from_hours(TRUST_DAYS * 24);
            let finished_at = rotation.started.checked_add(days).unwrap_or(Timestamp::MAX);
            json!({"phase": rotation.phase, "started": rotation.started, "oldTokensUntil": rotation.tokens_until(),
                "finishedByItselfAt": finished_at})
        });
        json!({
            "authority": {"until": serving.not_after()},
            "nextAuthority": (serving.pem() != issuing.pem()).then(|| json!({"until": issuing.not_after()})),
            "rotation": rotation,
            "server": {"until": state.server_until},
            "administrator": {"until": state.administrator_until},
        })
    }

    /// Writes when certificates end.
    pub fn show(&self, page: &mut Page) {
        let state = self.state();
        let name = "pumice_certificate_expiry_timestamp_seconds";
        page.head(name, "gauge", "When certificates end, in seconds since 1970");
        let authority = self.authority.serving().not_after();
        for (certificate, until) in [
            ("authority", Some(authority)),
            ("server", state.server_until),
            ("administrator", state.administrator_until),
        ] {
            if let Some(until) = until {
                page.line(name, &[("certificate", certificate)], until.as_second());
            }
        }
    }
}
