//! What is sent with a call.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use futures::stream;
use http_body_util::{BodyExt as _, Empty, Full, StreamBody};
use hyper::body::Frame;
use tokio::task::spawn_blocking;

use crate::digest::Hasher;
use crate::manifest::Blob;
use crate::registry::transport::Body;

/// Bytes of a file that are read at a time.
const READ_BYTES: u64 = 256 << 10;
const BLOB_KIND: &str = "application/octet-stream";

/// What goes with a call, for as many requests as it takes.
#[derive(Debug, Clone)]
pub(crate) enum Content {
    None,
    Small { kind: String, bytes: Bytes },
    File(Arc<Upload>),
}

impl Content {
    /// All of it from its first byte, for one request.
    pub(super) fn body(&self) -> Body {
        match self {
            Content::None => empty(),
            Content::Small { bytes, .. } => small(bytes.clone()),
            Content::File(upload) => file(Arc::clone(upload)),
        }
    }

    pub(super) fn kind(&self) -> Option<&str> {
        match self {
            Content::None => None,
            Content::Small { kind, .. } => Some(kind),
            Content::File(_) => Some(BLOB_KIND),
        }
    }

    pub(super) fn length(&self) -> u64 {
        match self {
            Content::None => 0,
            Content::Small { bytes, .. } => u64::try_from(bytes.len()).unwrap_or(u64::MAX),
            Content::File(upload) => upload.blob.size,
        }
    }

    pub(super) fn upload(&self) -> Option<&Upload> {
        match self {
            Content::File(upload) => Some(upload),
            _ => None,
        }
    }
}

pub(super) fn empty() -> Body {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

pub(super) fn small(bytes: Bytes) -> Body {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}

/// A blob's file on its way to a registry.
#[derive(Debug)]
pub(crate) struct Upload {
    file: File,
    blob: Blob,
    /// Bytes that the connection took, of the last request.
    taken: AtomicU64,
    /// The same of all uploads.
    taken_of_all: Arc<AtomicU64>,
    is_damaged: AtomicBool,
}

impl Upload {
    pub(crate) fn new(file: File, blob: Blob, taken_of_all: Arc<AtomicU64>) -> Upload {
        Upload { file, blob, taken: AtomicU64::new(0), taken_of_all, is_damaged: AtomicBool::new(false) }
    }

    fn set_taken(&self, bytes: u64) {
        let before = self.taken.swap(bytes, Ordering::Relaxed);
        // Wraps around where it becomes less, which comes to the same.
        self.taken_of_all.fetch_add(bytes.wrapping_sub(before), Ordering::Relaxed);
    }

    pub(crate) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    pub(super) fn is_sent(&self) -> bool {
        self.taken() >= self.blob.size
    }

    /// Whether the file was found to be another than its digest says; then its last bytes were not sent.
    pub(crate) fn is_damaged(&self) -> bool {
        self.is_damaged.load(Ordering::Relaxed)
    }

    /// The bytes at a place. The last ones only if all are what the digest says.
    fn read(&self, at: u64, hasher: &mut Hasher) -> io::Result<Vec<u8>> {
        let damaged = |problem: String| {
            self.is_damaged.store(true, Ordering::Relaxed);
            io::Error::new(io::ErrorKind::InvalidData, problem)
        };
        let count = READ_BYTES.min(self.blob.size - at);
        let mut bytes = vec![0; usize::try_from(count).unwrap_or(0)];
        self.file.read_exact_at(&mut bytes, at).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => damaged(format!("{} is cut", self.blob.digest)),
            _ => error,
        })?;
        hasher.update(&bytes);
        if at + count == self.blob.size && hasher.clone().finish() != self.blob.digest {
            return Err(damaged(format!("the content of {} is another", self.blob.digest)));
        }
        Ok(bytes)
    }
}

/// Reads while it is sent.
fn file(upload: Arc<Upload>) -> Body {
    upload.set_taken(0);
    let frames = stream::try_unfold((upload, 0, Hasher::new()), |(upload, at, mut hasher)| async move {
        // What came before is gone when the next is wanted.
        upload.set_taken(at);
        if at >= upload.blob.size {
            return Ok(None);
        }
        let read = spawn_blocking(move || {
            let bytes = upload.read(at, &mut hasher)?;
            Ok::<_, io::Error>((bytes, upload, hasher))
        });
        let (bytes, upload, hasher) = read.await.map_err(io::Error::other)??;
        let next = at + u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        if next >= upload.blob.size {
            // It may not be asked for more.
            upload.set_taken(next);
        }
        Ok(Some((Frame::data(Bytes::from(bytes)), (upload, next, hasher))))
    });
    StreamBody::new(frames).boxed_unsync()
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;
    use crate::digest::Digest;

    async fn sent(content: &[u8], blob: Blob) -> (io::Result<usize>, Arc<Upload>) {
        let mut written = tempfile::tempfile().unwrap();
        written.write_all(content).unwrap();
        let upload = Arc::new(Upload::new(written, blob, Arc::default()));
        let body = Content::File(Arc::clone(&upload)).body().collect().await;
        (body.map(|body| body.to_bytes().len()), upload)
    }

    #[tokio::test]
    async fn a_file_is_sent_whole_and_a_damaged_one_never() {
        for size in [0, 1, 256 << 10, (256 << 10) + 1, 600_000] {
            let content = vec![7; size];
            let blob = Blob { digest: Digest::of(&content), size: u64::try_from(size).unwrap() };
            let (found, upload) = sent(&content, blob.clone()).await;
            assert_eq!((found.unwrap(), upload.is_damaged(), upload.taken()), (size, false, blob.size));
            if size == 0 {
                continue;
            }
            let mut other = content.clone();
            other[size - 1] = 8;
            for spoiled in [&other[..], &content[..size - 1]] {
                let (found, upload) = sent(spoiled, blob.clone()).await;
                assert!(found.is_err() && upload.is_damaged() && !upload.is_sent(), "{size}");
            }
        }
    }
}
