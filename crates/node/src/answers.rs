//! Answers of the node over HTTP.

use std::convert::Infallible;
use std::io;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Empty, Full};

/// The body of an answer.
pub type NodeBody = BoxBody<Bytes, io::Error>;

/// An answer in JSON.
pub(crate) fn json(body: Vec<u8>) -> Response<NodeBody> {
    let mut response = Response::new(whole(Full::new(Bytes::from(body))));
    let kind = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(http::header::CONTENT_TYPE, kind);
    response
}

/// An answer of one line.
pub(crate) fn text(code: StatusCode, said: &str) -> Response<NodeBody> {
    let mut response = Response::new(whole(Full::new(Bytes::from(said.to_owned()))));
    *response.status_mut() = code;
    response
}

/// No body.
pub(crate) fn empty() -> NodeBody {
    whole(Empty::new())
}

fn whole<B>(body: B) -> NodeBody
where
    B: http_body::Body<Data = Bytes, Error = Infallible> + Send + Sync + 'static,
{
    body.map_err(|never| match never {}).boxed()
}
