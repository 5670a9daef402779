//! Certificates and proxies.

use std::sync::{Arc, Mutex};

use pumice_images::provide::PullPolicy;
use pumice_images::registry::credentials::Keyring;
use pumice_units::with_causes;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufStream, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::image::Image;
use crate::machine::{Machine, content, password, provide};
use crate::redirects::ada;
use crate::server::{Access, Fault, Registry};

const ALWAYS: usize = usize::MAX;

/// A registry with TLS and a machine that does not know its authority, whose file is returned.
async fn start() -> (Registry, Machine, String) {
    let machine = Machine::new(&[]);
    let registry = Registry::start_tls(&machine.path("authority.pem")).await;
    registry.push("team/app", "1", &Image::small("hello"));
    let authority = machine.path("authority.pem").display().to_string();
    (registry, machine, authority)
}

#[tokio::test]
async fn a_certificate_is_trusted_when_its_authority_is_named() {
    let (registry, mut machine, authority) = start().await;
    let name = registry.name("team/app", "1");
    let failure = machine.failure(&name).await;
    let expected = format!("the certificate of registry {} is not trusted", registry.host);
    assert!(
        failure.contains(&expected) && failure.contains(&format!("{}: {{authority: FILE}}", registry.host)),
        "{failure}"
    );
    machine.set(&registry.host, &format!("authority: '{authority}'"));
    assert_eq!(content(&machine.pull(&name).await.unwrap()), "hello");
}

#[tokio::test]
async fn an_authority_that_was_changed_is_read_again() {
    let (registry, mut machine, authority) = start().await;
    registry.push("team/app", "2", &Image::small("hello"));
    machine.set(&registry.host, &format!("authority: '{authority}'"));
    let right = std::fs::read(&authority).unwrap();
    let _other = Registry::start_tls(&machine.path("authority.pem")).await;
    let images = machine.images();
    let pull = |tag| {
        let (images, name) = (&images, registry.name("team/app", tag));
        async move { provide(images, &name, &Keyring::default(), PullPolicy::IfNotPresent).await }
    };
    let failure = with_causes(&pull("1").await.unwrap_err());
    assert!(failure.contains("is not trusted"), "{failure}");
    let file = std::fs::File::create(&authority).unwrap();
    std::io::Write::write_all(&mut &file, &right).unwrap();
    // Whatever the clock of the file system shows.
    file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    assert_eq!(content(&pull("2").await.unwrap()), "hello");
}

#[tokio::test]
async fn an_authority_that_is_no_certificate_is_named() {
    for text in
        [None, Some(""), Some("nonsense"), Some("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")]
    {
        let (registry, mut machine, authority) = start().await;
        match text {
            Some(text) => std::fs::write(&authority, text).unwrap(),
            None => std::fs::remove_file(&authority).unwrap(),
        }
        machine.set(&registry.host, &format!("authority: '{authority}'"));
        let failure = machine.failure(&registry.name("team/app", "1")).await;
        assert!(failure.contains(&authority), "{text:?}: {failure}");
    }
}

#[tokio::test]
async fn plain_http_where_tls_is_expected_is_no_registry() {
    let registry = Registry::start().await;
    registry.push("team/app", "1", &Image::small("hello"));
    let machine = Machine::new(&[]);
    let failure = machine.failure(&registry.name("team/app", "1")).await;
    assert!(failure.contains(&format!("registry {}", registry.host)), "{failure}");
    assert!(failure.contains("plainHttp: true"), "{failure}");
}

