//! The message of a request: of its body or its query, and of the fields in its path, which count more.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName};
use http_body::Body;
use http_body_util::BodyExt;
use prost::Message;
use pumice_wire::rest::{Route, Source};
use serde::de::DeserializeOwned;
use tonic::metadata::MetadataMap;

use super::error::Error;
use super::fields;
use crate::api::Who;
use crate::gateway::{BODY_TIME, REQUEST_BYTES_MAX};

/// A request whose call and maker are known.
pub(super) struct RestRequest<'a> {
    pub(super) route: &'static Route,
    /// Fields in the path.
    pub(super) fields: Vec<(&'static str, String)>,
    /// As it is in the request.
    pub(super) query: Option<&'a str>,
    /// What goes beside the message.
    pub(super) metadata: MetadataMap,
    /// Not yet read.
    pub(super) body: tonic::body::Body,
    pub(super) who: Arc<Who>,
}

impl RestRequest<'_> {
    /// What the call takes. Fields that the message does not have are passed over, as grpc-gateway does.
    ///
    /// # Errors
    /// Where the body does not come, or is not of this message.
    pub(super) async fn read<T>(self) -> Result<tonic::Request<T>, Error>
    where
        T: Message + Default + DeserializeOwned,
    {
        let mut message: T = match self.route.source {
            Source::Body => of_json(&whole(self.body, REQUEST_BYTES_MAX, BODY_TIME).await?)?,
            Source::Query => {
                let query = self.query.unwrap_or_default();
                fields::message(form_urlencoded::parse(query.as_bytes())).map_err(Error::Query)?
            }
        };
        let of_path = self.fields.iter().map(|(name, value)| (Cow::Borrowed(*name), Cow::Borrowed(value.as_str())));
        let of_path: T = fields::message(of_path).map_err(Error::PathFields)?;
        // What a message has replaces what it is merged into; a path has no empty field.
        let merged = message.merge(of_path.encode_to_vec().as_slice());
        merged.expect("a message is read as it was written");
        let mut request = tonic::Request::new(message);
        *request.metadata_mut() = self.metadata;
        request.extensions_mut().insert(self.who);
        Ok(request)
    }
}

/// What headers say that begin so, for what is beside a message over gRPC, as grpc-gateway takes them.
const OF_METADATA: &str = "grpc-metadata-";

/// What is to go beside the message.
pub(super) fn metadata(headers: &HeaderMap) -> MetadataMap {
    let beside = headers.iter().filter_map(|(name, value)| {
        let name = name.as_str().strip_prefix(OF_METADATA)?;
        Some((HeaderName::from_bytes(name.as_bytes()).ok()?, value.clone()))
    });
    MetadataMap::from_headers(beside.collect())
}

/// The message in a body; one without fields where there is nothing in it.
fn of_json<T: DeserializeOwned + Default>(body: &[u8]) -> Result<T, Error> {
    if body.trim_ascii().is_empty() {
        return Ok(T::default());
    }
    serde_json::from_slice(body).map_err(Error::Json)
}

/// Of so many times what may be sent the refusal is heard: a client that is still sending when it comes would not read it.
const HEARD_TIMES: usize = 4;

/// A body, when all of it is there.
async fn whole<B>(body: B, bytes_max: usize, within: Duration) -> Result<Bytes, Error>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn StdError + Send + Sync>>,
{
    let reading = async {
        let mut body = pin!(body);
        let (mut read, mut sent) = (Vec::new(), 0_usize);
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| Error::Broken(error.into().to_string()))?;
            let Ok(data) = frame.into_data() else { continue };
            sent = sent.saturating_add(data.len());
            if sent <= bytes_max {
                read.extend_from_slice(&data);
            } else {
                read = Vec::new();
                if sent > bytes_max.saturating_mul(HEARD_TIMES) {
                    break;
                }
            }
        }
        if sent > bytes_max { Err(Error::TooLarge(bytes_max)) } else { Ok(Bytes::from(read)) }
    };
    tokio::time::timeout(within, reading).await.unwrap_or_else(|_| Err(Error::TooSlow(within.as_secs())))
}

#[cfg(test)]
mod tests {
    use futures::{StreamExt as _, stream};
    use http_body::Frame;
    use http_body_util::StreamBody;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn chunks(chunks: Vec<Result<&'static str, std::fmt::Error>>) -> impl Body<Data = Bytes, Error = std::fmt::Error> {
        let frame = |chunk: Result<&'static str, _>| chunk.map(|text| Frame::data(Bytes::from(text)));
        StreamBody::new(stream::iter(chunks.into_iter().map(frame)))
    }

    #[tokio::test]
    async fn a_refusal_waits_for_whoever_is_still_sending() {
        let mut sent = 0;
        let sending = stream::iter(["abcd", "efgh", "ij"]).map(|text| {
            sent += text.len();
            Ok::<_, std::fmt::Error>(Frame::data(Bytes::from(text)))
        });
        assert!(matches!(whole(StreamBody::new(sending), 3, LONG).await, Err(Error::TooLarge(3))));
        assert_eq!(sent, 10);
    }

    #[tokio::test]
    async fn bodies_are_whole_or_refused() {
        let parts = || chunks(vec![Ok("ab"), Ok(""), Ok("cd")]);
        assert_eq!(whole(parts(), 4, LONG).await.unwrap(), "abcd");
        assert!(matches!(whole(parts(), 3, LONG).await, Err(Error::TooLarge(3))));
        let endless = stream::repeat_with(|| Ok::<_, std::fmt::Error>(Frame::data(Bytes::from("ab"))));
        assert!(matches!(whole(StreamBody::new(endless), 3, LONG).await, Err(Error::TooLarge(3))));
        let broken = chunks(vec![Ok("{}"), Err(std::fmt::Error)]);
        assert!(matches!(whole(broken, 4, LONG).await, Err(Error::Broken(_))));
        let waiting = StreamBody::new(stream::pending::<Result<Frame<Bytes>, std::fmt::Error>>());
        assert!(matches!(whole(waiting, 4, Duration::from_millis(1)).await, Err(Error::TooSlow(_))));
    }
}
