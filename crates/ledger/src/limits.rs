//! How much one decision, one event and one answer of the ledger may hold.

/// Jobs that one decision changes of a request's, or takes from a silent cluster: a database writes so many in some ten
/// milliseconds.
pub(crate) const JOBS_PER_DECISION: usize = 5_000;
/// Jobs that are looked at for each that may be changed.
pub(crate) const LOOKS_PER_JOB: usize = 10;
/// Jobs that one event tells of: whoever tells people of it holds all of its messages at once.
pub(crate) const JOBS_PER_EVENT_MAX: usize = 1_000;
