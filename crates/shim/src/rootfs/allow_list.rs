//! The root directory of a container that sees of the host what programs need, and nothing of its people.
//!
//! It is a folder in memory that no ordinary user can write to, with views of the host's programs and of the settings that every
//! program reads. What the container writes is in folders on the disk, where it counts. Invariant: what is on no list is not there; nothing of the host can be written, and no program of the host gains rights.
//! Called for pods of namespaces that enforce `restricted`, unless the image map gives the container a root of its own.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::mount::{MsFlags, mount};
use nix::sys::stat::{FchmodatFlags, Mode, fchmodat, mkdirat};
use nix::unistd::{Gid, Uid, symlinkat};

use super::owners::Owners;
use super::{Attributes, Layers, RootError, UPPER, create_dir, escaped, mounted, new_tmpfs, not_made, view};
use crate::spec::ContainerSpec;
use pumice_linux::detached_mount::{DetachedMount, descriptor_path};
use pumice_linux::paths::{Missing, is_folder, open_in_root, open_path};

/// Folders of programs and their libraries; a link among them is the same link.
const PROGRAMS: [&str; 10] = ["usr", "opt", "nix", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "gnu"];
/// Folders of the container's own, those around others first.
const OWN: [(&str, u32); 11] = [
    ("var", 0o755),
    ("var/cache", 0o755),
    ("var/lib", 0o755),
    ("root", 0o700),
    ("run", 0o755),
    ("mnt", 0o755),
    ("srv", 0o755),
    ("etc", 0o755),
    ("proc", 0o555),
    ("sys", 0o555),
    ("dev", 0o755),
];
/// Folders in which users write, their places on the disk, and who may.
const WRITTEN: [(&str, u32); 3] = [("tmp", 0o1777), ("var/tmp", 0o1777), ("home", 0o755)];
/// The same of what is around them.
const AROUND_WRITTEN: &str = "var";
const LINKS: [(&str, &str); 2] = [("/run", "var/run"), ("/run/lock", "var/lock")];
/// Settings that programs of all kinds read, and that hold no secret: names of users, libraries, certificates, locales.
const SETTINGS: [&str; 41] = [
    "alternatives",
    "bash.bashrc",
    "ca-certificates",
    "ca-certificates.conf",
    "crypto-policies",
    "debian_version",
    "fonts",
    "gai.conf",
    "glvnd",
    "group",
    "host.conf",
    "inputrc",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "locale.alias",
    "locale.conf",
    "localtime",
    "magic",
    "magic.mime",
    "mime.types",
    "mtab",
    "netconfig",
    "networks",
    "nsswitch.conf",
    "openmpi",
    "os-release",
    "passwd",
    "pki/ca-trust",
    "pki/tls/certs",
    "profile",
    "protocols",
    "python3",
    "rpc",
    "services",
    "shells",
    "ssl/certs",
    "ssl/openssl.cnf",
    "terminfo",
    "timezone",
    "xattr.conf",
];
/// What the host shows can be neither changed nor used to gain rights.
const VIEW: Attributes = Attributes::READ_ONLY.and(Attributes::NO_SET_UID).and(Attributes::NO_DEVICES);

/// Makes it at `root`; what the container writes is in the upper folder of its layers. Returns the mounts by which it does.
pub(super) fn mount_root(
    owners: Owners<'_>,
    container: &ContainerSpec,
    layers: &Layers,
    root: &Path,
) -> Result<Vec<DetachedMount>, RootError> {
    let upper = layers.dir.join(UPPER);
    create_dir(&upper)?;
    fs::set_permissions(&upper, fs::Permissions::from_mode(0o755))
        .map_err(|source| RootError::Create { path: upper.clone(), source })?;
    owners.give_to_root(&upper)?;
    let limits = Attributes::NO_SET_UID.and(Attributes::NO_DEVICES);
    let _making = owners.make_as_root()?;
    // On a disk each folder would be a block, written and freed again.
    let own = new_tmpfs(c"0755", c"1m", limits);
    let own = own.and_then(|own| own.attach(open_path(root).map_err(errno)?.as_fd()).map(|()| own));
    let own =
        own.map_err(|source| RootError::Mount { what: "a folder in memory".into(), target: root.into(), source })?;
    let root = own.as_fd();
    for (name, mode) in OWN {
        make_folder(root, name, mode)?;
    }
    let disk = open(&upper)?;
    make_folder(disk.as_fd(), AROUND_WRITTEN, 0o755)?;
    let mut written = Vec::new();
    for (name, mode) in WRITTEN {
        make_folder(disk.as_fd(), name, mode)?;
        make_folder(root, name, 0o755)?;
        let place = in_root(root, name)?;
        let shown = view(&upper.join(name))?;
        mounted("a folder", Path::new(name), shown.restrict(limits).and_then(|()| shown.attach(place.as_fd())))?;
        written.push(shown);
    }
    for (to, name) in LINKS {
        symlinkat(to, root, name).map_err(|errno| not_made(Path::new(name), errno))?;
    }
    let layer = container.layer.as_deref().map(|layer| owners.layer(layer, &layers.dir, "image")).transpose()?;
    let view_of = HostView { layer: layer.as_deref(), owners, dir: &layers.dir };
    for name in PROGRAMS {
        show(root, Path::new("/"), name, &view_of)?;
    }
    let etc = in_root(root, "etc")?;
    let view_of = HostView { layer: None, ..view_of };
    for name in SETTINGS {
        show(etc.as_fd(), Path::new("/etc"), name, &view_of)?;
    }
    make_home(root, container, owners)?;
    Ok(written)
}

