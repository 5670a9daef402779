//! Credentials for registries, as Docker's configuration and Kubernetes' secrets have them.
//!
//! Invariant: a credential is found for the hosts that its key names, and for no other. A helper is a program, so only the node's own
//! configuration names one; what a pod brings never does.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::digest::Digest;

/// Largest configuration that is read, in bytes.
pub const CONFIG_BYTES_MAX: u64 = 1 << 20;
/// The host that images without one are from.
pub const DOCKER_HUB: &str = "docker.io";
/// The other names that keys have for it.
const DOCKER_HUB_KEYS: [&str; 3] = ["index.docker.io", "registry-1.docker.io", "registry.hub.docker.com"];

/// Why a configuration has no credentials.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// Not JSON of Docker's form. What it says is not told, as it has passwords.
    #[error("it is not JSON of the form {{\"auths\": {{HOST: {{\"auth\": …}}}}}} (line {line}, column {column})")]
    Parse { line: usize, column: usize },
    /// A credential can't be read.
    #[error("auths[{key:?}].auth is not base64 of USER:PASSWORD")]
    Auth { key: String },
}

/// What opens a registry.
#[derive(Clone, PartialEq, Eq)]
pub enum Credential {
    /// A user and a password, or a token in its place.
    Password { user: String, password: String },
    /// A token that others are given for (`identitytoken`).
    Identity(String),
    /// A token that is shown as it is (`registrytoken`).
    Bearer(String),
}

impl Credential {
    /// Tells it from others without telling it.
    pub fn mark(&self, host: &str) -> String {
        let parts = match self {
            Credential::Password { user, password } => ["password", host, user, password],
            Credential::Identity(token) => ["identity", host, "", token],
            Credential::Bearer(token) => ["bearer", host, "", token],
        };
        let mut bytes = Vec::new();
        for part in parts {
            bytes.extend_from_slice(&part.len().to_le_bytes());
            bytes.extend_from_slice(part.as_bytes());
        }
        Digest::of(&bytes).hex().to_owned()
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credential")
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DockerConfig {
    #[serde(default)]
    auths: Option<BTreeMap<String, Auth>>,
    #[serde(default)]
    cred_helpers: Option<BTreeMap<String, String>>,
    #[serde(default)]
    creds_store: Option<String>,
}

#[derive(Deserialize)]
struct Auth {
    #[serde(default)]
    auth: Option<String>,
    #[serde(default)]
    username: Option<String>,
    #[serde(default)]
    password: Option<String>,
    #[serde(default)]
    identitytoken: Option<String>,
    #[serde(default)]
    registrytoken: Option<String>,
}

impl Auth {
    fn credential(&self, key: &str) -> Result<Option<Credential>, CredentialsError> {
        let set = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        if let Some(token) = set(&self.identitytoken) {
            return Ok(Some(Credential::Identity(token)));
        }
        if let Some(token) = set(&self.registrytoken) {
            return Ok(Some(Credential::Bearer(token)));
        }
        if let Some(auth) = set(&self.auth) {
            let bytes = STANDARD.decode(auth.trim_end_matches('=').to_owned() + padding(&auth));
            let text = bytes.ok().and_then(|bytes| String::from_utf8(bytes).ok());
            let parts = text.as_deref().and_then(|text| text.split_once(':'));
            let (user, password) = parts.ok_or_else(|| CredentialsError::Auth { key: key.to_owned() })?;
            // Docker's own client leaves a NUL at its end.
            let password = password.trim_end_matches('\0').to_owned();
            return Ok(Some(Credential::Password { user: user.to_owned(), password }));
        }
        let (Some(user), Some(password)) = (set(&self.username), set(&self.password)) else { return Ok(None) };
        Ok(Some(Credential::Password { user, password }))
    }
}

fn parse<T: DeserializeOwned>(text: &[u8]) -> Result<T, CredentialsError> {
    serde_json::from_slice(text).map_err(|error| CredentialsError::Parse { line: error.line(), column: error.column() })
}

/// What makes base64 of this length whole, however it was written.
fn padding(text: &str) -> &'static str {
    match text.trim_end_matches('=').len() % 4 {
        2 => "==",
        3 => "=",
        _ => "",
    }
}

/// Credentials by what they are for.
#[derive(Debug, Clone, Default)]
pub struct Keyring {
    /// The longest key first, so that the most exact one is tried first.
    entries: Vec<(Key, Credential)>,
    helpers: BTreeMap<String, String>,
    default_helper: Option<String>,
}

impl Keyring {
    /// Reads the content of `config.json`, or of a secret's `.dockerconfigjson`. Helpers that it names are not asked.
    pub fn read(text: &[u8]) -> Result<Keyring, CredentialsError> {
        Keyring::of_auths(parse::<DockerConfig>(text)?.auths.unwrap_or_default())
    }

