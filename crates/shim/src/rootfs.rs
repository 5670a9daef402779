//! A container's root directory: an overlay over the host or over a folder, with its own `/proc`,
//! `/dev` and volumes.
//!
//! Invariant: with an overlay nothing of the host is written but volumes. Everything is mounted in
//! the container's own mount namespace, so that it is gone with its last process; by descriptors that
//! were looked up once, since other containers may change volumes meanwhile; and read-only where a
//! container only uses what is the host's, so that it can't change the owner, mode or attributes of a
//! device either. Runs as pid 1 of the container, before its program.

mod allow_list;
pub(crate) mod by_folder;
mod devices;
mod hidden;
pub(crate) mod images;
mod owners;

use std::cell::OnceCell;
use std::ffi::CStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::stat::{Mode, fstat, umask};
use nix::unistd::{chdir, fchdir, pivot_root};

use devices::mount_dev;
use hidden::Hidden;
use owners::{Owners, is_device};

use super::hostmounts;
use super::own_users::UserNamespace;
use super::spec::{ContainerSpec, Isolation, MountSpec, RootKind, ShimSpec};
use crate::capability_set::without_resource_right;
use by_folder::mount_folders;
use pumice_linux::detached_mount::{Attributes, DetachedMount, descriptor_path, make_read_only};
use pumice_linux::paths::{Missing, is_folder, open_in_root, open_path};

