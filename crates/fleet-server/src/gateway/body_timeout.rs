//! Bodies that have to come in time: whoever sends slowly, or no more, is not waited for.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame};
use tokio::time::{Sleep, sleep};
use tonic::Status;
use tonic::body::Body;

/// A body that fails with `DEADLINE_EXCEEDED` where it is not whole in time.
pub(super) struct Prompt {
    body: Body,
    within: Duration,
    late: Pin<Box<Sleep>>,
}

impl Prompt {
    /// The time begins now. Needs a tokio runtime.
    pub(super) fn new(body: Body, within: Duration) -> Self {
        Self { body, within, late: Box::pin(sleep(within)) }
    }
}

impl HttpBody for Prompt {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            return Poll::Ready(frame);
        }
        ready!(self.late.as_mut().poll(cx));
        let text = format!("the request was not there after {} s: send it faster, or in parts", self.within.as_secs());
        Poll::Ready(Some(Err(Status::deadline_exceeded(text))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use futures::stream::{self, StreamExt as _};
    use http_body_util::{BodyExt as _, StreamBody};

    use super::*;

    #[tokio::test]
    async fn a_body_is_whole_in_time_or_fails() {
        let first = || stream::iter([Ok::<_, Status>(Frame::data(Bytes::from_static(b"ab")))]);
        let whole = Prompt::new(Body::new(StreamBody::new(first())), Duration::from_secs(60));
        assert_eq!(whole.collect().await.expect("whole").to_bytes(), "ab");
        let stuck = Body::new(StreamBody::new(first().chain(stream::pending())));
        let error = Prompt::new(stuck, Duration::from_millis(1)).collect().await.expect_err("late");
        assert_eq!(error.code(), tonic::Code::DeadlineExceeded);
        assert_eq!(error.message(), "the request was not there after 0 s: send it faster, or in parts");
    }
}
