//! How answers combine: a table of answers by tier, and what comes of them.

use super::*;
use crate::config::PluginConfig;

/// Answers what it was told to.
#[derive(Debug, Clone, Copy, Default)]
struct Says {
    vote: Option<Vote>,
    starving: Option<bool>,
    victims: Option<&'static [usize]>,
}

impl Plugin for Says {
    fn job_pipelined(&self, _tables: &Tables, _group: GroupId) -> Vote {
        self.vote.unwrap_or(Vote::Abstain)
    }

    fn job_starving(&self, _tables: &Tables, _group: GroupId) -> Option<bool> {
        self.starving
    }

    fn preemptable(&self, _tables: &Tables, _preemptor: TaskId, _candidates: &[TaskId]) -> Option<Vec<TaskId>> {
        self.victims.map(|victims| victims.iter().map(|task| TaskId::from(*task)).collect())
    }
}

fn policy(tiers: &[&[Says]]) -> Policy {
    let mut registry = Registry::default();
    let mut config = Config { tiers: Vec::new(), ..Config::default() };
    for (tier, plugins) in tiers.iter().enumerate() {
        let mut configs = Vec::new();
        for (index, says) in plugins.iter().copied().enumerate() {
            let name = format!("says-{tier}-{index}");
            registry.add(&name, &[], move |_| Ok(Box::new(says)));
            configs.push(PluginConfig { name, switches: Switches::default(), arguments: BTreeMap::new() });
        }
        config.tiers.push(configs);
    }
    Policy::new(&config, &registry)
}

#[test]
fn a_vote_ends_with_a_rejection_or_a_tier_that_permits() {
    use Vote::{Abstain, Permit, Reject};
    let tables = Tables::new("default");
    for (tiers, yes) in [
        (vec![vec![]], true),
        (vec![vec![Abstain]], true),
        (vec![vec![Reject]], false),
        (vec![vec![Permit, Reject]], false),
        (vec![vec![Permit], vec![Reject]], true),
        (vec![vec![Abstain], vec![Reject]], false),
        (vec![vec![Abstain], vec![Permit], vec![Reject]], true),
    ] {
        let says: Vec<Vec<Says>> = tiers
            .iter()
            .map(|tier| tier.iter().map(|vote| Says { vote: Some(*vote), ..Says::default() }).collect())
            .collect();
        let policy = policy(&says.iter().map(Vec::as_slice).collect::<Vec<_>>());
        assert_eq!(policy.job_pipelined(&tables, GroupId::from(0)), yes, "{tiers:?}");
    }
}

#[test]
fn the_first_tier_with_a_say_decides_who_starves() {
    let tables = Tables::new("default");
    for (tiers, starving) in [
        (vec![vec![None], vec![None]], false),
        (vec![vec![Some(true)], vec![Some(false)]], true),
        (vec![vec![Some(true), Some(false)], vec![Some(true)]], false),
        (vec![vec![None], vec![Some(true), None, Some(true)]], true),
    ] {
        let says: Vec<Vec<Says>> = tiers
            .iter()
            .map(|tier| tier.iter().map(|starving| Says { starving: *starving, ..Says::default() }).collect())
            .collect();
        let policy = policy(&says.iter().map(Vec::as_slice).collect::<Vec<_>>());
        assert_eq!(policy.job_starving(&tables, GroupId::from(0)), starving, "{tiers:?}");
    }
}

#[test]
fn a_veto_of_the_deciding_tier_is_final() {
    type Answers = Vec<Vec<Option<&'static [usize]>>>;
    let tables = Tables::new("default");
    let cases: [(Answers, &[usize]); 5] = [
        (vec![vec![Some(&[1, 2, 3]), Some(&[2, 3, 4])]], &[2, 3]),
        (vec![vec![Some(&[1]), Some(&[2])], vec![Some(&[1, 2])]], &[]),
        (vec![vec![Some(&[])], vec![Some(&[1])]], &[]),
        (vec![vec![None], vec![Some(&[3, 1])]], &[3, 1]),
        (vec![vec![None], vec![None]], &[]),
    ];
    for (tiers, left) in cases {
        let says: Vec<Vec<Says>> = tiers
            .iter()
            .map(|tier| tier.iter().map(|victims| Says { victims: *victims, ..Says::default() }).collect())
            .collect();
        let policy = policy(&says.iter().map(Vec::as_slice).collect::<Vec<_>>());
        let victims = policy.preemptable(&tables, TaskId::from(0), &[]).tasks;
        assert_eq!(victims.iter().map(|task| task.index()).collect::<Vec<_>>(), left, "{tiers:?}");
    }
}

#[test]
fn only_lower_ones_leave_where_the_tier_that_decides_sees_to_it() {
    for (tiers, expected) in [
        (vec!["priority", "gang"], true),
        (vec!["drf,priority", "gang"], true),
        (vec!["-gang", "priority"], true),
        (vec!["predicates", "priority"], false),
        (vec!["-priority,gang", "drf"], false),
        (vec!["gang", "priority"], false),
        (vec![], false),
    ] {
        let plugin = |text: &str| {
            let mut switches = Switches::default();
            switches.set(Switch::Preemptable, !text.starts_with('-'));
            PluginConfig { name: text.trim_start_matches('-').to_owned(), switches, arguments: BTreeMap::new() }
        };
        let config = Config {
            tiers: tiers.iter().map(|tier| tier.split(',').map(plugin).collect()).collect(),
            ..Config::default()
        };
        let policy = Policy::new(&config, &Registry::default());
        assert_eq!(policy.preempts_only_lower(), expected, "{tiers:?}");
    }
}