    /// Reads the content of a secret's `.dockercfg`: the same without `auths`.
    pub fn read_old(text: &[u8]) -> Result<Keyring, CredentialsError> {
        Keyring::of_auths(parse(text)?)
    }

    /// Reads the node's own `config.json`, with the helpers that it names.
    pub fn read_own(text: &[u8]) -> Result<Keyring, CredentialsError> {
        let config: DockerConfig = parse(text)?;
        let mut ring = Keyring::of_auths(config.auths.unwrap_or_default())?;
        ring.helpers = config.cred_helpers.unwrap_or_default();
        ring.default_helper = config.creds_store.filter(|name| !name.is_empty());
        Ok(ring)
    }

    fn of_auths(auths: BTreeMap<String, Auth>) -> Result<Keyring, CredentialsError> {
        let mut ring = Keyring::default();
        for (key, auth) in auths {
            if let Some(credential) = auth.credential(&key)? {
                ring.entries.push((Key::read(&key), credential));
            }
        }
        ring.sort();
        Ok(ring)
    }

    fn sort(&mut self) {
        self.entries.sort_by_key(|(key, _)| std::cmp::Reverse((key.path.len(), key.host.len())));
    }

    /// Takes the credentials of another in, after those of this one where both are as exact.
    pub fn add(&mut self, other: Keyring) {
        self.entries.extend(other.entries);
        self.helpers.extend(other.helpers);
        self.default_helper = self.default_helper.take().or(other.default_helper);
        self.sort();
    }

    /// Whether it opens nothing.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.helpers.is_empty() && self.default_helper.is_none()
    }

    /// The credentials for a repository of a host, the most exact first.
    pub fn find(&self, host: &str, repository: &str) -> Vec<Credential> {
        let found = self.entries.iter().filter(|(key, _)| key.is_for(host, repository));
        let mut credentials: Vec<Credential> = Vec::new();
        for (_, credential) in found {
            if !credentials.contains(credential) {
                credentials.push(credential.clone());
            }
        }
        credentials
    }

    /// The program that has the credential for a host, and what the host is called there.
    pub(crate) fn helper(&self, host: &str) -> Option<(&str, String)> {
        let names = [host].into_iter().chain(DOCKER_HUB_KEYS.into_iter().filter(|_| host == DOCKER_HUB));
        let named = names.clone().find_map(|name| Some((self.helpers.get(name)?.as_str(), name.to_owned())));
        let known_as = if host == DOCKER_HUB { "https://index.docker.io/v1/".to_owned() } else { host.to_owned() };
        named.or_else(|| Some((self.default_helper.as_deref()?, known_as)))
    }
}

/// What a credential is for: a host, maybe with `*` within its parts, a port, and the beginning of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Key {
    host: String,
    port: Option<String>,
    path: String,
}

impl Key {
    fn read(text: &str) -> Key {
        let text = text.trim().strip_prefix("https://").or(text.trim().strip_prefix("http://")).unwrap_or(text.trim());
        let (authority, path) = text.split_once('/').unwrap_or((text, ""));
        let (host, port) = split_port(authority);
        // The paths of registries' versions are no repositories.
        let path = path.trim_end_matches('/');
        let path = if matches!(path, "v1" | "v2") { "" } else { path };
        let host = host.to_ascii_lowercase();
        let host = if DOCKER_HUB_KEYS.contains(&host.as_str()) { DOCKER_HUB.to_owned() } else { host };
        Key { host, port: port.map(str::to_owned), path: path.to_owned() }
    }

    fn is_for(&self, host: &str, repository: &str) -> bool {
        let (name, port) = split_port(host);
        let rest = repository.strip_prefix(self.path.as_str());
        let in_path = rest.is_some_and(|rest| self.path.is_empty() || rest.is_empty() || rest.starts_with('/'));
        self.port.as_deref() == port && in_path && is_like(&self.host, &name.to_ascii_lowercase())
    }
}

fn split_port(authority: &str) -> (&str, Option<&str>) {
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !port.is_empty() => (host, Some(port)),
        _ => (authority, None),
    }
}

/// Part by part: a `*` stands for anything within one part of the host's name.
fn is_like(pattern: &str, host: &str) -> bool {
    let (patterns, parts): (Vec<_>, Vec<_>) = (pattern.split('.').collect(), host.split('.').collect());
    patterns.len() == parts.len() && patterns.iter().zip(&parts).all(|(pattern, part)| part_is_like(pattern, part))
}

