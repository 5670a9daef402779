//! What runs have taught, kept in a ResourceProfile.
//!
//! Invariant: while it is remembered, an amount never goes down; what nobody confirmed by a raise for [`MEMORY_LASTS`] is
//! forgotten, so that a program that needs less by now costs no more than one kill to find out. A profile holds 16 containers
//! at most and is shorter than 4 KiB. Lessons are given by `learning`, and written down by the shell.

pub(crate) mod key;

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as WireQuantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use pumice_api::profile::{LearnedMemory, ResourceProfileSpec, ResourceProfileStatus};
use pumice_units::Quantity;

/// How long what was learned is remembered.
const MEMORY_LASTS: SignedDuration = SignedDuration::from_hours(30 * 24);
/// Most containers of a profile.
const CONTAINERS_MAX: usize = 16;

/// What is learned of a container's memory, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Learned {
    /// Bytes that were enough.
    pub enough: i64,
    /// The most bytes with which it was killed; 0 if it never was.
    pub killed: i64,
}

/// What a run teaches those after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lesson {
    /// The name of the profile.
    pub name: String,
    /// The runs it is about.
    pub runs: ResourceProfileSpec,
    /// What it teaches, by container.
    pub containers: BTreeMap<String, Learned>,
}

impl Lesson {
    /// What the profile says once `runs` runs have taught this together.
    pub fn written(&self, known: Option<&ResourceProfileStatus>, runs: i64, now: Timestamp) -> ResourceProfileStatus {
        let mut containers = known.map(|known| remembered(known, now)).unwrap_or_default();
        merge(&mut containers, &self.containers);
        let amount = |bytes: i64| Some(WireQuantity(Quantity::from_bytes(bytes).to_string()));
        let learned = |(name, learned): (String, Learned)| LearnedMemory {
            name,
            memory: amount(learned.enough),
            killed: amount(learned.killed),
        };
        ResourceProfileStatus {
            containers: containers.into_iter().take(CONTAINERS_MAX).map(learned).collect(),
            runs: known.map_or(0, |known| known.runs.max(0)).saturating_add(runs),
            observed_at: Some(Time(now)),
        }
    }

    /// Takes in what another run of the same kind taught.
    pub fn join(&mut self, other: &Self) {
        merge(&mut self.containers, &other.containers);
    }
}

type Containers = BTreeMap<String, Learned>;

fn merge(known: &mut Containers, more: &Containers) {
    for (container, more) in more {
        let one = known.entry(container.clone()).or_default();
        *one = Learned { enough: one.enough.max(more.enough), killed: one.killed.max(more.killed) };
    }
}

fn remembered(status: &ResourceProfileStatus, now: Timestamp) -> Containers {
    let is_fresh = status.observed_at.as_ref().is_some_and(|at| now.duration_since(at.0) < MEMORY_LASTS);
    if !is_fresh {
        return Containers::new();
    }
    let bytes = |amount: &Option<WireQuantity>| {
        amount
            .as_ref()
            .and_then(|amount| amount.0.parse::<Quantity>().ok())
            .map(Quantity::value)
            .filter(|bytes| *bytes > 0)
    };
    let mut known = Containers::new();
    for one in status.containers.iter().take(CONTAINERS_MAX) {
        if let Some(enough) = bytes(&one.memory) {
            known.insert(one.name.clone(), Learned { enough, killed: bytes(&one.killed).unwrap_or(0) });
        }
    }
    known
}

/// Bytes by container that a run starts with.
pub(crate) fn amounts(status: &ResourceProfileStatus, now: Timestamp) -> impl Iterator<Item = (String, i64)> {
    remembered(status, now).into_iter().map(|(container, learned)| (container, learned.enough))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lesson(containers: &[(&str, i64, i64)]) -> Lesson {
        let containers = containers
            .iter()
            .map(|(name, enough, killed)| ((*name).to_owned(), Learned { enough: enough << 20, killed: killed << 20 }));
        Lesson { name: "p".into(), runs: ResourceProfileSpec::default(), containers: containers.collect() }
    }

    fn told(status: &ResourceProfileStatus) -> Vec<String> {
        let text = |amount: &Option<WireQuantity>| amount.clone().unwrap().0;
        status
            .containers
            .iter()
            .map(|one| format!("{} {} {}", one.name, text(&one.memory), text(&one.killed)))
            .collect()
    }

    #[test]
    fn amounts_grow_until_they_are_forgotten() {
        let day =
            |days: i64| "2026-01-01T00:00:00Z".parse::<Timestamp>().unwrap() + SignedDuration::from_hours(24 * days);
        let first = lesson(&[("c", 300, 200)]).written(None, 1, day(0));
        assert_eq!((told(&first), first.runs), (vec!["c 300Mi 200Mi".to_owned()], 1));
        assert_eq!(amounts(&first, day(29)).collect::<Vec<_>>(), [("c".to_owned(), 300 << 20)]);
        assert_eq!(amounts(&first, day(30)).count(), 0);
        assert_eq!(amounts(&first, day(-1)).count(), 1, "clocks differ");
        let mut second = lesson(&[("c", 200, 150)]);
        second.join(&lesson(&[("d", 64, 32), ("c", 250, 210)]));
        assert_eq!(told(&second.written(Some(&first), 2, day(29))), ["c 300Mi 210Mi", "d 64Mi 32Mi"]);
        let anew = second.written(Some(&first), 2, day(31));
        assert_eq!((told(&anew), anew.runs), (vec!["c 250Mi 210Mi".to_owned(), "d 64Mi 32Mi".to_owned()], 3));
    }

    #[test]
    fn what_people_write_there_does_no_harm() {
        let mut status = lesson(&[("c", 300, 200)]).written(None, 1, Timestamp::UNIX_EPOCH);
        for text in ["much", "-5Gi", "", "1e400"] {
            status.containers[0].memory = Some(WireQuantity(text.to_owned()));
            assert_eq!(amounts(&status, Timestamp::UNIX_EPOCH).count(), 0, "{text}");
        }
        status.runs = i64::MAX;
        assert_eq!(lesson(&[]).written(Some(&status), 1, Timestamp::UNIX_EPOCH).runs, i64::MAX);
        status.observed_at = None;
        assert_eq!(amounts(&status, Timestamp::UNIX_EPOCH).count(), 0);
    }

    #[test]
    fn a_profile_is_short() {
        let names: Vec<String> = (0..40).map(|number| format!("{number:063}")).collect();
        let containers: Vec<(&str, i64, i64)> = names.iter().map(|name| (name.as_str(), 999_983, 999_983)).collect();
        let status = lesson(&containers).written(None, 1, Timestamp::UNIX_EPOCH);
        let long = "x".repeat(256);
        let spec = ResourceProfileSpec {
            user: "x".repeat(253),
            job: "x".repeat(253),
            task: "x".repeat(253),
            image: long.clone(),
            command: long,
            signature: "0".repeat(16),
        };
        let length = serde_json::to_string(&spec).unwrap().len() + serde_json::to_string(&status).unwrap().len();
        assert!((2_000..4_096).contains(&length), "{length}");
    }
}
