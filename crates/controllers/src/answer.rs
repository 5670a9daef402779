//! What comes back from the calls of a plan.

use pumice_cluster::Failure;

/// What came of a plan.
pub(crate) struct Answer<I> {
    pub observed: Vec<I>,
    /// Why it ended before its end.
    pub failure: Option<Failure>,
}
