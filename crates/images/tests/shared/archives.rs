//! Archives of layers, byte by byte, so that they can be wrong in every way; and a store to unpack them in.
#![allow(dead_code, reason = "each of the tests uses a part")]

use std::error::Error;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use pumice_images::digest::Digest;
use pumice_images::manifest::{Blob, Compression, Layer};
use pumice_images::store::{Begun, Limits, Origin, Store, StoreError};

/// One entry, with whatever it says of itself.
#[derive(Clone, Debug)]
pub struct Item {
    pub name: Vec<u8>,
    pub kind: u8,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub mtime: u64,
    /// What the header says, if it isn't the length of `data`.
    pub size: Option<u64>,
    pub data: Vec<u8>,
    pub link: Vec<u8>,
    pub device: (u32, u32),
    /// Fields of a PAX header before it.
    pub pax: Vec<(Vec<u8>, Vec<u8>)>,
    /// Changes to the header before its checksum is made.
    pub patches: Vec<(usize, Vec<u8>)>,
}

pub fn item(kind: u8, name: impl AsRef<[u8]>) -> Item {
    Item {
        name: name.as_ref().to_vec(),
        kind,
        mode: 0o644,
        uid: 0,
        gid: 0,
        mtime: 1_000_000_000,
        size: None,
        data: Vec::new(),
        link: Vec::new(),
        device: (0, 0),
        pax: Vec::new(),
        patches: Vec::new(),
    }
}

pub fn file(name: impl AsRef<[u8]>, data: impl AsRef<[u8]>) -> Item {
    Item { data: data.as_ref().to_vec(), ..item(b'0', name) }
}

pub fn folder(name: impl AsRef<[u8]>) -> Item {
    Item { mode: 0o755, ..item(b'5', name) }
}

pub fn symlink(name: impl AsRef<[u8]>, target: impl AsRef<[u8]>) -> Item {
    Item { link: target.as_ref().to_vec(), mode: 0o777, ..item(b'2', name) }
}

pub fn hard_link(name: impl AsRef<[u8]>, target: impl AsRef<[u8]>) -> Item {
    Item { link: target.as_ref().to_vec(), ..item(b'1', name) }
}

pub fn device(kind: u8, name: &str, major: u32, minor: u32) -> Item {
    Item { device: (major, minor), ..item(kind, name) }
}

impl Item {
    pub fn mode(self, mode: u32) -> Item {
        Item { mode, ..self }
    }

    pub fn size(self, size: u64) -> Item {
        Item { size: Some(size), ..self }
    }

    pub fn pax(mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Item {
        self.pax.push((key.as_ref().to_vec(), value.as_ref().to_vec()));
        self
    }

    pub fn patch(mut self, at: usize, bytes: impl AsRef<[u8]>) -> Item {
        self.patches.push((at, bytes.as_ref().to_vec()));
        self
    }

    /// Headers, content and filling.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut pax = self.pax.clone();
        if self.name.len() > 100 {
            pax.push((b"path".to_vec(), self.name.clone()));
        }
        if self.link.len() > 100 {
            pax.push((b"linkpath".to_vec(), self.link.clone()));
        }
        if !pax.is_empty() {
            let records: Vec<u8> = pax.iter().flat_map(|(key, value)| pax_record(key, value)).collect();
            bytes.extend(announcement(b'x', &records));
        }
        let size = self.size.unwrap_or(self.data.len() as u64);
        bytes.extend(header(self, size));
        bytes.extend(&self.data);
        bytes.resize(bytes.len().next_multiple_of(512), 0);
        bytes
    }
}

/// A header with content that says something of the next entry.
pub fn announcement(kind: u8, data: &[u8]) -> Vec<u8> {
    Item { data: data.to_vec(), ..item(kind, "announcement") }.bytes()
}

pub fn pax_record(key: &[u8], value: &[u8]) -> Vec<u8> {
    let rest = key.len() + value.len() + 3;
    let length = (1..8).map(|digits| rest + digits).find(|length| length.to_string().len() + rest == *length).unwrap();
    [length.to_string().as_bytes(), b" ", key, b"=", value, b"\n"].concat()
}

