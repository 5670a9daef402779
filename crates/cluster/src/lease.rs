//! Leader election over a Lease, as client-go's: who renews the Lease leads, others wait until it has run out.
//!
//! Invariant: hosts' clocks are never compared. Whether a Lease has run out is judged by how long *we* have seen it
//! unchanged; and who leads gives up (`renew_deadline`) before others may take over (`duration`).

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::time::Instant;

use crate::write::{Failure, failure};

/// Which Lease, as whom, and how long things take.
#[derive(Debug, Clone)]
pub struct LeaseOptions {
    /// Namespace of the Lease.
    pub namespace: String,
    pub name: String,
    /// Who we are: no two candidates may have the same.
    pub identity: String,
    /// Others may take a Lease over that they have seen unchanged for so long.
    pub duration: Duration,
    /// Who leads and can't renew for so long gives up.
    pub renew_deadline: Duration,
    pub retry: Duration,
}

impl LeaseOptions {
    /// client-go's times: 15 s, 10 s, 2 s.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>, identity: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
            identity: identity.into(),
            duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry: Duration::from_secs(2),
        }
    }
}

/// A candidate, or the leader.
pub struct Elector {
    leases: Api<Lease>,
    options: LeaseOptions,
    clock: fn() -> Timestamp,
    seen: Option<Seen>,
}

/// What the Lease said, and since when it has said so.
#[derive(Debug, Clone, PartialEq)]
struct Seen {
    spec: LeaseSpec,
    since: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Attempt {
    Leads,
    Follows,
    /// Nobody knows: the server did not say.
    Failed,
}

impl Elector {
    /// A candidate that has not looked yet. `clock` is read for the times that the Lease shows.
    pub fn new(client: Client, options: LeaseOptions, clock: fn() -> Timestamp) -> Self {
        let leases = Api::namespaced(client, &options.namespace);
        Self { leases, options, clock, seen: None }
    }

    /// Waits until we lead. Cancel safe: what was taken runs out by itself.
    pub async fn acquire(&mut self) {
        while self.attempt().await != Attempt::Leads {
            tokio::time::sleep(self.options.retry).await;
        }
    }

    /// Renews until we no longer lead. Cancel safe.
    pub async fn hold(&mut self) {
        let mut renewed = Instant::now();
        loop {
            tokio::time::sleep(self.options.retry).await;
            let attempted = Instant::now();
            match tokio::time::timeout_at(renewed + self.options.renew_deadline, self.attempt()).await {
                // From when it was asked for: the answer may have been long under way.
                Ok(Attempt::Leads) => renewed = attempted,
                Ok(Attempt::Failed) => {}
                Ok(Attempt::Follows) | Err(_) => return,
            }
        }
    }

    /// Gives the Lease up, so that others need not wait for its end. Failing at that is no harm.
    pub async fn release(&mut self) {
        let Ok(Some(mut lease)) = self.leases.get_opt(&self.options.name).await else { return };
        let Some(spec) = lease.spec.as_mut() else { return };
        if spec.holder_identity.as_deref() != Some(&self.options.identity) {
            return;
        }
        spec.holder_identity = Some(String::new());
        spec.lease_duration_seconds = Some(1);
        spec.renew_time = Some(MicroTime((self.clock)()));
        if let Err(error) = self.leases.replace(&self.options.name, &PostParams::default(), &lease).await {
            tracing::debug!(lease = self.options.name, %error, "lease not released");
        }
    }

    async fn attempt(&mut self) -> Attempt {
        let result = match self.leases.get_opt(&self.options.name).await {
            Ok(None) => {
                let mut lease = Lease { spec: Some(self.taken(None)), ..Lease::default() };
                lease.metadata.name = Some(self.options.name.clone());
                lease.metadata.namespace = Some(self.options.namespace.clone());
                self.leases.create(&PostParams::default(), &lease).await
            }
            Ok(Some(mut lease)) => {
                let spec = lease.spec.take().unwrap_or_default();
                self.look(&spec, Instant::now());
                if !self.may_take(Instant::now()) {
                    return Attempt::Follows;
                }
                lease.spec = Some(self.taken(Some(&spec)));
                self.leases.replace(&self.options.name, &PostParams::default(), &lease).await
            }
            Err(error) => Err(error),
        };
        match result {
            Ok(lease) => {
                self.look(&lease.spec.unwrap_or_default(), Instant::now());
                Attempt::Leads
            }
            Err(error) => {
                tracing::debug!(lease = self.options.name, %error, "lease not taken");
                let others = matches!(failure(&error), Failure::AlreadyExists);
                if others { Attempt::Follows } else { Attempt::Failed }
            }
        }
    }

