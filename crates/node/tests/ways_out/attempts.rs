//! The attempts, by what they aim at. Each file has its part of the table.
//!
//! Invariant: an attempt that succeeds changes nothing of the machine that outlives it: it writes a value that is there
//! already, passes arguments that are refused after the check of rights, or undoes what it did.

pub mod calls;
pub mod data;
pub mod devices;
pub mod files;
pub mod kernel;
pub mod limits;
pub mod mounts;
pub mod namespaces;
pub mod network;
pub mod own_users;
pub mod proc_files;
pub mod processes;
pub mod rights;
pub mod syscall;

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use nix::errno::Errno;

use crate::table::Row;

/// Every row that is refused today.
pub const TABLES: &[&[Row]] = &[
    mounts::ROWS,
    namespaces::ROWS,
    processes::ROWS,
    proc_files::ROWS,
    devices::ROWS,
    data::ROWS,
    files::ROWS,
    network::ROWS,
    calls::ROWS,
    kernel::ROWS,
    rights::ROWS,
    limits::ROWS,
    own_users::ROWS,
];

/// What nothing stops today.
pub const TABLES_NOT_HELD_YET: &[&[Row]] = &[files::NOT_HELD_YET, proc_files::NOT_HELD_YET, network::NOT_HELD_YET];

/// Whether a call succeeded, whatever it gave.
fn done<T>(result: nix::Result<T>) -> io::Result<()> {
    Ok(result.map(drop)?)
}

/// A success, or an error that the kernel gives only to those who have the right.
fn but_for<T>(later: Errno, result: nix::Result<T>) -> io::Result<()> {
    match result {
        Ok(_) => Ok(()),
        Err(errno) if errno == later => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Reaching a thing is not enough: it must be the host's own.
fn is_so(found: bool) -> io::Result<()> {
    if found { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
}

/// Whether a file begins with what is to be kept from the pod.
fn read_secret(path: &Path, secret: &str) -> io::Result<()> {
    is_so(fs::read_to_string(path)?.starts_with(secret))
}

fn has_content(path: &str) -> io::Result<()> {
    // Some files of the kernel are read by whole words only.
    let mut word = [0; 8];
    is_so(File::open(path)?.read(&mut word)? > 0)
}

fn open_to_write(path: &str) -> io::Result<()> {
    File::options().write(true).open(path).map(drop)
}

/// Writes to a parameter of the kernel what it is already.
fn write_same(path: &str) -> io::Result<()> {
    let now = fs::read_to_string(path)?;
    let now = now.trim_end();
    // Of several values the one that holds is in brackets.
    let chosen = now.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map_or(now, |(chosen, _)| chosen);
    let mut file = File::options().write(true).open(path)?;
    io::Write::write_all(&mut file, format!("{chosen}\n").as_bytes())
}