/// Why a container has no root directory.
#[derive(Debug, thiserror::Error)]
pub enum RootError {
    #[error("can't mount {what} at {}", target.display())]
    Mount {
        /// What was to be mounted.
        what: String,
        target: PathBuf,
        /// Why not.
        #[source]
        source: nix::Error,
    },
    /// A file or directory could not be made.
    #[error("can't create {}", path.display())]
    Create {
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// What is to be mounted is not there.
    #[error("can't find {} to mount it", path.display())]
    Source {
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// Without an overlay, mount points are not made in the host's own tree.
    #[error("{} does not exist on this host, and without an overlay it is not created", path.display())]
    MountPointMissing { path: PathBuf },
    /// A layer needs an overlay.
    #[error("can't mount the layer {}: this host has no overlay file system", layer.display())]
    NoOverlay {
        /// The folder of the image map, or of an image.
        layer: PathBuf,
    },
    /// Its file system does not do it.
    #[error(
        "can't show {} to users of the pod's own: its file system has no idmapped mounts; use a volume of another one",
        path.display()
    )]
    Owners {
        path: PathBuf,
        #[source]
        source: nix::Error,
    },
    /// A volume shows what no container sees.
    #[error("{} lies in the platform's data directory, which no pod sees; name another folder", path.display())]
    Hidden { path: PathBuf },
    /// The root could not be entered.
    #[error("can't enter the root directory")]
    Enter(#[source] nix::Error),
}

impl RootError {
    /// Whether the disk was full, or what one may have of it.
    pub(crate) fn is_for_want_of_room(&self) -> bool {
        let kind = match self {
            RootError::Mount { source, .. } | RootError::Owners { source, .. } | RootError::Enter(source) => {
                io::Error::from(*source).kind()
            }
            RootError::Create { source, .. } | RootError::Source { source, .. } => source.kind(),
            RootError::MountPointMissing { .. } | RootError::NoOverlay { .. } | RootError::Hidden { .. } => {
                return false;
            }
        };
        // A root that takes no writes is for good, unlike a disk.
        matches!(kind, io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
    }
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
/// The folder in a container's layers that has what it writes to its root.
pub(super) const UPPER: &str = "upper";

/// Makes the root directory and moves this process into it. Returns the folder that has what is written to the root and will be
/// thrown away, if it is.
pub(crate) fn enter(
    spec: &ShimSpec,
    users: Option<&UserNamespace>,
    container: &ContainerSpec,
    layers: &Layers,
) -> Result<Option<OwnedFd>, RootError> {
    // Folders that are made on the way are for every user of the container, whatever the platform's own rights are.
    umask(Mode::from_bits_truncate(0o022));
    let path = layers.dir.join("root");
    let (kind, owners) = (spec.isolation.root, Owners::of(users));
    // Folders that are made in a volume on the host are the host's root's, as the volume's owners are.
    let mut volumes = Vec::new();
    for volume in &container.mounts {
        // An image has what it has.
        let missing = if spec.is_image(&volume.source) { Missing::Refuse } else { Missing::MakeFolder };
        volumes.push((volume, open_volume(volume, missing)?));
    }
    volumes.sort_by_key(|(volume, _)| volume.target.components().count());
    let written = mount_root(&spec.isolation, owners, container, layers, &path)?;
    let _making = owners.make_as_root()?;
    // By its path it can't be reached from inside.
    let upper = if kind == RootKind::Host { None } else { Some(open_folder(&layers.dir.join(UPPER))?) };
    let opened = open_path(&path).map_err(|source| RootError::Source { path: path.clone(), source })?;
    let own_devices = !container.privileged;
    let root = Root { directory: opened, kind, own_devices, owners, nothing: OnceCell::new() };
    if !container.has_own_root() && ![RootKind::Host, RootKind::AllowList].contains(&kind) {
        for found in hostmounts::visible(&spec.hidden) {
            // A file system that can't be shown is missing in the container, as it is for most images.
            let _ = root.show(&found);
        }
    }
    images::prepare(&root, container)?;
    mount_dev(&root, container, layers)?;
    let is_unmasked = container.privileged || container.unmasked_proc;
    mount_proc(&root, is_unmasked, spec.isolation.user)?;
    mount_sys(&root, is_unmasked)?;
    let unreadable = |source| RootError::Source { path: "/proc/self/mountinfo".into(), source };
    let hidden = Hidden::of(&spec.hidden, &container.mounts).map_err(unreadable)?;
    for (volume, source) in volumes {
        hidden.check(volume, &source)?;
        let shown = DetachedMount::of_descriptor(source.as_fd());
        let shown = shown.map_err(|errno| RootError::Source { path: volume.source.clone(), source: errno.into() })?;
        // A device has the owner that the machine has for it, and an image those that its layers were given.
        if !is_device(&source) && !spec.is_image(&volume.source) {
            owners.map(&shown, &volume.source, Attributes::NONE)?;
        }
        root.attach(&shown, &volume.target, volume.read_only)?;
        hidden.cover(volume, &source, &shown)?;
    }
    // After the volumes: one of the host's folders may hold what is to be hidden.
    hidden.hide(&root)?;
    if !container.termination_message_path.is_empty() {
        let shown = owners.view(&layers.termination)?;
        root.attach(&shown, Path::new(&container.termination_message_path), false)?;
    }
    root.mount_point(Path::new(&container.cwd), Missing::MakeFolder)?;
    if container.read_only_root {
        // A volume may lie over one of these.
        for part in written.iter().map(AsFd::as_fd).chain([root.directory.as_fd()]) {
            mounted("read-only", Path::new("/"), make_read_only(part))?;
        }
    }
    pivot(&root)?;
    Ok(upper)
}

fn open_folder(path: &Path) -> Result<OwnedFd, RootError> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    nix::fcntl::open(path, flags, Mode::empty())
        .map_err(|errno| RootError::Source { path: path.into(), source: errno.into() })
}

/// The root directory as it is made.
struct Root<'a> {
    directory: OwnedFd,
    owners: Owners<'a>,
    kind: RootKind,
    /// Whether its `/dev` is not the host's.
    own_devices: bool,
    /// An empty folder of which views are mounted: a file system for each would be made and taken down.
    nothing: OnceCell<DetachedMount>,
}

impl Root<'_> {
    /// The place for a mount at `target`, made when missing.
    fn mount_point(&self, target: &Path, missing: Missing) -> Result<OwnedFd, RootError> {
        let ours = self.kind != RootKind::Host || self.own_devices && target.starts_with("/dev");
        let missing = if ours { missing } else { Missing::Refuse };
        open_in_root(self.directory.as_fd(), target, missing).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound if !ours => RootError::MountPointMissing { path: target.into() },
            _ => RootError::Create { path: target.into(), source },
        })
    }

    /// A folder of the container's own that every root has, such as `/proc`.
    fn system_folder(&self, name: &str) -> Result<OwnedFd, RootError> {
        let path = Path::new(name);
        let opened = open_in_root(self.directory.as_fd(), path, Missing::MakeFolder);
        opened.map_err(|source| RootError::Create { path: path.into(), source })
    }

    fn attach(&self, source: &DetachedMount, target: &Path, read_only: bool) -> Result<(), RootError> {
        let folder = is_folder(source).map_err(|source| RootError::Source { path: target.into(), source })?;
        let place = self.mount_point(target, if folder { Missing::MakeFolder } else { Missing::MakeFile })?;
        let attached = if read_only { source.attach_read_only(place.as_fd()) } else { source.attach(place.as_fd()) };
        mounted("a volume", target, attached)
    }

    fn put_nothing(&self, place: BorrowedFd<'_>) -> nix::Result<()> {
        if let Some(nothing) = self.nothing.get() {
            return DetachedMount::of_descriptor(nothing.as_fd())?.attach(place);
        }
        let nothing = new_tmpfs(c"0555", c"4k", NOTHING)?;
        nothing.attach(place)?;
        let _ = self.nothing.set(nothing);
        Ok(())
    }

    /// Something of the host at its own path, to be used but not changed.
    fn show(&self, path: &Path) -> Result<(), RootError> {
        self.attach(&self.owners.view_of_host(path, Attributes::NONE)?, path, true)
    }
}

