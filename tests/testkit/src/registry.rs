//! A registry of images with images that a test makes.
//!
//! Invariant: it listens on the loopback alone, has what it was given and nothing else, and ends with the [`Registry`].

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use jiff::{Timestamp, ToSpan as _};
use pumice_auth::{Ca, server_config};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};

use crate::certificate::{now, write_certificate};
use crate::test_image::{TestImage, digest_of};

/// The kinds of an image's parts.
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
const COMPRESSED_LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// Who may see what is in a registry with [`Registry::lock`].
const USER: &str = "app";
const PASSWORD: &str = "secret";
/// The same two, as a request shows them.
const AUTHORIZATION: &str = "Basic YXBwOnNlY3JldA==";

/// What a registry has.
#[derive(Default)]
struct Content {
    /// Documents by their paths below `/v2/`.
    documents: BTreeMap<String, Document>,
    locked: bool,
}

#[derive(Clone)]
struct Document {
    kind: &'static str,
    digest: Arc<str>,
    bytes: Arc<[u8]>,
}

impl Document {
    fn new(kind: &'static str, bytes: Vec<u8>) -> Document {
        Document { kind, digest: digest_of(&bytes).into(), bytes: bytes.into() }
    }
}

/// A registry that runs.
pub struct Registry {
    address: SocketAddr,
    /// The file with the authority of its certificate; without one it has no TLS.
    authority: Option<PathBuf>,
    content: Arc<Mutex<Content>>,
    over: Arc<AtomicBool>,
    server: Option<JoinHandle<()>>,
}

impl Registry {
    /// Starts one without TLS, with no image in it.
    pub fn start() -> Registry {
        Registry::start_with(None, None)
    }

    /// The same with TLS, and files of its certificate, which is for `127.0.0.1`, in a directory.
    pub fn start_tls(directory: &Path) -> Registry {
        Registry::start_tls_since(directory, now())
    }

    /// The same with a certificate that has expired, of an authority that has not.
    pub fn start_tls_expired(directory: &Path) -> Registry {
        Registry::start_tls_since(directory, now().checked_sub((24 * 500).hours()).expect("a time"))
    }

    fn start_tls_since(directory: &Path, since: Timestamp) -> Registry {
        let ca = Ca::open_or_create(directory, since).expect("an authority");
        let (_, _, authority) = write_certificate(&ca, &directory.join("server"));
        let issued = ca.issue_server(&["127.0.0.1".to_owned()], since).expect("a certificate");
        let mut config = ServerConfig::clone(&server_config(&ca, &issued).expect("set up TLS"));
        config.alpn_protocols.clear();
        Registry::start_with(Some(Arc::new(config)), Some(authority))
    }

