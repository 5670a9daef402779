//! One question of the gRPC health protocol: `grpc.health.v1.Health/Check`, in clear over HTTP/2.
//!
//! Invariant: messages of two fields need no library; what is not understood is skipped, and what is read is bounded.
//! <https://github.com/grpc/grpc/blob/master/doc/health-checking.md>

use bytes::{BufMut, Bytes, BytesMut};
use http::header::{CONTENT_TYPE, TE, USER_AGENT};
use http::{HeaderMap, Request};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::{TokioExecutor, TokioIo};

use crate::probes::action::{ContainerTarget, connect, over};
use crate::probes::http::AGENT;

/// Most of an answer that is read, in bytes.
const ANSWER_BYTES_MAX: usize = 4 << 10;
/// Length of what goes before a message: whether it is compressed, and its own length.
const PREFIX_BYTES: usize = 5;
const SERVING: u64 = 1;
const OK: &str = "0";
const UNIMPLEMENTED: &str = "12";

/// Asks whether `service` is well; all of the server where that is empty. The error is a sentence.
pub(crate) async fn check(target: &ContainerTarget<'_>, port: u16, service: &str) -> Result<(), String> {
    let host = target.target(None)?;
    let stream = connect(target, host, port).await?;
    let failed = |error: hyper::Error| format!("can't ask the gRPC server at {host}:{port}: {error}");
    let request = Request::post(format!("http://{host}:{port}/grpc.health.v1.Health/Check"))
        .header(CONTENT_TYPE, "application/grpc")
        .header(TE, "trailers")
        .header(USER_AGENT, AGENT)
        .body(Full::new(question(service)))
        .map_err(|error| format!("{host}:{port} can't be asked: {error}"))?;
    let builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await.map_err(failed)?;
    let answer = async {
        let answer = sender.send_request(request).await?;
        if answer.status() != http::StatusCode::OK {
            return Ok(Err(format!("the gRPC server answered with HTTP status {}", answer.status())));
        }
        // An answer without a message has its end in its head.
        let head = answer.headers().clone();
        let body = match Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await {
            Ok(body) => body,
            Err(error) => return Ok(Err(format!("can't read the gRPC server's answer: {error}"))),
        };
        let end = body.trailers().cloned().unwrap_or(head);
        Ok(judge(&end, &body.to_bytes()))
    };
    over(connection, answer).await.map_err(failed)?
}

/// A `HealthCheckRequest` with its prefix.
fn question(service: &str) -> Bytes {
    let mut message = BytesMut::new();
    if !service.is_empty() {
        // Field 1, a text.
        message.put_u8(0x0a);
        let mut length = service.len();
        while length >= 0x80 {
            message.put_u8((length & 0x7f) as u8 | 0x80);
            length >>= 7;
        }
        message.put_u8(length as u8);
        message.put_slice(service.as_bytes());
    }
    let mut out = BytesMut::with_capacity(PREFIX_BYTES + message.len());
    out.put_u8(0);
    out.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    out.put_slice(&message);
    out.freeze()
}

fn judge(end: &HeaderMap, body: &[u8]) -> Result<(), String> {
    let text = |name: &str| end.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    match text("grpc-status") {
        OK => {}
        UNIMPLEMENTED => {
            return Err("this server does not implement the grpc health protocol (grpc.health.v1.Health)".to_owned());
        }
        "" => return Err("the gRPC server's answer has no status".to_owned()),
        code => {
            let code = code.parse::<u32>().map_or_else(|_| "that is no number".to_owned(), |code| code.to_string());
            return Err(format!("the gRPC server answered with code {code}"));
        }
    }
    let message = match body.split_at_checked(PREFIX_BYTES) {
        Some(([0, ..], message)) => message,
        _ => return Err("the gRPC server's answer is compressed or no message".to_owned()),
    };
    match health(message) {
        Some(SERVING) => Ok(()),
        Some(other) => {
            let name = ["UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"];
            let name = usize::try_from(other).ok().and_then(|at| name.get(at)).unwrap_or(&"?");
            Err(format!("service unhealthy (responded with {name:?})"))
        }
        None => Err("the gRPC server's answer is no HealthCheckResponse".to_owned()),
    }
}

