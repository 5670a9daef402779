//! A folder of this machine as an image.

use std::collections::BTreeMap;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use flate2::write::GzEncoder;
use jiff::Timestamp;
use nix::fcntl::OFlag;
use serde_json::json;
use tar::{Builder, EntryType, Header};

use super::{ArchiveError, Parts, make_manifest, put, put_json};
use crate::digest::{Digest, Hasher};
use crate::manifest::{Compression, Layer, machine};
use crate::provide;
use crate::store::unpack::extended_attributes;
use crate::store::{ImageRecord, Spool, Store, StoreError};

/// What programs of an image are looked for in, as in Docker's images.
const PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What names of removed files begin with in an archive.
const WHITEOUT: &[u8] = b".wh.";
/// What fields for attributes begin with.
const ATTRIBUTE: &str = "SCHILY.xattr.";

/// A folder that becomes an image.
pub struct Folder<'a> {
    pub path: &'a Path,
    /// What the image is called.
    pub name: &'a str,
    /// Files and folders that are left out, such as the platform's own.
    pub without: &'a [PathBuf],
}

/// Makes an image of one layer of what is in a folder, on its file system. Devices and sockets are left out.
pub fn from_root(store: &Store, folder: &Folder<'_>, now: Timestamp) -> Result<ImageRecord, ArchiveError> {
    let name = provide::parse(folder.name)?.whole();
    let mut lease = store.lease(&[])?;
    let mut spool = store.spool()?;
    let diff_id = pack(&mut spool, folder).map_err(own_error)?;
    let layer = Layer { blob: spool.finish(&mut lease)?, compression: Compression::Gzip };
    let here = machine();
    let config = put_json(
        store,
        &mut lease,
        &json!({
            "created": now,
            "os": here.os().to_string(),
            "architecture": here.architecture().to_string(),
            "config": {"Env": [PATH], "Cmd": ["/bin/sh"]},
            "rootfs": {"type": "layers", "diff_ids": [diff_id]},
        }),
    )?;
    let manifest = make_manifest(store, &mut lease, &config, std::slice::from_ref(&layer))?;
    let parts = Parts { name, target: manifest.clone(), manifest, config, layers: vec![layer] };
    put(store, &mut lease, parts, now)
}

/// Writes the folder's archive, compressed; its digest is of what it was before.
fn pack(spool: &mut Spool<'_>, folder: &Folder<'_>) -> Result<Digest, ArchiveError> {
    let gzip = GzEncoder::new(Sink { spool }, flate2::Compression::fast());
    let packed = Packed { gzip, hasher: Hasher::new() };
    let mut walk = Walk { archive: Builder::new(packed), links: BTreeMap::new(), without: folder.without };
    walk.folder(folder.path)?;
    let packed = walk.archive.into_inner().map_err(ArchiveError::Write)?;
    packed.finish().map_err(ArchiveError::Write)
}

/// Where the archive goes.
struct Sink<'a, 's> {
    spool: &'a mut Spool<'s>,
}

impl Write for Sink<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.spool.append(bytes) {
            Ok(()) => Ok(bytes.len()),
            Err(error) => Err(io::Error::other(error)),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Compresses the archive, and has the digest of what it was.
struct Packed<W: Write> {
    gzip: GzEncoder<W>,
    hasher: Hasher,
}

impl<W: Write> Packed<W> {
    fn finish(self) -> io::Result<Digest> {
        self.gzip.finish()?;
        Ok(self.hasher.finish())
    }
}

impl<W: Write> Write for Packed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.gzip.write(bytes)?;
        self.hasher.update(bytes.get(..count).unwrap_or_default());
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.gzip.flush()
    }
}

/// The store's own error, where it is the reason.
fn own_error(error: ArchiveError) -> ArchiveError {
    match error {
        ArchiveError::Write(error) => match error.downcast::<StoreError>() {
            Ok(error) => error.into(),
            Err(error) => ArchiveError::Write(error),
        },
        error => error,
    }
}

struct Walk<'a, W: Write> {
    archive: Builder<W>,
    /// The first names of files that have several.
    links: BTreeMap<(u64, u64), Vec<u8>>,
    without: &'a [PathBuf],
}

