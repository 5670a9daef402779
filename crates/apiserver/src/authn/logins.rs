//! Logins: who vouches for them, what clients are told of them, and whether one has ended.
//!
//! Invariant: what is told to anybody has no secrets. Shared by requests and by the task that ends streams.

use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use futures::future::BoxFuture;
use pumice_auth::Issuer;
use pumice_objects::status::{GroupResource, Status};
use pumice_store::Store;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::attempts::Attempts;
use super::live_streams::LiveStreams;
use super::suspensions::{Suspensions, SuspensionsCell};
use super::{Caller, Credential, ended_logins, password_logins};

/// Passwords that are checked at a time.
const CHECKS_MAX: usize = 8;

/// How people log in: whose tokens are taken, and what a client needs to get one.
#[derive(Clone, Debug)]
pub struct LoginOptions {
    /// Whose tokens are taken.
    pub issuer: Issuer,
    /// What clients are told of it.
    pub client: OidcClient,
}

/// What a client needs to get a token of an issuer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OidcClient {
    pub issuer: String,
    /// The name under which the issuer knows the clients of this server. It is public: there is no secret.
    pub client_id: String,
    /// What is asked for.
    pub scopes: Vec<String>,
    /// Certificates (PEM) of the authority that the issuer is known by, where it is none that everybody knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate_authority: Option<String>,
}

/// Why somebody who is known has no access any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Suspended(String),
    LoggedOut,
}

impl Ended {
    /// What he is told.
    pub(crate) fn status(&self) -> Status {
        match self {
            Self::LoggedOut => Status::unauthorized(),
            Self::Suspended(tenant) => {
                let resource = GroupResource { group: "pumice.sh", resource: "tenants" };
                let cause = "the tenant is suspended, and its users have no access; ask an administrator to resume it";
                Status::forbidden(resource, tenant, cause)
            }
        }
    }
}

/// Why a password could not be checked.
#[derive(Debug, thiserror::Error)]
#[error("the password could not be checked: {0}")]
pub struct PasswordCheckError(pub String);

/// Who knows passwords. A name and a password come as they were typed.
pub trait PasswordCheck: Send + Sync + 'static {
    /// Whether this is the user's password. It takes as long for a user that there isn't.
    fn check(&self, user: String, password: String) -> BoxFuture<'static, Result<bool, PasswordCheckError>>;
}

pub(crate) struct Logins {
    pub(crate) passwords: Option<Arc<dyn PasswordCheck>>,
    pub(crate) attempts: Attempts,
    /// Checks that go on.
    pub(crate) checks: Semaphore,
    pub(super) issuer: Option<Issuer>,
    /// What anybody is told.
    document: RwLock<Value>,
    pub(crate) streams: LiveStreams,
    suspensions: SuspensionsCell,
}

impl Logins {
    /// `certificate` is the authority's (PEM) that clients are to trust.
    pub(crate) fn new(
        options: Option<LoginOptions>,
        passwords: Option<Arc<dyn PasswordCheck>>,
        certificate: Option<&str>,
    ) -> Self {
        let client = options.as_ref().map(|options| &options.client);
        let mut document = json!({ "apiVersion": "pumice.sh/v1alpha1", "kind": "LoginMethods" });
        if let Some(certificate) = certificate {
            document["certificateAuthority"] = json!(certificate);
        }
        if let Some(client) = client {
            document["oidc"] = json!(client);
        }
        if passwords.is_some() {
            document["password"] = json!(true);
        }
        Self {
            passwords,
            attempts: Attempts::default(),
            checks: Semaphore::new(CHECKS_MAX),
            document: RwLock::new(document),
            issuer: options.map(|options| options.issuer),
            streams: LiveStreams::default(),
            suspensions: SuspensionsCell::default(),
        }
    }

    /// What anybody is told.
    pub(crate) fn document(&self) -> Bytes {
        self.document.read().unwrap_or_else(PoisonError::into_inner).to_string().into()
    }

    /// Tells of these authorities (PEM) from now on.
    pub(crate) fn trust(&self, certificates: &str) {
        self.document.write().unwrap_or_else(PoisonError::into_inner)["certificateAuthority"] = json!(certificates);
    }

    /// Why a caller has no access any more, if that is so.
    pub(crate) fn ended(&self, store: &Store, caller: &Caller) -> Option<Ended> {
        if let Credential::Login { session, issued } = &caller.credential
            && ended_logins::is_ended(store, session, *issued)
        {
            return Some(Ended::LoggedOut);
        }
        if let Credential::Password { login } = &caller.credential
            && !password_logins::goes_on(store, login)
        {
            return Some(Ended::LoggedOut);
        }
        if !caller.by.iter().chain([&caller.identity]).any(Suspensions::concern) {
            return None;
        }
        let suspensions = self.suspensions.load(store);
        let in_pod = caller.credential == Credential::Account { of_pod: true };
        let ends = |identity| suspensions.ends(identity, in_pod);
        let tenant = caller.by.as_ref().and_then(ends).or_else(|| ends(&caller.identity))?;
        Some(Ended::Suspended(tenant.to_owned()))
    }

    /// The suspensions of now.
    pub(crate) fn suspensions(&self, store: &Store) -> Arc<Suspensions> {
        self.suspensions.load(store)
    }

    /// The issuer whose tokens are taken, if there is one.
    pub(crate) fn issuer(&self) -> Option<&Issuer> {
        self.issuer.as_ref()
    }
}
