//! Flags that say how long finished work stays.
//!
//! Invariant: a platform of our own has bounds unless they are taken away; on a cluster of others, where Volcano keeps all, nothing
//! is removed unless a flag asks for it.

use clap::Args;
use pumice_api::retention::{NumberBound, Retention, TimeBound};

/// How long finished work stays, where its namespace does not say.
#[derive(Debug, Args)]
#[command(next_help_heading = "Finished work (see docs/operations.md)")]
pub struct RetentionArgs {
    /// How long finished Jobs, JobFlows and pods stay, unless they say so themselves; a time such as 7d or 12h, or off
    /// [default: 7d; on a cluster that is not Pumice's own: off]
    #[arg(long, value_name = "TIME")]
    finished_ttl: Option<TimeBound>,
    /// Most finished Jobs of each kind, and JobFlows, that stay in a namespace, or off; the oldest leave first
    /// [default: 10000; on a cluster that is not Pumice's own: off]
    #[arg(long, value_name = "N")]
    finished_jobs_max: Option<NumberBound>,
    /// Most finished pods that stay in a namespace, or off: so many without an owner, and so many of finished Jobs and other owners.
    /// Only pods of a platform of Pumice's own are removed [default: 12500]
    #[arg(long, value_name = "N")]
    finished_pods_max: Option<NumberBound>,
}

impl RetentionArgs {
    /// The bounds on a platform of our own.
    pub fn own(&self) -> Retention {
        self.over(Retention::default())
    }

    /// The bounds on a cluster of others; none = nobody asked for any.
    pub fn others(&self) -> Option<Retention> {
        let asked = self.finished_ttl.is_some() || self.finished_jobs_max.is_some() || self.finished_pods_max.is_some();
        asked.then(|| self.over(Retention::OFF))
    }

    fn over(&self, absent: Retention) -> Retention {
        Retention {
            ttl: self.finished_ttl.unwrap_or(absent.ttl),
            jobs_max: self.finished_jobs_max.unwrap_or(absent.jobs_max),
            pods_max: self.finished_pods_max.unwrap_or(absent.pods_max),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: RetentionArgs,
    }

    fn parsed(line: &str) -> RetentionArgs {
        Line::try_parse_from(std::iter::once("up").chain(line.split_whitespace())).unwrap().args
    }

    #[test]
    fn our_own_platform_has_bounds_and_a_cluster_of_others_those_that_are_asked_for() {
        assert_eq!((parsed("").own(), parsed("").others()), (Retention::default(), None));
        let args = parsed("--finished-ttl 2h --finished-pods-max off");
        let ttl = TimeBound(Some(Duration::from_secs(7_200)));
        let own = Retention { ttl, pods_max: NumberBound(None), ..Retention::default() };
        assert_eq!((args.own(), args.others()), (own, Some(Retention { ttl, ..Retention::OFF })));
        let refused = Line::try_parse_from(["up", "--finished-ttl", "soon"]).unwrap_err().to_string();
        assert!(refused.contains("\"soon\" is no time; try 7d, 12h or off"), "{refused}");
    }
}
