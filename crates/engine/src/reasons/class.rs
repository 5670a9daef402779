//! What kind of reasons a group has: objects are written anew only when this changes, so numbers are no part of it.
//! Called by `cycle_end` for all that wait, each cycle: comparing makes no text.

use std::fmt::{self, Write};

use super::{NodesUnfit, Reason, Stage};

impl Reason {
    fn write_class(&self, out: &mut impl Write) -> fmt::Result {
        match self {
            Self::GroupNotFound { .. } => out.write_str("groupNotFound"),
            Self::QueueNotFound { .. } => out.write_str("queueNotFound"),
            Self::QueueClosed { .. } => out.write_str("queueClosed"),
            Self::QueueLimit { resource, .. } => write!(out, "queueLimit:{resource}"),
            Self::QueueShare { resource, .. } => write!(out, "queueShare:{resource}"),
            Self::QueueUnusable { fault, .. } => write!(out, "queueUnusable:{fault}"),
            Self::Overcommitted { resource, .. } => write!(out, "overcommitted:{resource}"),
            Self::Quota { quota, resource, .. } => write!(out, "quota:{quota}:{resource}"),
            Self::AwaitsNodes => out.write_str("awaitsNodes"),
            Self::QueueJobs { queue, .. } => write!(out, "queueJobs:{queue}"),
            Self::NodesUnfit(unfit) => {
                out.write_str("nodesUnfit:")?;
                unfit.write_class(out)
            }
            Self::ExceedsCluster(unfit) => {
                out.write_str("exceedsCluster:")?;
                unfit.write_class(out)
            }
            Self::NotEnoughTasks { .. } => out.write_str("notEnoughTasks"),
            Self::NotEnoughTasksOfRole { role, .. } => write!(out, "notEnoughTasksOfRole:{role}"),
            Self::NotEnoughParts { policy, .. } => write!(out, "notEnoughParts:{policy}"),
            Self::NoDomain(domain) => write!(out, "noDomain:{}:{}", domain.part, domain.tier_max),
            Self::UnknownTier { name } => write!(out, "unknownTier:{name}"),
            Self::Gated { .. } => out.write_str("gated"),
            Self::BindFailed { .. } => out.write_str("bindFailed"),
            Self::RoomIsFreed { .. } => out.write_str("roomIsFreed"),
            Self::NominationExpired { .. } => out.write_str("fenceFell"),
            Self::NotConfigured { action } => write!(out, "notConfigured:{action}"),
            Self::Refused { plugin, .. } => write!(out, "refused:{plugin}"),
            Self::StrictOrder { .. } => out.write_str("strictOrder"),
            // Who is ahead changes all the time and is no news.
            Self::WaitsBehind { .. }
            | Self::DeadlineMiss { .. }
            | Self::WaitsForTasks { .. }
            | Self::ResourcesPromised { .. }
            | Self::Reserved { .. }
            | Self::KeptForOthers { .. }
            | Self::Closed { .. } => Ok(()),
        }
    }
}

impl NodesUnfit {
    fn write_class(&self, out: &mut impl Write) -> fmt::Result {
        write!(out, "{}[", self.role)?;
        for (index, check) in self.checks.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(out, "{comma}{:?}={}", check.check, check.detail)?;
        }
        out.write_str("]")
    }
}

fn write_class(out: &mut impl Write, stage: Stage, reasons: &[Reason]) -> fmt::Result {
    write!(out, "{stage:?}")?;
    reasons.iter().try_for_each(|reason| {
        out.write_str("/")?;
        reason.write_class(out)
    })
}

pub(crate) fn class_of(stage: Stage, reasons: &[Reason]) -> String {
    let mut class = String::new();
    write_class(&mut class, stage, reasons).expect("a string takes all that is written");
    class
}

/// Whether `class` is the class of these reasons, without making it.
pub(crate) fn is_class(class: &str, stage: Stage, reasons: &[Reason]) -> bool {
    let mut left = Left(class);
    write_class(&mut left, stage, reasons).is_ok() && left.0.is_empty()
}

/// What is left of a text after all that was written; writing anything else fails.
struct Left<'a>(&'a str);

impl Write for Left<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0 = self.0.strip_prefix(text).ok_or(fmt::Error)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reasons::{Check, CheckCount};

    #[test]
    fn a_class_is_known_by_what_it_is_made_of() {
        let check = |check, detail: &str| CheckCount { check, detail: detail.to_owned(), nodes: 1 };
        let unfit = |role: &str, checks| {
            Reason::NodesUnfit(NodesUnfit { role: role.to_owned(), checks, ..NodesUnfit::default() })
        };
        let lists = [
            vec![],
            vec![Reason::Gated { pods: 1 }],
            vec![Reason::WaitsBehind { groups: Vec::new(), count: 1 }, Reason::Gated { pods: 2 }],
            vec![unfit("w", vec![])],
            vec![unfit("w", vec![check(Check::Taint, "a"), check(Check::Resource, "cpu")])],
            vec![unfit("w", vec![check(Check::Taint, "a")]), Reason::NotConfigured { action: "allocate".to_owned() }],
        ];
        let classes: Vec<String> = lists.iter().map(|list| class_of(Stage::Allocate, list)).collect();
        assert_eq!(classes[4], "Allocate/nodesUnfit:w[Taint=a,Resource=cpu]");
        for (one, list) in lists.iter().enumerate() {
            for (other, class) in classes.iter().enumerate() {
                assert_eq!(is_class(class, Stage::Allocate, list), one == other, "{class}");
            }
            assert!(!is_class(&classes[one], Stage::Enqueue, list));
        }
    }
}
