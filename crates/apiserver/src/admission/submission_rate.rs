//! How fast a tenant submits: `spec.submissionRate` of the Tenant whose namespace it is.
//!
//! Counted is what its users create there that becomes pods: Jobs, JobFlows, CronJobs, workloads of Kubernetes, bare pods. What
//! controllers and administrators create counts for nobody. Whoever is too fast is told when to come again (429, `Retry-After`).
//!
//! Invariant: a bucket holds at most the burst, and a look at it is O(1). Tenants are read again when one has changed; without any a
//! create pays one atomic load. A tenant keeps its bucket over changes of its rate. [`Bucket`] is pure: the time is an argument.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use pumice_api::tenant::{SubmissionRate, Tenant};
use pumice_auth::{Identity, MASTERS, service_account_of};
use pumice_objects::status::Status;
use pumice_store::Store;

/// The store's name of Tenants.
const TENANTS: &str = "pumice.sh/tenants";
/// What is submitted, by the store's names.
const SUBMITTED: [&str; 11] = [
    "apps/daemonsets",
    "apps/deployments",
    "apps/replicasets",
    "apps/statefulsets",
    "batch.volcano.sh/cronjobs",
    "batch.volcano.sh/jobs",
    "batch/cronjobs",
    "batch/jobs",
    "flow.volcano.sh/jobflows",
    "pods",
    "replicationcontrollers",
];
/// What the names of the platform's components begin with.
const COMPONENT: &str = "system:";

/// The rates of all tenants, and how much of them is left.
#[derive(Default)]
pub(crate) struct SubmissionRates(Mutex<State>);

#[derive(Default)]
struct State {
    /// When a Tenant was last changed, as far as `tenants` knows.
    fingerprint: Option<[u64; 1]>,
    /// By namespace; only those that have a rate.
    tenants: HashMap<String, Limited>,
}

struct Limited {
    tenant: String,
    rate: SubmissionRate,
    bucket: Bucket,
}

impl SubmissionRates {
    /// Counts a create of `storage` in `namespace`, or refuses it.
    pub(crate) fn admit(
        &self,
        store: &Store,
        identity: &Identity,
        storage: &str,
        namespace: &str,
        now: Timestamp,
    ) -> Result<(), Status> {
        let fingerprint = store.changed([TENANTS]);
        if fingerprint == [0] || !SUBMITTED.contains(&storage) || !is_user_of(identity, namespace) {
            return Ok(());
        }
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.fingerprint != Some(fingerprint) {
            let before = std::mem::take(&mut state.tenants);
            *state = State { fingerprint: Some(fingerprint), tenants: read(store, before) };
        }
        let Some(Limited { tenant, rate, bucket }) = state.tenants.get_mut(namespace) else { return Ok(()) };
        let Err(seconds) = bucket.take(rate, now) else { return Ok(()) };
        let (rate, burst) = (rate.per_minute, burst(rate));
        let message = format!(
            "tenant {tenant} submits at most {rate} jobs and pods a minute, {burst} at once (spec.submissionRate of the \
             Tenant): the next one in {seconds} s"
        );
        Err(Status::too_many_requests(message, seconds))
    }
}

/// Whether what somebody creates in a namespace counts for its tenant: people, and the tenant's own service accounts.
fn is_user_of(identity: &Identity, namespace: &str) -> bool {
    match service_account_of(&identity.user) {
        Some((of, _)) => of == namespace,
        None => !identity.user.starts_with(COMPONENT) && !identity.is_in(MASTERS),
    }
}

fn read(store: &Store, mut before: HashMap<String, Limited>) -> HashMap<String, Limited> {
    let mut tenants = HashMap::new();
    for object in store.list(TENANTS, None).items {
        let Ok(Tenant { metadata, spec, .. }) = serde_json::from_slice::<Tenant>(&object.body) else { continue };
        let Some(rate) = spec.submission_rate.filter(|rate| rate.per_minute > 0) else { continue };
        let bucket = before.remove(&spec.namespace).map_or_else(Bucket::default, |limited| limited.bucket);
        tenants.insert(spec.namespace, Limited { tenant: metadata.name.unwrap_or_default(), rate, bucket });
    }
    tenants
}