fn part_is_like(pattern: &str, part: &str) -> bool {
    let Some((before, after)) = pattern.split_once('*') else { return pattern == part };
    let long_enough = part.len() >= before.len() + after.len();
    long_enough && !after.contains('*') && part.starts_with(before) && part.ends_with(after)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(text: &str) -> Keyring {
        Keyring::read(text.as_bytes()).unwrap()
    }

    fn users(ring: &Keyring, host: &str, repository: &str) -> Vec<String> {
        let user = |credential| match credential {
            Credential::Password { user, .. } => user,
            Credential::Identity(token) | Credential::Bearer(token) => token,
        };
        ring.find(host, repository).into_iter().map(user).collect()
    }

    #[test]
    fn a_key_is_for_its_own_host_port_and_path() {
        let auths = [
            "registry.example.com",
            "registry.example.com/team",
            "*.azurecr.io",
            "localhost:5000",
            "https://index.docker.io/v1/",
            "HTTPS.example.com:443/v2/",
        ];
        let auths: BTreeMap<_, _> =
            auths.iter().map(|key| (*key, serde_json::json!({"username": key, "password": "p"}))).collect();
        let ring = ring(&serde_json::json!({ "auths": auths }).to_string());
        let cases: [(&str, &str, &[&str]); 13] = [
            ("registry.example.com", "a", &["registry.example.com"]),
            ("registry.example.com", "team/a", &["registry.example.com/team", "registry.example.com"]),
            ("registry.example.com", "teammates/a", &["registry.example.com"]),
            ("registry.example.com:5000", "a", &[]),
            ("evil.registry.example.com", "a", &[]),
            ("registry.example.com.evil.com", "a", &[]),
            ("team.azurecr.io", "a", &["*.azurecr.io"]),
            ("a.b.azurecr.io", "a", &[]),
            ("azurecr.io", "a", &[]),
            ("localhost:5000", "a", &["localhost:5000"]),
            ("localhost", "a", &[]),
            ("docker.io", "library/a", &["https://index.docker.io/v1/"]),
            ("https.example.com:443", "a", &["HTTPS.example.com:443/v2/"]),
        ];
        for (host, repository, expected) in cases {
            assert_eq!(users(&ring, host, repository), expected, "{host} {repository}");
        }
    }

    #[test]
    fn every_form_of_a_credential_is_read() {
        let auth = STANDARD.encode("ada:pa:ss");
        let unpadded = auth.trim_end_matches('=');
        let text = serde_json::json!({"auths": {
            "a": {"auth": auth}, "b": {"auth": unpadded}, "c": {"identitytoken": "i"}, "d": {"registrytoken": "r"}, "e": {},
            "f": {"auth": "", "username": "u", "password": "p"}}});
        let ring = ring(&text.to_string());
        let ada = Credential::Password { user: "ada".into(), password: "pa:ss".into() };
        assert_eq!(ring.find("a", "x"), std::slice::from_ref(&ada));
        assert_eq!(ring.find("b", "x"), [ada]);
        assert_eq!(ring.find("c", "x"), [Credential::Identity("i".into())]);
        assert_eq!(ring.find("d", "x"), [Credential::Bearer("r".into())]);
        assert_eq!(ring.find("e", "x"), []);
        assert_eq!(users(&ring, "f", "x"), ["u"]);
        assert!(Keyring::read(br#"{"auths": {"a": {"auth": "%%"}}}"#).is_err());
        let told = Keyring::read(br#"{"auths": {"a": "secret"}}"#).unwrap_err().to_string();
        assert!(!told.contains("secret"), "{told}");
        assert_eq!(
            users(&Keyring::read_old(br#"{"h": {"username": "u", "password": "p"}}"#).unwrap(), "h", "x"),
            ["u"]
        );
    }

    #[test]
    fn only_the_nodes_own_configuration_names_programs() {
        let text = br#"{"credHelpers": {"a": "evil"}, "credsStore": "worse"}"#;
        assert_eq!(Keyring::read(text).unwrap().helper("a"), None);
        let own = Keyring::read_own(text).unwrap();
        assert_eq!(own.helper("a"), Some(("evil", "a".to_owned())));
        assert_eq!(own.helper("b"), Some(("worse", "b".to_owned())));
        assert_eq!(own.helper("docker.io"), Some(("worse", "https://index.docker.io/v1/".to_owned())));
    }

    #[test]
    fn a_mark_tells_credentials_apart_and_does_not_tell_them() {
        let credential =
            |user: &str, password: &str| Credential::Password { user: user.into(), password: password.into() };
        let marks = [credential("a", "bc").mark("h"), credential("ab", "c").mark("h"), credential("a", "bc").mark("i")];
        assert_eq!(marks.iter().collect::<std::collections::BTreeSet<_>>().len(), 3);
        assert_eq!(format!("{:?}", credential("a", "secret")), "Credential");
    }
}
