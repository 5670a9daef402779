//! Images that a test makes, of files that it writes and of programs of this machine.
//!
//! Invariant: layers are made once and shared: a layer, and so an image, that is put into a registry twice takes its memory once.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, OnceLock};

use flate2::Compression;
use flate2::write::GzEncoder;
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};
use tar::{EntryType, Header};

/// A shell and the usual small programs in one file that needs no library.
const BUSYBOX: &str = "/bin/busybox";
/// Its programs that images have by name.
const PROGRAMS: &str = "cat chmod chown cp date echo env grep head hostname httpd id ln ls mkdir mv ps pwd rm sed sh sleep stat tail \
                        tar touch tr true umask wc wget";
/// What of this machine's Python is needed for a program that imports modules: their files, and what they were compiled into.
const FILES_OF_MODULES: &str = "
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
files = [getattr(module, attribute, None) for module in list(sys.modules.values()) for attribute in ('__file__', '__cached__')]
print(sys.executable, *sorted({file for file in files if file}), sep='\\n')
";

/// An image that a test makes: files in layers, and what its configuration says.
#[derive(Debug, Clone)]
pub struct TestImage {
    pub(crate) layers: Vec<Layer>,
    pub(crate) architecture: &'static str,
    /// As in an image's configuration: `Entrypoint`, `Cmd`, `Env`, `User`, `WorkingDir`.
    pub config: Value,
}

impl TestImage {
    /// An image with nothing but busybox, its programs by name, and lists of users with `app`, who is 1000 and in group 1001.
    ///
    /// # Panics
    /// Without Debian's busybox-static.
    pub fn busybox() -> TestImage {
        static LAYER: OnceLock<Layer> = OnceLock::new();
        let layer = LAYER.get_or_init(|| {
            let busybox = std::fs::read(BUSYBOX).expect("needs busybox-static; run ./tests/prerequisites");
            let mut files = Files::new();
            files.folder("bin", 0o755).folder("etc", 0o755).folder("tmp", 0o1777);
            files.file("bin/busybox", 0o755, &busybox);
            for name in PROGRAMS.split_whitespace() {
                files.link(&format!("bin/{name}"), "busybox");
            }
            files.file("etc/passwd", 0o644, b"root:x:0:0::/root:/bin/sh\napp:x:1000:1001::/home/app:/bin/sh\n");
            files.file("etc/group", 0o644, b"root:x:0:\napp:x:1001:\nstaff:x:50:app\n");
            files.end()
        });
        TestImage::of(layer.clone(), json!({}))
    }

    /// An image with nothing but the program `/sleep`.
    ///
    /// # Panics
    /// Without Debian's busybox-static.
    pub fn sleep() -> TestImage {
        let busybox = std::fs::read(BUSYBOX).expect("needs busybox-static; run ./tests/prerequisites");
        let mut files = Files::new();
        files.file("sleep", 0o755, &busybox);
        TestImage::of(files.end(), json!({"Entrypoint": ["/sleep"], "Cmd": ["1000"]}))
    }

    fn of(layer: Layer, config: Value) -> TestImage {
        let architecture = if std::env::consts::ARCH == "aarch64" { "arm64" } else { "amd64" };
        TestImage { layers: vec![layer], architecture, config }
    }

    /// With one more layer of files, by their paths.
    pub fn with_files(self, files: &[(&str, &str)]) -> TestImage {
        let mut layer = Files::new();
        for (path, text) in files {
            layer.file(path, 0o644, text.as_bytes());
        }
        self.with_layer(layer.end())
    }

    /// With one more layer on top.
    pub fn with_layer(mut self, layer: Layer) -> TestImage {
        self.layers.push(layer);
        self
    }

    /// The same that says this of the containers made of it.
    pub fn with_config(mut self, config: Value) -> TestImage {
        self.config = config;
        self
    }

    /// The same that says that it is for other machines.
    pub fn with_architecture(mut self, architecture: &'static str) -> TestImage {
        self.architecture = architecture;
        self
    }
}

/// A layer, which a registry sends as it is, or compressed.
#[derive(Debug, Clone)]
pub struct Layer {
    pub(crate) bytes: Arc<[u8]>,
    pub(crate) digest: Arc<str>,
    pub(crate) compressed: Option<Arc<[u8]>>,
}

