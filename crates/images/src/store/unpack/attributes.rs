//! Owners, modes, times and extended attributes of unpacked files.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, AsRawFd as _};

use nix::errno::Errno;
use nix::fcntl::AtFlags;
use nix::sys::stat::{Mode, UtimensatFlags, fchmod, futimens, utimensat};
use nix::sys::time::TimeSpec;
use nix::unistd::{Gid, Uid, fchown, fchownat};

use super::entries::Attributes;
use super::error::EntryProblem;

/// Rights of programs that are no set-user-ID ones.
const CAPABILITY: &[u8] = b"security.capability";
/// What attributes begin with that programs set for themselves.
const OF_PROGRAMS: &[u8] = b"user.";
/// What attributes begin with by which layers without root's help steer the kernel's overlay.
const OF_OVERLAY: &[u8] = b"user.overlay.";
/// Bytes of an attribute's name.
const ATTRIBUTE_NAME_MAX: usize = 255;
/// Owner's rights that a folder has where only its owner can go into it.
const OWNERS_RIGHTS: u32 = 0o700;

/// Whose unpacked files are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owners {
    /// As the archive says.
    OfArchive,
    /// Of whoever unpacks: it isn't root, or only in a user namespace of few ids.
    OfThisProcess,
}

impl Owners {
    /// By what this process may set.
    pub fn of_this_process() -> Owners {
        let has_all_ids = std::fs::read_to_string("/proc/self/uid_map").is_ok_and(|map| {
            let mut lines = map.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
            lines
                .any(|line| matches!(line[..], ["0", _, count] if count.parse().is_ok_and(|count: u64| count > 65_535)))
        });
        if Uid::effective().is_root() && has_all_ids { Owners::OfArchive } else { Owners::OfThisProcess }
    }
}

/// For a file that is open: owner first, since a new owner takes set-user-ID bits and capabilities away.
pub(super) fn set_of_file(file: impl AsFd, attributes: &Attributes, owners: Owners) -> Result<(), EntryProblem> {
    set_owner_and_mode(&file, attributes, owners, attributes.mode)?;
    set_extended(&file, attributes, owners, true)?;
    let time = time(attributes.mtime);
    futimens(file, &time, &time).map_err(EntryProblem::system("setting its time"))
}

/// For a folder that is open. Its time is set when nothing changes in it any more.
pub(super) fn set_of_folder(folder: impl AsFd, attributes: &Attributes, owners: Owners) -> Result<(), EntryProblem> {
    let more = if owners == Owners::OfThisProcess { OWNERS_RIGHTS } else { 0 };
    set_owner_and_mode(&folder, attributes, owners, attributes.mode | more)?;
    set_extended(&folder, attributes, owners, false)
}

/// For an entry of an open folder that can't be opened itself.
pub(super) fn set_of_entry(
    folder: impl AsFd,
    name: &CStr,
    attributes: &Attributes,
    owners: Owners,
) -> Result<(), EntryProblem> {
    if owners == Owners::OfArchive {
        let (uid, gid) = (Uid::from_raw(attributes.uid), Gid::from_raw(attributes.gid));
        fchownat(&folder, name, Some(uid), Some(gid), AtFlags::AT_SYMLINK_NOFOLLOW)
            .map_err(EntryProblem::system("setting its owner"))?;
    }
    let time = time(attributes.mtime);
    utimensat(folder, name, &time, &time, UtimensatFlags::NoFollowSymlink)
        .map_err(EntryProblem::system("setting its time"))
}

pub(super) fn time((seconds, nanoseconds): (i64, i64)) -> TimeSpec {
    TimeSpec::new(seconds, nanoseconds)
}

/// Sets an attribute of an open file.
#[allow(unsafe_code)]
pub(super) fn set_attribute(file: impl AsFd, name: &CStr, value: &[u8]) -> nix::Result<()> {
    let descriptor = file.as_fd().as_raw_fd();
    // SAFETY: name and value are ours for the length of the call, and the value's length is given with it.
    let set = unsafe { libc::fsetxattr(descriptor, name.as_ptr(), value.as_ptr().cast(), value.len(), 0) };
    Errno::result(set).map(drop)
}

