//! Servers that stop in the middle, and peers that are none.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use pumice_auth::{Ca, server_config};

use super::*;

/// Stands before a server and hangs up after so many bytes of its answers; whether it did is told.
struct Cut {
    port: u16,
    did_cut: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Cut {
    fn start(server: u16, after: usize) -> Cut {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let did_cut = Arc::<AtomicBool>::default();
        let cutting = Arc::clone(&did_cut);
        let thread = std::thread::spawn(move || {
            let (client, _) = listener.accept().unwrap();
            let server = TcpStream::connect(("127.0.0.1", server)).unwrap();
            let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            let upward = std::thread::spawn(move || {
                let _ = std::io::copy(&mut from, &mut to);
                let _ = to.shutdown(Shutdown::Write);
            });
            let (mut server, mut client, mut left, mut buffer) = (server, client, after, [0; 4_096]);
            while left > 0 {
                let most = left.min(buffer.len());
                let Ok(read @ 1..) = server.read(&mut buffer[..most]) else { break };
                left -= read;
                if client.write_all(&buffer[..read]).is_err() {
                    break;
                }
            }
            cutting.store(left == 0, Ordering::SeqCst);
            let _ = client.shutdown(Shutdown::Both);
            let _ = server.shutdown(Shutdown::Both);
            upward.join().unwrap();
        });
        Cut { port, did_cut, thread }
    }
}

#[tokio::test]
async fn a_server_that_goes_away_makes_no_short_reading() {
    let entries: String = (0..700).map(|n| posix_account(&format!("u{n}"), 10_000 + n)).collect();
    let slapd = Slapd::start(&entries);
    let mut directory = directory(&slapd);
    let (mut cuts, mut wholes) = (0, 0);
    // From within the handshake up to the end of the second page.
    for after in [100, 1_500, 3_000, 20_000, 60_000, 90_000, 120_000, 10_000_000] {
        let cut = Cut::start(slapd.tls_port(), after);
        directory.url = format!("ldaps://127.0.0.1:{}", cut.port);
        let result = look(&directory, None).await;
        cut.thread.join().unwrap();
        match (cut.did_cut.load(Ordering::SeqCst), result) {
            (true, Err(_)) => cuts += 1,
            (false, Ok(Look::Whole { reading, .. })) => {
                assert_eq!(reading.entries.len(), 700);
                wholes += 1;
            }
            (did_cut, other) => panic!("after {after}, cut {did_cut}: {other:?}"),
        }
    }
    assert!(cuts >= 6 && wholes >= 1, "{cuts} {wholes}");
}

#[tokio::test]
async fn a_server_that_is_down_is_told() {
    let mut slapd = Slapd::start("");
    slapd.down();
    let error = refused(&directory(&slapd)).await;
    assert!(error.contains("can't be reached over TLS") && error.contains("refused"), "{error}");
}

/// Answers the first request over TLS with these bytes, and hangs up.
fn peer(answer: &'static [u8]) -> (LdapDirectory, JoinHandle<()>) {
    let folder = tempfile::tempdir().unwrap();
    let ca = Ca::open_or_create(folder.path(), pumice_clock::now()).unwrap();
    let issued = ca.issue_server(&["127.0.0.1".to_owned()], pumice_clock::now()).unwrap();
    let mut config = rustls::ServerConfig::clone(&server_config(&ca, &issued).unwrap());
    config.alpn_protocols.clear();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("ldaps://{}", listener.local_addr().unwrap());
    let thread = std::thread::spawn(move || {
        let (socket, _) = listener.accept().unwrap();
        let connection = rustls::ServerConnection::new(Arc::new(config)).unwrap();
        let mut stream = rustls::StreamOwned::new(connection, socket);
        let mut request = [0; 4_096];
        if stream.read(&mut request).is_ok_and(|read| read > 0) {
            let _ = stream.write_all(answer);
            stream.conn.send_close_notify();
            let _ = stream.flush();
        }
    });
    let (ca, user_base) = (ca.pem().to_owned(), "dc=example,dc=org".to_owned());
    (LdapDirectory { url, ca, user_base, ..LdapDirectory::default() }, thread)
}

#[tokio::test]
async fn a_peer_that_speaks_nonsense_is_an_error() {
    let answers: [&'static [u8]; 9] = [
        b"",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        &[0x30, 0x84, 0x7F, 0xFF, 0xFF, 0xFF],
        &[0x30, 0x00],
        // Answers to the first request: of no kind, an entry that is none, a name that is no text, half an end.
        &[0x30, 0x05, 0x02, 0x01, 0x01, 0x7F, 0x00],
        &[0x30, 0x05, 0x02, 0x01, 0x01, 0x64, 0x00],
        &[0x30, 0x09, 0x02, 0x01, 0x01, 0x64, 0x04, 0x04, 0x02, 0xFF, 0xFE],
        &[0x30, 0x05, 0x02, 0x01, 0x01, 0x65, 0x00],
        // To another one, which was never asked.
        &[0x30, 0x0C, 0x02, 0x01, 0x63, 0x65, 0x07, 0x0A, 0x01, 0x00, 0x04, 0x00, 0x04, 0x00],
    ];
    for answer in answers {
        let (directory, thread) = peer(answer);
        // The library panics at some of them, which the loop takes for a reading that failed.
        let mut reading = tokio::task::JoinSet::new();
        reading.spawn(async move { read(&directory, None, None).await });
        let result = tokio::time::timeout(Duration::from_secs(60), reading.join_next()).await.expect("it ends");
        let result = result.unwrap();
        assert!(result.as_ref().is_err() || result.as_ref().is_ok_and(Result::is_err), "{answer:?}: {result:?}");
        thread.join().unwrap();
    }
}
