//! Any text as the value of any annotation that plugins read, on nodes, pods, groups and queues: a cycle never panics
//! and keeps its promises.

#![no_main]

use libfuzzer_sys::fuzz_target;
use pumice_engine::{TimeMs, World};
use pumice_fuzz::{annotated_world, configuration};

fuzz_target!(|bytes: &[u8]| {
    let [choice, rest @ ..] = bytes else { return };
    let mut world = World::new(configuration(*choice));
    for delta in annotated_world(rest) {
        world.apply(&delta);
    }
    for cycle in 0..3 {
        let plan = world.cycle(TimeMs(1_000_000 + cycle * 10_000));
        assert_eq!(world.lint(&plan), Vec::<String>::new());
        for bind in &plan.binds {
            world.bind_result(&bind.uid, Ok(()), TimeMs(1_000_000 + cycle * 10_000));
        }
    }
});
