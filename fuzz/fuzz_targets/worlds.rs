//! Any sequence of changes, cycles and answers: no panic, every plan keeps its promises, and a second world that is told
//! the same decides the same.

#![no_main]

use libfuzzer_sys::fuzz_target;
use pumice_engine::World;
use pumice_fuzz::{Event, Events, configuration};

fuzz_target!(|bytes: &[u8]| {
    let [choice, rest @ ..] = bytes else { return };
    let mut worlds = [World::new(configuration(*choice)), World::new(configuration(*choice))];
    for event in Events::new(rest) {
        match event {
            Event::Apply(delta) => {
                for world in &mut worlds {
                    world.apply(&delta);
                }
            }
            Event::Bind { uid, fails, now } => {
                for world in &mut worlds {
                    world.bind_result(&uid, if fails { Err("refused") } else { Ok(()) }, now);
                }
            }
            Event::Evict { uid, fails, now } => {
                for world in &mut worlds {
                    world.evict_result(&uid, if fails { Err("refused") } else { Ok(()) }, now);
                }
            }
            Event::Status { name, written } => {
                for world in &mut worlds {
                    world.status_result("ns", &name, written);
                }
            }
            Event::Configure(choice) => {
                for world in &mut worlds {
                    world.set_config(configuration(choice));
                }
            }
            Event::Cycle(now) => {
                let [plan, same] = worlds.each_mut().map(|world| world.cycle(now));
                assert_eq!(worlds[0].lint(&plan), Vec::<String>::new());
                assert_eq!(plan, same);
                assert_eq!(worlds[0].digest(), worlds[1].digest());
            }
        }
    }
});
