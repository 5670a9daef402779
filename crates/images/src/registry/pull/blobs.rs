//! One blob from a registry: into the store, or only to see that the registry has it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_RANGE;
use http::{Method, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, timeout_at};

use super::{Progress, Pull, PullError, blocking, check, is_given, is_said_to_be_there};
use crate::digest::Hasher;
use crate::manifest::Blob;
use crate::registry::error::RegistryError;
use crate::registry::session::{Call, Session};
use crate::store::{Begun, Download, Origin, StoreError};

/// What is gathered before it is written, in bytes.
const WRITTEN_AT_ONCE: usize = 1 << 20;
/// How often it is looked whether somebody else has brought a blob.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Where the bytes of a blob go.
trait Sink {
    /// Bytes that are there already.
    fn length(&self) -> u64;
    async fn append(&mut self, bytes: Vec<u8>) -> Result<(), PullError>;
    async fn restart(&mut self) -> Result<(), PullError>;
}

/// Into the store. None while a thread writes.
struct Stored(Option<Download>);

impl Stored {
    async fn with(
        &mut self,
        work: impl FnOnce(&mut Download) -> Result<(), StoreError> + Send + 'static,
    ) -> Result<(), PullError> {
        let Some(mut download) = self.0.take() else { return Ok(()) };
        let (download, result) = spawn_blocking(move || {
            let result = work(&mut download);
            (download, result)
        })
        .await
        .map_err(PullError::Task)?;
        self.0 = Some(download);
        Ok(result?)
    }
}

impl Sink for Stored {
    fn length(&self) -> u64 {
        self.0.as_ref().map_or(0, Download::length)
    }

    async fn append(&mut self, bytes: Vec<u8>) -> Result<(), PullError> {
        self.with(move |download| download.append(&bytes)).await
    }

    async fn restart(&mut self) -> Result<(), PullError> {
        self.with(Download::restart).await
    }
}

/// Only what they are.
struct Hashed {
    hasher: Hasher,
    length: u64,
}

impl Sink for Hashed {
    fn length(&self) -> u64 {
        self.length
    }

    async fn append(&mut self, bytes: Vec<u8>) -> Result<(), PullError> {
        self.length += u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        self.hasher.update(&bytes);
        Ok(())
    }

    async fn restart(&mut self) -> Result<(), PullError> {
        *self = Hashed { hasher: Hasher::new(), length: 0 };
        Ok(())
    }
}

pub(super) async fn fetch_blob(pull: Pull<'_>, blob: &Blob) -> Result<(), PullError> {
    let Pull { session, store, origins, progress } = pull;
    let origin = Origin::of(&session.endpoint.host, session.credential.is_some());
    let mut is_again = false;
    loop {
        let Some(download) = begin(pull, blob, &origin).await? else {
            // It is there, maybe for others alone: then this registry must show that it has it, too.
            if is_given(pull, blob).await? {
                progress.add(blob.size);
            } else {
                stream_blob(session, blob, progress).await?;
                origins.add(store, &blob.digest, origin).await?;
            }
            return Ok(());
        };
        let mut sink = Stored(Some(download));
        // Of what is whole nothing is asked for, and it may be somebody else's at this registry.
        if sink.length() == blob.size && origin != Origin::Public && !is_said_to_be_there(session, blob).await? {
            sink.restart().await?;
        }
        let beginning = sink.length();
        progress.add(beginning);
        receive(session, blob, &mut sink, progress).await?;
        let Some(download) = sink.0 else { continue };
        match blocking(move || download.finish()).await {
            // The bad bytes may be those that another registry began with.
            Err(PullError::Store(StoreError::Digest { .. })) if beginning > 0 && !is_again => {
                progress.take_back(blob.size);
                is_again = true;
            }
            Err(PullError::Store(StoreError::Digest { expected, found })) => {
                return Err(PullError::Digest { host: session.host(), wanted: expected, found });
            }
            done => return done,
        }
    }
}

/// Begins a download; none if the blob is there. Waits for somebody who brings the same from the same origin, as long as he
/// gets on: a registry that drips keeps up those alone who want it from there.
async fn begin(pull: Pull<'_>, blob: &Blob, origin: &Origin) -> Result<Option<Download>, PullError> {
    let (store, patience) = (pull.store, &pull.session.patience);
    let start = Instant::now();
    let mut look: Option<(Instant, u64)> = None;
    loop {
        let (opened, wanted, from) = (Arc::clone(store), blob.clone(), origin.clone());
        let length = match blocking(move || opened.download(&wanted, &from)).await? {
            Begun::There => return Ok(None),
            Begun::Now(download) => return Ok(Some(*download)),
            Begun::Elsewhere { length } => length,
        };
        let (since, before) = *look.get_or_insert((start, length));
        let is_over = since.elapsed() >= patience.window;
        if start.elapsed() >= patience.others || is_over && length < before.saturating_add(patience.others_bytes) {
            tracing::debug!(blob = %blob.digest, length, "another pull brings it too slowly");
            let (opened, wanted, from) = (Arc::clone(store), blob.clone(), origin.clone());
            return blocking(move || opened.download_beside(&wanted, &from)).await.map(Some);
        }
        if is_over {
            look = Some((Instant::now(), length));
        }
        sleep(LOOK_EVERY).await;
    }
}

