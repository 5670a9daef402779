//! One reading of one directory, whatever kind it is.
//!
//! Invariant: it ends within its time, and a panic of the library that speaks LDAP is a reading that failed.

use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use pumice_api::directory::{DirectorySpec, LdapDirectory};
use pumice_cluster::words;

use crate::ldap::{self, LdapReadError, Look};
use crate::system::{Getent, SystemReadError};

/// Longest time of a reading.
const READ_WITHIN: Duration = Duration::from_secs(300);
/// The key of a Secret that has the password.
const PASSWORD: &str = "password";

/// Why a directory could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error(transparent)]
    Ldap(#[from] LdapReadError),
    #[error(transparent)]
    System(#[from] SystemReadError),
    #[error("spec.ldap.bindSecret: Secret {name} in namespace {namespace} can't be read: {why}")]
    Secret { name: String, namespace: String, why: String },
    #[error("spec.ldap.bindSecret: Secret {name} in namespace {namespace} has no text under the key `{PASSWORD}`")]
    NoPassword { name: String, namespace: String },
    #[error("spec has neither ldap nor system")]
    NoKind,
    #[error("spec.system: the machine's users are those of `pumice up`, and this is another machine")]
    NotThisMachine,
    #[error("it ended by a mistake of this program, which the log shows")]
    Crashed,
}

/// What a reading needs besides the directory's spec.
#[derive(Clone)]
pub(crate) struct Reader {
    pub client: Client,
    pub namespace: String,
    pub reads_machine: bool,
}

impl Reader {
    /// Reads a directory, or finds that it is as it was when its stamp was `last`.
    pub async fn read(self, spec: DirectorySpec, last: Option<String>) -> Result<Look, ReadError> {
        match (&spec.ldap, &spec.system) {
            (Some(directory), _) => {
                let password = self.password(directory).await?;
                let reading = ldap::read(directory, password.as_deref(), last.as_deref());
                match tokio::time::timeout(READ_WITHIN, reading).await {
                    Ok(look) => Ok(look?),
                    Err(_) => Err(LdapReadError::TooSlow { within: READ_WITHIN }.into()),
                }
            }
            (None, Some(_)) if !self.reads_machine => Err(ReadError::NotThisMachine),
            (None, Some(directory)) => {
                let reading = Getent::default().read(directory).await?;
                Ok(Look::Whole { reading, stamp: None })
            }
            (None, None) => Err(ReadError::NoKind),
        }
    }

    /// The password, anew for each reading: it may have been changed.
    async fn password(&self, directory: &LdapDirectory) -> Result<Option<String>, ReadError> {
        let name = directory.bind_secret.clone();
        if name.is_empty() || directory.bind_dn.is_empty() {
            return Ok(None);
        }
        let namespace = self.namespace.clone();
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &namespace);
        let secret = match secrets.get(&name).await {
            Ok(secret) => secret,
            Err(error) => return Err(ReadError::Secret { name, namespace, why: words(&error) }),
        };
        let password = secret.data.and_then(|mut data| data.remove(PASSWORD));
        match password.map(|password| String::from_utf8(password.0)) {
            // A file has a line's end, which a password has not.
            Some(Ok(password)) => Ok(Some(password.trim_end_matches(['\r', '\n']).to_owned())),
            _ => Err(ReadError::NoPassword { name, namespace }),
        }
    }
}
