//! The root directory of a container that sees of the host what programs need, and nothing of its people.
//!
//! It is an empty folder of the container's own, with views of the host's programs and of the settings that every program reads.
//! Invariant: what is on no list is not there; nothing of the host can be written, and no program of the host gains rights.
//! Called for pods of namespaces that enforce `restricted`, unless the image map gives the container a root of its own.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use nix::mount::{MsFlags, mount};
use nix::sys::stat::{FchmodatFlags, Mode, fchmodat};
use nix::unistd::{Gid, Uid, symlinkat};

use super::owners::Owners;
use super::{Attributes, Layers, RootError, UPPER, create_dir, escaped, mounted, new_tmpfs, not_made, view};
use crate::spec::ContainerSpec;
use pumice_linux::detached_mount::descriptor_path;
use pumice_linux::paths::{Missing, is_folder, open_in_root, open_path};

/// Folders of programs and their libraries; a link among them is the same link.
const PROGRAMS: [&str; 10] = ["usr", "opt", "nix", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "gnu"];
/// Folders of the container's own, and who may write there.
const OWN: [(&str, u32); 14] = [
    ("tmp", 0o1777),
    ("var", 0o755),
    ("var/tmp", 0o1777),
    ("var/cache", 0o755),
    ("var/lib", 0o755),
    ("home", 0o755),
    ("root", 0o700),
    ("run", 0o755),
    ("mnt", 0o755),
    ("srv", 0o755),
    ("etc", 0o755),
    ("proc", 0o555),
    ("sys", 0o555),
    ("dev", 0o755),
];
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

/// Makes it at `root`; what the container writes is in the upper folder of its layers.
pub(super) fn mount_root(
    owners: Owners<'_>,
    container: &ContainerSpec,
    layers: &Layers,
    root: &Path,
) -> Result<(), RootError> {
    let upper = layers.dir.join(UPPER);
    create_dir(&upper)?;
    fs::set_permissions(&upper, fs::Permissions::from_mode(0o755))
        .map_err(|source| RootError::Create { path: upper.clone(), source })?;
    owners.give_to_root(&upper)?;
    let own = view(&upper)?;
    let limits = Attributes::NO_SET_UID.and(Attributes::NO_DEVICES);
    let place = open(root)?;
    mounted("the root folder", root, own.restrict(limits).and_then(|()| own.attach(place.as_fd())))?;
    let _making = owners.make_as_root()?;
    // What is mounted now is reached by its name only.
    let root = open(root)?;
    for (name, mode) in OWN {
        make_folder(&root, name, mode)?;
    }
    for (to, name) in LINKS {
        symlinkat(to, &root, name).map_err(|errno| not_made(Path::new(name), errno))?;
    }
    let layer = container.layer.as_deref().map(|layer| owners.layer(layer, &layers.dir, "image")).transpose()?;
    let view_of = HostView { layer: layer.as_deref(), owners, dir: &layers.dir };
    for name in PROGRAMS {
        show(root.as_fd(), Path::new("/"), name, &view_of)?;
    }
    let etc =
        open_in_root(root.as_fd(), Path::new("etc"), Missing::Refuse).map_err(|source| not_there("etc", source))?;
    let settings = new_tmpfs(c"0755", c"256k", limits);
    let settings = settings.and_then(|settings| settings.attach(etc.as_fd()).map(|()| settings));
    let settings =
        settings.map_err(|source| RootError::Mount { what: "settings".into(), target: "/etc".into(), source })?;
    let view_of = HostView { layer: None, ..view_of };
    for name in SETTINGS {
        show(settings.as_fd(), Path::new("/etc"), name, &view_of)?;
    }
    make_home(&root, container, owners)
}

fn open(path: &Path) -> Result<OwnedFd, RootError> {
    open_path(path).map_err(|source| RootError::Source { path: path.into(), source })
}

fn not_there(name: &str, source: io::Error) -> RootError {
    RootError::Create { path: Path::new("/").join(name), source }
}

fn make_folder(root: &OwnedFd, name: &str, mode: u32) -> Result<(), RootError> {
    let path = Path::new(name);
    open_in_root(root.as_fd(), path, Missing::MakeFolder).map_err(|source| not_there(name, source))?;
    // The mode of what is made is cut by the process's mask.
    let mode = Mode::from_bits_truncate(mode);
    fchmodat(root, path, mode, FchmodatFlags::FollowSymlink).map_err(|errno| not_made(path, errno))
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
        if let Some(parent) = relative.parent() {
            open_in_root(place, parent, Missing::MakeFolder).map_err(not_shown)?;
        }
        let to = fs::read_link(&path).map_err(|source| RootError::Source { path: path.clone(), source })?;
        return symlinkat(&to, place, relative).map_err(|errno| not_made(&path, errno));
    }
    let missing = if found.is_dir() { Missing::MakeFolder } else { Missing::MakeFile };
    let target = open_in_root(place, relative, missing).map_err(not_shown)?;
    if let Some(over) = way.layer.map(|layer| layer.join(name)).filter(|over| over.is_dir()) {
        let lower = way.owners.layer(&path, way.dir, &format!("lower-{name}"))?;
        let options = format!("lowerdir={}:{}", escaped(&over), escaped(&lower));
        let flags = MsFlags::MS_RDONLY | MsFlags::MS_NODEV | MsFlags::MS_NOSUID;
        let at = descriptor_path(&target);
        let overlay = mount(Some("overlay"), at.as_str(), Some("overlay"), flags, Some(options.as_str()));
        return mounted("the image's layer", &path, overlay);
    }
    let shown = way.owners.view_of_host(&path)?;
    mounted("a folder of the host", &path, shown.restrict(VIEW).and_then(|()| shown.attach(target.as_fd())))
}

/// A home of the container's own, where its programs look for one.
fn make_home(root: &OwnedFd, container: &ContainerSpec, owners: Owners<'_>) -> Result<(), RootError> {
    let home = container.env.iter().rfind(|(name, _)| name == "HOME").map(|(_, value)| Path::new(value));
    let Some(home) = home.filter(|home| home.starts_with("/home")) else { return Ok(()) };
    let failed = |source| RootError::Create { path: home.into(), source };
    let made = open_in_root(root.as_fd(), home, Missing::MakeFolder).map_err(failed)?;
    if is_folder(&made).map_err(failed)? && Uid::effective().is_root() {
        let (uid, gid) = (Uid::from_raw(owners.uid(container.uid)), Gid::from_raw(owners.gid(container.gid)));
        let at = descriptor_path(&made);
        nix::unistd::chown(at.as_str(), Some(uid), Some(gid)).map_err(|errno| not_made(home, errno))?;
    }
    Ok(())
}
