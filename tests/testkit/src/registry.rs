//! A registry of images with images that a test makes.
//!
//! Invariant: it listens on the loopback alone, has what it was given and nothing else, and ends with the [`Registry`].

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use ring::digest::{SHA256, digest};
use serde_json::{Value, json};
use tar::{EntryType, Header};

/// The kinds of an image's parts.
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
/// A shell and the usual small programs in one file that needs no library.
const BUSYBOX: &str = "/bin/busybox";

/// An image that a test makes: files in layers, and what its configuration says.
#[derive(Debug, Clone, Default)]
pub struct TestImage {
    layers: Vec<Vec<u8>>,
    /// As in an image's configuration: `Entrypoint`, `Cmd`, `Env`, `User`, `WorkingDir`.
    pub config: Value,
}

impl TestImage {
    /// An image with nothing but busybox, its programs by name, and lists of users with `app`, who is 1000 and in group 1001.
    ///
    /// # Panics
    /// Without Debian's busybox-static.
    pub fn busybox() -> TestImage {
        let busybox = std::fs::read(BUSYBOX).expect("needs busybox-static; run ./tests/prerequisites");
        let mut layer = Layer::new();
        layer.folder("bin", 0o755).folder("etc", 0o755).folder("tmp", 0o1777);
        layer.file("bin/busybox", 0o755, &busybox);
        for name in ["sh", "cat", "echo", "env", "id", "ls", "pwd", "sleep", "touch", "true", "umask"] {
            layer.link(&format!("bin/{name}"), "busybox");
        }
        layer.file("etc/passwd", 0o644, b"root:x:0:0::/root:/bin/sh\napp:x:1000:1001::/home/app:/bin/sh\n");
        layer.file("etc/group", 0o644, b"root:x:0:\napp:x:1001:\nstaff:x:50:app\n");
        TestImage { layers: vec![layer.end()], config: json!({}) }
    }

    /// With one more layer of files, by their paths.
    pub fn with_files(mut self, files: &[(&str, &str)]) -> TestImage {
        let mut layer = Layer::new();
        for (path, text) in files {
            layer.file(path, 0o644, text.as_bytes());
        }
        self.layers.push(layer.end());
        self
    }

    /// The same that says this of the containers made of it.
    pub fn with_config(mut self, config: Value) -> TestImage {
        self.config = config;
        self
    }
}

/// A layer that is being written.
struct Layer {
    tar: tar::Builder<Vec<u8>>,
}

impl Layer {
    fn new() -> Layer {
        Layer { tar: tar::Builder::new(Vec::new()) }
    }

    fn folder(&mut self, path: &str, mode: u32) -> &mut Layer {
        self.entry(path, EntryType::Directory, mode, b"")
    }

    fn file(&mut self, path: &str, mode: u32, content: &[u8]) -> &mut Layer {
        self.entry(path, EntryType::Regular, mode, content)
    }

    fn link(&mut self, path: &str, target: &str) -> &mut Layer {
        let mut header = header(EntryType::Symlink, 0o777, 0);
        self.tar.append_link(&mut header, path, target).expect("write to memory");
        self
    }

    fn entry(&mut self, path: &str, kind: EntryType, mode: u32, content: &[u8]) -> &mut Layer {
        self.tar.append_data(&mut header(kind, mode, content.len()), path, content).expect("write to memory");
        self
    }

    fn end(self) -> Vec<u8> {
        self.tar.into_inner().expect("write to memory")
    }
}

/// Root's, of the second after the first, so that each run makes the same.
fn header(kind: EntryType, mode: u32, size: usize) -> Header {
    let mut header = Header::new_ustar();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_mtime(1);
    header.set_size(size as u64);
    header.set_uid(0);
    header.set_gid(0);
    header
}

fn digest_of(bytes: &[u8]) -> String {
    let hex: String = digest(&SHA256, bytes).as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

/// Documents by their paths below `/v2/`, with their kinds.
type Documents = BTreeMap<String, (String, Vec<u8>)>;

/// A registry that runs, without TLS.
pub struct Registry {
    address: SocketAddr,
    documents: Arc<Mutex<Documents>>,
    over: Arc<AtomicBool>,
    server: Option<JoinHandle<()>>,
}

impl Registry {
    /// Starts one, with no image in it.
    pub fn start() -> Registry {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("the port");
        let (documents, over) = (Arc::<Mutex<Documents>>::default(), Arc::<AtomicBool>::default());
        let (served, ended) = (Arc::clone(&documents), Arc::clone(&over));
        let server = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if ended.load(Ordering::SeqCst) {
                    return;
                }
                let documents = Arc::clone(&served);
                std::thread::spawn(move || stream.map(|stream| serve(stream, &documents)));
            }
        });
        Registry { address, documents, over, server: Some(server) }
    }

    /// Puts an image there and gives its whole name, and its digest.
    pub fn put(&self, name: &str, tag: &str, image: &TestImage) -> (String, String) {
        let mut documents = self.documents.lock().expect("nobody panicked");
        let mut blob = |kind: &str, bytes: Vec<u8>| {
            let (digest, size) = (digest_of(&bytes), bytes.len());
            documents.insert(format!("{name}/blobs/{digest}"), (kind.to_owned(), bytes));
            json!({"mediaType": kind, "digest": digest, "size": size})
        };
        let architecture = if std::env::consts::ARCH == "aarch64" { "arm64" } else { "amd64" };
        let diff_ids: Vec<_> = image.layers.iter().map(|layer| digest_of(layer)).collect();
        let config = json!({"os": "linux", "architecture": architecture, "config": image.config,
            "rootfs": {"type": "layers", "diff_ids": diff_ids}});
        let config = blob(CONFIG, config.to_string().into_bytes());
        let layers: Vec<_> = image.layers.iter().map(|layer| blob(LAYER, layer.clone())).collect();
        let manifest = json!({"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers});
        let manifest = manifest.to_string().into_bytes();
        let digest = digest_of(&manifest);
        for version in [tag, &digest] {
            documents.insert(format!("{name}/manifests/{version}"), (MANIFEST.to_owned(), manifest.clone()));
        }
        (format!("{}/{name}:{tag}", self.address), digest)
    }

    /// Writes the file that says that it has no TLS.
    pub fn settings(&self, path: &Path) {
        std::fs::write(path, format!("'{}': {{plainHttp: true}}\n", self.address)).expect("write a test's file");
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

fn serve(stream: TcpStream, documents: &Mutex<Documents>) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut first = String::new();
    reader.read_line(&mut first)?;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 || line.trim().is_empty() {
            break;
        }
    }
    let mut words = first.split_whitespace();
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let found = documents.lock().expect("nobody panicked").get(path.trim_start_matches("/v2/")).cloned();
    let mut stream = reader.into_inner();
    let Some((kind, bytes)) = found else {
        return stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    };
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nDocker-Content-Digest: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        digest_of(&bytes),
        bytes.len()
    );
    stream.write_all(head.as_bytes())?;
    if method == "HEAD" { Ok(()) } else { stream.write_all(&bytes) }
}
