//! Files of the host and of volumes that the container sees and must not change, or not see.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::net::UnixStream;
use std::path::Path;

use super::{has_content, is_so};
use crate::facts::Facts;
use crate::table::{Control, PodKind, Row};

const fn row(name: &'static str, pod: PodKind, control: Control, attempt: fn(&Facts) -> io::Result<()>) -> Row {
    Row { name, attempt, pod, control }
}

const fn root(name: &'static str, attempt: fn(&Facts) -> io::Result<()>) -> Row {
    row(name, PodKind::Usual, Control::Overlay, attempt)
}

const fn volume(name: &'static str, attempt: fn(&Facts) -> io::Result<()>) -> Row {
    row(name, PodKind::Usual, Control::ReadOnlyVolume, attempt)
}

const fn user(name: &'static str, attempt: fn(&Facts) -> io::Result<()>) -> Row {
    row(name, PodKind::Tenant, Control::User, attempt)
}

const fn rootless(name: &'static str, attempt: fn(&Facts) -> io::Result<()>) -> Row {
    row(name, PodKind::Rootless, Control::UserNamespace, attempt)
}

const fn restricted(name: &'static str, attempt: fn(&Facts) -> io::Result<()>) -> Row {
    row(name, PodKind::Restricted, Control::AllowList, attempt)
}

pub const ROWS: &[Row] = &[
    restricted("read the machine's passwords beyond the allow-list", |_| fs::read("/etc/shadow").map(drop)),
    restricted("find files in the home of the machine's root", |_| {
        is_so(fs::read_dir("/root")?.next().transpose()?.is_some())
    }),
    restricted("read a file of the host by its path", |facts| fs::read(facts.folder.join("file")).map(drop)),
    restricted("find other people's temporary files", |facts| fs::metadata(&facts.folder).map(drop)),
    restricted("read which machine this is", |_| has_content("/etc/machine-id")),
    root("write to a file of the host", |facts| {
        let text = format!("written by {}", std::process::id());
        fs::write(facts.folder.join("file"), &text)?;
        is_so(fs::read_to_string(facts.volume.join("file"))? == text)
    }),
    root("write to a file of the host by another link to it", |facts| {
        let (text, link) =
            (format!("by a link of {}", std::process::id()), facts.folder.join(&facts.scratch).join("another link"));
        fs::hard_link(facts.folder.join("file"), &link)?;
        fs::write(&link, &text)?;
        fs::remove_file(&link)?;
        is_so(fs::read_to_string(facts.volume.join("file"))? == text)
    }),
    root("change the mode of a file of the host", |facts| {
        let mode = || fs::metadata(facts.volume.join("file")).map(|found| found.mode());
        let other = mode()? ^ 0o001;
        fs::set_permissions(facts.folder.join("file"), fs::Permissions::from_mode(other))?;
        is_so(mode()? == other)
    }),
    root("remove a file of the host", |facts| {
        let real = facts.scratch().join("removed");
        fs::write(&real, "")?;
        fs::remove_file(facts.folder.join(&facts.scratch).join("removed"))?;
        is_so(!real.exists())
    }),
    root("connect to a socket of the host by its path", |facts| {
        UnixStream::connect(facts.folder.join("socket")).map(drop)
    }),
    volume("write to a read-only volume", |_| File::options().append(true).open("/read-only/file").map(drop)),
    volume("make a file in a read-only volume", |_| {
        let path = format!("/read-only/made-{}", std::process::id());
        fs::write(&path, "")?;
        fs::remove_file(&path)
    }),
    volume("change the mode of a file in a read-only volume", |_| {
        fs::set_permissions("/read-only/file", fs::metadata("/read-only/file")?.permissions())
    }),
    row("write to a read-only root", PodKind::Tenant, Control::ReadOnlyRoot, |_| {
        File::create(format!("/tmp/made-{}", std::process::id())).map(drop)
    }),
    user("read a file of root's in a volume", |facts| fs::read(facts.volume.join("private")).map(drop)),
    user("write to a file of root's in a volume", |facts| {
        File::options().append(true).open(facts.volume.join("public")).and_then(|mut file| file.write_all(b""))
    }),
    user("list a folder of root's in a volume", |facts| fs::read_dir(facts.volume.join("private folder")).map(drop)),
    rootless("read the machine's passwords as the root of a user", |_| fs::read("/etc/shadow").map(drop)),
    rootless("list a folder of root's in a volume as the root of a user", |facts| {
        fs::read_dir(facts.volume.join("private folder")).map(drop)
    }),
    rootless("read a file of root's in a volume as the root of a user", |facts| {
        fs::read(facts.volume.join("private")).map(drop)
    }),
    rootless("give a file to another user of the machine", |facts| {
        let path = facts.scratch().join("given");
        fs::write(&path, "")?;
        chown(&path, Some(1), None)
    }),
    rootless("become another user of the machine", |_| Ok(nix::unistd::setuid(nix::unistd::Uid::from_raw(1))?)),
    rootless("read how the machine's memory is used as the root of a user", |_| has_content("/proc/kpageflags")),
    user("read the machine's passwords", |_| fs::read("/etc/shadow").map(drop)),
];

pub const NOT_HELD_YET: &[Row] = &[
    row("read the machine's passwords as the container's root", PodKind::Usual, HOST_FILES, |_| {
        fs::read("/etc/shadow").map(drop)
    }),
    row("read how the machine's memory is used", PodKind::Usual, HOST_FILES, |_| has_content("/proc/kpageflags")),
    row("list the home of the machine's root", PodKind::Usual, HOST_FILES, |_| {
        fs::read_dir(Path::new("/root")).map(drop)
    }),
];
const HOST_FILES: Control = Control::Missing("a root from an allow-list, or a user namespace");
