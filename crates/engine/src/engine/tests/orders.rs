//! The order in which facts arrive decides nothing: creation times and names do. But for nodes, of which among equals
//! the one that came first is taken.

use proptest::prelude::*;

use super::oracle::Setting;
use super::oracle::scene::{Scene, flat, tree};
use super::*;

const CYCLES: usize = 5;

/// What a world decides in a few cycles whose binds and evictions are carried out at once.
fn decisions(setting: Setting, nodes: &[Delta], rest: &[Delta]) -> Vec<String> {
    let mut lab = Lab::with(setting.config(), &[]);
    nodes.iter().chain(rest).for_each(|delta| lab.apply(delta.clone()));
    let mut all = Vec::new();
    for cycle in 0..CYCLES {
        let plan = lab.cycle();
        let mut decided: Vec<String> =
            plan.binds.iter().map(|bind| format!("{cycle}: {} on {}", bind.uid, bind.node)).collect();
        decided.extend(plan.evictions.iter().map(|eviction| format!("{cycle}: {eviction:?}")));
        decided.extend(plan.pipelined.iter().map(|promise| format!("{cycle}: {promise:?}")));
        decided.extend(plan.admitted.iter().map(|group| format!("{cycle}: {group} admitted")));
        decided.extend(plan.pods.iter().map(|notice| format!("{cycle}: {} is told {}", notice.uid, notice.reason)));
        decided.sort();
        plan.binds.iter().for_each(|bind| lab.world.bind_result(&bind.uid, Ok(()), lab.now));
        lab.end(&plan.evictions);
        lab.now = lab.now.plus_ms(1_000);
        all.extend(decided);
    }
    all
}

/// A scene, and all of its facts but the nodes in another order.
fn shuffled(scene: impl Strategy<Value = Scene>) -> impl Strategy<Value = (Scene, Vec<Delta>)> {
    scene.prop_flat_map(|scene| {
        let rest = scene.deltas().1;
        (Just(scene), Just(rest).prop_shuffle())
    })
}

fn check(setting: Setting, scene: &Scene, shuffled: &[Delta]) {
    let (nodes, rest) = scene.deltas();
    assert_eq!(decisions(setting, &nodes, &rest), decisions(setting, &nodes, shuffled));
}

proptest! {
    #![proptest_config(cases(128))]

    #[test]
    fn of_arrival_means_nothing_as_shipped((scene, other) in shuffled(flat())) {
        check(Setting::Shipped, &scene, &other);
    }

    #[test]
    fn of_arrival_means_nothing_by_volcanos_default((scene, other) in shuffled(flat())) {
        check(Setting::Stock, &scene, &other);
    }

    #[test]
    fn of_arrival_means_nothing_in_a_tree((scene, other) in shuffled(tree())) {
        check(Setting::Capacity, &scene, &other);
    }
}