async fn stream_blob(session: &Session, blob: &Blob, progress: &Progress) -> Result<(), PullError> {
    let mut sink = Hashed { hasher: Hasher::new(), length: 0 };
    receive(session, blob, &mut sink, progress).await?;
    check(session, &blob.digest.to_string(), &sink.hasher.finish())
}

/// Gets all bytes of a blob, going on where the connection ended.
async fn receive(session: &Session, blob: &Blob, sink: &mut impl Sink, progress: &Progress) -> Result<(), PullError> {
    let (mut failures, mut most) = (0, sink.length());
    while sink.length() < blob.size {
        let result = receive_some(session, blob, sink, progress).await;
        let Err(error) = result else { continue };
        // A call that failed has had its tries.
        let is_cut = matches!(
            &error,
            PullError::Registry(RegistryError::Cut { .. } | RegistryError::Short { .. } | RegistryError::Slow { .. })
        );
        // Bytes that come again, as from a registry without ranges, are no progress.
        failures = if sink.length() >= most.saturating_add(session.patience.bytes) { 0 } else { failures + 1 };
        most = most.max(sink.length());
        if !is_cut || failures >= session.patience.tries {
            return Err(error);
        }
        sleep(session.patience.pause.pause(failures)).await;
    }
    Ok(())
}

/// Gets what one answer brings, which may end early.
async fn receive_some(
    session: &Session,
    blob: &Blob,
    sink: &mut impl Sink,
    progress: &Progress,
) -> Result<(), PullError> {
    let path = format!("blobs/{}", blob.digest);
    let from = sink.length();
    let whole = Call::new(Method::GET, path.clone());
    let mut answer = match session.call(&Call { from, ..Call::new(Method::GET, path) }).await {
        Err(RegistryError::Answer { status: 416, .. }) if from > 0 => {
            progress.take_back(from);
            sink.restart().await?;
            session.call(&whole).await?
        }
        answer => answer?,
    };
    if sink.length() > 0 && !goes_on_at(&answer, sink.length()) {
        // It does not do ranges: all of it comes again.
        progress.take_back(sink.length());
        sink.restart().await?;
        if answer.status() == StatusCode::PARTIAL_CONTENT {
            // It is another part, or nobody knows which.
            answer = session.call(&whole).await?;
        }
    }
    let mut body = answer.into_body();
    let mut gathered: Vec<u8> = Vec::new();
    let mut received = 0;
    let result = loop {
        match next(session, &mut body, &mut received).await {
            Ok(Some(data)) => {
                let there = sink.length() + u64::try_from(gathered.len() + data.len()).unwrap_or(u64::MAX);
                if there > blob.size {
                    let (host, what, limit) = (session.host(), blob.digest.to_string(), blob.size);
                    break Err(RegistryError::TooLarge { host, what, limit }.into());
                }
                gathered.extend_from_slice(&data);
                progress.receive(u64::try_from(data.len()).unwrap_or(u64::MAX));
                if gathered.len() >= WRITTEN_AT_ONCE {
                    sink.append(std::mem::take(&mut gathered)).await?;
                }
            }
            Ok(None) if sink.length() + u64::try_from(gathered.len()).unwrap_or(u64::MAX) < blob.size => {
                break Err(
                    RegistryError::Short { host: session.host(), what: blob.digest.to_string(), received }.into()
                );
            }
            Ok(None) => break Ok(()),
            Err(error) => break Err(error.into()),
        }
    };
    if !gathered.is_empty() {
        sink.append(gathered).await?;
    }
    result
}

/// Whether an answer is the rest from this byte on.
fn goes_on_at(answer: &Response<Incoming>, from: u64) -> bool {
    let range = answer.headers().get(CONTENT_RANGE).and_then(|range| range.to_str().ok());
    answer.status() == StatusCode::PARTIAL_CONTENT
        && range.is_some_and(|range| range.starts_with(&format!("bytes {from}-")))
}

/// The next piece of a body; an error where too little comes for too long.
async fn next(session: &Session, body: &mut Incoming, received: &mut u64) -> Result<Option<Bytes>, RegistryError> {
    let patience = &session.patience;
    let (deadline, mut within) = (Instant::now() + patience.window, Vec::new());
    loop {
        let Ok(frame) = timeout_at(deadline, body.frame()).await else {
            let seconds = patience.window.as_secs();
            return Err(RegistryError::Slow { host: session.host(), received: *received, seconds });
        };
        let data = match frame {
            None => return Ok((!within.is_empty()).then(|| Bytes::from(within))),
            Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
            // The next look at the body says that it is over.
            Some(Err(_)) if !within.is_empty() => return Ok(Some(Bytes::from(within))),
            Some(Err(source)) => {
                return Err(RegistryError::Cut { host: session.host(), received: *received, source });
            }
        };
        *received += u64::try_from(data.len()).unwrap_or(u64::MAX);
        if within.is_empty() && u64::try_from(data.len()).unwrap_or(u64::MAX) >= patience.bytes {
            return Ok(Some(data));
        }
        within.extend_from_slice(&data);
        if u64::try_from(within.len()).unwrap_or(u64::MAX) >= patience.bytes {
            return Ok(Some(Bytes::from(within)));
        }
    }
}