fn header(item: &Item, size: u64) -> [u8; 512] {
    let mut header = [0; 512];
    let put = |header: &mut [u8; 512], at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
    put(&mut header, 0, &item.name[..item.name.len().min(100)]);
    put(&mut header, 100, format!("{:07o}", item.mode).as_bytes());
    for (at, id) in [(108, item.uid), (116, item.gid)] {
        if id < 0o10_000_000 {
            put(&mut header, at, format!("{id:07o}").as_bytes());
        } else {
            put(&mut header, at, &[&[0x80, 0, 0, 0][..], &id.to_be_bytes()].concat());
        }
    }
    for (at, number) in [(124, size), (136, item.mtime)] {
        if number < 0o100_000_000_000 {
            put(&mut header, at, format!("{number:011o}").as_bytes());
        } else {
            put(&mut header, at, &[&[0x80, 0, 0, 0][..], &number.to_be_bytes()].concat());
        }
    }
    header[156] = item.kind;
    put(&mut header, 157, &item.link[..item.link.len().min(100)]);
    put(&mut header, 257, b"ustar\x0000");
    put(&mut header, 329, format!("{:07o}", item.device.0).as_bytes());
    put(&mut header, 337, format!("{:07o}", item.device.1).as_bytes());
    for (at, bytes) in &item.patches {
        put(&mut header, *at, bytes);
    }
    put(&mut header, 148, b"        ");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    put(&mut header, 148, format!("{sum:06o}\0 ").as_bytes());
    header
}

/// An archive of these entries.
pub fn tar(items: &[Item]) -> Vec<u8> {
    let mut bytes: Vec<u8> = items.iter().flat_map(Item::bytes).collect();
    bytes.extend([0; 1024]);
    bytes
}

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

pub fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::stream::encode_all(bytes, 3).unwrap()
}

/// Brings a blob into a store.
pub fn put(store: &Store, bytes: &[u8]) -> Blob {
    let blob = Blob { digest: Digest::of(bytes), size: bytes.len() as u64 };
    if let Begun::Now(mut download) = store.download(&blob, &Origin::Public).unwrap() {
        download.restart().unwrap();
        download.append(bytes).unwrap();
        download.finish().unwrap();
    }
    blob
}

/// Unpacks a blob whose archive has this digest.
pub fn unpack(store: &Store, blob: &[u8], diff_id: &Digest) -> Result<PathBuf, StoreError> {
    let layer = Layer { blob: put(store, blob), compression: Compression::Plain };
    store.unpack(&layer, diff_id).map(|_| store.layer_dir(diff_id))
}

/// Unpacks an archive of these entries.
pub fn unpack_items(store: &Store, items: &[Item]) -> Result<PathBuf, StoreError> {
    let bytes = tar(items);
    unpack(store, &bytes, &Digest::of(&bytes))
}

/// An error with its causes.
pub fn text(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// Bounds that small archives reach.
pub fn small_limits() -> Limits {
    Limits {
        layer_bytes_max: 32 << 20,
        entries_max: 20_000,
        window_log_max: 23,
        reserve_percent: 0,
        ..Limits::default()
    }
}

/// Runs a test with a file system in memory of so many megabytes, which nobody else has; a plain folder without root.
pub fn on_its_own_disk(megabytes: u32, test: impl FnOnce(&Path) + Send) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().canonicalize().unwrap();
    std::thread::scope(|scope| {
        let run = scope.spawn(|| {
            if is_root() {
                unshare(CloneFlags::CLONE_FS | CloneFlags::CLONE_NEWNS).unwrap();
                mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>).unwrap();
                let size = format!("size={megabytes}m");
                mount(Some("tmpfs"), &path, Some("tmpfs"), MsFlags::empty(), Some(size.as_str())).unwrap();
            }
            test(&path);
        });
        if let Err(panic) = run.join() {
            std::panic::resume_unwind(panic);
        }
    });
}

pub fn is_root() -> bool {
    nix::unistd::Uid::effective().is_root()
}

/// All that is in a folder but below `but`: names, inodes, kinds and modes, owners, sizes, times.
pub fn listing(dir: &Path, but: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        let found = fs::symlink_metadata(&folder).unwrap();
        let times = (found.mtime(), found.mtime_nsec(), found.ctime(), found.ctime_nsec());
        let what = (found.ino(), found.mode(), found.nlink(), found.uid(), found.gid(), found.len());
        lines.push(format!("{} {what:?} {times:?}", folder.display()));
        if found.is_dir() && folder != but {
            folders.extend(fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    lines.sort();
    lines
}

/// What is below a layer's folder, by relative names.
pub fn names(dir: &Path) -> Vec<String> {
    let mut names = Vec::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let entry = entry.unwrap();
            names.push(entry.path().strip_prefix(dir).unwrap().to_string_lossy().into_owned());
            if entry.file_type().unwrap().is_dir() {
                folders.push(entry.path());
            }
        }
    }
    names.sort();
    names
}

/// An extended attribute, if it is there.
#[allow(unsafe_code)]
pub fn attribute(path: &Path, name: &str) -> Option<Vec<u8>> {
    let path = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).unwrap();
    let name = std::ffi::CString::new(name).unwrap();
    let mut value = vec![0_u8; 70_000];
    // SAFETY: the kernel writes at most the given length into a buffer that is ours for the length of the call.
    let length = unsafe { libc::lgetxattr(path.as_ptr(), name.as_ptr(), value.as_mut_ptr().cast(), value.len()) };
    value.truncate(usize::try_from(length).ok()?);
    Some(value)
}
