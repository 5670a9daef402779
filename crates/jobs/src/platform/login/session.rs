//! A login that is stored: its tokens, and the kubeconfig that leads to them.
//!
//! Invariant: each file is written whole or not at all, for the user alone (0600). One process at a time refreshes, and what it
//! got is on the disk before it is used, as issuers take a refresh token once. Whoever waited uses what the other one got.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Authority, Issuer, LoginError, OidcMethod, Server, Tokens};

/// Version of the file's format.
const VERSION: u32 = 1;
/// A longer file is none of ours.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// A token is replaced when it is good for less than this, or for less than a quarter of its life.
const MARGIN: SignedDuration = SignedDuration::from_secs(120);
/// Longest wait for another process that refreshes the same login.
pub(super) const LOCK_TIMEOUT: Duration = Duration::from_secs(60);
/// Pause between two looks at a lock.
const LOCK_PAUSE: Duration = Duration::from_millis(50);
/// Pause before a token that could not be replaced is tried again.
const AGAIN: Duration = Duration::from_secs(15);
/// The command that gives kubectl a token; what follows is the session's file.
const CREDENTIAL: &str = "credential";

/// A login as it is stored, with its tokens and with what refreshes them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Session {
    version: u32,
    pub server: String,
    /// Certificates (PEM) that it is known by.
    authority: String,
    /// Where it was made; nothing for one by password, which the platform itself gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    #[serde(default)]
    client_id: String,
    #[serde(default)]
    scopes: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    issuer_authority: Option<String>,
    /// The issuer's name of the user.
    pub subject: String,
    id_token: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    refresh_token: Option<String>,
    issued: Timestamp,
    /// Until when the token is good.
    pub expires: Timestamp,
}

/// A token to show to the platform.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credential {
    pub token: String,
    pub expires: Timestamp,
}

/// The files of one login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files(PathBuf);

impl Files {
    /// Those of the login called `name`, in the folder of jobctl's configuration.
    pub fn new(configuration: &Path, name: &str) -> Self {
        Self(configuration.join("logins").join(format!("{name}.json")))
    }

    /// Those of the login whose session is this file.
    pub fn at(session: &Path) -> Self {
        Self(session.to_owned())
    }

    /// The file that has the tokens, and by which a login is known.
    pub fn session(&self) -> &Path {
        &self.0
    }

    /// What leads Kubernetes' clients to it.
    pub fn kubeconfig(&self) -> PathBuf {
        self.0.with_extension("kubeconfig")
    }

    /// The token of now alone.
    fn token(&self) -> PathBuf {
        self.0.with_extension("token")
    }

    fn lock(&self) -> PathBuf {
        self.0.with_extension("lock")
    }
}

impl Session {
    /// A login that has just been made, at an issuer or by password.
    pub fn new(server: &Server, authority: &Authority, method: Option<&OidcMethod>, tokens: Tokens) -> Self {
        let Tokens { id_token, refresh_token, issued, expires, subject } = tokens;
        Self {
            version: VERSION,
            server: server.url.clone(),
            authority: authority.pem().to_owned(),
            issuer: method.map(|method| method.issuer.clone()),
            client_id: method.map(|method| method.client_id.clone()).unwrap_or_default(),
            scopes: method.map(|method| method.scopes.clone()).unwrap_or_default(),
            issuer_authority: method.and_then(|method| method.certificate_authority.clone()),
            subject,
            id_token,
            refresh_token,
            issued,
            expires,
        }
    }

