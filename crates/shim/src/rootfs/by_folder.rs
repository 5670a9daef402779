//! The host's root for a user without root, each top folder an overlay of its own: the kernel locks the mounts on the host's tree
//! there, so that the whole of it can't be one lower layer.
//!
//! Invariant: nothing of the host is written to. A folder in which something is mounted can't be a lower layer either: that of what is
//! in it is, or is shown read-only.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::symlink;
use std::path::Path;

use nix::fcntl::{OFlag, open};
use nix::mount::{MsFlags, mount};
use nix::sys::stat::Mode;

use super::{UPPER, escaped};
use pumice_linux::detached_mount::{Attributes, DetachedMount};
use pumice_linux::paths::open_path;

const NONE: Option<&str> = None;
/// Entries of one folder that are mounted one by one, each of which takes some time.
const ENTRIES_MAX: usize = 512;
/// The folder that programs must be able to write to: with more entries it is empty in a container, and others can't be changed.
const TEMPORARY: &str = "tmp";
/// Folders that every container has of its own.
const OWN: [&str; 3] = ["proc", "sys", "dev"];

/// Makes `root` look like the host's root: an overlay for each folder, whose layers are in `layers`,
/// with an image's layer over it. Returns the mounts through which it takes writes, beside its own.
pub(crate) fn mount_folders(root: &Path, layers: &Path, image: Option<&Path>) -> io::Result<Vec<OwnedFd>> {
    let mut folders = Folders { layers, written: Vec::new() };
    mount(Some("tmpfs"), root, Some("tmpfs"), MsFlags::MS_NODEV, Some("mode=0755"))?;
    for entry in fs::read_dir("/")? {
        let entry = entry?;
        let (name, path) = (entry.file_name(), entry.path());
        if OWN.iter().any(|own| name == *own) {
            continue;
        }
        let (target, kind) = (root.join(&name), entry.file_type()?);
        if kind.is_symlink() {
            symlink(fs::read_link(&path)?, &target)?;
        } else if kind.is_dir() {
            fs::create_dir(&target)?;
            let over = image.map(|image| image.join(&name)).filter(|over| over.is_dir());
            folders.mount(&path, over.as_deref(), &target, Path::new(&name))?;
        }
    }
    for entry in image.map(fs::read_dir).transpose()?.into_iter().flatten() {
        let (name, path) = {
            let entry = entry?;
            (entry.file_name(), entry.path())
        };
        let target = root.join(&name);
        // A folder that the host does not have is the image's alone.
        if path.is_dir() && !target.exists() {
            fs::create_dir(&target)?;
            folders.mount(&path, None, &target, Path::new(&name))?;
        }
    }
    Ok(folders.written)
}

struct Folders<'a> {
    /// Where what is written to them goes.
    layers: &'a Path,
    written: Vec<OwnedFd>,
}

impl Folders<'_> {
    fn mount(&mut self, path: &Path, over: Option<&Path>, target: &Path, name: &Path) -> io::Result<()> {
        let (upper, work) = (self.layers.join(UPPER).join(name), self.layers.join("work").join(name));
        fs::create_dir_all(&upper)?;
        fs::create_dir_all(&work)?;
        if let Ok(found) = fs::metadata(path) {
            // The upper folder's mode is the folder's; this user must be able to enter it later.
            fs::set_permissions(&upper, found.permissions())?;
        }
        let lowers: Vec<String> = over.into_iter().chain([path]).map(escaped).collect();
        let (upper, work) = (escaped(&upper), escaped(&work));
        let options = format!("lowerdir={},upperdir={upper},workdir={work},userxattr", lowers.join(":"));
        match mount(Some("overlay"), target, Some("overlay"), MsFlags::MS_NODEV, Some(options.as_str())) {
            Ok(()) => self.note(target),
            Err(errno) if over.is_some() => Err(errno.into()),
            // Something is mounted within it, which an overlay would uncover.
            Err(_) => self.mount_entries(path, target, name),
        }
    }

    /// Makes a folder of the container's own look like one of the host's: an overlay for each folder in it. Files, and folders that
    /// are no lower layers either, are as they are, but can't be changed.
    fn mount_entries(&mut self, path: &Path, target: &Path, name: &Path) -> io::Result<()> {
        let is_top = name.components().count() == 1;
        let entries: Vec<_> = match fs::read_dir(path) {
            Ok(entries) if is_top => entries.take(ENTRIES_MAX + 1).collect::<io::Result<_>>()?,
            // It is not to be read, or lies deeper.
            _ => return show(path, target),
        };
        if entries.len() > ENTRIES_MAX && name != Path::new(TEMPORARY) {
            return show(path, target);
        }
        let own = self.layers.join("own").join(name);
        fs::create_dir_all(&own)?;
        fs::set_permissions(&own, fs::metadata(path)?.permissions())?;
        mount(Some(&own), target, NONE, MsFlags::MS_BIND, NONE)?;
        self.note(target)?;
        if entries.len() > ENTRIES_MAX {
            return Ok(());
        }
        for entry in entries {
            let (name, path, target) = (name.join(entry.file_name()), entry.path(), target.join(entry.file_name()));
            let kind = entry.file_type()?;
            if kind.is_symlink() {
                symlink(fs::read_link(&path)?, &target)?;
            } else if kind.is_dir() {
                fs::create_dir(&target)?;
                self.mount(&path, None, &target, &name)?;
            } else {
                fs::write(&target, "")?;
                show(&path, &target)?;
            }
        }
        Ok(())
    }

    fn note(&mut self, target: &Path) -> io::Result<()> {
        self.written.push(open_path(target)?);
        Ok(())
    }
}

/// Shows what the host has as it is, with what is mounted within it. Nothing that is written there would be thrown away, so nothing
/// can be.
fn show(path: &Path, target: &Path) -> io::Result<()> {
    let shown = DetachedMount::of_path(path).and_then(|shown| {
        // All of it or nothing: an older kernel could refuse writes to a folder but not to what is mounted within it.
        shown.restrict(Attributes::READ_ONLY)?;
        shown.attach(open(target, OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC, Mode::empty())?.as_fd())
    });
    shown.map_err(|errno| {
        let text = format!("{} can't be shown without letting it be written to: {errno}", path.display());
        io::Error::new(io::Error::from(errno).kind(), text)
    })
}
