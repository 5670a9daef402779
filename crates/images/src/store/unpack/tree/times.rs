//! The times of folders, which change as long as files are made in them.
//!
//! Invariant: they wait on the disk, so that memory does not grow with their number.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read as _, Seek as _, Write as _};
use std::path::Path;

/// The list's name, in the folder of the work.
const NAME: &str = "times";

/// Paths and times, in the archive's order.
pub(super) struct Times {
    file: BufWriter<File>,
}

impl Times {
    pub(super) fn new(work: &Path) -> io::Result<Times> {
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(work.join(NAME))?;
        Ok(Times { file: BufWriter::new(file) })
    }

    pub(super) fn add(&mut self, path: &[u8], (seconds, nanoseconds): (i64, i64)) -> io::Result<()> {
        let length = u32::try_from(path.len()).map_err(io::Error::other)?;
        self.file.write_all(&length.to_ne_bytes())?;
        self.file.write_all(&seconds.to_ne_bytes())?;
        self.file.write_all(&nanoseconds.to_ne_bytes())?;
        self.file.write_all(path)
    }

    /// Goes through all of them, once.
    pub(super) fn for_each(&mut self, mut set: impl FnMut(&[u8], (i64, i64)) -> io::Result<()>) -> io::Result<()> {
        self.file.flush()?;
        let file = self.file.get_mut();
        file.rewind()?;
        let mut reader = BufReader::new(file);
        let mut path = Vec::new();
        loop {
            let (mut length, mut seconds, mut nanoseconds) = ([0; 4], [0; 8], [0; 8]);
            match reader.read_exact(&mut length) {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
                read => read?,
            }
            reader.read_exact(&mut seconds)?;
            reader.read_exact(&mut nanoseconds)?;
            path.clear();
            (&mut reader).take(u64::from(u32::from_ne_bytes(length))).read_to_end(&mut path)?;
            set(&path, (i64::from_ne_bytes(seconds), i64::from_ne_bytes(nanoseconds)))?;
        }
    }
}
