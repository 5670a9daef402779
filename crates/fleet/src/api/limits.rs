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
/// Bytes of a name: of a queue's or a job set's.
pub const ID_BYTES_MAX: usize = crate::database::NAME_BYTES_MAX;
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

/// Ids, at most so many.
pub(super) fn ids<T>(field: &'static str, texts: &[String], max: usize) -> Result<Vec<T>, Error>
where
    T: FromStr<Err = pumice_ledger::IdError>,
{
    count(field, texts.len(), max)?;
    texts.iter().map(|text| text.parse().map_err(|source| Error::Id { field, source })).collect()
}