    fn start_with(tls: Option<Arc<ServerConfig>>, authority: Option<PathBuf>) -> Registry {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("the port");
        let mut content = Content::default();
        // By its root a registry says that it is one.
        content.documents.insert(String::new(), Document::new("application/json", b"{}".to_vec()));
        let (content, over) = (Arc::new(Mutex::new(content)), Arc::<AtomicBool>::default());
        let (served, ended) = (Arc::clone(&content), Arc::clone(&over));
        let server = std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if ended.load(Ordering::SeqCst) {
                    return;
                }
                let (content, tls) = (Arc::clone(&served), tls.clone());
                // A client that goes away, or doesn't trust the certificate, is no failure.
                std::thread::spawn(move || match tls.map(ServerConnection::new) {
                    None => serve(stream, &content),
                    Some(connection) => serve(StreamOwned::new(connection.expect("set up TLS"), stream), &content),
                });
            }
        });
        Registry { address, authority, content, over, server: Some(server) }
    }

    /// Puts an image there and gives its whole name, and its digest.
    pub fn put(&self, name: &str, tag: &str, image: &TestImage) -> (String, String) {
        let diff_ids: Vec<_> = image.layers.iter().map(|layer| &*layer.digest).collect();
        let config = json!({"os": "linux", "architecture": image.architecture, "config": image.config,
            "rootfs": {"type": "layers", "diff_ids": diff_ids}});
        let mut content = self.content.lock().expect("nobody panicked");
        let mut blob = |document: Document| {
            let descriptor =
                json!({"mediaType": document.kind, "digest": &*document.digest, "size": document.bytes.len()});
            content.documents.insert(format!("{name}/blobs/{}", document.digest), document);
            descriptor
        };
        let config = blob(Document::new(CONFIG, config.to_string().into_bytes()));
        let layers = image.layers.iter().map(|layer| {
            blob(match &layer.compressed {
                Some(bytes) => Document::new(COMPRESSED_LAYER, bytes.to_vec()),
                None => Document { kind: LAYER, digest: Arc::clone(&layer.digest), bytes: Arc::clone(&layer.bytes) },
            })
        });
        let layers: Vec<_> = layers.collect();
        let manifest = json!({"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers});
        let manifest = Document::new(MANIFEST, manifest.to_string().into_bytes());
        for version in [tag, &manifest.digest] {
            content.documents.insert(format!("{name}/manifests/{version}"), manifest.clone());
        }
        (format!("{}/{name}:{tag}", self.address), manifest.digest.to_string())
    }

    /// From now on it wants a user and a password, which this gives.
    pub fn lock(&self) -> (&'static str, &'static str) {
        self.content.lock().expect("nobody panicked").locked = true;
        (USER, PASSWORD)
    }

    /// Puts several images there as one, for the machines that they are for, and gives its whole name.
    pub fn put_index(&self, name: &str, tag: &str, images: &[TestImage]) -> String {
        let manifests = images.iter().map(|image| {
            let (_, digest) = self.put(name, image.architecture, image);
            let size = self.content.lock().expect("nobody panicked").documents[&format!("{name}/manifests/{digest}")]
                .bytes
                .len();
            let platform = json!({"os": "linux", "architecture": image.architecture});
            json!({"mediaType": MANIFEST, "digest": digest, "size": size, "platform": platform})
        });
        let manifests: Vec<Value> = manifests.collect();
        let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests});
        let mut content = self.content.lock().expect("nobody panicked");
        let index = Document::new(INDEX, index.to_string().into_bytes());
        content.documents.insert(format!("{name}/manifests/{tag}"), index);
        format!("{}/{name}:{tag}", self.address)
    }

    /// How it is reached, as the file of registries says it.
    pub fn setting(&self) -> Value {
        match &self.authority {
            None => json!({"plainHttp": true}),
            Some(authority) => json!({"authority": authority}),
        }
    }

    /// Writes the file that says how it is reached.
    pub fn settings(&self, path: &Path) {
        self.settings_as_mirror(path, &[]);
    }

    /// The same, where it also stands in for registries of these hosts.
    pub fn settings_as_mirror(&self, path: &Path, hosts: &[&str]) {
        let address = self.address.to_string();
        let mut settings = json!({});
        for host in hosts {
            settings[host] = json!({"mirrors": [address]});
        }
        settings[&address] = self.setting();
        // JSON is YAML, too.
        std::fs::write(path, settings.to_string()).expect("write a test's file");
    }

    /// Where it listens, as the names of its images begin.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        // Wakes it.
        let _ = TcpStream::connect(self.address);
        if let Some(server) = self.server.take() {
            let _ = server.join();
        }
    }
}

fn serve(stream: impl Read + Write, content: &Mutex<Content>) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut first = String::new();
    reader.read_line(&mut first)?;
    let mut authorization = String::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 || line.trim().is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("authorization")
        {
            value.trim().clone_into(&mut authorization);
        }
    }
    let mut words = first.split_whitespace();
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let path = path.split('?').next().unwrap_or_default().trim_start_matches("/v2/");
    let (may, found) = {
        let content = content.lock().expect("nobody panicked");
        (!content.locked || authorization == AUTHORIZATION, content.documents.get(path).cloned())
    };
    let stream = reader.get_mut();
    let Some(found) = found.filter(|_| may) else {
        let (status, more) = match may {
            true => ("404 Not Found", ""),
            false => ("401 Unauthorized", "WWW-Authenticate: Basic realm=\"test\"\r\n"),
        };
        write!(stream, "HTTP/1.1 {status}\r\n{more}Content-Length: 0\r\nConnection: close\r\n\r\n")?;
        return stream.flush();
    };
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Type: {}\r\nDocker-Content-Digest: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        found.kind,
        found.digest,
        found.bytes.len()
    )?;
    if method != "HEAD" {
        stream.write_all(&found.bytes)?;
    }
    stream.flush()
}
