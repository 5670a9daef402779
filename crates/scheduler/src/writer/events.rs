//! What is told in Events, within a budget: a burst of binds is told by group, not pod by pod.
//!
//! Invariant: telling never waits, and costs at most `PER_SECOND` writes a second; what the budget has no room for is
//! counted, and told of its PodGroup in one Event. Owned by the writer.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::Resource as _;
use k8s_openapi::api::core::v1::ObjectReference;
use pumice_api::scheduling::{PodGroup, Queue};
use pumice_cluster::EventRecorder;
use pumice_cluster::events::{Occurrence, Severity};
use pumice_engine::{Bind, GroupUid, ObjectName, PodUid};
use tokio::time::Instant;

use pumice_clock as clock;

/// Events a second, over a longer time.
const PER_SECOND: u32 = 50;
/// Events at once after a quiet time.
const BURST: u32 = 200;
/// How long pods of a group are counted before the group's Event says how many they were.
const GATHER: Duration = Duration::from_secs(1);
/// Groups that are counted at a time; pods of others go untold.
const GROUPS_MAX: usize = 1024;

/// An object that something is told about.
#[derive(Debug, Clone, Copy)]
pub(super) struct About<'a> {
    pub(super) version: &'static str,
    pub(super) kind: &'static str,
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    pub(super) uid: &'a str,
}

impl<'a> About<'a> {
    pub(super) fn pod(namespace: &'a str, name: &'a str, uid: &'a PodUid) -> Self {
        Self { version: "v1", kind: "Pod", namespace, name, uid }
    }

    pub(super) fn group(namespace: &'a str, name: &'a str, uid: &'a GroupUid) -> Self {
        Self { version: PodGroup::API_VERSION, kind: "PodGroup", namespace, name, uid }
    }

    pub(super) fn queue(name: &'a str, uid: &'a str) -> Self {
        Self { version: Queue::API_VERSION, kind: "Queue", namespace: "", name, uid }
    }

    fn reference(&self) -> ObjectReference {
        ObjectReference {
            api_version: Some(self.version.to_owned()),
            kind: Some(self.kind.to_owned()),
            namespace: Some(self.namespace.to_owned()).filter(|namespace| !namespace.is_empty()),
            name: Some(self.name.to_owned()),
            uid: Some(self.uid.to_owned()).filter(|uid| !uid.is_empty()),
            ..ObjectReference::default()
        }
    }
}

pub(super) struct GroupEvents {
    recorder: EventRecorder,
    tokens: u32,
    filled: Instant,
    /// Pods bound but not told of one by one, by group.
    bound: BTreeMap<ObjectName, u32>,
    /// When these are told.
    gathered: Option<Instant>,
}

impl GroupEvents {
    pub(super) fn new(recorder: EventRecorder) -> Self {
        Self { recorder, tokens: BURST, filled: Instant::now(), bound: BTreeMap::new(), gathered: None }
    }

    /// Tells of an object if the budget allows; false if not.
    pub(super) fn say(&mut self, about: About<'_>, severity: Severity, reason: &str, message: String) -> bool {
        if !self.take(Instant::now()) || !self.recorder.has_room() {
            return false;
        }
        self.record(about, severity, reason, message);
        true
    }

    /// Tells of something rare and grave, budget or not.
    pub(super) fn insist(&mut self, about: About<'_>, severity: Severity, reason: &str, message: String) {
        self.take(Instant::now());
        self.record(about, severity, reason, message);
    }

    fn record(&self, about: About<'_>, severity: Severity, reason: &str, message: String) {
        let (about, reason) = (about.reference(), reason.to_owned());
        self.recorder.record(Occurrence { about, severity, reason, message, at: clock::now() });
    }

    /// A pod was bound.
    pub(super) fn bound(&mut self, bind: &Bind) {
        let now = Instant::now();
        if self.has_token(now) && self.recorder.has_room() {
            let message = format!("Successfully assigned {}/{} to {}", bind.namespace, bind.name, bind.node);
            let about = About::pod(&bind.namespace, &bind.name, &bind.uid);
            self.insist(about, Severity::Normal, "Scheduled", message);
        } else if let Some(count) = self.bound.get_mut(&bind.group) {
            *count += 1;
        } else if self.bound.len() < GROUPS_MAX {
            self.bound.insert(bind.group.clone(), 1);
            self.gathered.get_or_insert(now + GATHER);
        }
    }

    /// When groups are to be told of.
    pub(super) fn due(&self) -> Option<Instant> {
        self.gathered
    }

    /// Tells how many pods of each group were bound, once enough were gathered. `uid` knows PodGroups.
    pub(super) fn gathered(&mut self, now: Instant, uid: impl Fn(&str, &str) -> Option<GroupUid>) {
        if self.gathered.is_none_or(|at| at > now) {
            return;
        }
        self.gathered = None;
        for (group, count) in std::mem::take(&mut self.bound) {
            let Some((namespace, name)) = group.parts() else { continue };
            let Some(uid) = uid(namespace, name) else { continue };
            let message = format!("Successfully assigned {count} pods of {group}");
            self.say(About::group(namespace, name, &uid), Severity::Normal, "Scheduled", message);
        }
    }

    fn has_token(&mut self, now: Instant) -> bool {
        let since = now.saturating_duration_since(self.filled).as_millis();
        let fresh = u32::try_from(since * u128::from(PER_SECOND) / 1000).unwrap_or(BURST);
        if fresh > 0 {
            self.tokens = self.tokens.saturating_add(fresh).min(BURST);
            self.filled = now;
        }
        self.tokens > 0
    }

    fn take(&mut self, now: Instant) -> bool {
        let has = self.has_token(now);
        self.tokens = self.tokens.saturating_sub(1);
        has
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events() -> GroupEvents {
        let service = tower::service_fn(|_: http::Request<kube::client::Body>| async {
            Ok::<_, std::io::Error>(http::Response::new(kube::client::Body::empty()))
        });
        GroupEvents::new(EventRecorder::new(kube::Client::new(service, "default"), "test").0)
    }

    #[tokio::test]
    async fn the_budget_is_a_burst_and_then_a_rate() {
        let (mut events, start) = (events(), Instant::now());
        let taken = |events: &mut GroupEvents, at| (0..10_000).take_while(|_| events.take(at)).count();
        assert_eq!(taken(&mut events, start), BURST as usize);
        assert_eq!(taken(&mut events, start + Duration::from_secs(2)), 2 * PER_SECOND as usize);
        assert_eq!(taken(&mut events, start + Duration::from_secs(3600)), BURST as usize);
    }

    #[tokio::test]
    async fn pods_beyond_the_budget_are_told_by_group() {
        let mut events = events();
        let bind = |index: u32| Bind {
            uid: index.to_string().into(),
            namespace: "ns".into(),
            name: format!("p-{index}"),
            node: "n".into(),
            group: "ns/g".into(),
            annotations: BTreeMap::new(),
            prebind: Vec::new(),
        };
        for index in 0..BURST + 100 {
            events.bound(&bind(index));
        }
        assert_eq!(events.bound.get("ns/g"), Some(&100));
        let due = events.due().expect("something was gathered");
        events.gathered(due, |_, _| Some("uid".into()));
        assert_eq!((events.due(), events.bound.len()), (None, 0));
    }
}
