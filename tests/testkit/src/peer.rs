//! A peer of a server that speaks TLS and leaves the rest to the test: what no program of a user would send.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use pumice_auth::{Ca, client_config};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
pub use tokio_rustls::client::TlsStream;

use crate::certificate::now;

/// Makes connections to one server, as one user or as nobody.
#[derive(Clone)]
pub struct Peer {
    connector: TlsConnector,
    address: SocketAddr,
}

impl Peer {
    /// A peer that trusts `ca` and shows a certificate of `user`, who is in these groups.
    pub(crate) fn new(ca: &Ca, url: &str, user: Option<(&str, &[&str])>) -> Self {
        let issued = user.map(|(user, groups)| ca.issue_client(user, groups, now()).expect("issue a certificate"));
        let config = client_config(ca.pem(), issued.as_ref()).expect("set up TLS");
        let address = url.trim_start_matches("https://").parse().expect("an address");
        Self { connector: TlsConnector::from(Arc::new(config)), address }
    }

    /// Where the server is.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A connection after its handshake.
    pub async fn connect(&self) -> io::Result<TlsStream<TcpStream>> {
        let socket = TcpStream::connect(self.address).await?;
        self.connector.connect(ServerName::from(self.address.ip()), socket).await
    }

    /// Sends a request of HTTP/1.1 and reads the whole answer: its code, head and body.
    pub async fn ask(
        connection: &mut TlsStream<TcpStream>,
        method: &str,
        path: &str,
        body: &str,
    ) -> io::Result<(u16, String, String)> {
        let length = body.len();
        let head = format!("{method} {path} HTTP/1.1\r\nHost: server\r\nContent-Length: {length}\r\n\r\n");
        connection.write_all(format!("{head}{body}").as_bytes()).await?;
        let mut answer = Vec::new();
        loop {
            if connection.read_buf(&mut answer).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let text = String::from_utf8_lossy(&answer);
            let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
            let lines = || head.lines().filter_map(|line| line.split_once(": "));
            let length = lines().find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
            let length: usize = length.and_then(|(_, length)| length.parse().ok()).unwrap_or(0);
            if body.len() >= length {
                let code = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
                return Ok((code, head.to_owned(), body.to_owned()));
            }
        }
    }
}