    /// Reads one; `None` where there is none.
    ///
    /// # Errors
    /// A file that can't be read, or is none.
    pub fn read(files: &Files) -> Result<Option<Self>, LoginError> {
        let path = files.session();
        let failed = |source| LoginError::Io { doing: "read", path: path.to_owned(), source };
        let wrong = |detail: String| LoginError::Parse { path: path.to_owned(), detail };
        let text = match std::fs::metadata(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
            Ok(metadata) if metadata.len() > FILE_BYTES_MAX => return Err(wrong("it is too long".to_owned())),
            Ok(_) => std::fs::read(path).map_err(failed)?,
        };
        let session: Self = serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))?;
        if session.version != VERSION {
            let detail = format!("its version is {}, and this program knows {VERSION}", session.version);
            return Err(wrong(detail));
        }
        Ok(Some(session))
    }

    /// Writes all of its files. `program` is the jobctl that kubectl is to call.
    ///
    /// # Errors
    /// Where they can't be written.
    pub fn write(&self, files: &Files, program: &Path, namespace: Option<&str>) -> Result<(), LoginError> {
        let folder = files.session().parent().unwrap_or(Path::new("."));
        let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.map_err(|source| LoginError::Io { doing: "make", path: folder.to_owned(), source })?;
        self.write_tokens(files)?;
        write_private(&files.kubeconfig(), self.kubeconfig(files, program, namespace).to_string().as_bytes())
    }

    fn write_tokens(&self, files: &Files) -> Result<(), LoginError> {
        let text = serde_json::to_vec_pretty(self).unwrap_or_default();
        write_private(files.session(), &text)?;
        write_private(&files.token(), self.id_token.as_bytes())
    }

    /// What leads Kubernetes' clients to it. It has no secrets: they ask `program` for a token.
    fn kubeconfig(&self, files: &Files, program: &Path, namespace: Option<&str>) -> serde_json::Value {
        let name = files.session().file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let mut context = json!({ "cluster": name, "user": name });
        if let Some(namespace) = namespace {
            context["namespace"] = json!(namespace);
        }
        let cluster = json!({ "server": self.server, "certificate-authority-data": STANDARD.encode(&self.authority) });
        let exec = json!({
            "apiVersion": "client.authentication.k8s.io/v1", "command": program, "args": [CREDENTIAL, files.session()],
            "interactiveMode": "Never", "provideClusterInfo": false,
        });
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": name,
            "clusters": [{ "name": name, "cluster": cluster }],
            "users": [{ "name": name, "user": { "exec": exec } }],
            "contexts": [{ "name": name, "context": context }],
        })
    }

    /// The authority that is pinned.
    ///
    /// # Errors
    /// Where the file was changed.
    pub fn authority(&self) -> Result<Authority, LoginError> {
        Authority::from_pem(&self.authority)
    }

    fn is_good_for_a_while(&self, now: Timestamp) -> bool {
        now.saturating_add(self.margin()).unwrap_or(Timestamp::MAX) < self.expires
    }

    fn margin(&self) -> SignedDuration {
        MARGIN.min(self.expires.duration_since(self.issued) / 4)
    }

    fn credential(&self) -> Credential {
        Credential { token: self.id_token.clone(), expires: self.expires }
    }

    /// Where it was made, if at an issuer.
    fn method(&self) -> Option<OidcMethod> {
        Some(OidcMethod {
            issuer: self.issuer.clone()?,
            client_id: self.client_id.clone(),
            scopes: self.scopes.clone(),
            certificate_authority: self.issuer_authority.clone(),
        })
    }

    fn server(&self) -> Server {
        Server { url: self.server.clone() }
    }

    async fn refreshed(&self, refresh_token: &str, now: fn() -> Timestamp) -> Result<Tokens, LoginError> {
        match self.method() {
            Some(method) => Issuer::discover(&method).await?.refresh(refresh_token, now).await,
            None => self.server().refresh(&self.authority()?, refresh_token, now).await,
        }
    }

    fn ended(&self, reason: impl Into<String>) -> LoginError {
        LoginError::Ended { server: self.server.clone(), reason: reason.into() }
    }
}

/// A token that is good for a while: that of the file, or the next one.
///
/// # Errors
/// Where the login has ended, or the issuer can't be reached and the token has expired.
pub async fn fresh(files: &Files, now: fn() -> Timestamp) -> Result<Credential, LoginError> {
    let read = || Session::read(files)?.ok_or_else(|| LoginError::NoLogin(files.session().display().to_string()));
    let session = read()?;
    if session.is_good_for_a_while(now()) {
        return Ok(session.credential());
    }
    let _lock = lock(&files.lock()).await?;
    let session = read()?;
    if session.is_good_for_a_while(now()) {
        return Ok(session.credential());
    }
    let Some(refresh_token) = &session.refresh_token else {
        return if now() < session.expires {
            Ok(session.credential())
        } else {
            Err(session.ended("its token has expired, and the issuer gave none to refresh it with"))
        };
    };
    match session.refreshed(refresh_token, now).await {
        Ok(Tokens { id_token, refresh_token, issued, expires, .. }) => {
            let next = Session { id_token, refresh_token, issued, expires, ..session };
            next.write_tokens(files)?;
            Ok(next.credential())
        }
        Err(LoginError::Refused(reason)) => Err(session.ended(reason)),
        // An issuer that is away for a moment ends nothing.
        Err(_) if now() < session.expires => Ok(session.credential()),
        Err(error) => Err(error),
    }
}

