//! Archives of random entries, by names and links that aim at each other and at the host.

use std::cell::Cell;
use std::fs;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use pumice_images::store::{Extent, Store};

use crate::archives::*;

fn names_of_entries() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        6 => prop::sample::select(vec!["a", "b", "c", "outside", "file", "etc"]).prop_map(str::to_owned),
        2 => prop::sample::select(vec!["a", "b", ".wh..opq"]).prop_map(|name| format!(".wh.{name}")),
        1 => prop::sample::select(vec!["..", ".", "", ".wh...", ".wh.", "\u{e9}"]).prop_map(str::to_owned),
    ];
    (prop::bool::weighted(0.1), prop::collection::vec(part, 1..5))
        .prop_map(|(absolute, parts)| format!("{}{}", if absolute { "/" } else { "" }, parts.join("/")))
}

fn items(outside: String) -> impl Strategy<Value = Item> {
    let target = prop_oneof![
        3 => names_of_entries(),
        1 => (0..6_usize).prop_map(|levels| "../".repeat(levels)),
        1 => Just(outside),
        1 => Just("/".to_owned()),
        1 => Just("/proc/self/cwd".to_owned()),
    ];
    let kinds = prop::sample::select(b"0000555522221113".to_vec());
    (kinds, names_of_entries(), target, 0..0o10000_u32).prop_map(|(kind, name, target, mode)| Item {
        mode,
        link: if matches!(kind, b'1' | b'2') { target.into_bytes() } else { Vec::new() },
        data: if kind == b'0' { b"content".to_vec() } else { Vec::new() },
        device: (1, 3),
        ..item(kind, name)
    })
}

#[test]
fn random_archives_write_nothing_outside() {
    on_its_own_disk(64, |host| {
        let (outside, dir) = (host.join("outside"), host.join("store"));
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("file"), "stays").unwrap();
        let store = Store::open(&dir, small_limits()).unwrap();
        let around = listing(host, &dir);
        let (taken, refused) = (Cell::new(0), Cell::new(0));
        let strategy = prop::collection::vec(items(outside.to_str().unwrap().to_owned()), 1..14);
        let mut runner = TestRunner::new(Config { cases: 400, failure_persistence: None, ..Config::default() });
        let outcome = runner.run(&strategy, |items| {
            // A refused entry ends the archive, so that all but those that are refused alone come together.
            let mut good: Vec<Item> = Vec::new();
            for item in items {
                good.push(item);
                let unpacked = unpack_items(&store, &good);
                let count = if unpacked.is_ok() { &taken } else { &refused };
                count.set(count.get() + 1);
                if unpacked.is_err() {
                    good.pop();
                }
                prop_assert_eq!(&listing(host, &dir), &around);
            }
            store.prune(Extent::Unnamed, &|_| false, jiff::Timestamp::UNIX_EPOCH).unwrap();
            prop_assert_eq!(fs::read_dir(dir.join("partial")).unwrap().count(), 0);
            prop_assert_eq!(fs::read_dir(dir.join("layers")).unwrap().count(), 0);
            Ok(())
        });
        outcome.unwrap();
        assert!(taken.get() > 500 && refused.get() > 500, "{taken:?} taken, {refused:?} refused: all alike");
    });
}