fn burst(rate: &SubmissionRate) -> i32 {
    if rate.burst > 0 { rate.burst } else { rate.per_minute }
}

/// What one submission takes, so that a rate of one a minute gives back one part each millisecond.
const PARTS: i64 = 60_000;
/// Longest pause that is reckoned with: no burst takes longer to come back than to be as good as whole.
const PAUSE_MAX_MS: i128 = 100 * 3_600_000;

/// What has been taken of a burst and had not come back at the last look.
#[derive(Debug, Default)]
struct Bucket {
    taken_parts: i64,
    at: Option<Timestamp>,
}

impl Bucket {
    /// Takes one, or says after how many seconds there is one. A clock that was set back gives nothing back.
    fn take(&mut self, rate: &SubmissionRate, now: Timestamp) -> Result<(), u32> {
        let passed = self.at.map_or(0, |at| now.duration_since(at).as_millis().clamp(0, PAUSE_MAX_MS));
        let come_back = i64::try_from(passed).unwrap_or(0).saturating_mul(i64::from(rate.per_minute));
        self.taken_parts = self.taken_parts.saturating_sub(come_back).max(0);
        self.at = Some(now);
        let over = self.taken_parts + PARTS - i64::from(burst(rate)).saturating_mul(PARTS);
        if over <= 0 {
            self.taken_parts += PARTS;
            return Ok(());
        }
        let of_second = i64::from(rate.per_minute) * 1000;
        let seconds = (over + of_second - 1) / of_second;
        Err(u32::try_from(seconds).unwrap_or(u32::MAX).max(1))
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use proptest::prelude::*;

    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_millis(1_000_000_000 + millis)
    }

    fn rate(per_minute: i32, burst: i32) -> SubmissionRate {
        SubmissionRate { per_minute, burst }
    }

    #[test]
    fn the_burst_is_had_at_once_and_the_rest_by_the_minute() {
        let (rate, mut bucket) = (rate(60, 3), Bucket::default());
        let mut take = |millis| bucket.take(&rate, at(millis));
        assert_eq!([take(0), take(0), take(0)], [Ok(()); 3]);
        assert_eq!(take(0), Err(1));
        assert_eq!(take(400), Err(1));
        assert_eq!(take(1000), Ok(()));
        assert_eq!(take(1000), Err(1));
        assert_eq!(take(-5000), Err(1), "the clock was set back");
        assert_eq!([take(100_000), take(100_000), take(100_000)], [Ok(()); 3]);
        assert_eq!(take(100_000), Err(1), "no more than the burst is saved up");
    }

    #[test]
    fn one_is_told_how_long_to_wait() {
        let (rate, mut bucket) = (rate(2, 1), Bucket::default());
        assert_eq!(bucket.take(&rate, at(0)), Ok(()));
        assert_eq!(bucket.take(&rate, at(0)), Err(30));
        assert_eq!(bucket.take(&rate, at(29_000)), Err(1));
        assert_eq!(bucket.take(&rate, at(30_000)), Ok(()));
    }

    proptest! {
        #[test]
        fn nobody_gets_more_than_the_rate_and_who_waits_as_told_gets_one(
            per_minute in 1..5000_i32, burst in 1..50_i32, pauses in proptest::collection::vec(0..3000_i64, 1..200),
        ) {
            let (rate, mut bucket, mut now, mut taken) = (rate(per_minute, burst), Bucket::default(), 0_i64, 0_i64);
            for pause in pauses {
                now += pause;
                match bucket.take(&rate, at(now)) {
                    Ok(()) => taken += 1,
                    Err(seconds) => {
                        now += i64::from(seconds) * 1000;
                        prop_assert_eq!(bucket.take(&rate, at(now)), Ok(()));
                        taken += 1;
                    }
                }
                prop_assert!(taken <= i64::from(burst) + now * i64::from(per_minute) / 60_000 + 1);
            }
        }
    }
}
