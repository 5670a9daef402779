//! The archive's bytes: decompressed, counted and hashed.
//!
//! Invariant: no more bytes are read than the limit allows, whatever a small blob decompresses to, and no more memory is taken
//! for it than the window that is allowed.

use std::io::{self, BufRead as _, BufReader, Read};

use super::error::LayerError;
use crate::digest::{Digest, Hasher};
use crate::manifest::Compression;

/// Bytes that are read from the disk at a time.
const READ_BYTES: usize = 128 << 10;
/// Bytes of a header or of padding.
pub(crate) const BLOCK: usize = 512;
const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// A frame of Zstandard to be passed over; the lowest four bits are the writer's.
const ZSTD_SKIPPED: [u8; 3] = [0x2a, 0x4d, 0x18];

/// What is in a blob. What it begins with counts, not what its manifest says: as with Docker, and the digest of what comes out is
/// looked at in any case.
pub(crate) fn decompressed<'a>(blob: impl Read + 'a, window_log_max: u32) -> Result<Box<dyn Read + 'a>, LayerError> {
    let mut reader = BufReader::with_capacity(READ_BYTES, blob);
    match compression(reader.fill_buf().map_err(failure)?) {
        Compression::Plain => Ok(Box::new(reader)),
        Compression::Gzip => Ok(Box::new(flate2::bufread::MultiGzDecoder::new(reader))),
        Compression::Zstd => {
            let mut decoder = zstd::stream::read::Decoder::with_buffer(reader).map_err(failure)?;
            decoder.window_log_max(window_log_max).map_err(failure)?;
            Ok(Box::new(decoder))
        }
    }
}

/// How something is packed, by its first bytes.
pub(crate) fn compression(start: &[u8]) -> Compression {
    let is_skipped = start.get(1..4) == Some(&ZSTD_SKIPPED) && start.first().is_some_and(|byte| byte >> 4 == 5);
    if start.starts_with(&GZIP) {
        Compression::Gzip
    } else if start.starts_with(&ZSTD) || is_skipped {
        Compression::Zstd
    } else {
        Compression::Plain
    }
}

/// What an error of a read says of the layer.
pub(crate) fn failure(error: io::Error) -> LayerError {
    match error.downcast::<LayerError>() {
        Ok(error) => error,
        Err(error) => LayerError::Compression(error),
    }
}

/// The bytes of a tar as they come out of a blob.
pub(crate) struct Stream<'a> {
    inner: Box<dyn Read + 'a>,
    hasher: Hasher,
    read: u64,
    max: u64,
}

impl<'a> Stream<'a> {
    pub(crate) fn new(inner: Box<dyn Read + 'a>, max: u64) -> Stream<'a> {
        Stream { inner, hasher: Hasher::new(), read: 0, max }
    }

    /// Bytes that were read so far.
    pub(crate) fn read_bytes(&self) -> u64 {
        self.read
    }

    /// Bytes that may be read yet.
    pub(crate) fn left(&self) -> u64 {
        self.max.saturating_sub(self.read)
    }

    /// The digest of all that was read.
    pub(crate) fn finish(self) -> Digest {
        self.hasher.finish()
    }

    /// The next 512 bytes; none at the end.
    pub(crate) fn block(&mut self) -> Result<Option<[u8; BLOCK]>, LayerError> {
        let mut block = [0; BLOCK];
        let mut filled = 0;
        while let Some(rest @ [_, ..]) = block.get_mut(filled..) {
            match self.read(rest).map_err(failure)? {
                0 if filled == 0 => return Ok(None),
                0 => return Err(LayerError::Truncated),
                count => filled += count,
            }
        }
        Ok(Some(block))
    }

    /// Passes over so many bytes.
    pub(crate) fn skip(&mut self, count: u64) -> Result<(), LayerError> {
        let skipped = io::copy(&mut self.by_ref().take(count), &mut io::sink()).map_err(failure)?;
        if skipped < count { Err(LayerError::Truncated) } else { Ok(()) }
    }

    /// Reads all that is left.
    pub(crate) fn drain(&mut self) -> Result<(), LayerError> {
        let mut buffer = vec![0; READ_BYTES];
        while self.read(&mut buffer).map_err(failure)? > 0 {}
        Ok(())
    }
}

impl Read for Stream<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = loop {
            match self.inner.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read?,
            }
        };
        self.hasher.update(buffer.get(..count).unwrap_or_default());
        self.read = self.read.saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
        if self.read > self.max {
            return Err(io::Error::other(LayerError::TooManyBytes { max: self.max }));
        }
        Ok(count)
    }
}
