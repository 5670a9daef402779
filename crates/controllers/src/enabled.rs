//! Which controllers run.
//!
//! Invariant: names are Volcano's; some of its controllers are one loop here, and such a loop runs if any of its names is on.

use std::str::FromStr;

/// A loop, as it can be turned on and off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Jobs, queues, Commands and the removal of Jobs whose time is over.
    Jobs,
    JobFlows,
    /// Jobs by a schedule.
    CronJobs,
    /// PodGroups of pods that nobody grouped.
    PodGroups,
    HyperNodes,
    Sharding,
    /// The removal of finished work.
    Retention,
    Tenants,
    /// Kubernetes' own ReplicaSets, Deployments, StatefulSets, Jobs and CronJobs.
    Workloads,
}

/// Kubernetes' own kinds are its controller manager's: only who names this gets it.
const WORKLOADS: &str = "workload-controller";

/// Volcano's name of a controller, what it is here, and whether it runs unless said otherwise.
const NAMES: &[(&str, Option<Part>)] = &[
    ("job-controller", Some(Part::Jobs)),
    ("queue-controller", Some(Part::Jobs)),
    ("gc-controller", Some(Part::Jobs)),
    ("jobflow-controller", Some(Part::JobFlows)),
    ("jobtemplate-controller", Some(Part::JobFlows)),
    ("cronjob-controller", Some(Part::CronJobs)),
    ("hyperNode-controller", Some(Part::HyperNodes)),
    ("sharding-controller", Some(Part::Sharding)),
    (WORKLOADS, Some(Part::Workloads)),
    ("retention-controller", Some(Part::Retention)),
    ("tenant-controller", Some(Part::Tenants)),
    // Volcano's names that nothing answers to yet.
    ("pg-controller", Some(Part::PodGroups)),
    ("colocation-config-controller", None),
];

/// Why a list of controllers can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnabledError {
    /// There is no such controller.
    #[error("there is no controller {0:?}; use *, or one of {known}, with - before it to turn it off", known = known())]
    Unknown(String),
    /// Two controllers that are one loop here are not both on or off.
    #[error("{0} and {1} run together here; turn both on or both off")]
    Split(&'static str, &'static str),
}

/// The controllers that run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Enabled(Vec<&'static str>);

impl Default for Enabled {
    /// All but sharding and Kubernetes' own kinds.
    fn default() -> Self {
        let on = NAMES.iter().map(|(name, _)| *name).filter(|name| !["sharding-controller", WORKLOADS].contains(name));
        Self(on.collect())
    }
}

impl FromStr for Enabled {
    type Err = EnabledError;

    /// Reads names with commas between them: `name` or `+name` is on, `-name` is off, `*` is all that are not mentioned. The
    /// first mention counts, and `*` is never Kubernetes' own kinds.
    fn from_str(text: &str) -> Result<Self, EnabledError> {
        let items: Vec<&str> = text.split(',').map(str::trim).filter(|item| !item.is_empty()).collect();
        let bare = |item: &str| item.strip_prefix(['+', '-']).unwrap_or(item).to_owned();
        if let Some(item) =
            items.iter().find(|item| **item != "*" && !NAMES.iter().any(|(name, _)| *name == bare(item)))
        {
            return Err(EnabledError::Unknown((*item).to_owned()));
        }
        let all = items.contains(&"*");
        let is_on = |name: &str| match items.iter().find(|item| bare(item) == name) {
            Some(item) => !item.starts_with('-'),
            None => all && name != WORKLOADS,
        };
        let enabled = Self(NAMES.iter().map(|(name, _)| *name).filter(|name| is_on(name)).collect());
        for (name, part) in NAMES.iter().filter(|(_, part)| part.is_some()) {
            let other = NAMES.iter().find(|(other, same)| same == part && enabled.names(other) != enabled.names(name));
            if let Some((other, _)) = other {
                return Err(EnabledError::Split(name, other));
            }
        }
        Ok(enabled)
    }
}

impl Enabled {
    /// With Kubernetes' own kinds, for a platform that has no controller manager.
    #[must_use]
    pub fn with_workloads(mut self) -> Self {
        if !self.names(WORKLOADS) {
            self.0.push(WORKLOADS);
        }
        self
    }

    pub(crate) fn has(&self, part: Part) -> bool {
        NAMES.iter().any(|(name, of)| *of == Some(part) && self.names(name))
    }

    fn names(&self, name: &str) -> bool {
        self.0.contains(&name)
    }
}

fn known() -> String {
    NAMES.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_mention_counts_and_the_star_is_the_rest() {
        let cases = [
            (
                "*,-sharding-controller",
                vec![
                    Part::Jobs,
                    Part::JobFlows,
                    Part::CronJobs,
                    Part::PodGroups,
                    Part::HyperNodes,
                    Part::Retention,
                    Part::Tenants,
                ],
            ),
            (
                "*,-retention-controller,-tenant-controller",
                vec![Part::Jobs, Part::JobFlows, Part::CronJobs, Part::PodGroups, Part::HyperNodes, Part::Sharding],
            ),
            (
                "+sharding-controller,*,-sharding-controller,-cronjob-controller",
                vec![
                    Part::Jobs,
                    Part::JobFlows,
                    Part::PodGroups,
                    Part::HyperNodes,
                    Part::Sharding,
                    Part::Retention,
                    Part::Tenants,
                ],
            ),
            ("hyperNode-controller, pg-controller", vec![Part::PodGroups, Part::HyperNodes]),
            ("workload-controller", vec![Part::Workloads]),
            ("", vec![]),
        ];
        let all = [
            Part::Jobs,
            Part::JobFlows,
            Part::CronJobs,
            Part::PodGroups,
            Part::HyperNodes,
            Part::Sharding,
            Part::Retention,
            Part::Tenants,
            Part::Workloads,
        ];
        for (text, wanted) in cases {
            let enabled: Enabled = text.parse().unwrap();
            assert_eq!(all.into_iter().filter(|part| enabled.has(*part)).collect::<Vec<_>>(), wanted, "{text}");
        }
        assert_eq!("*,-sharding-controller".parse(), Ok(Enabled::default()));
        assert!(Enabled::default().with_workloads().has(Part::Workloads));
        assert_eq!(
            "hypernode-controller".parse::<Enabled>(),
            Err(EnabledError::Unknown("hypernode-controller".into()))
        );
        let split = "*,-queue-controller".parse::<Enabled>().unwrap_err();
        assert_eq!(
            split.to_string(),
            "job-controller and queue-controller run together here; turn both on or both off"
        );
    }
}
