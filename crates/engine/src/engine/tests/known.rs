//! What is known of victims before any node is looked at saves work, and changes no decision.

use proptest::prelude::*;

use super::oracle::scene::{Scene, flat};
use super::*;
use crate::config::{Argument, PluginConfig};
use crate::facts::BudgetFacts;

/// What a pod is given besides.
#[derive(Debug, Clone, Copy)]
struct Odds {
    priority: i32,
    /// Whether it may leave.
    leaves: bool,
    /// Whether a budget counts it.
    counted: bool,
}

const ACTIONS: &str = "actions: enqueue, allocate, preempt, reclaim, backfill\n";

/// Where groups give only what is beyond their minimum, and a budget and a time to cool down count.
const GUARDED: &str = "tiers:\n- plugins:\n  - name: conformance\n  - name: gang\n  - name: pdb\n  - name: priority\n\
                       - plugins:\n  - name: predicates\n  - name: nodeorder\n  - name: cdp\n  - name: proportion\n";
/// Where another plugin of the first tier takes from who holds more.
const SHARED: &str = "tiers:\n- plugins:\n  - name: drf\n  - name: priority\n  - name: pdb\n\
                      - plugins:\n  - name: predicates\n  - name: capacity\n  - name: nodeorder\n";

fn parsed(tiers: &str) -> Config {
    let (config, warnings) = Config::parse(&format!("{ACTIONS}{tiers}")).unwrap();
    assert_eq!(warnings, []);
    config
}

/// The same where plugins that say nothing of victims are asked first, so that nothing is known up front.
fn unknowing(config: Config) -> Config {
    let (mut silent, mut rest) = (Vec::new(), Vec::new());
    for tier in config.tiers {
        let is_silent = |plugin: &PluginConfig| matches!(plugin.name.as_str(), "predicates" | "nodeorder");
        let (some, others): (Vec<_>, Vec<_>) = tier.into_iter().partition(is_silent);
        silent.extend(some);
        rest.push(others);
    }
    let tiers = std::iter::once(silent).chain(rest).collect();
    Config { tiers, ..config }
}

fn deltas(scene: &Scene, odds: &[Odds]) -> Vec<Delta> {
    let (nodes, rest) = scene.deltas();
    let budget = BudgetFacts {
        namespace: "ns0".to_owned(),
        name: "few".to_owned(),
        selector: Some(vec![Requirement {
            key: "counted".to_owned(),
            operator: Operator::In,
            values: vec!["yes".to_owned()],
        }]),
        allowed: 1,
    };
    let mut deltas: Vec<Delta> = nodes.into_iter().chain(rest).chain([Delta::BudgetUpsert(budget)]).collect();
    let pods = deltas.iter_mut().filter_map(|delta| match delta {
        Delta::TaskUpsert(facts) => Some(facts),
        _ => None,
    });
    for (facts, odds) in pods.zip(odds.iter().cycle()) {
        facts.template.priority = odds.priority;
        facts.preemptable = Some(odds.leaves);
        if odds.counted {
            facts.labels.insert("counted".to_owned(), "yes".to_owned());
        }
    }
    deltas
}

/// Cycle after cycle, all that is decided being done at once.
fn play(config: &Config, scene: &Scene, odds: &[Odds]) {
    let mut labs = [config.clone(), unknowing(config.clone())].map(|config| Lab::with(config, &[]));
    assert_eq!(labs.each_ref().map(|lab| lab.world.policy.preempts_only_lower()), [true, false]);
    for delta in deltas(scene, odds) {
        labs.iter_mut().for_each(|lab| lab.apply(delta.clone()));
    }
    for _ in 0..6 {
        let [knowing, unknowing] = labs.each_mut().map(|lab| {
            let plan = lab.world.cycle(lab.now);
            for update in &plan.groups {
                lab.world.status_result(&update.namespace, &update.name, true);
            }
            plan.binds.iter().for_each(|bind| lab.world.bind_result(&bind.uid, Ok(()), lab.now));
            lab.end(&plan.evictions);
            lab.now = lab.now.plus_ms(10_000);
            plan
        });
        assert_eq!(knowing.evictions, unknowing.evictions);
        assert_eq!(knowing.pipelined, unknowing.pipelined);
        assert_eq!(knowing.binds, unknowing.binds);
        assert_eq!(labs[0].world.digest(), labs[1].world.digest());
    }
}

fn some_odds() -> impl Strategy<Value = Vec<Odds>> {
    let odds = (0..3_i32, prop::bool::weighted(0.8), prop::bool::weighted(0.3));
    let odds = odds.prop_map(|(priority, leaves, counted)| Odds { priority, leaves, counted });
    proptest::collection::vec(odds, 1..=7)
}

proptest! {
    #![proptest_config(cases(400))]

    #[test]
    fn with_what_is_shipped(scene in flat(), odds in some_odds()) {
        play(&Config::default(), &scene, &odds);
    }

    #[test]
    fn with_minima_and_budgets(scene in flat(), odds in some_odds()) {
        play(&parsed(GUARDED), &scene, &odds);
    }

    #[test]
    fn with_shares_of_groups(scene in flat(), odds in some_odds()) {
        play(&parsed(SHARED), &scene, &odds);
    }

    #[test]
    fn where_the_cheapest_victims_are_looked_for(scene in flat(), odds in some_odds()) {
        let mut config = parsed(GUARDED);
        let topology_aware = [("enableTopologyAwarePreemption".to_owned(), Argument::Bool(true))];
        config.configurations.insert("preempt".to_owned(), topology_aware.into());
        play(&config, &scene, &odds);
    }
}
