//! The platform's data directory, which has its keys and the volumes of every pod.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::syscall::open;
use super::{is_so, read_secret};
use crate::facts::Facts;
use crate::table::{Control, PodKind, Row};

const fn row(name: &'static str, control: Control, attempt: fn(&Facts) -> io::Result<()>) -> Row {
    Row { name, attempt, pod: PodKind::Usual, control }
}

const fn hidden(name: &'static str, attempt: fn(&Facts) -> io::Result<()>) -> Row {
    row(name, Control::HiddenFolder, attempt)
}

const fn mounted(name: &'static str, pod: PodKind, attempt: fn(&Facts) -> io::Result<()>) -> Row {
    Row { name, attempt, pod, control: Control::HiddenFolder }
}

pub const ROWS: &[Row] = &[
    hidden("read the data directory by its path", |facts| read_secret(&facts.data_dir.join("secret"), &facts.secret)),
    hidden("list the data directory", |facts| is_so(fs::read_dir(&facts.data_dir)?.next().is_some())),
    hidden("read the data directory by a link in a volume", |facts| {
        let link = facts.scratch().join(format!("link-{}", std::process::id()));
        symlink(&facts.data_dir, &link)?;
        read_secret(&link.join("secret"), &facts.secret)
    }),
    hidden("read the data directory through /proc/self/root", |facts| {
        let path = facts.data_dir.join("secret");
        let path = path.strip_prefix("/").map_err(io::Error::other)?;
        read_secret(&Path::new("/proc/self/root").join(path), &facts.secret)
    }),
    hidden("read the data directory from a folder within it that is open", |facts| {
        nix::unistd::chdir(&facts.data_dir)?;
        read_secret(Path::new("secret"), &facts.secret)
    }),
    hidden("read a file of another pod's volume", |facts| read_secret(&facts.neighbor_file, &facts.secret)),
    hidden("write to another pod's volume", |facts| File::options().append(true).open(&facts.neighbor_file).map(drop)),
    mounted("read the data directory as a volume", PodKind::DataMounted, |facts| {
        read_secret(Path::new("/data/secret"), &facts.secret)
    }),
    mounted("read the data directory in a volume", PodKind::ParentMounted, |facts| {
        let name = facts.data_dir.file_name().unwrap_or_default();
        read_secret(&Path::new("/parent").join(name).join("secret"), &facts.secret)
    }),
    row("open a file of the data directory by its handle", Control::Capability("DAC_READ_SEARCH"), |facts| {
        // Any folder of the same file system will do to say which one it is.
        let folder = File::open(&facts.volume)?;
        let mut handle = Vec::new();
        handle.extend((facts.handle.bytes.len() as u32).to_ne_bytes());
        handle.extend(facts.handle.kind.to_ne_bytes());
        handle.extend(&facts.handle.bytes);
        let opened = open!(SYS_open_by_handle_at, folder.as_raw_fd(), handle.as_mut_slice(), libc::O_RDONLY)?;
        let mut text = String::new();
        File::from(opened).read_to_string(&mut text)?;
        is_so(text.starts_with(&facts.secret))
    }),
];
