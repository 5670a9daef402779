//! Devices of the machine, by nodes that are there and by nodes of the container's own making.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use nix::sys::stat::{Mode, SFlag, makedev, mknod};

use crate::facts::Facts;
use crate::table::{Control, PodKind, Row};

/// Two controls stop these; each is tried in a pod without the other.
const fn made(name: &'static str, attempt: fn(&Facts) -> io::Result<()>) -> Row {
    Row { name, attempt, pod: PodKind::AllDevices, control: Control::Capability("MKNOD") }
}

const fn opened(name: &'static str, pod: PodKind, attempt: fn(&Facts) -> io::Result<()>) -> Row {
    Row { name, attempt, pod, control: Control::DeviceGroup }
}

const fn found(name: &'static str, attempt: fn(&Facts) -> io::Result<()>) -> Row {
    Row { name, attempt, pod: PodKind::Usual, control: Control::Unprivileged }
}

pub const ROWS: &[Row] = &[
    made("make the node of a disk in /dev and open it", |facts| {
        make_and_open(Path::new("/dev"), SFlag::S_IFBLK, facts.disk).map(drop)
    }),
    made("make the node of a disk in a volume and open it", |facts| {
        make_and_open(&facts.scratch(), SFlag::S_IFBLK, facts.disk).map(drop)
    }),
    made("make the node of FUSE in /dev and open it", |_| {
        make_and_open(Path::new("/dev"), SFlag::S_IFCHR, FUSE).map(drop)
    }),
    opened("with the right to make nodes, make that of a disk in /dev and open it", PodKind::MakesNodes, |facts| {
        make_and_open(Path::new("/dev"), SFlag::S_IFBLK, facts.disk).map(drop)
    }),
    opened("with the right to make nodes, make that of a disk in a volume and open it", PodKind::MakesNodes, |facts| {
        make_and_open(&facts.scratch(), SFlag::S_IFBLK, facts.disk).map(drop)
    }),
    opened("with the right to make nodes, leave that of a disk in a volume to others", PodKind::MakesNodes, |facts| {
        let path = facts.scratch().join("left");
        mknod(&path, SFlag::S_IFBLK, Mode::S_IRUSR, facts.disk)?;
        fs::remove_file(&path)
    }),
    opened("open a device by its node in a volume", PodKind::Usual, |facts| {
        open_both_ways(&facts.volume.join("fuse").to_string_lossy())
    }),
    opened("open a disk by its node in a volume", PodKind::Usual, |facts| {
        File::open(facts.volume.join("disk")).map(drop)
    }),
    found("open a disk by the host's node", |facts| {
        for entry in fs::read_dir("/dev")? {
            let entry = entry?;
            let found = entry.metadata()?;
            if found.file_type().is_block_device() && found.rdev() == facts.disk {
                return File::open(entry.path()).map(drop);
            }
        }
        Err(io::ErrorKind::NotFound.into())
    }),
    // Reading may wait for a device, and writing is heard by the whole machine.
    found("open the kernel's log", |_| open_both_ways("/dev/kmsg")),
    found("open memory by /dev/mem", |_| File::open("/dev/mem").map(drop)),
    found("open ports by /dev/port", |_| File::open("/dev/port").map(drop)),
    found("open tunnels by /dev/net/tun", |_| open_both_ways("/dev/net/tun")),
    found("open /dev/loop-control", |_| open_both_ways("/dev/loop-control")),
    found("open /dev/fuse", |_| open_both_ways("/dev/fuse")),
    found("open /dev/kvm", |_| open_both_ways("/dev/kvm")),
    found("open a console of the host", |_| File::open("/dev/tty0").map(drop)),
];

/// Numbers of `/dev/fuse`.
pub const FUSE: u64 = makedev(10, 229);

pub fn open_both_ways(path: &str) -> io::Result<()> {
    File::options().read(true).write(true).open(path).map(drop)
}

fn make_and_open(folder: &Path, kind: SFlag, device: u64) -> io::Result<File> {
    let path = folder.join(format!("node-{}", std::process::id()));
    mknod(&path, kind, Mode::S_IRUSR | Mode::S_IWUSR, device)?;
    let opened = File::open(&path);
    fs::remove_file(&path)?;
    opened
}