/// Refreshes the token for as long as it is polled, so that what reads the token's file goes on. Ends with the login.
pub async fn keep_fresh(files: Files, now: fn() -> Timestamp) {
    loop {
        let Ok(Some(session)) = Session::read(&files) else { return };
        let left = session.expires.duration_since(now()) - session.margin();
        let pause = Duration::try_from(left).unwrap_or(Duration::ZERO).max(Duration::from_secs(1));
        tokio::time::sleep(pause).await;
        match fresh(&files, now).await {
            Ok(_) => {}
            Err(LoginError::Ended { .. } | LoginError::NoLogin(_)) => return,
            // It is tried again for as long as a connection needs it.
            Err(_) => tokio::time::sleep(AGAIN).await,
        }
    }
}

/// Ends a login: at the issuer, at the platform, on this machine. What could not be ended elsewhere is returned; here it is over.
///
/// # Errors
/// Where the files can't be read or removed.
pub async fn logout(files: &Files) -> Result<Vec<LoginError>, LoginError> {
    let _lock = lock(&files.lock()).await?;
    let session = Session::read(files)?.ok_or_else(|| LoginError::NoLogin(files.session().display().to_string()))?;
    let mut left = Vec::new();
    if let (Some(refresh_token), Some(method)) = (&session.refresh_token, session.method()) {
        let revoked = async { Issuer::discover(&method).await?.revoke(refresh_token).await }.await;
        left.extend(revoked.err());
    }
    // Of a login by password the refresh token is good for longer, and names it as well.
    let token = if session.issuer.is_none() { session.refresh_token.as_ref() } else { None };
    let token = token.unwrap_or(&session.id_token);
    left.extend(session.server().logout(&session.authority()?, token).await.err());
    for path in [files.session().to_owned(), files.token(), files.kubeconfig(), files.lock()] {
        match std::fs::remove_file(&path) {
            Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                return Err(LoginError::Io { doing: "remove", path, source });
            }
            _ => {}
        }
    }
    Ok(left)
}

/// The files of the login that a kubeconfig leads to, if it is one that [`Session::write`] wrote. From then on the kubeconfig
/// takes the token from its file.
pub fn login_of(kubeconfig: &mut Kubeconfig, options: &KubeConfigOptions) -> Option<Files> {
    let wanted = options.context.as_ref().or(kubeconfig.current_context.as_ref());
    let context = kubeconfig.contexts.iter().find(|context| Some(&context.name) == wanted)?.context.as_ref()?;
    let user = options.user.as_ref().or(context.user.as_ref());
    let named = kubeconfig.auth_infos.iter_mut().find(|named| Some(&named.name) == user)?.auth_info.as_mut()?;
    let path = match named.exec.as_ref()?.args.as_deref()? {
        [verb, path] if verb == CREDENTIAL && path.ends_with(".json") => PathBuf::from(path),
        _ => return None,
    };
    let files = Files(path);
    named.exec = None;
    named.token_file = Some(files.token().display().to_string());
    Some(files)
}

async fn lock(path: &Path) -> Result<File, LoginError> {
    let failed = |source| LoginError::Io { doing: "lock", path: path.to_owned(), source };
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path).map_err(failed)?;
    let locking = async {
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(()),
                Err(TryLockError::WouldBlock) => tokio::time::sleep(LOCK_PAUSE).await,
                Err(TryLockError::Error(source)) => return Err(failed(source)),
            }
        }
    };
    let locked = tokio::time::timeout(LOCK_TIMEOUT, locking).await;
    locked.unwrap_or_else(|_| Err(LoginError::Locked { path: path.to_owned() }))?;
    Ok(file)
}

/// Writes a file in place of the old one, for the user alone.
fn write_private(path: &Path, bytes: &[u8]) -> Result<(), LoginError> {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}", std::process::id()));
    let beside = PathBuf::from(name);
    let written = || -> std::io::Result<()> {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&beside, path)
    };
    written().map_err(|source| {
        // What was begun must not stay; the first failure is what matters.
        let _ = std::fs::remove_file(&beside);
        LoginError::Io { doing: "write", path: path.to_owned(), source }
    })
}

#[cfg(test)]
mod tests;
