//! Why a request over plain HTTP is not answered with a message, and the codes that say so.

use http::StatusCode;
use thiserror::Error as ThisError;
use tonic::{Code, Status};

/// Why there is no message.
#[derive(Debug, ThisError)]
pub(super) enum Error {
    /// Under this path there is nothing.
    #[error("no call has this path")]
    Path,
    /// Under this path there are other methods.
    #[error("no call has this method under this path")]
    Method,
    /// Armada has the service and this server doesn't.
    #[error("this server has no {service}: {call} is not answered")]
    NotServed { service: &'static str, call: &'static str },
    /// The body is too long.
    #[error("the body has more than {0} bytes")]
    TooLarge(usize),
    /// The body does not come.
    #[error("the body was not there after {0} s")]
    TooSlow(u64),
    /// The body ends before it is whole.
    #[error("the body broke off: {0}")]
    Broken(String),
    /// The body is not the call's message.
    #[error("the body: {0}")]
    Json(#[source] serde_json::Error),
    /// The query has not the fields of the call's message.
    #[error("the query: {0}")]
    Query(#[source] serde::de::value::Error),
    /// The path has not the fields of the call's message.
    #[error("the path: {0}")]
    PathFields(#[source] serde::de::value::Error),
    #[error("{}", .0.message())]
    Call(#[source] Status),
    /// The call refuses, and would have answered with a stream.
    #[error("{}", .0.message())]
    Stream(#[source] Status),
    /// The answer has no JSON.
    #[error("the answer can't be written: {0}")]
    Unwritable(#[source] serde_json::Error),
}

impl Error {
    /// Its code in gRPC.
    pub(super) fn code(&self) -> Code {
        match self {
            Error::Path => Code::NotFound,
            Error::Method | Error::NotServed { .. } => Code::Unimplemented,
            Error::TooLarge(_) => Code::ResourceExhausted,
            Error::TooSlow(_) => Code::DeadlineExceeded,
            Error::Broken(_) | Error::Json(_) | Error::Query(_) | Error::PathFields(_) => Code::InvalidArgument,
            Error::Call(status) | Error::Stream(status) => status.code(),
            Error::Unwritable(_) => Code::Internal,
        }
    }

    /// Its code in HTTP.
    pub(super) fn http(&self) -> StatusCode {
        match self {
            // Of the code they have in gRPC, clients would think that to wait helps.
            Error::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Error::TooSlow(_) => StatusCode::REQUEST_TIMEOUT,
            _ => http(self.code()),
        }
    }

    /// Whether who runs the server should know of it.
    pub(super) fn is_ours(&self) -> bool {
        matches!(self.code(), Code::Unknown | Code::Internal | Code::DataLoss)
    }
}

/// The code in HTTP for one of gRPC, as grpc-gateway has them.
pub(super) fn http(code: Code) -> StatusCode {
    match code {
        Code::Ok => StatusCode::OK,
        // The client has gone, which has no name in HTTP.
        Code::Cancelled => StatusCode::from_u16(499).unwrap_or(StatusCode::BAD_REQUEST),
        Code::InvalidArgument | Code::FailedPrecondition | Code::OutOfRange => StatusCode::BAD_REQUEST,
        Code::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
        Code::NotFound => StatusCode::NOT_FOUND,
        Code::AlreadyExists | Code::Aborted => StatusCode::CONFLICT,
        Code::PermissionDenied => StatusCode::FORBIDDEN,
        Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
        Code::Unimplemented => StatusCode::NOT_IMPLEMENTED,
        Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        Code::Unknown | Code::Internal | Code::DataLoss => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_those_of_grpc_gateway() {
        // In the order of gRPC's numbers.
        let expected = [200, 499, 500, 400, 504, 404, 409, 403, 429, 400, 409, 400, 501, 500, 503, 500, 401]
            .into_iter()
            .enumerate();
        for (number, expected) in expected {
            let code = Code::from_i32(i32::try_from(number).unwrap());
            assert_eq!(http(code).as_u16(), expected, "{code:?}");
        }
        assert_eq!((Error::TooLarge(1).code(), Error::TooLarge(1).http().as_u16()), (Code::ResourceExhausted, 413));
        assert_eq!((Error::TooSlow(1).code(), Error::TooSlow(1).http().as_u16()), (Code::DeadlineExceeded, 408));
    }
}
