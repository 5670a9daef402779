//! The response body: one buffer, a list of shared stored objects, or a stream.
//!
//! Invariant: a list body copies at most [`CHUNK_BYTES`] at a time, so a list of any size costs little memory.
//! Made by the pipeline, the watch and proxies; read by hyper or an in-process client.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{BufMut, Bytes, BytesMut};
use futures::{Stream, StreamExt};
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use pumice_store::Object;

/// Size of the frames of list bodies, in bytes.
const CHUNK_BYTES: usize = 64 * 1024;

/// Why a body broke off.
#[derive(Debug, thiserror::Error)]
#[error("the body broke off")]
pub struct BodyError(#[source] Box<dyn std::error::Error + Send + Sync>);

impl BodyError {
    /// Says that a body broke off because of this; the cause is the error's source.
    pub fn new(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self(cause.into())
    }
}

/// Body of requests and responses of the API server.
pub struct Body {
    inner: Inner,
    /// Lives as long as the body does.
    _guard: Option<Box<dyn Send>>,
}

enum Inner {
    Once(Option<Bytes>),
    List(ListBody),
    Stream(Pin<Box<dyn Stream<Item = Bytes> + Send>>),
    Other(UnsyncBoxBody<Bytes, BodyError>),
}

impl Body {
    fn of(inner: Inner) -> Self {
        Self { inner, _guard: None }
    }

    /// The same, keeping `guard` until it was read, or dropped, beside those that it has.
    pub(crate) fn guarded(self, guard: impl Send + 'static) -> Self {
        let guard: Box<dyn Send> = match self._guard {
            None => Box::new(guard),
            Some(before) => Box::new((before, guard)),
        };
        Self { _guard: Some(guard), ..self }
    }

    /// All of it, where it is in one piece.
    pub(crate) fn whole(&self) -> Option<&Bytes> {
        match &self.inner {
            Inner::Once(bytes) => bytes.as_ref(),
            _ => None,
        }
    }

    /// A body that ends at once.
    pub fn empty() -> Self {
        Self::of(Inner::Once(None))
    }

    /// Wraps any other body.
    pub fn new<B>(body: B) -> Self
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        Self::of(Inner::Other(body.map_err(BodyError::new).boxed_unsync()))
    }

    /// A body whose end is not known.
    pub fn stream(chunks: impl Stream<Item = Bytes> + Send + 'static) -> Self {
        Self::of(Inner::Stream(Box::pin(chunks)))
    }

    pub(crate) fn list(head: Bytes, items: Vec<Arc<Object>>, tail: &'static str) -> Self {
        let commas = items.len().saturating_sub(1);
        let bodies: usize = items.iter().map(|item| item.body.len()).sum();
        let remaining = head.len() + commas + bodies + tail.len();
        let pending = BytesMut::from(&head[..]);
        Self::of(Inner::List(ListBody { pending, items: items.into_iter(), first: true, tail: Some(tail), remaining }))
    }
}

impl<T: Into<Bytes>> From<T> for Body {
    fn from(bytes: T) -> Self {
        Self::of(Inner::Once(Some(bytes.into()).filter(|bytes| !bytes.is_empty())))
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.inner {
            Inner::Once(_) => "Body::Once",
            Inner::List(_) => "Body::List",
            Inner::Stream(_) => "Body::Stream",
            Inner::Other(_) => "Body::Other",
        })
    }
}

struct ListBody {
    pending: BytesMut,
    items: std::vec::IntoIter<Arc<Object>>,
    first: bool,
    tail: Option<&'static str>,
    remaining: usize,
}

impl ListBody {
    fn next_chunk(&mut self) -> Option<Bytes> {
        while self.pending.len() < CHUNK_BYTES {
            let Some(item) = self.items.next() else {
                if let Some(tail) = self.tail.take() {
                    self.pending.put_slice(tail.as_bytes());
                }
                break;
            };
            if !std::mem::take(&mut self.first) {
                self.pending.put_u8(b',');
            }
            self.pending.put_slice(&item.body);
        }
        let chunk = self.pending.split().freeze();
        self.remaining -= chunk.len();
        Some(chunk).filter(|chunk| !chunk.is_empty())
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match &mut self.inner {
            Inner::Once(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Inner::List(list) => Poll::Ready(list.next_chunk().map(|bytes| Ok(Frame::data(bytes)))),
            Inner::Stream(stream) => stream.poll_next_unpin(cx).map(|next| next.map(|bytes| Ok(Frame::data(bytes)))),
            Inner::Other(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.inner {
            Inner::Once(bytes) => bytes.is_none(),
            Inner::List(list) => list.remaining == 0,
            Inner::Stream(_) => false,
            Inner::Other(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.inner {
            Inner::Once(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Inner::List(list) => SizeHint::with_exact(list.remaining as u64),
            Inner::Stream(_) => SizeHint::default(),
            Inner::Other(body) => body.size_hint(),
        }
    }
}