    fn look(&mut self, spec: &LeaseSpec, now: Instant) {
        if self.seen.as_ref().is_none_or(|seen| seen.spec != *spec) {
            self.seen = Some(Seen { spec: spec.clone(), since: now });
        }
    }

    /// It is ours, nobody's, or has been unchanged for its duration.
    fn may_take(&self, now: Instant) -> bool {
        let Some(Seen { spec, since }) = &self.seen else { return true };
        let holder = spec.holder_identity.as_deref().unwrap_or_default();
        let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        let duration = seconds.map_or(self.options.duration, Duration::from_secs);
        holder.is_empty() || holder == self.options.identity || *since + duration <= now
    }

    /// The Lease as ours. Who held it before stays counted in the transitions.
    fn taken(&self, before: Option<&LeaseSpec>) -> LeaseSpec {
        let now = MicroTime((self.clock)());
        let renewed = before.filter(|spec| spec.holder_identity.as_deref() == Some(&self.options.identity));
        let transitions = before.and_then(|spec| spec.lease_transitions).unwrap_or(0);
        LeaseSpec {
            holder_identity: Some(self.options.identity.clone()),
            lease_duration_seconds: Some(i32::try_from(self.options.duration.as_secs().max(1)).unwrap_or(i32::MAX)),
            acquire_time: renewed.and_then(|spec| spec.acquire_time.clone()).or_else(|| Some(now.clone())),
            renew_time: Some(now),
            lease_transitions: Some(match (before, renewed) {
                (Some(_), None) => transitions.saturating_add(1),
                _ => transitions,
            }),
            ..before.cloned().unwrap_or_default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elector() -> Elector {
        let service = tower::service_fn(|_: http::Request<kube::client::Body>| async {
            Ok::<_, std::io::Error>(http::Response::new(kube::client::Body::empty()))
        });
        let client = Client::new(service, "default");
        Elector::new(client, LeaseOptions::new("ns", "volcano", "us"), || Timestamp::UNIX_EPOCH)
    }

    fn held(by: &str, renewed: i64) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(by.into()),
            lease_duration_seconds: Some(15),
            renew_time: Some(MicroTime(Timestamp::from_second(renewed).unwrap())),
            lease_transitions: Some(3),
            ..LeaseSpec::default()
        }
    }

    #[tokio::test]
    async fn a_lease_of_others_is_taken_only_after_it_was_seen_unchanged_for_its_duration() {
        let (mut elector, start) = (elector(), Instant::now());
        let after = |seconds| start + Duration::from_secs(seconds);
        assert!(elector.may_take(start), "nothing seen, nothing there");
        elector.look(&held("them", 1), start);
        assert!(!elector.may_take(after(14)));
        elector.look(&held("them", 2), after(14));
        assert!(!elector.may_take(after(28)), "it was renewed, whatever their clock says");
        assert!(elector.may_take(after(29)));
        elector.look(&held("", 2), after(30));
        assert!(elector.may_take(after(30)), "it was given up");
        elector.look(&held("us", 2), after(31));
        assert!(elector.may_take(after(31)));
    }

    #[tokio::test]
    async fn transitions_count_takeovers_not_renewals() {
        let elector = elector();
        let transitions = |before: Option<LeaseSpec>| elector.taken(before.as_ref()).lease_transitions;
        assert_eq!(transitions(None), Some(0));
        assert_eq!(transitions(Some(held("us", 1))), Some(3));
        assert_eq!(transitions(Some(held("them", 1))), Some(4));
    }
}
