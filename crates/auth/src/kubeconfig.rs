//! The kubeconfig that lets kubectl in.
//!
//! Invariant: self-contained (certificates are embedded) and valid for any server URL, which is
//! quoted. It holds a private key: write it with [`crate::write_private`],
//! which says the mode of the file.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::ca::{Ca, Issued};

/// The text of a kubeconfig with one context, `pumice`, for the holder of `client`.
pub fn kubeconfig(server_url: &str, ca: &Ca, client: &Issued) -> String {
    kubeconfig_of(server_url, ca.pem(), &client.certificate_pem, &client.key_pem)
}

/// The same of texts in PEM: the authorities that are trusted, a certificate, and its key.
pub fn kubeconfig_of(server_url: &str, authorities_pem: &str, certificate_pem: &str, key_pem: &str) -> String {
    // A JSON string is a YAML string.
    let server = serde_json::Value::from(server_url);
    let ca = STANDARD.encode(authorities_pem);
    let certificate = STANDARD.encode(certificate_pem);
    let key = STANDARD.encode(key_pem);
    format!(
        "apiVersion: v1
kind: Config
clusters:
- name: pumice
  cluster:
    server: {server}
    certificate-authority-data: {ca}
users:
- name: pumice
  user:
    client-certificate-data: {certificate}
    client-key-data: {key}
contexts:
- name: pumice
  context:
    cluster: pumice
    user: pumice
    namespace: default
current-context: pumice
"
    )
}

/// The text of one file with everything that the holder of `client` needs: its private key, its certificate, and the authority
/// that it trusts.
pub fn credentials(ca: &Ca, client: &Issued) -> String {
    let lines = [client.key_pem.as_str(), client.certificate_pem.as_str(), ca.pem()].map(str::trim_end);
    lines.join("\n") + "\n"
}