/// Mounts it at `root`; returns those mounts of the container's own by which it is written, beside the root itself.
fn mount_root(
    isolation: &Isolation,
    owners: Owners<'_>,
    container: &ContainerSpec,
    layers: &Layers,
    root: &Path,
) -> Result<Vec<OwnedFd>, RootError> {
    let kind = isolation.root;
    if kind == RootKind::OverlayInMemory {
        let flags = MsFlags::MS_NODEV;
        mounted("memory", &layers.dir, mount(Some("tmpfs"), &layers.dir, Some("tmpfs"), flags, Some("mode=0700")))?;
    }
    create_dir(root)?;
    if kind == RootKind::AllowList && !container.has_own_root() {
        let written = allow_list::mount_root(owners, container, layers, root)?;
        return Ok(written.into_iter().map(OwnedFd::from).collect());
    }
    if kind == RootKind::OverlayByFolder && !container.has_own_root() {
        let folders = mount_folders(root, &layers.dir, container.layer.as_deref());
        return folders.map_err(|source| RootError::Create { path: root.into(), source });
    }
    let lower = container.root.as_deref().unwrap_or(Path::new("/"));
    if kind == RootKind::Host {
        let layers = container.image_layers.iter().flatten();
        if let Some(layer) = container.layer.iter().chain(layers).next() {
            return Err(RootError::NoOverlay { layer: layer.clone() });
        }
        let flags = MsFlags::MS_BIND | MsFlags::MS_REC;
        return mounted("the root folder", root, mount(Some(lower), root, NONE, flags, NONE)).map(|()| Vec::new());
    }
    let (upper, work) = (layers.dir.join(UPPER), layers.dir.join("work"));
    create_dir(&upper)?;
    create_dir(&work)?;
    owners.give_to_root(&upper)?;
    let image = container.image_layers.as_ref().map(|image| images::layers(owners, image, &layers.dir)).transpose()?;
    let mut lowers = match &image {
        Some(image) => image.iter().map(descriptor_path).collect::<Vec<_>>().join(":"),
        None => escaped(&owners.layer(lower, &layers.dir, "lower")?),
    };
    if let Some(layer) = &container.layer {
        let layer = owners.layer(layer, &layers.dir, "image")?;
        lowers = format!("{}:{lowers}", escaped(&apart(&layer, &layers.dir)?));
    }
    let mut options = format!("lowerdir={lowers},upperdir={},workdir={}", escaped(&upper), escaped(&work));
    if isolation.user {
        options.push_str(",userxattr");
    }
    // The upper layer is thrown away, so the kernel need not bring it to the disk for anybody.
    let volatile = format!("{options},volatile");
    let overlay = |options: &str| mount(Some("overlay"), root, Some("overlay"), MsFlags::MS_NODEV, Some(options));
    let made = without_resource_right(|| overlay(&volatile).or_else(|_| overlay(&options)));
    mounted("the overlay", root, made)?;
    // The upper directory's mode is the root directory's.
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    let changed = fs::set_permissions(root, mode);
    changed.map_err(|source| RootError::Create { path: root.into(), source: of_room(source) })?;
    Ok(Vec::new())
}

