//! A message of names and texts: the fields in a query or a path.
//!
//! A text is read as the field has it: as a number, as a truth value, and many of one name as a list. A name with dots leads to
//! a field of a message within the message, as in `mostRecentForJob.jobId`. Lists of messages and maps have no form here.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::de::value::{Error, MapDeserializer, SeqDeserializer};
use serde::de::{DeserializeOwned, Deserializer, Error as _, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;

/// Messages within each other: no call's message is as deep, so that a name that leads further is of no field.
const DEPTH_MAX: usize = 8;

/// The message with these fields, named as in JSON or as in the definition. Others are passed over, as grpc-gateway does.
///
/// # Errors
/// Where a field is there twice or its text is not of its type, or where a name leads into what is no message.
pub(super) fn message<'a, T>(fields: impl Iterator<Item = (Cow<'a, str>, Cow<'a, str>)>) -> Result<T, Error>
where
    T: DeserializeOwned,
{
    let mut root = Given::default();
    for (name, text) in fields {
        root.add(&name, text);
    }
    T::deserialize(root.as_message())
}

/// What is given under a name.
#[derive(Default)]
struct Given<'a> {
    texts: Vec<Cow<'a, str>>,
    /// What is given under names that begin with it.
    fields: BTreeMap<String, Given<'a>>,
}

impl<'a> Given<'a> {
    fn add(&mut self, name: &str, text: Cow<'a, str>) {
        let mut place = self;
        for (depth, part) in name.split('.').enumerate() {
            if depth == DEPTH_MAX {
                return;
            }
            place = place.fields.entry(part.to_owned()).or_default();
        }
        place.texts.push(text);
    }

    fn as_message<'g, 'de>(&'g self) -> MapDeserializer<'de, impl Iterator<Item = (&'g str, Field<'g, 'a>)>, Error> {
        let field = |(name, given): (&'g String, &'g Given<'a>)| {
            (name.as_str(), Field { texts: &given.texts, within: Some(given) })
        };
        MapDeserializer::new(self.fields.iter().map(field))
    }
}

/// What a field is read of.
#[derive(Clone, Copy)]
struct Field<'g, 'a> {
    texts: &'g [Cow<'a, str>],
    /// None for one of many.
    within: Option<&'g Given<'a>>,
}

impl<'g, 'a> Field<'g, 'a> {
    /// The fields of the message that this is; nothing where it is none.
    fn message(&self) -> Option<&'g Given<'a>> {
        self.within.filter(|within| !within.fields.is_empty())
    }

    fn texts(&self) -> Result<&'g [Cow<'a, str>], Error> {
        match self.message() {
            Some(_) => Err(Error::custom("a name with dots leads into a field that is no message")),
            None => Ok(self.texts),
        }
    }

    fn one(&self) -> Result<&'g str, Error> {
        match self.texts()? {
            [text] => Ok(text),
            texts => Err(Error::custom(format_args!("a field that is no list has {} values", texts.len()))),
        }
    }
}

impl<'de> IntoDeserializer<'de> for Field<'_, '_> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Field<'_, '_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_str(self.one()?)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_bool(self.one()?.parse().map_err(Error::custom)?)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let one = |texts| Field { texts, within: None };
        visitor.visit_seq(SeqDeserializer::new(self.texts()?.chunks(1).map(one)))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self.message() {
            Some(message) if self.texts.is_empty() => message.as_message().deserialize_any(visitor),
            _ => Err(Error::custom("a message has no text: name the field within it, as in message.field=text")),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct newtype_struct
        tuple tuple_struct map enum identifier
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pumice_wire::api::{
        JobDetailsRequest, JobSetCancelRequest, JobSetFilter, JobSetRequest, JobState, StreamingQueueGetRequest,
    };
    use pumice_wire::schedulerobjects::scheduling_report_request::Filter;
    use pumice_wire::schedulerobjects::{MostRecentForJob, MostRecentForQueue, SchedulingReportRequest};

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

    #[test]
    fn names_with_dots_lead_into_messages() {
        let of_queue = MostRecentForQueue { queue_name: "a.b".to_owned() };
        let report = SchedulingReportRequest { filter: Some(Filter::MostRecentForQueue(of_queue)), verbosity: 3 };
        assert_eq!(read("mostRecentForQueue.queueName=a.b&verbosity=3"), Ok(report.clone()));
        assert_eq!(read("most_recent_for_queue.queue_name=a.b&verbosity=3&mostRecentForQueue2.x=1"), Ok(report));
        let of_job = MostRecentForJob { job_id: "j".to_owned() };
        let report = SchedulingReportRequest { filter: Some(Filter::MostRecentForJob(of_job)), verbosity: 0 };
        // What there is not in the message within is passed over, too, and however deep.
        assert_eq!(read("mostRecentForJob.jobId=j&mostRecentForJob.other.deep=1&mostRecentForJob.x=1&x=2"), Ok(report));
        let deep = format!("{}x=1", "x.".repeat(10_000));
        assert_eq!(read(&deep), Ok(SchedulingReportRequest::default()));
        let states = vec![i32::from(JobState::Queued)];
        let cancel = JobSetCancelRequest { filter: Some(JobSetFilter { states }), ..JobSetCancelRequest::default() };
        assert_eq!(read("filter.states=QUEUED"), Ok(cancel));
    }

    #[test]
    fn names_that_lead_nowhere_are_refused_where_their_field_is_known() {
        let refused = |query: &str| read::<SchedulingReportRequest>(query).expect_err("is refused");
        assert!(refused("verbosity.x=1").contains("leads into a field that is no message"));
        for query in ["mostRecentForJob=j", "mostRecentForJob=j&mostRecentForJob.jobId=j"] {
            assert!(refused(query).contains("name the field within it"), "{query}");
        }
        assert!(refused("mostRecentForJob.jobId=a&mostRecentForJob.jobId=b").contains("has 2 values"));
        assert!(refused("mostRecentForJob.jobId=a&mostRecentForQueue.queueName=b").contains("duplicate"));
        assert!(read::<JobDetailsRequest>("jobIds.x=1").is_err());
        assert!(read::<JobSetRequest>("watch.x=true").is_err());
    }
}
