//! Files that a flag names, with a bound on their size.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The bytes of a file that has at most `max` of them.
pub fn read_bounded(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // One byte more than may be shows that there are too many; the length that a file claims may be wrong.
    File::open(path)?.take(max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max {
        return Err(io::Error::other(format!("it has more than {} KiB", max >> 10)));
    }
    Ok(bytes)
}