impl<W: Write> Walk<'_, W> {
    /// All of a folder, in the order of names.
    fn folder(&mut self, root: &Path) -> Result<(), ArchiveError> {
        let root = root.canonicalize().map_err(failed("opening", root))?;
        let device = fs::metadata(&root).map_err(failed("opening", &root))?.dev();
        let mut pending = vec![root.clone()];
        while let Some(path) = pending.pop() {
            let found = match fs::symlink_metadata(&path) {
                // Somebody works in the folder.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                found => found.map_err(failed("looking at", &path))?,
            };
            let name = path.strip_prefix(&root).unwrap_or(Path::new("")).as_os_str().as_bytes().to_owned();
            self.entry(&path, &name, &found)?;
            // What is mounted in it is another's.
            if !found.is_dir() || found.dev() != device {
                continue;
            }
            let entries = fs::read_dir(&path).and_then(Iterator::collect::<io::Result<Vec<_>>>);
            let mut paths: Vec<_> = entries.map_err(failed("listing", &path))?.iter().map(fs::DirEntry::path).collect();
            paths.retain(|path| !self.without.contains(path));
            paths.sort_by(|a, b| b.cmp(a));
            pending.extend(paths);
        }
        Ok(())
    }

    fn entry(&mut self, path: &Path, name: &[u8], found: &Metadata) -> Result<(), ArchiveError> {
        let kind = found.file_type();
        if path.file_name().is_some_and(|name| name.as_bytes().starts_with(WHITEOUT)) {
            let error = io::Error::other("names in an image can't begin with .wh., which marks removed files");
            return Err(failed("taking", path)(error));
        }
        let mut entry = Entry { name: name.to_owned(), header: header(found), target: Vec::new(), fields: Vec::new() };
        if kind.is_dir() {
            entry.name = if name.is_empty() { b"./".to_vec() } else { [name, b"/"].concat() };
            entry.header.set_entry_type(EntryType::Directory);
            entry.fields = attributes(&open(path, OFlag::O_DIRECTORY)?, path)?;
            return self.append(path, entry, io::empty());
        }
        if kind.is_symlink() {
            entry.header.set_entry_type(EntryType::Symlink);
            entry.target = fs::read_link(path).map_err(failed("reading", path))?.into_os_string().into_encoded_bytes();
            return self.append(path, entry, io::empty());
        }
        if kind.is_fifo() {
            entry.header.set_entry_type(EntryType::Fifo);
            return self.append(path, entry, io::empty());
        }
        if !kind.is_file() {
            return Ok(());
        }
        if found.nlink() > 1 {
            if let Some(first) = self.links.get(&(found.dev(), found.ino())).cloned() {
                entry.header.set_entry_type(EntryType::Link);
                entry.target = first;
                return self.append(path, entry, io::empty());
            }
            self.links.insert((found.dev(), found.ino()), name.to_owned());
        }
        let file = open(path, OFlag::O_NONBLOCK)?;
        let size = file.metadata().map_err(failed("reading", path))?.len();
        entry.header.set_entry_type(EntryType::Regular);
        entry.header.set_size(size);
        entry.fields = attributes(&file, path)?;
        self.append(path, entry, Exactly { file, left: size })
    }

    fn append(&mut self, path: &Path, entry: Entry, data: impl io::Read) -> Result<(), ArchiveError> {
        let Entry { name, mut header, target, mut fields } = entry;
        let old = header.as_old_mut();
        for (key, value, field) in [("path", name, &mut old.name), ("linkpath", target, &mut old.linkname)] {
            for (to, from) in field.iter_mut().zip(&value) {
                *to = *from;
            }
            if value.len() > field.len() {
                fields.push((key.to_owned(), value));
            }
        }
        header.set_cksum();
        if !fields.is_empty() {
            let fields = fields.iter().map(|(key, value)| (key.as_str(), value.as_slice()));
            self.archive.append_pax_extensions(fields).map_err(ArchiveError::Write)?;
        }
        self.archive.append(&header, data).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => failed("reading the whole of", path)(error),
            _ => ArchiveError::Write(error),
        })
    }
}

/// One file as the archive has it.
struct Entry {
    name: Vec<u8>,
    header: Header,
    target: Vec<u8>,
    /// What doesn't go into the header, by its keys of PAX.
    fields: Vec<(String, Vec<u8>)>,
}

/// As many bytes as the header says, though somebody may be writing to the file.
struct Exactly {
    file: File,
    left: u64,
}

impl io::Read for Exactly {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = (&mut self.file).take(self.left).read(buffer)?;
        if count == 0 && self.left > 0 && !buffer.is_empty() {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it became shorter meanwhile: try again"));
        }
        self.left -= u64::try_from(count).unwrap_or(u64::MAX);
        Ok(count)
    }
}

fn header(found: &Metadata) -> Header {
    let mut header = Header::new_ustar();
    header.set_mode(found.mode() & 0o7777);
    header.set_uid(found.uid().into());
    header.set_gid(found.gid().into());
    header.set_mtime(u64::try_from(found.mtime()).unwrap_or(0));
    header.set_size(0);
    header
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ArchiveError {
    let path = path.display().to_string();
    move |source| ArchiveError::Folder { action, path, source }
}

/// Opens what was looked at. No link that came in its place is followed, and no pipe is waited for.
fn open(path: &Path, kind: OFlag) -> Result<File, ArchiveError> {
    let flags = kind | OFlag::O_NOFOLLOW;
    OpenOptions::new().read(true).custom_flags(flags.bits()).open(path).map_err(failed("opening", path))
}

/// Fields for the attributes that images have.
fn attributes(file: &File, path: &Path) -> Result<Vec<(String, Vec<u8>)>, ArchiveError> {
    let found = extended_attributes(file).map_err(io::Error::from).map_err(failed("reading attributes of", path))?;
    let named = found
        .into_iter()
        .filter_map(|(name, value)| Some((format!("{ATTRIBUTE}{}", String::from_utf8(name).ok()?), value)));
    Ok(named.collect())
}
