//! `GET /pumice/backup`: everything in the store at one moment, as a file of a backup.
//!
//! Invariant: what is streamed is of one revision, whatever is written meanwhile; writers wait only while the list of the
//! objects is copied. No built-in grant names the path, so it takes a right to all of them: secrets are in it. Asked by
//! `pumice backup`, which adds what else belongs to a platform.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Response, header};
use pumice_store::{BackupEncoder, BackupHeader, Object};

use crate::context::State;
use crate::http::body::Body;

/// Size of the pieces, in bytes.
const PIECE_BYTES: usize = 64 * 1024;

/// Streams a backup of now.
pub(crate) fn answer(state: &State) -> Response<Body> {
    let snapshot = state.storage.store.snapshot();
    let header = BackupHeader {
        uid: snapshot.uid.to_string(),
        revision: snapshot.revision,
        created_seconds: state.storage.clock.now().as_second(),
        made_by: env!("CARGO_PKG_VERSION").to_owned(),
    };
    tracing::info!(revision = header.revision, objects = snapshot.objects.len(), "a backup is read");
    let mut begun = Vec::with_capacity(PIECE_BYTES);
    let encoder = BackupEncoder::begin(&header, &mut begun);
    let pieces = Pieces { encoder: Some(encoder), begun, objects: snapshot.objects.into_iter() };
    let mut response = Response::new(Body::stream(futures::stream::iter(pieces)));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    response
}

struct Pieces {
    /// None once the end is written.
    encoder: Option<BackupEncoder>,
    begun: Vec<u8>,
    objects: std::vec::IntoIter<Arc<Object>>,
}

impl Iterator for Pieces {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let encoder = self.encoder.as_mut()?;
        while self.begun.len() < PIECE_BYTES {
            let Some(object) = self.objects.next() else {
                self.encoder.take()?.end(&mut self.begun);
                break;
            };
            encoder.object(&object, &mut self.begun);
        }
        Some(Bytes::from(std::mem::replace(&mut self.begun, Vec::with_capacity(PIECE_BYTES))))
    }
}
