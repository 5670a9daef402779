//! How much a request may have.

use std::str::FromStr;

use super::Error;

/// Jobs of one submission.
pub const ITEMS_MAX: usize = 10_000;
/// Jobs that a request names.
pub const IDS_MAX: usize = 10_000;
/// Jobs or runs that are asked for at once.
pub const QUERY_IDS_MAX: usize = 500;
/// Queues of one request.
pub const QUEUES_MAX: usize = 1_000;
/// Bytes of a name or an id.
pub const ID_BYTES_MAX: usize = crate::database::NAME_BYTES_MAX;
/// Bytes of the name of a job set.
pub const JOB_SET_BYTES_MAX: usize = crate::database::JOB_SET_BYTES_MAX;
/// Bytes of a reason.
pub const REASON_BYTES_MAX: usize = 512;
/// Bytes of the texts of a queue's definition, together.
pub const TEXT_BYTES_MAX: usize = 65_536;

/// Refuses more than there may be.
pub(super) fn count(field: &'static str, count: usize, max: usize) -> Result<(), Error> {
    if count > max { Err(Error::TooMany { field, count, max }) } else { Ok(()) }
}

/// Refuses a text that is too long.
pub(super) fn text(field: &'static str, text: &str, max: usize) -> Result<(), Error> {
    if text.len() > max { Err(Error::TooLong { field, bytes: text.len(), max }) } else { Ok(()) }
}

/// Refuses a name that is missing or too long.
pub(super) fn name(field: &'static str, name: &str) -> Result<(), Error> {
    if name.is_empty() { Err(Error::Missing { field }) } else { text(field, name, ID_BYTES_MAX) }
}

/// Refuses the name of a job set that is missing or too long.
pub(super) fn job_set(field: &'static str, name: &str) -> Result<(), Error> {
    if name.is_empty() { Err(Error::Missing { field }) } else { text(field, name, JOB_SET_BYTES_MAX) }
}

/// The ids among at most so many texts. What is no id is nobody's, as one that was never given: it refuses nothing of the others.
pub(super) fn ids<T: FromStr>(field: &'static str, texts: &[String], max: usize) -> Result<Vec<T>, Error> {
    count(field, texts.len(), max)?;
    Ok(texts.iter().filter_map(|text| text.parse().ok()).collect())
}
