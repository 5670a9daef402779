//! Certificates of servers that tests run on this machine.

use std::path::{Path, PathBuf};

use pumice_auth::{Ca, write_private};

/// Files in `directory`, which is made: a certificate for this machine, its key, and their authority, which stays the same.
pub(crate) fn write_certificate(ca: &Ca, directory: &Path) -> (PathBuf, PathBuf, PathBuf) {
    std::fs::create_dir_all(directory).expect("a directory for a certificate");
    let issued = ca.issue_server(&["127.0.0.1".to_owned()], now()).expect("a certificate");
    let [certificate, key, authority] = ["tls.crt", "tls.key", "ca.crt"].map(|name| directory.join(name));
    write_private(&certificate, issued.certificate_pem.as_bytes()).expect("write a certificate");
    write_private(&key, issued.key_pem.as_bytes()).expect("write a key");
    write_private(&authority, ca.pem().as_bytes()).expect("write a certificate");
    (certificate, key, authority)
}

#[allow(clippy::disallowed_methods)] // a test's own clock
pub(crate) fn now() -> jiff::Timestamp {
    jiff::Timestamp::now()
}
