//! TLS between our server and our client, without a socket.

use std::sync::Arc;

use jiff::{Timestamp, ToSpan};
use pumice_auth::{
    Ca, Identity, Issued, ServingCertificate, changing_server_config, client_config, identity_of, server_config,
};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, ServerConfig, ServerConnection};

/// Certificates are checked against the real clock: issue them around it.
#[allow(clippy::disallowed_methods, reason = "the TLS library reads the real clock")]
fn now() -> Timestamp {
    Timestamp::now()
}

/// Lets both sides talk until they are done; the identity the server sees.
fn shake(ca: &Ca, server: &Issued, trusted: &str, client: Option<&Issued>, name: &str) -> Result<Identity, String> {
    shake_with(server_config(ca, server).unwrap(), trusted, client, name)
}

fn shake_with(
    config: Arc<ServerConfig>,
    trusted: &str,
    client: Option<&Issued>,
    name: &str,
) -> Result<Identity, String> {
    let mut server = ServerConnection::new(config).unwrap();
    let mut config = client_config(trusted, client).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
    while client.is_handshaking() || server.is_handshaking() {
        let mut wire = Vec::new();
        client.write_tls(&mut wire).unwrap();
        server.read_tls(&mut wire.as_slice()).unwrap();
        server.process_new_packets().map_err(|error| format!("server: {error}"))?;
        wire.clear();
        server.write_tls(&mut wire).unwrap();
        client.read_tls(&mut wire.as_slice()).unwrap();
        client.process_new_packets().map_err(|error| format!("client: {error}"))?;
    }
    assert_eq!(server.alpn_protocol(), Some(&b"h2"[..]));
    match server.peer_certificates() {
        Some(chain) => Ok(identity_of(&chain[0]).unwrap()),
        None => Ok(Identity::anonymous()),
    }
}

fn names() -> Vec<String> {
    ["localhost", "127.0.0.1", "::1"].map(String::from).to_vec()
}

// INV-57
#[test]
fn a_client_is_who_its_certificate_says_or_anonymous() {
    let dir = tempfile::tempdir().unwrap();
    let ca = Ca::open_or_create(dir.path(), now()).unwrap();
    let server = ca.issue_server(&names(), now()).unwrap();
    let ann = ca.issue_client("ann", &["team"], now()).unwrap();
    for name in ["localhost", "127.0.0.1", "::1"] {
        assert_eq!(shake(&ca, &server, ca.pem(), Some(&ann), name), Ok(Identity::new("ann", ["team"])));
        assert_eq!(shake(&ca, &server, ca.pem(), None, name), Ok(Identity::anonymous()));
    }
}

#[test]
fn strangers_are_refused_on_both_sides() {
    let (ours, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let ca = Ca::open_or_create(ours.path(), now()).unwrap();
    let other = Ca::open_or_create(theirs.path(), now()).unwrap();
    let server = ca.issue_server(&names(), now()).unwrap();
    let ann = ca.issue_client("ann", &[], now()).unwrap();
    let mallory = other.issue_client("ann", &[], now()).unwrap();
    let stale = ca.issue_client("ann", &[], now() - (500 * 24).hours()).unwrap();
    let early = ca.issue_client("ann", &[], now() + (10 * 24).hours()).unwrap();

    for client in [&mallory, &stale, &early, &server] {
        let refused = shake(&ca, &server, ca.pem(), Some(client), "localhost");
        assert!(refused.clone().is_err_and(|error| error.starts_with("server")), "{refused:?}");
    }
    for (server, trusted, name) in
        [(&server, other.pem(), "localhost"), (&server, ca.pem(), "example.org"), (&ann, ca.pem(), "localhost")]
    {
        let refused = shake(&ca, server, trusted, None, name);
        assert!(refused.clone().is_err_and(|error| error.starts_with("client")), "{refused:?}");
    }
}

#[test]
fn certificates_survive_the_renewal_of_the_authority() {
    let dir = tempfile::tempdir().unwrap();
    let nine_years_ago = now() - (3630 * 24).hours();
    let old = Ca::open_or_create(dir.path(), nine_years_ago).unwrap();
    let ann = old.issue_client("ann", &[], now()).unwrap();
    let renewed = Ca::open_or_create(dir.path(), now()).unwrap();
    assert_ne!(old.pem(), renewed.pem());
    let server = renewed.issue_server(&names(), now()).unwrap();
    // An old kubeconfig trusts the old certificate and shows one that it signed.
    assert!(shake(&renewed, &server, old.pem(), Some(&ann), "localhost").is_ok());
}

#[test]
fn a_shown_certificate_changes_under_a_running_server() {
    let (first, second) = (Ca::passing(now()).unwrap(), Ca::passing(now()).unwrap());
    let shown = Arc::new(ServingCertificate::default());
    let config = changing_server_config(Arc::clone(&shown)).unwrap();
    let shake = |trusted: &str| shake_with(Arc::clone(&config), trusted, None, "localhost").map(drop);
    assert!(!shown.is_shown() && shake(first.pem()).is_err(), "nothing to show");
    let issued = [&first, &second].map(|ca| ca.issue_server(&names(), now()).unwrap());
    shown.show(&issued[0].certificate_pem, &issued[0].key_pem).unwrap();
    assert_eq!(shake(first.pem()), Ok(()));
    assert!(shake(second.pem()).is_err(), "another authority's");

    assert!(shown.show(&issued[1].certificate_pem, &issued[0].key_pem).is_err(), "another one's key");
    assert_eq!(shake(first.pem()), Ok(()), "what is refused changes nothing");
    shown.show(&issued[1].certificate_pem, &issued[1].key_pem).unwrap();
    assert!(shown.is_shown() && shake(first.pem()).is_err());
    // Who trusts both is content before and after.
    assert_eq!(shake(&format!("{}{}", first.pem(), second.pem())), Ok(()));
}

#[test]
fn pem_that_is_none_is_an_error() {
    for text in ["", "x", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
        assert!(client_config(text, None).is_err());
    }
}
