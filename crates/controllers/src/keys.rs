//! Key pairs for the ssh plugin.
//!
//! Invariant: keys are made off the loop, on a blocking thread. The first job that needs one waits for it; from then on one
//! is kept in stock.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use pumice_machines::plugins::ssh::KeyPair;
use rsa::pkcs1::{EncodeRsaPrivateKey as _, LineEnding};
use rsa::traits::PublicKeyParts as _;
use rsa::{RsaPrivateKey, RsaPublicKey};
use tokio::sync::{Mutex, Notify};

const BITS: usize = 2048;

/// Why no key was made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeyError {
    #[error("cannot generate an RSA key")]
    Generate(#[source] rsa::Error),
    #[error("cannot encode an RSA key")]
    Encode(#[source] rsa::pkcs1::Error),
    #[error("key generation was interrupted")]
    Interrupted,
}

/// Makes key pairs and keeps one in stock.
#[derive(Default)]
pub(crate) struct Keys {
    stock: Mutex<Option<KeyPair>>,
    taken: Notify,
}

impl Keys {
    /// A key pair nobody else gets. Cancel safe.
    pub async fn take(&self) -> Result<KeyPair, KeyError> {
        let ready = self.stock.lock().await.take();
        self.taken.notify_one();
        match ready {
            Some(pair) => Ok(pair),
            None => generate().await,
        }
    }

    /// Refills the stock whenever a pair was taken; never ends.
    pub async fn refill(&self) {
        loop {
            self.taken.notified().await;
            let mut stock = self.stock.lock().await;
            if stock.is_none() {
                match generate().await {
                    Ok(pair) => *stock = Some(pair),
                    Err(error) => tracing::warn!(%error, "no key pair for the stock"),
                }
            }
        }
    }
}

async fn generate() -> Result<KeyPair, KeyError> {
    tokio::task::spawn_blocking(new_pair).await.unwrap_or(Err(KeyError::Interrupted))
}

fn new_pair() -> Result<KeyPair, KeyError> {
    let private = RsaPrivateKey::new(&mut rand::rngs::OsRng, BITS).map_err(KeyError::Generate)?;
    let pem = private.to_pkcs1_pem(LineEnding::LF).map_err(KeyError::Encode)?;
    Ok(KeyPair { private_key: pem.to_string(), public_key: authorized_key(&private.to_public_key()) })
}

/// A line of `authorized_keys`, RFC 4253 section 6.6.
fn authorized_key(key: &RsaPublicKey) -> String {
    let mut blob = Vec::new();
    let mut field = |bytes: &[u8]| {
        // Fields are a few hundred bytes long.
        blob.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
        blob.extend_from_slice(bytes);
    };
    field(b"ssh-rsa");
    for number in [key.e().to_bytes_be(), key.n().to_bytes_be()] {
        // An mpint with its highest bit set would be negative.
        let sign = if number.first().is_some_and(|byte| byte & 0x80 != 0) { &[0_u8][..] } else { &[] };
        field(&[sign, &number].concat());
    }
    format!("ssh-rsa {}\n", STANDARD.encode(blob))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rsa::pkcs1::DecodeRsaPrivateKey as _;

    #[tokio::test]
    async fn a_pair_fits_together_and_is_used_once() {
        let keys = Keys::default();
        let (first, second) = (keys.take().await.unwrap(), keys.take().await.unwrap());
        assert_ne!(first.public_key, second.public_key);
        let private = RsaPrivateKey::from_pkcs1_pem(&first.private_key).unwrap();
        assert!(first.private_key.starts_with("-----BEGIN RSA PRIVATE KEY-----\n"));
        assert_eq!(authorized_key(&private.to_public_key()), first.public_key);
        let blob = STANDARD.decode(first.public_key.trim().strip_prefix("ssh-rsa ").unwrap()).unwrap();
        assert_eq!(&blob[..11], b"\0\0\0\x07ssh-rsa");
        // e = 65537 in three bytes, n in 257 because its highest bit is set.
        assert_eq!(blob.len(), 11 + 4 + 3 + 4 + 257);
    }
}
