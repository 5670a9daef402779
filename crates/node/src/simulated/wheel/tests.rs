//! The wheel beside an ordered list of deadlines.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const NOTHING: [u32; 0] = [];

fn due(wheel: &mut Wheel, now: u64) -> Vec<u32> {
    let mut keys = Vec::new();
    wheel.advance(now, &mut keys);
    keys.sort_unstable();
    keys
}

#[test]
fn entries_come_due_at_their_deadline_and_not_before() {
    // Deadline after the start at 1000, in each level and beyond the last.
    let spans = [0, 1, 63, 64, 65, 4095, 4096, 262_144, 16_777_216, 1 << 30, (1 << 36) - 1, 1 << 36, 1 << 40];
    for span in spans {
        let mut wheel = Wheel::new(1000);
        wheel.insert(1000 + span, 7);
        if span > 0 {
            assert_eq!(due(&mut wheel, 1000 + span - 1), NOTHING, "{span}");
        }
        let wake = wheel.next_wake().unwrap();
        assert!(wake <= 1000 + span, "woken at {wake} for {span}");
        assert_eq!(due(&mut wheel, 1000 + span), [7], "{span}");
        assert_eq!((wheel.next_wake(), wheel.len()), (None, 0));
    }
}

#[test]
fn a_deadline_in_the_past_is_due_at_once() {
    let mut wheel = Wheel::new(500);
    wheel.insert(3, 1);
    assert_eq!(wheel.next_wake(), Some(500));
    assert_eq!(due(&mut wheel, 500), [1]);
}

#[test]
fn time_that_goes_back_counts_as_none() {
    let mut wheel = Wheel::new(0);
    wheel.insert(10, 1);
    assert_eq!(due(&mut wheel, 9), NOTHING);
    assert_eq!(due(&mut wheel, 2), NOTHING);
    wheel.insert(5, 2);
    assert_eq!(due(&mut wheel, 2), [2], "5 has passed");
    assert_eq!(due(&mut wheel, 10), [1]);
}

#[test]
fn the_farthest_deadline_does_not_overflow() {
    let mut wheel = Wheel::new(u64::MAX - 10);
    wheel.insert(u64::MAX, 1);
    assert_eq!(due(&mut wheel, u64::MAX - 1), NOTHING);
    assert_eq!(due(&mut wheel, u64::MAX), [1]);
}

#[test]
#[should_panic(expected = "cancelled twice")]
fn an_entry_is_cancelled_once() {
    let mut wheel = Wheel::new(0);
    let id = wheel.insert(10, 1);
    wheel.cancel(id);
    wheel.cancel(id);
}

#[test]
fn a_million_entries_use_their_places_again() {
    let mut wheel = Wheel::new(0);
    for round in 0..4_u64 {
        for key in 0..250_000_u32 {
            wheel.insert(round * 100_000 + 1 + u64::from(key) % 90_000, key);
        }
        assert_eq!(due(&mut wheel, (round + 1) * 100_000).len(), 250_000);
    }
    assert_eq!((wheel.len(), wheel.entries.len()), (0, 250_000));
}

#[derive(Debug, Clone)]
enum Step {
    Insert(u64),
    Cancel(prop::sample::Index),
    Advance(u64),
    /// To the moment at which the wheel wants to be woken.
    Wake,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    // Spans of every magnitude, so that every level is used.
    let span = (0_u32..41, any::<u64>()).prop_map(|(bits, value)| value & ((1 << bits) - 1));
    let step = prop_oneof![
        4 => span.clone().prop_map(Step::Insert),
        1 => any::<prop::sample::Index>().prop_map(Step::Cancel),
        2 => span.prop_map(Step::Advance),
        2 => Just(Step::Wake),
    ];
    prop::collection::vec(step, 0..120)
}

proptest! {
    #[test]
    fn the_wheel_does_what_an_ordered_list_does(start in 0..1_u64 << 40, steps in steps()) {
        let mut wheel = Wheel::new(start);
        let mut now = start;
        let mut model: BTreeMap<u32, (u64, TimerId)> = BTreeMap::new();
        for (key, step) in (0_u32..).zip(steps) {
            match step {
                Step::Insert(span) => {
                    model.insert(key, (now + span, wheel.insert(now + span, key)));
                }
                Step::Cancel(index) if !model.is_empty() => {
                    let key = *index.get(&model.keys().copied().collect::<Vec<_>>());
                    let (_, id) = model.remove(&key).unwrap();
                    wheel.cancel(id);
                }
                Step::Cancel(_) => {}
                Step::Advance(span) => now += span,
                Step::Wake => {
                    let first = model.values().map(|(deadline, _)| *deadline).min();
                    let wake = wheel.next_wake();
                    prop_assert_eq!(wake.is_some(), first.is_some());
                    if let (Some(wake), Some(first)) = (wake, first) {
                        prop_assert!(wake <= first.max(now), "woken at {} for {}", wake, first);
                        now = now.max(wake);
                    }
                }
            }
            let found = due(&mut wheel, now);
            let expected: Vec<u32> =
                model.iter().filter(|(_, (deadline, _))| *deadline <= now).map(|(key, _)| *key).collect();
            prop_assert_eq!(&found, &expected);
            model.retain(|_, (deadline, _)| *deadline > now);
            prop_assert_eq!(wheel.len(), model.len());
        }
        // Following its own wishes only, everything comes due at its very deadline, within few wakes.
        let mut wakes = 0;
        while let Some(wake) = wheel.next_wake() {
            for key in due(&mut wheel, wake) {
                let (deadline, _) = model.remove(&key).unwrap();
                prop_assert_eq!(deadline, wake);
            }
            wakes += 1;
            prop_assert!(wakes < 10_000);
        }
        prop_assert!(model.is_empty());
    }
}