/// Where there is no room for its work folder, the kernel mounts an overlay that takes no writes, and says so in its own log only.
fn of_room(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::ReadOnlyFilesystem { io::Error::from(nix::Error::ENOSPC) } else { error }
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

/// For an empty folder that shows nothing and takes nothing.
const NOTHING: Attributes = Attributes::READ_ONLY.and(Attributes::NO_SET_UID).and(Attributes::NO_DEVICES);

fn is_same(one: BorrowedFd<'_>, other: BorrowedFd<'_>) -> bool {
    let identity = |file| fstat(file).ok().map(|found| (found.st_dev, found.st_ino));
    identity(one) == identity(other)
}

fn new_tmpfs(mode: &CStr, size: &CStr, attributes: Attributes) -> nix::Result<DetachedMount> {
    DetachedMount::new(c"tmpfs", &[(c"mode", Some(mode)), (c"size", Some(size))], attributes)
}

/// What `/proc` and `/sys` are for: no program, device or right comes from there.
const KERNELS_OWN: Attributes = Attributes::NO_SET_UID.and(Attributes::NO_DEVICES).and(Attributes::NO_PROGRAMS);

/// Parts of `/proc` and `/sys` that tell of the whole machine or change it, as container engines take them.
const READ_ONLY: [&str; 5] = ["bus", "fs", "irq", "sys", "sysrq-trigger"];
const MASKED: [&str; 10] = [
    "acpi",
    "asound",
    "interrupts",
    "kcore",
    "keys",
    "latency_stats",
    "sched_debug",
    "scsi",
    "timer_list",
    "timer_stats",
];
const MASKED_OF_SYS: [&str; 2] = ["firmware", "devices/virtual/powercap"];

fn mount_proc(root: &Root<'_>, is_unmasked: bool, user: bool) -> Result<(), RootError> {
    let target = root.system_folder("proc")?;
    let own = DetachedMount::new(c"proc", &[], KERNELS_OWN);
    if own.is_err() && user {
        // Where parts of /proc are covered, an ordinary user gets no fresh one.
        let hosts = DetachedMount::of_path(Path::new("/proc"));
        return mounted("proc", Path::new("/proc"), hosts.and_then(|hosts| hosts.attach(target.as_fd())));
    }
    let proc = own.and_then(|own| own.attach(target.as_fd()).map(|()| own));
    let proc = proc.map_err(|source| RootError::Mount { what: "proc".into(), target: "/proc".into(), source })?;
    if is_unmasked {
        return Ok(());
    }
    for name in READ_ONLY {
        // A kernel may do without.
        let Ok(entry) = open_in_root(proc.as_fd(), Path::new(name), Missing::Refuse) else { continue };
        if let Ok(view) = DetachedMount::of_descriptor(entry.as_fd()) {
            mounted("read-only", Path::new(name), view.attach_read_only(entry.as_fd()))?;
        }
    }
    mask(root, &proc, &MASKED)
}

/// Shows nothing where these are: an empty folder for a folder, the null device for a file.
fn mask(root: &Root<'_>, tree: &DetachedMount, names: &[&str]) -> Result<(), RootError> {
    let masked = |name: &str, result| mounted("nothing", Path::new(name), result);
    let null = root.mount_point(Path::new("/dev/null"), Missing::Refuse)?;
    for name in names {
        // A kernel may do without.
        let Ok(entry) = open_in_root(tree.as_fd(), Path::new(name), Missing::Refuse) else { continue };
        if is_folder(&entry).unwrap_or(false) {
            masked(name, root.put_nothing(entry.as_fd()))?;
        } else {
            let null = DetachedMount::of_descriptor(null.as_fd());
            masked(name, null.and_then(|null| null.attach_read_only(entry.as_fd())))?;
        }
    }
    Ok(())
}

/// Programs run without `/sys` too, so a host that does not let us show it is no reason to stop.
fn mount_sys(root: &Root<'_>, is_unmasked: bool) -> Result<(), RootError> {
    let Ok(target) = root.system_folder("sys") else { return Ok(()) };
    let attributes = KERNELS_OWN.and(Attributes::READ_ONLY);
    let own = DetachedMount::new(c"sysfs", &[], attributes);
    let shown = own.or_else(|_| {
        let hosts = DetachedMount::of_path(Path::new("/sys"))?;
        hosts.restrict(attributes).map(|()| hosts)
    });
    let Ok(shown) = shown.and_then(|shown| shown.attach(target.as_fd()).map(|()| shown)) else { return Ok(()) };
    if is_unmasked { Ok(()) } else { mask(root, &shown, &MASKED_OF_SYS) }
}

fn not_made(path: &Path, errno: Errno) -> RootError {
    RootError::Create { path: path.into(), source: errno.into() }
}

/// Another view of a file or folder of the host.
fn view(path: &Path) -> Result<DetachedMount, RootError> {
    DetachedMount::of_path(path).map_err(|errno| RootError::Source { path: path.into(), source: errno.into() })
}

/// What of a volume is mounted: all of it, or a path within it.
fn open_volume(volume: &MountSpec, missing: Missing) -> Result<OwnedFd, RootError> {
    let path = volume.sub_path.as_deref().map_or_else(|| volume.source.clone(), |path| volume.source.join(path));
    let failed = |source| RootError::Source { path: path.clone(), source };
    let whole = open_path(&volume.source).map_err(failed)?;
    let Some(sub_path) = &volume.sub_path else { return Ok(whole) };
    open_in_root(whole.as_fd(), Path::new(sub_path), missing).map_err(failed)
}

fn pivot(root: &Root<'_>) -> Result<(), RootError> {
    fchdir(&root.directory).map_err(RootError::Enter)?;
    // Both on the same spot: the old root is then on top of the new one, and is taken off.
    pivot_root(".", ".").map_err(RootError::Enter)?;
    umount2(".", MntFlags::MNT_DETACH).map_err(RootError::Enter)?;
    chdir("/").map_err(RootError::Enter)
}

fn create_dir(path: &Path) -> Result<(), RootError> {
    fs::create_dir_all(path).map_err(|source| RootError::Create { path: path.into(), source })
}

fn mounted(what: &str, target: &Path, result: nix::Result<()>) -> Result<(), RootError> {
    result.map_err(|source| RootError::Mount { what: what.to_owned(), target: target.into(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::os::unix::fs::symlink;
    use std::sync::atomic::{AtomicBool, Ordering};

    use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
    use nix::sched::{CloneFlags, unshare};

    /// Mounts that are made while a folder and a link are exchanged.
    const TRIES: usize = 10_000;

    fn may_mount() -> bool {
        let is_root = nix::unistd::Uid::effective().is_root();
        if !is_root {
            eprintln!("not run: needs root for mounts");
            assert!(std::env::var_os("CI").is_none(), "run the tests as root");
        }
        is_root
    }

    /// What this thread mounts from now on is its own, and gone with it.
    fn take_own_mounts() {
        unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_FS).unwrap();
        mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NONE).unwrap();
    }

    // INV-54
    #[test]
    fn what_is_exchanged_meanwhile_is_never_the_hosts() {
        if !may_mount() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let (volume, host) = (dir.path().join("volume"), dir.path().join("host"));
        fs::create_dir_all(volume.join("a")).unwrap();
        fs::create_dir_all(host.join("within")).unwrap();
        symlink(&host, volume.join("b")).unwrap();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (a, b) = (volume.join("a"), volume.join("b"));
                while !over.load(Ordering::Relaxed) {
                    renameat2(AT_FDCWD, &a, AT_FDCWD, &b, RenameFlags::RENAME_EXCHANGE).unwrap();
                }
            });
            // Mounts are this thread's own, and gone with it.
            let mounting = scope.spawn(|| mount_while_exchanged(&volume, &host));
            let reached = mounting.join();
            over.store(true, Ordering::Relaxed);
            assert_eq!(reached.unwrap(), (0, 0), "sources and mount points on the host");
        });
        let mut left: Vec<_> = fs::read_dir(&host).unwrap().flatten().map(|entry| entry.file_name()).collect();
        left.sort();
        assert_eq!(left, ["within"], "nothing was made on the host");
        assert_eq!(fs::read_dir(host.join("within")).unwrap().count(), 0);
    }

    /// How many mounts had a folder of the host as source, and how many as their place.
    fn mount_while_exchanged(volume: &Path, host: &Path) -> (usize, usize) {
        take_own_mounts();
        let (kind, owners) = (RootKind::Overlay, Owners::of(None));
        let directory = open_path(volume).unwrap();
        let root = Root { directory, kind, own_devices: true, owners, nothing: OnceCell::new() };
        let hosts = [host.to_owned(), host.join("within")].map(|path| open_path(&path).unwrap());
        let is_hosts = |found: BorrowedFd<'_>| hosts.iter().any(|host| is_same(host.as_fd(), found));
        let (mut sources, mut places) = (0, 0);
        for index in 0..TRIES {
            let sub_path = if index % 2 == 0 { "a" } else { "a/within" };
            let spec = MountSpec {
                source: volume.into(),
                sub_path: Some(sub_path.into()),
                target: Path::new("/").join(sub_path),
                read_only: false,
            };
            let source = open_volume(&spec, Missing::MakeFolder).unwrap();
            sources += usize::from(is_hosts(source.as_fd()));
            let source = DetachedMount::of_descriptor(source.as_fd()).unwrap();
            let place = root.mount_point(&spec.target, Missing::MakeFolder).unwrap();
            places += usize::from(is_hosts(place.as_fd()));
            if index % 100 == 0 {
                // It does as in a container: one that is attached shadows the next look-up.
                source.attach(place.as_fd()).unwrap();
                umount2(pumice_linux::detached_mount::descriptor_path(&source).as_str(), MntFlags::MNT_DETACH).unwrap();
            }
        }
        (sources, places)
    }

    // INV-55
    #[test]
    fn an_overlay_without_room_for_its_work_folder_is_tried_again() {
        if !may_mount() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        // Its own folder and the three of the layers; the kernel wants one more.
        for (inodes, has_room) in [(4, false), (64, true)] {
            // Mounts are this thread's own, and gone with it.
            let mounted = std::thread::scope(|scope| scope.spawn(|| root_in_tmpfs(dir.path(), inodes)).join().unwrap());
            assert_eq!(
                mounted.as_ref().map_err(RootError::is_for_want_of_room),
                if has_room { Ok(&()) } else { Err(true) }
            );
        }
    }

    fn root_in_tmpfs(dir: &Path, inodes: u32) -> Result<(), RootError> {
        take_own_mounts();
        let options = format!("nr_inodes={inodes}");
        mount(Some("tmpfs"), dir, Some("tmpfs"), MsFlags::empty(), Some(options.as_str())).unwrap();
        let layers =
            Layers { dir: dir.to_owned(), shared_memory: dir.join("shared"), termination: dir.join("termination") };
        let isolation = Isolation { namespaces: true, user: false, root: RootKind::Overlay };
        mount_root(&isolation, Owners::of(None), &ContainerSpec::default(), &layers, &dir.join("root")).map(drop)
    }

    #[test]
    fn separators_in_overlay_options_are_escaped() {
        assert_eq!(escaped(Path::new("/a:b,c\\d e")), "/a\\:b\\,c\\\\d e");
    }
}
