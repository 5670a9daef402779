//! A message of names and texts: the fields in a query or a path.
//!
//! A text is read as the field has it: as a number, as a truth value, and many of one name as a list. Fields of messages
//! in the message have no form here.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::de::value::{Error, MapDeserializer, SeqDeserializer};
use serde::de::{DeserializeOwned, Deserializer, Error as _, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;

/// The message with these fields, named as in JSON or as in the definition. Others are passed over.
///
/// # Errors
/// Where a field is there twice or its text is not of its type.
pub(super) fn message<'a, T>(fields: impl Iterator<Item = (Cow<'a, str>, Cow<'a, str>)>) -> Result<T, Error>
where
    T: DeserializeOwned,
{
    let mut texts: BTreeMap<Cow<'a, str>, Vec<Cow<'a, str>>> = BTreeMap::new();
    for (name, text) in fields {
        texts.entry(name).or_default().push(text);
    }
    let texts = texts.iter().map(|(name, texts)| (name.as_ref(), Texts(texts)));
    T::deserialize(MapDeserializer::new(texts))
}

/// The texts of one name.
struct Texts<'a>(&'a [Cow<'a, str>]);

impl<'a> Texts<'a> {
    fn one(&self) -> Result<&'a str, Error> {
        match self.0 {
            [text] => Ok(text),
            texts => Err(Error::custom(format_args!("a field that is no list has {} values", texts.len()))),
        }
    }
}

impl<'de> IntoDeserializer<'de> for Texts<'_> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Texts<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_str(self.one()?)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_bool(self.one()?.parse().map_err(Error::custom)?)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_seq(SeqDeserializer::new(self.0.chunks(1).map(Texts)))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct newtype_struct
        tuple tuple_struct map struct enum identifier
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pumice_wire::api::{
        JobDetailsRequest, JobSetCancelRequest, JobSetFilter, JobSetRequest, JobState, StreamingQueueGetRequest,
    };

    fn read<T: DeserializeOwned>(query: &str) -> Result<T, String> {
        message(form_urlencoded::parse(query.as_bytes())).map_err(|error| error.to_string())
    }

    #[test]
    fn texts_are_read_as_their_fields_have_them() {
        let details = JobDetailsRequest {
            job_ids: vec!["a".to_owned(), "true".to_owned()],
            expand_job_spec: true,
            expand_job_run: false,
        };
        assert_eq!(read("jobIds=a&expandJobSpec=true&jobIds=true&expand_job_run=false"), Ok(details));
        let one = JobDetailsRequest { job_ids: vec!["1".to_owned()], ..JobDetailsRequest::default() };
        assert_eq!(read("job_ids=1"), Ok(one));
        let set = JobSetRequest { id: "true".to_owned(), queue: "a b/é+".to_owned(), ..JobSetRequest::default() };
        assert_eq!(read("id=true&queue=a+b%2F%C3%A9%2B&other=1&other=2"), Ok(set));
        assert_eq!(read("num=7"), Ok(StreamingQueueGetRequest { num: 7 }));
        assert_eq!(read(""), Ok(StreamingQueueGetRequest { num: 0 }));
        let states = [JobState::Running, JobState::Queued].map(i32::from).to_vec();
        assert_eq!(read("states=RUNNING&states=QUEUED"), Ok(JobSetFilter { states }));
    }

    #[test]
    fn texts_of_another_type_are_refused() {
        assert!(read::<StreamingQueueGetRequest>("num=x").unwrap_err().contains("invalid digit"));
        assert!(read::<StreamingQueueGetRequest>("num=1&num=2").unwrap_err().contains("has 2 values"));
        assert!(read::<JobSetRequest>("watch=yes").is_err());
        assert!(read::<JobSetRequest>("fromMessageId=a&from_message_id=b").unwrap_err().contains("duplicate"));
        assert!(read::<JobSetCancelRequest>("filter=QUEUED").is_err());
    }
}
