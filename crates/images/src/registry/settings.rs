//! How this machine reaches registries: mirrors, plain HTTP, authorities, hosts of tokens.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use pumice_linux::files::read_bounded;

/// Largest file that is read, in bytes.
const SETTINGS_BYTES_MAX: u64 = 1 << 20;
/// The names that are asked in place of Docker Hub's own, which serves no images.
const DOCKER_HUB: (&str, &str) = ("docker.io", "registry-1.docker.io");
/// Where Docker Hub has its tokens from.
const DOCKER_HUB_TOKENS: &str = "auth.docker.io";

/// Why a file has no settings.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    #[error("can't read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// It is not of the right form.
    #[error("{} is not a list of registries: {message}", path.display())]
    Parse { path: PathBuf, message: String },
}

/// What is said of registries, by their hosts as images name them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    registries: BTreeMap<String, Registry>,
}

/// What is special about a registry.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Registry {
    /// Hosts that are asked before it, in this order. They have settings of their own.
    #[serde(default)]
    pub mirrors: Vec<String>,
    /// Whether it speaks HTTP without TLS.
    #[serde(default)]
    pub plain_http: bool,
    /// A file with certificates of authorities that are trusted beside the machine's.
    pub authority: Option<PathBuf>,
    /// Other hosts that may be shown its credentials, since they make its tokens.
    #[serde(default)]
    pub token_hosts: Vec<String>,
}

impl Settings {
    /// Reads a YAML file of `HOST: {mirrors, plainHttp, authority, tokenHosts}`; the error names the file, and what is wrong where.
    pub fn read(path: &Path) -> Result<Settings, SettingsError> {
        let read = read_bounded(path, SETTINGS_BYTES_MAX);
        let bytes = read.map_err(|source| SettingsError::Read { path: path.into(), source })?;
        let parse = |message: String| SettingsError::Parse { path: path.into(), message };
        let text = std::str::from_utf8(&bytes).map_err(|error| parse(error.to_string()))?;
        Settings::parse(text).map_err(parse)
    }

    fn parse(text: &str) -> Result<Settings, String> {
        if text.trim().is_empty() {
            return Ok(Settings::default());
        }
        let registries = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
        Ok(Settings { registries })
    }

    /// What is said of a host.
    pub fn registry(&self, host: &str) -> Registry {
        self.registries.get(host).cloned().unwrap_or_default()
    }

    /// Where a host's images are asked for: its mirrors, then itself.
    pub(crate) fn endpoints(&self, host: &str) -> Vec<Endpoint> {
        let mirrors = self.registry(host).mirrors.into_iter().map(|mirror| self.endpoint(&mirror));
        mirrors.chain([self.endpoint(host)]).collect()
    }

    fn endpoint(&self, host: &str) -> Endpoint {
        let registry = self.registry(host);
        let address = if host == DOCKER_HUB.0 { DOCKER_HUB.1 } else { host };
        let mut token_hosts = registry.token_hosts;
        if host == DOCKER_HUB.0 {
            token_hosts.push(DOCKER_HUB_TOKENS.to_owned());
        }
        Endpoint {
            host: host.to_owned(),
            address: address.to_owned(),
            plain_http: registry.plain_http,
            authority: registry.authority,
            token_hosts,
        }
    }
}

/// One host to ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Endpoint {
    /// As images and credentials name it.
    pub host: String,
    /// The host and port that are connected to.
    pub address: String,
    pub plain_http: bool,
    pub authority: Option<PathBuf>,
    /// Hosts beside itself that may be shown its credentials.
    pub token_hosts: Vec<String>,
}

impl Endpoint {
    pub(crate) fn scheme(&self) -> &'static str {
        if self.plain_http { "http" } else { "https" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mirrors_are_asked_first_and_have_settings_of_their_own() {
        let text =
            "docker.io: {mirrors: ['mirror.local:5000']}\nmirror.local:5000: {plainHttp: true, tokenHosts: [a]}\n";
        let settings = Settings::parse(text).unwrap();
        let found = settings.endpoints("docker.io");
        let addresses: Vec<_> = found.iter().map(|one| (one.address.as_str(), one.scheme())).collect();
        assert_eq!(addresses, [("mirror.local:5000", "http"), ("registry-1.docker.io", "https")]);
        assert_eq!(found[0].token_hosts, ["a"]);
        assert_eq!(found[1].token_hosts, ["auth.docker.io"]);
        assert_eq!(Settings::parse(" ").unwrap().endpoints("ghcr.io")[0].address, "ghcr.io");
    }

    #[test]
    fn nonsense_is_named() {
        for text in ["[1]", "a: {plainHTTP: true}", "a: [", "a: 3"] {
            assert!(Settings::parse(text).is_err(), "{text}");
        }
    }
}