/// The attributes of an open file that images have.
pub(crate) fn extended_attributes(file: impl AsFd) -> nix::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut found = Vec::new();
    let names = match read_all(|buffer| list(&file, buffer)) {
        Err(Errno::EOPNOTSUPP) => return Ok(found),
        names => names?,
    };
    for name in names.split(|byte| *byte == 0).filter(|name| is_wanted(name, true)) {
        let Ok(c_name) = CString::new(name) else { continue };
        match read_all(|buffer| get(&file, &c_name, buffer)) {
            // Removed meanwhile.
            Err(Errno::ENODATA) => {}
            value => found.push((name.to_owned(), value?)),
        }
    }
    Ok(found)
}

/// Reads into a buffer that is as large as the kernel says.
fn read_all(read: impl Fn(&mut [u8]) -> nix::Result<usize>) -> nix::Result<Vec<u8>> {
    loop {
        let mut buffer = vec![0; read(&mut [])?];
        match read(&mut buffer) {
            // It grew meanwhile.
            Err(Errno::ERANGE) => {}
            length => {
                buffer.truncate(length?);
                return Ok(buffer);
            }
        }
    }
}

#[allow(unsafe_code)]
fn list(file: impl AsFd, buffer: &mut [u8]) -> nix::Result<usize> {
    let descriptor = file.as_fd().as_raw_fd();
    // SAFETY: the kernel writes at most the given length into a buffer that is ours for the length of the call.
    let length = unsafe { libc::flistxattr(descriptor, buffer.as_mut_ptr().cast(), buffer.len()) };
    Errno::result(length).map(|length| usize::try_from(length).unwrap_or(0))
}

#[allow(unsafe_code)]
fn get(file: impl AsFd, name: &CStr, buffer: &mut [u8]) -> nix::Result<usize> {
    let descriptor = file.as_fd().as_raw_fd();
    // SAFETY: as above; the name is ours for as long.
    let length = unsafe { libc::fgetxattr(descriptor, name.as_ptr(), buffer.as_mut_ptr().cast(), buffer.len()) };
    Errno::result(length).map(|length| usize::try_from(length).unwrap_or(0))
}

fn set_owner_and_mode(
    file: &impl AsFd,
    attributes: &Attributes,
    owners: Owners,
    mode: u32,
) -> Result<(), EntryProblem> {
    if owners == Owners::OfArchive {
        let (uid, gid) = (Uid::from_raw(attributes.uid), Gid::from_raw(attributes.gid));
        fchown(file, Some(uid), Some(gid)).map_err(EntryProblem::system("setting its owner"))?;
    }
    fchmod(file, Mode::from_bits_truncate(mode)).map_err(EntryProblem::system("setting its mode"))
}

fn set_extended(file: &impl AsFd, attributes: &Attributes, owners: Owners, is_file: bool) -> Result<(), EntryProblem> {
    for (name, value) in &attributes.extended {
        if !is_wanted(name, is_file) {
            continue;
        }
        let Ok(name) = CString::new(name.as_slice()) else { continue };
        match set_attribute(file, &name, value) {
            // The disk has none; images go without, as with Docker.
            Ok(()) | Err(Errno::EOPNOTSUPP) => {}
            Err(Errno::EPERM) if owners == Owners::OfThisProcess => {}
            Err(errno) => {
                let name = super::error::printable(name.as_bytes());
                return Err(EntryProblem::Attribute { name, source: errno.into() });
            }
        }
    }
    Ok(())
}

/// Those of the machine (`trusted.`, labels, access lists) and of the overlay say nothing good.
fn is_wanted(name: &[u8], is_file: bool) -> bool {
    name.len() <= ATTRIBUTE_NAME_MAX
        && ((is_file && name == CAPABILITY) || (name.starts_with(OF_PROGRAMS) && !name.starts_with(OF_OVERLAY)))
}
