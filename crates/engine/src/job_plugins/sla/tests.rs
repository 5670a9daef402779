//! Cases of sla.

use std::collections::BTreeMap;

use super::*;
use crate::config::Switches;
use crate::engine::tests::{Lab, group};
use crate::facts::{Delta, GroupFacts};

fn plugin(waiting: Option<Argument>) -> Result<Sla, ArgumentError> {
    let arguments =
        waiting.map(|waiting| (WAITING_TIME_OF_OLD.to_owned(), waiting)).into_iter().collect::<BTreeMap<_, _>>();
    Sla::new(&PluginConfig { name: "sla".to_owned(), switches: Switches::default(), arguments })
}

fn lab() -> Lab {
    let mut lab = Lab::new(&[]);
    for (name, created, key, waiting) in [
        ("plain", 0, "", ""),
        ("new", 5_000, WAITING_TIME, "1m"),
        ("old", 1_000, WAITING_TIME_OF_OLD, "1m"),
        ("soon", 9_000, WAITING_TIME, "1s"),
        ("wrong", 0, WAITING_TIME, "soon"),
    ] {
        let annotations = [(key.to_owned(), waiting.to_owned())].into();
        lab.apply(Delta::GroupUpsert(Box::new(GroupFacts { created: TimeMs(created), annotations, ..group(name, 1) })));
    }
    lab
}

#[test]
fn the_nearest_to_its_time_goes_first() {
    let lab = lab();
    for (waiting, order) in
        [(None, ["soon", "old", "new", "plain", "wrong"]), (Some("30s"), ["soon", "plain", "wrong", "old", "new"])]
    {
        let plugin = plugin(waiting.map(|text| Argument::Text(text.to_owned()))).unwrap();
        let mut names = order;
        names.sort_unstable();
        names.sort_by(|left, right| plugin.job_order(lab.tables(), lab.group_id(left), lab.group_id(right)));
        assert_eq!(names, order, "{waiting:?}");
    }
}

#[test]
fn the_overdue_are_admitted() {
    let lab = lab();
    let mut plugin = plugin(None).unwrap();
    plugin.open(lab.tables(), TimeMs(61_000));
    for (name, vote) in [
        ("old", Vote::Permit),
        ("new", Vote::Abstain),
        ("soon", Vote::Permit),
        ("plain", Vote::Abstain),
        ("wrong", Vote::Abstain),
    ] {
        assert_eq!(plugin.job_enqueueable(lab.tables(), lab.group_id(name), &Missing::default()), Ok(vote), "{name}");
    }
}

#[test]
fn an_argument_that_is_no_duration_is_refused() {
    for (waiting, good) in [("3m", true), ("", true), ("-3m", false), ("0s", false), ("later", false)] {
        assert_eq!(plugin(Some(Argument::Text(waiting.to_owned()))).is_ok(), good, "{waiting}");
    }
}