impl Layer {
    /// The same that a registry sends compressed by gzip.
    pub fn compressed(mut self) -> Layer {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        let bytes = encoder.write_all(&self.bytes).and_then(|()| encoder.finish()).expect("write to memory");
        self.compressed = Some(bytes.into());
        self
    }
}

/// The files of a layer that is being made. All are root's.
pub struct Files {
    tar: tar::Builder<Vec<u8>>,
    /// Files of this machine that are in it.
    copied: BTreeSet<String>,
}

impl Files {
    /// None yet.
    #[allow(clippy::new_without_default)] // it is the beginning of a chain
    pub fn new() -> Files {
        Files { tar: tar::Builder::new(Vec::new()), copied: BTreeSet::new() }
    }

    /// Adds a folder, or says another mode of one that a layer below has.
    pub fn folder(&mut self, path: &str, mode: u32) -> &mut Files {
        self.entry(path, &mut header(EntryType::Directory, mode, 0), b"")
    }

    /// Adds a file. Folders above it that nobody adds are made, with mode 0755.
    pub fn file(&mut self, path: &str, mode: u32, content: &[u8]) -> &mut Files {
        self.entry(path, &mut header(EntryType::Regular, mode, content.len()), content)
    }

    /// Adds a symbolic link at `path`.
    pub fn link(&mut self, path: &str, target: &str) -> &mut Files {
        let mut header = header(EntryType::Symlink, 0o777, 0);
        self.tar.append_link(&mut header, path, target).expect("write to memory");
        self
    }

    /// Adds a file of this machine under its own path, and the libraries that it needs.
    ///
    /// # Panics
    /// When it is not there.
    pub fn of_machine(&mut self, path: &str) -> &mut Files {
        self.copy(path);
        let content = std::fs::read(path).unwrap_or_default();
        if content.starts_with(b"\x7fELF") {
            // It says of each library `NAME => PATH (ADDRESS)`, and of the loader `PATH (ADDRESS)`.
            let said = Command::new("ldd").arg(path).output().expect("run ldd").stdout;
            let said = String::from_utf8_lossy(&said).into_owned();
            for library in said.split_whitespace().filter(|word| word.starts_with('/')) {
                self.copy(library);
            }
        }
        self
    }

    /// Adds this machine's Python as `python3` and `python`, with these modules and what they import.
    ///
    /// # Panics
    /// Without a Python that has them.
    pub fn python(&mut self, modules: &[&str]) -> &mut Files {
        let found = Command::new("/usr/bin/python3").args(["-c", FILES_OF_MODULES]).args(modules).output();
        let found = found.expect("run python3");
        assert!(found.status.success(), "{found:?}");
        for path in String::from_utf8_lossy(&found.stdout).lines() {
            self.of_machine(path);
        }
        self.link("usr/bin/python", "python3")
    }

    fn copy(&mut self, path: &str) {
        if !self.copied.insert(path.to_owned()) {
            return;
        }
        let content = std::fs::read(path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let metadata = Path::new(path).metadata().expect("it was read");
        let mut header = header(EntryType::Regular, metadata.permissions().mode() & 0o7777, content.len());
        // Python uses what it has compiled only beside a source of the same time.
        header.set_mtime(metadata.mtime().unsigned_abs());
        self.entry(path.trim_start_matches('/'), &mut header, &content);
    }

    fn entry(&mut self, path: &str, header: &mut Header, content: &[u8]) -> &mut Files {
        self.tar.append_data(header, path, content).expect("write to memory");
        self
    }

    /// The layer of them.
    pub fn end(self) -> Layer {
        let bytes = self.tar.into_inner().expect("write to memory");
        Layer { digest: digest_of(&bytes).into(), bytes: bytes.into(), compressed: None }
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

/// As images name content.
pub(crate) fn digest_of(bytes: &[u8]) -> String {
    let mut text = "sha256:".to_owned();
    for byte in digest(&SHA256, bytes).as_ref() {
        write!(text, "{byte:02x}").expect("write to memory");
    }
    text
}
