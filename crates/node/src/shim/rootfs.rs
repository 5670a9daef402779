//! A container's root directory: an overlay over the host or over a folder, with its own `/proc`,
//! `/dev` and volumes.
//!
//! Invariant: with an overlay nothing of the host is written but volumes. Everything is mounted in
//! the container's own mount namespace, so that it is gone with its last process. Runs as pid 1 of
//! the container, before its program.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::{chdir, pivot_root};

use super::hostmounts;
use super::rootless;
use super::spec::{ContainerSpec, MountSpec, RootKind, ShimSpec};
use crate::paths::resolve_in_root;

/// Why a container has no root directory.
#[derive(Debug, thiserror::Error)]
pub enum RootError {
    /// A mount failed.
    #[error("can't mount {what} at {}", target.display())]
    Mount {
        /// What was to be mounted.
        what: String,
        /// Where.
        target: PathBuf,
        /// Why not.
        #[source]
        source: nix::Error,
    },
    /// A file or directory could not be made.
    #[error("can't create {}", path.display())]
    Create {
        /// Which.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// What is to be mounted is not there.
    #[error("can't find {} to mount it", path.display())]
    Source {
        /// Which.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// Without an overlay, mount points are not made in the host's own tree.
    #[error("{} does not exist on this host, and without an overlay it is not created", path.display())]
    MountPointMissing {
        /// Which.
        path: PathBuf,
    },
    /// A layer needs an overlay.
    #[error("can't lay {} over the host's root: this host has no overlay file system", layer.display())]
    NoOverlay {
        /// The folder of the image map.
        layer: PathBuf,
    },
    /// The root could not be entered.
    #[error("can't enter the root directory")]
    Enter(#[source] nix::Error),
}

/// Where one run of a container keeps its layers.
#[derive(Debug, Clone)]
pub(crate) struct Layers {
    /// A directory for this run alone.
    pub dir: PathBuf,
    /// The pod's shared memory, already mounted by the shim.
    pub shared_memory: PathBuf,
    /// The file for the container's last message.
    pub termination: PathBuf,
}

const NONE: Option<&str> = None;

/// Makes the root directory and moves this process into it.
pub(crate) fn enter(spec: &ShimSpec, container: &ContainerSpec, layers: &Layers) -> Result<(), RootError> {
    let root = layers.dir.join("root");
    let kind = spec.isolation.root;
    mount_root(kind, container, layers, &root)?;
    if container.root.is_none() && kind != RootKind::Host {
        for found in hostmounts::visible(&spec.hidden) {
            // A file system that can't be shown is missing in the container, as it is for most images.
            let _ = bind(&found, &root, &found, true, kind);
        }
    }
    mount_proc(&root, container.privileged, spec.isolation.user)?;
    mount_sys(&root);
    mount_dev(&root, container, layers)?;
    let mut mounts: Vec<&MountSpec> = container.mounts.iter().collect();
    mounts.sort_by_key(|mount| mount.target.components().count());
    for volume in mounts {
        let source = volume_source(volume)?;
        bind(&source, &root, &volume.target, volume.read_only, kind)?;
    }
    // After the volumes: one of the host's folders may hold what is to be hidden.
    hide(&spec.hidden, &root)?;
    if !container.termination_message_path.is_empty() {
        bind(&layers.termination, &root, Path::new(&container.termination_message_path), false, kind)?;
    }
    make(&root, Path::new(&container.cwd), true, kind)?;
    if container.read_only_root {
        remount_read_only(&root)?;
    }
    pivot(&root)
}

fn mount_root(kind: RootKind, container: &ContainerSpec, layers: &Layers, root: &Path) -> Result<(), RootError> {
    let lower = container.root.as_deref().unwrap_or(Path::new("/"));
    if kind == RootKind::OverlayInMemory {
        let flags = MsFlags::MS_NODEV;
        mounted("memory", &layers.dir, mount(Some("tmpfs"), &layers.dir, Some("tmpfs"), flags, Some("mode=0700")))?;
    }
    create_dir(root)?;
    if kind == RootKind::OverlayByFolder && container.root.is_none() {
        let folders = rootless::mount_folders(root, &layers.dir, container.layer.as_deref());
        return folders.map_err(|source| RootError::Create { path: root.into(), source });
    }
    if kind == RootKind::Host {
        if let Some(layer) = &container.layer {
            return Err(RootError::NoOverlay { layer: layer.clone() });
        }
        let flags = MsFlags::MS_BIND | MsFlags::MS_REC;
        return mounted("the root folder", root, mount(Some(lower), root, NONE, flags, NONE));
    }
    let (upper, work) = (layers.dir.join("upper"), layers.dir.join("work"));
    create_dir(&upper)?;
    create_dir(&work)?;
    let mut lowers = escaped(lower);
    if let Some(layer) = &container.layer {
        lowers = format!("{}:{lowers}", escaped(&apart(layer, &layers.dir)?));
    }
    let mut options = format!("lowerdir={lowers},upperdir={},workdir={}", escaped(&upper), escaped(&work));
    if kind == RootKind::OverlayByFolder {
        options.push_str(",userxattr");
    }
    // The upper layer is thrown away, so the kernel need not bring it to the disk for anybody.
    let volatile = format!("{options},volatile");
    let overlay = |options: &str| mount(Some("overlay"), root, Some("overlay"), MsFlags::MS_NODEV, Some(options));
    mounted("the overlay", root, overlay(&volatile).or_else(|_| overlay(&options)))?;
    // The upper directory's mode is the root directory's.
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(root, mode).map_err(|source| RootError::Create { path: root.into(), source })
}

/// A view of `layer` that the kernel takes for a file system of its own: it refuses a lower layer that lies within
/// another one, and every folder lies within the host's root.
fn apart(layer: &Path, dir: &Path) -> Result<PathBuf, RootError> {
    let (view, empty) = (dir.join("layer"), dir.join("empty"));
    create_dir(&view)?;
    create_dir(&empty)?;
    let options = format!("lowerdir={}:{}", escaped(layer), escaped(&empty));
    let overlay = mount(Some("overlay"), &view, Some("overlay"), MsFlags::MS_RDONLY, Some(options.as_str()));
    mounted("the image's layer", &view, overlay)?;
    Ok(view)
}

/// Separators in the options of an overlay are escaped by a backslash.
pub(crate) fn escaped(path: &Path) -> String {
    let text = path.to_string_lossy();
    text.chars().flat_map(|c| matches!(c, '\\' | ':' | ',').then_some('\\').into_iter().chain([c])).collect()
}

fn hide(hidden: &[PathBuf], root: &Path) -> Result<(), RootError> {
    for path in hidden {
        let target = resolved(root, path)?;
        if target.is_dir() && target != root {
            let flags = MsFlags::MS_RDONLY | MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
            let hidden = mount(Some("tmpfs"), &target, Some("tmpfs"), flags, Some("mode=0000,size=4k"));
            mounted("nothing", &target, hidden)?;
        }
    }
    Ok(())
}

fn mount_proc(root: &Path, privileged: bool, user: bool) -> Result<(), RootError> {
    let target = root.join("proc");
    create_dir(&target)?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    let own = mount(Some("proc"), &target, Some("proc"), flags, NONE);
    if own.is_err() && user {
        // Where parts of /proc are covered, an ordinary user gets no fresh one.
        let flags = MsFlags::MS_BIND | MsFlags::MS_REC;
        return mounted("proc", &target, mount(Some("/proc"), &target, NONE, flags, NONE));
    }
    mounted("proc", &target, own)?;
    if privileged || user {
        return Ok(());
    }
    for name in ["sys", "sysrq-trigger", "irq", "bus"] {
        let path = target.join(name);
        if mount(Some(&path), &path, NONE, MsFlags::MS_BIND | MsFlags::MS_REC, NONE).is_ok() {
            remount_read_only(&path)?;
        }
    }
    for name in ["kcore", "keys", "timer_list"] {
        let _ = mount(Some("/dev/null"), &target.join(name), NONE, MsFlags::MS_BIND, NONE);
    }
    Ok(())
}

/// Programs run without `/sys` too, so a host that does not let us show it is no reason to stop.
fn mount_sys(root: &Path) {
    let target = root.join("sys");
    let flags = MsFlags::MS_RDONLY | MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    if create_dir(&target).is_ok() && mount(Some("sysfs"), &target, Some("sysfs"), flags, NONE).is_err() {
        let _ = mount(Some("/sys"), &target, NONE, MsFlags::MS_BIND | MsFlags::MS_REC, NONE);
    }
}

const DEVICES: [(&str, u64, u64); 6] =
    [("null", 1, 3), ("zero", 1, 5), ("full", 1, 7), ("random", 1, 8), ("urandom", 1, 9), ("tty", 5, 0)];
const LINKS: [(&str, &str); 5] = [
    ("/proc/self/fd", "fd"),
    ("/proc/self/fd/0", "stdin"),
    ("/proc/self/fd/1", "stdout"),
    ("/proc/self/fd/2", "stderr"),
    ("pts/ptmx", "ptmx"),
];

fn mount_dev(root: &Path, container: &ContainerSpec, layers: &Layers) -> Result<(), RootError> {
    let target = root.join("dev");
    create_dir(&target)?;
    if container.privileged {
        let flags = MsFlags::MS_BIND | MsFlags::MS_REC;
        return mounted("devices", &target, mount(Some("/dev"), &target, NONE, flags, NONE));
    }
    let flags = MsFlags::MS_NOSUID;
    mounted("devices", &target, mount(Some("tmpfs"), &target, Some("tmpfs"), flags, Some("mode=0755,size=64k")))?;
    for (name, major, minor) in DEVICES {
        device(&target.join(name), name, major, minor)?;
    }
    for (to, name) in LINKS {
        let path = target.join(name);
        symlink(to, &path).map_err(|source| RootError::Create { path, source })?;
    }
    let pts = target.join("pts");
    create_dir(&pts)?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC;
    let options = Some("newinstance,ptmxmode=0666,mode=0620");
    // Terminals are for people; a batch job runs without.
    let _ = mount(Some("devpts"), &pts, Some("devpts"), flags, options);
    bind(&layers.shared_memory, root, Path::new("/dev/shm"), false, RootKind::Overlay)?;
    for found in hostmounts::accelerators() {
        bind(&found, root, &found, false, RootKind::Overlay)?;
    }
    Ok(())
}

fn device(path: &Path, name: &str, major: u64, minor: u64) -> Result<(), RootError> {
    let mode = Mode::from_bits_truncate(0o666);
    if mknod(path, SFlag::S_IFCHR, mode, makedev(major, minor)).is_ok() {
        let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o666);
        return fs::set_permissions(path, everybody).map_err(|source| RootError::Create { path: path.into(), source });
    }
    touch(path)?;
    let host = Path::new("/dev").join(name);
    mounted(name, path, mount(Some(&host), path, NONE, MsFlags::MS_BIND, NONE))
}

/// What of a volume is mounted: all of it, or a path within it.
fn volume_source(volume: &MountSpec) -> Result<PathBuf, RootError> {
    let Some(sub_path) = &volume.sub_path else { return Ok(volume.source.clone()) };
    let path = resolved(&volume.source, Path::new(sub_path))?;
    if !path.exists() {
        create_dir(&path)?;
    }
    Ok(path)
}

fn bind(source: &Path, root: &Path, target: &Path, read_only: bool, kind: RootKind) -> Result<(), RootError> {
    let found = fs::metadata(source).map_err(|error| RootError::Source { path: source.into(), source: error })?;
    let target = make(root, target, found.is_dir(), kind)?;
    let flags = MsFlags::MS_BIND | MsFlags::MS_REC;
    mounted(&source.display().to_string(), &target, mount(Some(source), &target, NONE, flags, NONE))?;
    if read_only { remount_read_only(&target) } else { Ok(()) }
}

/// The mount point for `target`, made when missing.
fn make(root: &Path, target: &Path, is_dir: bool, kind: RootKind) -> Result<PathBuf, RootError> {
    let path = resolved(root, target)?;
    if path.exists() {
        return Ok(path);
    }
    if kind == RootKind::Host {
        return Err(RootError::MountPointMissing { path: target.into() });
    }
    if is_dir {
        create_dir(&path)?;
    } else {
        if let Some(parent) = path.parent() {
            create_dir(parent)?;
        }
        touch(&path)?;
    }
    Ok(path)
}

fn remount_read_only(target: &Path) -> Result<(), RootError> {
    let flags = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY | kept_flags(target);
    mounted("read-only", target, mount(NONE, target, NONE, flags, NONE))
}

/// Flags of a mount that a user namespace must not take off.
fn kept_flags(target: &Path) -> MsFlags {
    let Ok(found) = statvfs(target) else { return MsFlags::empty() };
    let pairs = [
        (FsFlags::ST_NOSUID, MsFlags::MS_NOSUID),
        (FsFlags::ST_NODEV, MsFlags::MS_NODEV),
        (FsFlags::ST_NOEXEC, MsFlags::MS_NOEXEC),
        (FsFlags::ST_NOATIME, MsFlags::MS_NOATIME),
        (FsFlags::ST_NODIRATIME, MsFlags::MS_NODIRATIME),
        (FsFlags::ST_RELATIME, MsFlags::MS_RELATIME),
    ];
    pairs.into_iter().filter(|(has, _)| found.flags().contains(*has)).map(|(_, keep)| keep).collect()
}

fn pivot(root: &Path) -> Result<(), RootError> {
    chdir(root).map_err(RootError::Enter)?;
    // Both on the same spot: the old root is then on top of the new one, and is taken off.
    pivot_root(".", ".").map_err(RootError::Enter)?;
    umount2(".", MntFlags::MNT_DETACH).map_err(RootError::Enter)?;
    chdir("/").map_err(RootError::Enter)
}

fn resolved(root: &Path, path: &Path) -> Result<PathBuf, RootError> {
    resolve_in_root(root, path).map_err(|source| RootError::Create { path: path.into(), source })
}

fn create_dir(path: &Path) -> Result<(), RootError> {
    fs::create_dir_all(path).map_err(|source| RootError::Create { path: path.into(), source })
}

fn touch(path: &Path) -> Result<(), RootError> {
    let made = OpenOptions::new().create(true).truncate(false).write(true).mode(0o644).open(path);
    made.map(drop).map_err(|source| RootError::Create { path: path.into(), source })
}

fn mounted(what: &str, target: &Path, result: nix::Result<()>) -> Result<(), RootError> {
    result.map_err(|source| RootError::Mount { what: what.to_owned(), target: target.into(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separators_in_overlay_options_are_escaped() {
        assert_eq!(escaped(Path::new("/a:b,c\\d e")), "/a\\:b\\,c\\\\d e");
    }
}
