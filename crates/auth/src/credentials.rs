//! One file with everything that a client needs: its private key, its certificate, and the authority that it trusts.
//!
//! Invariant: it holds a private key: write it with [`crate::write_private`].

use crate::ca::{Ca, Issued};

/// The text of such a file for the holder of `client`.
pub fn credentials(ca: &Ca, client: &Issued) -> String {
    let lines = [client.key_pem.as_str(), client.certificate_pem.as_str(), ca.pem()].map(str::trim_end);
    lines.join("\n") + "\n"
}