#[tokio::test]
async fn tls_is_not_left_by_a_redirect_or_for_a_token() {
    let (registry, mut machine, authority) = start().await;
    let image = Image::small("hello");
    machine.set(&registry.host, &format!("authority: '{authority}'"));
    let plain = Registry::start().await;
    plain.push("team/app", "1", &image);
    let location = plain.address(&format!("/v2/team/app{}", image.layer_path()));
    registry.spoil("GET", &image.layer_path(), ALWAYS, Fault::Answer(302, vec![("Location", location)], Vec::new()));
    let failure = machine.failure(&registry.name("team/app", "1")).await;
    assert!(failure.contains("which is not followed: it has no TLS"), "{failure}");
    registry.open_by(Access::Bearer(plain.address("/token")), &[ada(&["team/app"])], &["team/app"]);
    for ring in [password(&registry, "ada", "secret"), Default::default()] {
        let failure = machine.failure_as(&registry.name("team/app", "1"), &ring).await;
        assert!(failure.contains("which is no https address"), "{failure}");
    }
    assert_eq!(plain.requests().len(), 0);
}

#[tokio::test]
async fn blobs_come_from_another_host_with_tls_without_the_credential() {
    let (registry, mut machine, authority) = start().await;
    let image = Image::small("hello");
    let other = Registry::start_tls(&machine.path("other.pem")).await;
    other.push("team/app", "1", &image);
    let both = format!(
        "{}{}",
        std::fs::read_to_string(&authority).unwrap(),
        std::fs::read_to_string(machine.path("other.pem")).unwrap()
    );
    std::fs::write(&authority, both).unwrap();
    machine.set(&registry.host, &format!("authority: '{authority}'"));
    registry.open_by(Access::Bearer(registry.address("/token")), &[ada(&["team/app"])], &[]);
    let location = other.address(&format!("/v2/team/app{}", image.layer_path()));
    registry.spoil("GET", &image.layer_path(), ALWAYS, Fault::Answer(307, vec![("Location", location)], Vec::new()));
    let ring = password(&registry, "ada", "secret");
    assert_eq!(content(&machine.pull_as(&registry.name("team/app", "1"), &ring).await.unwrap()), "hello");
    let seen = other.requests();
    assert_eq!((seen.len(), seen[0].authorization()), (1, None));
}

/// The head of a request, and nothing of what follows.
async fn head_of(stream: &mut TcpStream) -> String {
    let mut head = String::new();
    let mut reader = BufStream::with_capacity(1, 1, stream);
    while !head.ends_with("\r\n\r\n") && reader.read_line(&mut head).await.is_ok_and(|count| count > 0) {}
    head
}

/// A proxy for connections; it remembers the first line and the credential of each.
async fn proxy() -> (String, Arc<Mutex<Vec<String>>>, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = listener.local_addr().unwrap().to_string();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (lines, mut tasks) = (Arc::clone(&seen), JoinSet::new());
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            let lines = Arc::clone(&lines);
            connections.spawn(async move {
                let head = head_of(&mut stream).await;
                let target = head.split_whitespace().nth(1).unwrap_or_default().to_owned();
                lines.lock().unwrap().push(head.to_ascii_lowercase());
                let Ok(mut server) = TcpStream::connect(target).await else { return };
                if stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.is_ok() {
                    let _ = copy_bidirectional(&mut stream, &mut server).await;
                }
            });
        }
    });
    (host, seen, tasks)
}

#[tokio::test]
async fn a_proxy_gets_a_tunnel_and_sees_nothing_of_it() {
    let (registry, mut machine, authority) = start().await;
    machine.set(&registry.host, &format!("authority: '{authority}'"));
    registry.open_by(Access::Basic, &[ada(&["team/app"])], &[]);
    let (host, seen, _tasks) = proxy().await;
    machine.proxy = Some(format!("http://eve:word@{host}"));
    let ring = password(&registry, "ada", "secret");
    assert_eq!(content(&machine.pull_as(&registry.name("team/app", "1"), &ring).await.unwrap()), "hello");
    let seen = seen.lock().unwrap();
    assert!(!seen.is_empty());
    for head in seen.iter() {
        assert!(head.starts_with(&format!("connect {} http/1.1", registry.host)), "{head}");
        assert!(head.contains("proxy-authorization: basic zxzlondvcmq="), "{head}");
        assert!(!head.contains("\r\nauthorization:"), "{head}");
    }
}