fn open(path: &Path) -> Result<OwnedFd, RootError> {
    open_path(path).map_err(|source| RootError::Source { path: path.into(), source })
}

fn errno(error: io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}

fn in_root(root: BorrowedFd<'_>, name: &str) -> Result<OwnedFd, RootError> {
    let opened = open_in_root(root, Path::new(name), Missing::Refuse);
    opened.map_err(|source| RootError::Create { path: Path::new("/").join(name), source })
}

/// Makes a folder where nobody else is yet.
fn make_folder(root: BorrowedFd<'_>, name: &str, mode: u32) -> Result<(), RootError> {
    let (path, wanted) = (Path::new(name), Mode::from_bits_truncate(mode));
    let made = mkdirat(root, path, wanted).and_then(|()| match mode & 0o022 {
        0 => Ok(()),
        // The mode of what is made is cut by the process's mask.
        _ => fchmodat(root, path, wanted, FchmodatFlags::FollowSymlink),
    });
    made.map_err(|errno| not_made(path, errno))
}

/// The place for something of the host, where nobody else is yet.
fn make_place(root: BorrowedFd<'_>, name: &Path, is_folder: bool) -> io::Result<OwnedFd> {
    let nested = name.components().nth(1).is_some();
    let flags = OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let made = match is_folder {
        _ if nested => Err(Errno::ENOTSUP),
        true => mkdirat(root, name, Mode::from_bits_truncate(0o755))
            .and_then(|()| openat(root, name, flags | OFlag::O_PATH | OFlag::O_DIRECTORY, Mode::empty())),
        false => openat(root, name, flags | OFlag::O_CREAT | OFlag::O_EXCL, Mode::from_bits_truncate(0o644)),
    };
    // Some names lie in another folder, or were made on the way to one.
    let missing = if is_folder { Missing::MakeFolder } else { Missing::MakeFile };
    made.or_else(|_| open_in_root(root, name, missing))
}

/// How folders of the host are shown.
struct HostView<'a> {
    /// What is laid over them.
    layer: Option<&'a Path>,
    owners: Owners<'a>,
    /// For layers of this container.
    dir: &'a Path,
}

/// Shows `name` of a folder of the host in `place`, where the host has it.
fn show(place: BorrowedFd<'_>, host: &Path, name: &str, way: &HostView<'_>) -> Result<(), RootError> {
    let (path, relative) = (host.join(name), Path::new(name));
    let Ok(found) = fs::symlink_metadata(&path) else { return Ok(()) };
    let not_shown = |source| RootError::Create { path: path.clone(), source };
    if found.is_symlink() {
        if let Some(parent) = relative.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            open_in_root(place, parent, Missing::MakeFolder).map_err(not_shown)?;
        }
        let to = fs::read_link(&path).map_err(|source| RootError::Source { path: path.clone(), source })?;
        return symlinkat(&to, place, relative).map_err(|errno| not_made(&path, errno));
    }
    let target = make_place(place, relative, found.is_dir()).map_err(not_shown)?;
    if let Some(over) = way.layer.map(|layer| layer.join(name)).filter(|over| over.is_dir()) {
        let lower = way.owners.layer(&path, way.dir, &format!("lower-{name}"))?;
        let options = format!("lowerdir={}:{}", escaped(&over), escaped(&lower));
        let flags = MsFlags::MS_RDONLY | MsFlags::MS_NODEV | MsFlags::MS_NOSUID;
        let at = descriptor_path(&target);
        let overlay = mount(Some("overlay"), at.as_str(), Some("overlay"), flags, Some(options.as_str()));
        return mounted("the image's layer", &path, overlay);
    }
    let shown = way.owners.view_of_host(&path, VIEW)?;
    mounted("a folder of the host", &path, shown.attach(target.as_fd()))
}

/// A home of the container's own, where its programs look for one.
fn make_home(root: BorrowedFd<'_>, container: &ContainerSpec, owners: Owners<'_>) -> Result<(), RootError> {
    let home = container.env.iter().rfind(|(name, _)| name == "HOME").map(|(_, value)| Path::new(value));
    let Some(home) = home.filter(|home| home.starts_with("/home")) else { return Ok(()) };
    let failed = |source| RootError::Create { path: home.into(), source };
    let made = open_in_root(root, home, Missing::MakeFolder).map_err(failed)?;
    if is_folder(&made).map_err(failed)? && Uid::effective().is_root() {
        let (uid, gid) = (Uid::from_raw(owners.uid(container.uid)), Gid::from_raw(owners.gid(container.gid)));
        let at = descriptor_path(&made);
        nix::unistd::chown(at.as_str(), Some(uid), Some(gid)).map_err(|errno| not_made(home, errno))?;
    }
    Ok(())
}