/// The status in a `HealthCheckResponse`: the last field 1, or 0.
fn health(mut message: &[u8]) -> Option<u64> {
    let mut status = 0;
    while !message.is_empty() {
        let tag = varint(&mut message)?;
        match (tag >> 3, tag & 7) {
            (1, 0) => status = varint(&mut message)?,
            (_, 0) => drop(varint(&mut message)?),
            (_, 1) => message = message.get(8..)?,
            (_, 2) => {
                let length = usize::try_from(varint(&mut message)?).ok()?;
                message = message.get(length..)?;
            }
            (_, 5) => message = message.get(4..)?,
            _ => return None,
        }
    }
    Some(status)
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probes::action::tests::OnHost;
    use std::convert::Infallible;

    use http::{HeaderValue, Response};
    use hyper::body::{Frame, Incoming};
    use hyper::service::service_fn;
    use tokio::net::TcpListener;

    /// A server of one service, that answers with a status and a message.
    async fn server(status: &'static str, message: &'static [u8]) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let answer = move |request: Request<Incoming>| async move {
            assert_eq!(request.uri().path(), "/grpc.health.v1.Health/Check");
            let asked = request.into_body().collect().await.unwrap().to_bytes();
            let known = asked == question("") || asked == question("a.B");
            let mut end = HeaderMap::new();
            end.insert("grpc-status", HeaderValue::from_static(if known { status } else { "5" }));
            let frames = [Frame::data(Bytes::from_static(message)), Frame::trailers(end)];
            let body = http_body_util::StreamBody::new(futures::stream::iter(frames.map(Ok::<_, Infallible>)));
            Ok::<_, Infallible>(Response::new(body))
        };
        #[allow(clippy::disallowed_methods, reason = "ends with the test's runtime")]
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let serving = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                let _ = serving.serve_connection(TokioIo::new(stream), service_fn(answer)).await;
            }
        });
        port
    }

    #[tokio::test]
    async fn a_server_is_as_well_as_it_says() {
        let cases: [(&str, &[u8], &str, &str); 7] = [
            ("0", &[0, 0, 0, 0, 2, 8, 1], "", ""),
            ("0", &[0, 0, 0, 0, 2, 8, 1], "a.B", ""),
            ("0", &[0, 0, 0, 0, 2, 8, 2], "a.B", "service unhealthy (responded with \"NOT_SERVING\")"),
            ("0", &[0, 0, 0, 0, 0], "", "service unhealthy (responded with \"UNKNOWN\")"),
            ("0", &[1, 0, 0, 0, 2, 8, 1], "", "the gRPC server's answer is compressed or no message"),
            ("12", &[], "", "this server does not implement the grpc health protocol (grpc.health.v1.Health)"),
            ("0", &[0, 0, 0, 0, 2, 8, 1], "other", "the gRPC server answered with code 5"),
        ];
        let pod = OnHost::new();
        for (status, message, service, expected) in cases {
            let port = server(status, message).await;
            let said = check(&pod.target(), port, service).await.err().unwrap_or_default();
            assert_eq!(said, expected, "{status} {message:?} {service:?}");
        }
    }

    #[test]
    fn messages_are_as_protobuf_has_them() {
        assert_eq!(question(""), &[0, 0, 0, 0, 0][..]);
        assert_eq!(question("ab"), &[0, 0, 0, 0, 4, 0x0a, 2, b'a', b'b'][..]);
        assert_eq!(question(&"x".repeat(300))[5..8], [0x0a, 0xac, 0x02]);
        let cases: [(&[u8], Option<u64>); 7] = [
            (&[], Some(0)),
            (&[8, 1], Some(1)),
            (&[0x12, 2, 9, 9, 8, 3, 0x1d, 1, 2, 3, 4], Some(3)),
            (&[8], None),
            (&[0x12, 200], None),
            (&[0x0b], None),
            (&[8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1], None),
        ];
        for (message, expected) in cases {
            assert_eq!(health(message), expected, "{message:?}");
        }
    }
}