/// A proxy that opens no tunnels and passes requests of plain HTTP on; it remembers the heads.
async fn forwarding_proxy() -> (String, Arc<Mutex<Vec<String>>>, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = listener.local_addr().unwrap().to_string();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (lines, mut tasks) = (Arc::clone(&seen), JoinSet::new());
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            let lines = Arc::clone(&lines);
            connections.spawn(async move {
                let head = head_of(&mut stream).await;
                lines.lock().unwrap().push(head.clone());
                let address = head.split_whitespace().nth(1).unwrap_or_default().to_owned();
                let Some((host, path)) = address.strip_prefix("http://").and_then(|rest| rest.split_once('/')) else {
                    let _ =
                        stream.write_all(b"HTTP/1.1 405 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").await;
                    return;
                };
                let Ok(mut server) = TcpStream::connect(host).await else { return };
                let length = head.lines().find_map(|line| {
                    let (name, value) = line.split_once(": ")?;
                    name.eq_ignore_ascii_case("content-length").then(|| value.parse().unwrap())
                });
                let mut request = head.replacen(&address, &format!("/{path}"), 1).into_bytes();
                let mut body = vec![0; length.unwrap_or(0)];
                if stream.read_exact(&mut body).await.is_err() {
                    return;
                }
                request.extend_from_slice(&body);
                let mut answer = Vec::new();
                if server.write_all(&request).await.is_err()
                    || server.shutdown().await.is_err()
                    || server.read_to_end(&mut answer).await.is_err()
                {
                    return;
                }
                // One request for each connection.
                let end = answer.windows(2).position(|pair| pair == b"\r\n").unwrap();
                answer.splice(end..end, b"\r\nConnection: close".iter().copied());
                let _ = stream.write_all(&answer).await;
            });
        }
    });
    (host, seen, tasks)
}

#[tokio::test]
async fn plain_http_goes_through_a_proxy_that_opens_no_tunnels() {
    let registry = Registry::start().await;
    registry.push("team/app", "1", &Image::small("hello"));
    registry.open_by(Access::Basic, &[ada(&["team/app", "team/copy"])], &[]);
    let mut machine = Machine::new(&[&registry]);
    let (host, seen, _tasks) = forwarding_proxy().await;
    machine.proxy = Some(format!("http://eve:word@{host}"));
    let name = registry.name("team/app", "1");
    let ring = password(&registry, "ada", "secret");
    assert_eq!(content(&machine.pull_as(&name, &ring).await.unwrap()), "hello");
    machine.log_in(&registry.host, "ada", "secret");
    machine.push(&name, Some(&registry.name("team/copy", "1"))).await.unwrap();
    let heads = seen.lock().unwrap().clone();
    assert!(!heads.is_empty());
    for head in heads {
        let head = head.to_ascii_lowercase();
        assert!(
            head.split_whitespace().nth(1).unwrap().starts_with(&format!("http://{}/v2/", registry.host)),
            "{head}"
        );
        assert!(head.contains("proxy-authorization: basic zxzlondvcmq="), "{head}");
        assert!(head.contains(&format!("host: {}", registry.host)), "{head}");
    }
    // Without the proxy nobody sees its password.
    machine.proxy = None;
    registry.requests();
    machine.pull_as(&registry.name("team/app", "2"), &ring).await.unwrap_err();
    assert!(registry.requests().iter().all(|request| !request.headers.contains_key("proxy-authorization")));
}

#[tokio::test]
async fn a_proxy_that_is_down_is_named() {
    let (registry, mut machine, authority) = start().await;
    machine.set(&registry.host, &format!("authority: '{authority}'"));
    let host = {
        let (host, _, tasks) = proxy().await;
        drop(tasks);
        host
    };
    machine.proxy = Some(format!("http://eve:word@{host}"));
    let failure = machine.failure(&registry.name("team/app", "1")).await;
    assert!(failure.contains(&format!("registry {} can't be reached", registry.host)), "{failure}");
    assert!(failure.contains(&format!("through the proxy {host}")) && !failure.contains("word"), "{failure}");
}
