//! What goes back over plain HTTP, in JSON.

use std::convert::Infallible;

use bytes::Bytes;
use futures::{Stream, StreamExt};
use http::header::{CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use http::{Response, StatusCode};
use http_body::Frame;
use http_body_util::{Full, StreamBody};
use serde::Serialize;
use tonic::body::Body;
use tonic::{Code, Status};

use super::error::Error;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// Passwords are taken, too. Asked for them, a browser would send them along with whatever any page has it send.
const LOG_IN: HeaderValue = HeaderValue::from_static("Bearer");

/// An error, as in Google's `rpc.Status`.
#[derive(Serialize)]
struct ErrorBody<'a> {
    code: i32,
    message: &'a str,
    details: [(); 0],
}

/// A line of a stream.
#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum Line<'a, T> {
    Result(T),
    Error(ErrorBody<'a>),
}

impl<'a> ErrorBody<'a> {
    fn new(code: Code, message: &'a str) -> Self {
        ErrorBody { code: code.into(), message, details: [] }
    }
}

/// One message, or why there is none.
pub(super) fn single<T: Serialize>(answer: Result<tonic::Response<T>, Status>) -> Result<Response<Body>, Error> {
    let message = answer.map_err(Error::Call)?.into_inner();
    let text = serde_json::to_vec(&message).map_err(Error::Unwritable)?;
    Ok(response(StatusCode::OK, Body::new(Full::from(text))))
}

/// Messages as they come, each on a line. An error is the last line.
pub(super) fn stream<T, S>(answer: Result<tonic::Response<S>, Status>) -> Result<Response<Body>, Error>
where
    T: Serialize,
    S: Stream<Item = Result<T, Status>> + Send + 'static,
{
    let messages = answer.map_err(Error::Stream)?.into_inner();
    let lines = messages.scan(false, |ended, message| {
        let line = if *ended { None } else { Some(line(message)) };
        *ended |= matches!(line, Some(Err(_)));
        std::future::ready(line.map(|(Ok(line) | Err(line))| Ok::<_, Infallible>(Frame::data(line))))
    });
    Ok(response(StatusCode::OK, Body::new(StreamBody::new(lines))))
}

/// The answer to a request that is not done.
pub(super) fn refused(error: &Error) -> Response<Body> {
    let message = error.to_string();
    let body = ErrorBody::new(error.code(), &message);
    let text = match error {
        Error::Stream(_) => written(&Line::<()>::Error(body)),
        _ => serde_json::to_vec(&body).map(Bytes::from),
    };
    let mut response = response(error.http(), Body::new(Full::new(text.unwrap_or_default())));
    if error.code() == Code::Unauthenticated {
        response.headers_mut().insert(WWW_AUTHENTICATE, LOG_IN);
    }
    response
}

/// The line of a message; one that is an error is the last.
fn line<T: Serialize>(message: Result<T, Status>) -> Result<Bytes, Bytes> {
    let error = |code, message: &str| written(&Line::<()>::Error(ErrorBody::new(code, message))).unwrap_or_default();
    match message {
        Ok(message) => written(&Line::Result(message)).map_err(|cause| {
            let cause = Error::Unwritable(cause);
            error(cause.code(), &cause.to_string())
        }),
        Err(status) => Err(error(status.code(), status.message())),
    }
}

fn written<T: Serialize>(line: &Line<'_, T>) -> Result<Bytes, serde_json::Error> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    Ok(text.into())
}

fn response(status: StatusCode, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;
    use serde_json::{Value, json};

    use super::*;
    use pumice_wire::wellknown::Timestamp;

    async fn lines<T: Serialize + Send + 'static>(messages: Vec<Result<T, Status>>) -> Vec<Value> {
        let response = stream(Ok(tonic::Response::new(futures::stream::iter(messages)))).unwrap();
        let text = response.into_body().collect().await.unwrap().to_bytes();
        serde_json::Deserializer::from_slice(&text).into_iter().map(|line| line.unwrap()).collect()
    }

    #[tokio::test]
    async fn an_error_is_the_last_line() {
        let body = lines(vec![Ok(1), Err(Status::unavailable("it ends")), Ok(2)]).await;
        let error = json!({ "error": { "code": 14, "message": "it ends", "details": [] } });
        assert_eq!(body, [json!({ "result": 1 }), error]);

        let body = lines(vec![Ok(Timestamp { seconds: i64::MAX, nanos: 0 }), Ok(Timestamp::default())]).await;
        assert_eq!((body.len(), &body[0]["error"]["code"]), (1, &json!(13)));
    }
}
