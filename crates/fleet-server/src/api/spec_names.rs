//! Names of specifications that lie close to each other in the database.
//!
//! A table that is looked up by digests has its rows in the order of chance: each that is new changes a page of its own. So a
//! specification is named by when it was first seen here, and by its digest after that. Invariant: equal names have equal content. What
//! is remembered only lets requests share a row; a name that is forgotten costs one row more.

use std::collections::{HashMap, VecDeque};

use pumice_ledger::{Digest, TimeMs};

use crate::database::Submission;

/// Specifications that are remembered.
const REMEMBERED_MAX: usize = 10_000;
/// Bits of a digest that stay in a name, below those of the second.
const DIGEST_BITS: u32 = 96;

/// Names by digest, and digests in the order in which they were named.
#[derive(Debug, Default)]
pub(super) struct SpecNames {
    known: HashMap<Digest, Digest>,
    order: VecDeque<Digest>,
}

impl SpecNames {
    /// Puts names in the place of digests. O(jobs).
    pub(super) fn give(&mut self, submission: &mut Submission) {
        let at = submission.at;
        let digests = std::mem::take(&mut submission.specs);
        let names: HashMap<Digest, Digest> = digests.keys().map(|digest| (*digest, self.name(*digest, at))).collect();
        for job in &mut submission.jobs {
            if let Some(name) = names.get(&job.submitted.spec) {
                job.submitted.spec = *name;
            }
        }
        submission.specs = digests.into_iter().map(|(digest, spec)| (names[&digest], spec)).collect();
    }

    fn name(&mut self, digest: Digest, at: TimeMs) -> Digest {
        if let Some(name) = self.known.get(&digest) {
            return *name;
        }
        let seconds = u128::try_from(at.0 / 1_000).unwrap_or(0) & u128::from(u32::MAX);
        let name = Digest(seconds << DIGEST_BITS | digest.0 >> (u128::BITS - DIGEST_BITS));
        if self.order.len() >= REMEMBERED_MAX
            && let Some(first) = self.order.pop_front()
        {
            self.known.remove(&first);
        }
        self.known.insert(digest, name);
        self.order.push_back(digest);
        name
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::convert::tests::written;
    use super::*;

    #[test]
    fn names_follow_time_and_are_shared() {
        let mut names = SpecNames::default();
        let items = [json!({}), json!({ "namespace": "else" }), json!({})];
        let given = |names: &mut SpecNames, at: i64| {
            let mut submission = written(&items);
            let before = submission.clone();
            submission.at = TimeMs(at);
            names.give(&mut submission);
            for (job, before_job) in submission.jobs.iter().zip(&before.jobs) {
                assert_eq!(submission.specs[&job.submitted.spec], before.specs[&before_job.submitted.spec]);
            }
            submission.jobs.iter().map(|job| job.submitted.spec).collect::<Vec<_>>()
        };
        let first = given(&mut names, 5_000);
        assert_eq!(first, given(&mut names, 9_000));
        assert!(first[0] == first[2] && first[0] != first[1]);
        assert!(first.iter().all(|name| name.0 >> DIGEST_BITS == 5));
        for other in 0..REMEMBERED_MAX as u128 {
            names.name(Digest(other), TimeMs(6_000));
        }
        assert_eq!((names.known.len(), names.order.len()), (REMEMBERED_MAX, REMEMBERED_MAX));
        let later = given(&mut names, 7_000);
        assert!(later[0] > first[0] && later[0].0 >> DIGEST_BITS == 7);
    }
}
