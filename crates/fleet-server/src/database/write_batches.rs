//! How much one transaction writes of submissions and other requests, and one statement of what a leader decided. How many jobs a leader
//! decides about at once is `JOBS_PER_DECISION` of the ledger.

use std::time::Duration;

/// Requests that wait for the writer; who comes then waits to be let in.
pub(super) const WAITING_MAX: usize = 1_024;
/// Jobs and bytes of one transaction, unless a single request has more: others wait for it.
pub(super) const JOBS_MAX: usize = 2_000;
pub(super) const BYTES_MAX: usize = 4 << 20;
/// So many jobs are written out in less time than it takes to hand them to another thread.
pub(super) const AT_ONCE_MAX: usize = 16;
/// How long a transaction waits for others where several came at once.
pub(super) const GATHER: Duration = Duration::from_millis(1);

/// Rows of which the cells are in memory at a time.
pub(super) const ROWS: usize = 2_048;
