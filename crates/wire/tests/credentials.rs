//! A client's file of credentials.
#![cfg(feature = "client")]

use pumice_auth::{Ca, Identity, Issued, credentials, identity_of};
use pumice_wire::client::Credentials;

fn issued() -> (Ca, Issued) {
    let now = jiff::Timestamp::constant(1_764_000_000, 0);
    let ca = Ca::passing(now).expect("a CA");
    let client = ca.issue_client("ann", &["team"], now).expect("a certificate");
    (ca, client)
}

#[test]
fn what_is_written_is_read() {
    let (ca, client) = issued();
    let read = Credentials::read(&credentials(&ca, &client)).expect("reads");
    assert_eq!(identity_of(&read.certificate).expect("names somebody"), Identity::new("ann", ["team"]));
}

#[test]
fn a_missing_part_is_named() {
    let (ca, client) = issued();
    let all = credentials(&ca, &client);
    let without_authority = all.replace(ca.pem().trim_end(), "");
    for (text, says) in [
        (String::new(), "private key"),
        (ca.pem().to_owned(), "private key"),
        (client.key_pem, "no certificate"),
        (without_authority, "authority"),
    ] {
        let error = Credentials::read(&text).expect_err("is no such file").to_string();
        assert!(error.contains(says), "{error}");
    }
}
