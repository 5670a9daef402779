//! Any text as a configuration: refused with a line inside the text, or taken and then good for a cycle.

#![no_main]

use libfuzzer_sys::fuzz_target;
use pumice_engine::{Config, TimeMs, World};
use pumice_fuzz::small_world;

fuzz_target!(|text: &str| {
    match Config::parse(text) {
        Ok((config, warnings)) => {
            // To YAML a lone carriage return ends a line, too.
            let lines = text.split(['\n', '\r']).count() as u64;
            assert!(warnings.iter().all(|warning| warning.line <= lines), "{warnings:?}");
            let mut world = World::new(config);
            small_world().iter().for_each(|delta| {
                world.apply(delta);
            });
            let plan = world.cycle(TimeMs(1_000_000));
            assert_eq!(world.lint(&plan), Vec::<String>::new());
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
