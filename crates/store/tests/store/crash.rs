//! Power goes in the middle of concurrent writes; after it nothing answered is lost.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use pumice_faulty_disk::FaultyDisk;
use pumice_store::{ApplyError, Expect, Key, Object, Options, Store};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::task::JoinSet;

use crate::support::{block_on, create, delete, key, open_on, pod, put, value};

const SEEDS: u64 = 200;
const WRITERS: u64 = 4;
const OPERATIONS: u64 = 25;
const COUNTERS: u64 = 3;

/// What the writers know at the moment of the crash.
#[derive(Default)]
struct Known {
    /// The answered state of each plain key with the highest revision.
    answered: BTreeMap<Key, (u64, Option<String>)>,
    /// Values (`None`: deletions) of writes without a good answer.
    unanswered: BTreeMap<Key, Vec<Option<String>>>,
    increments: [u64; COUNTERS as usize],
    increments_unanswered: [u64; COUNTERS as usize],
    revision_seen: u64,
}

impl Known {
    fn saw(&mut self, object: &Object) {
        self.revision_seen = self.revision_seen.max(object.revision);
    }
}

/// Whether the outcome of a refused change is sure: it was not made.
fn surely_not_made(error: &ApplyError) -> bool {
    !matches!(error, ApplyError::Write(_) | ApplyError::Full(_) | ApplyError::Closed)
}

/// Writes at random until done or until the power goes.
async fn write(store: Store, known: Arc<Mutex<Known>>, writer: u64, seed: u64) {
    let mut rng = StdRng::seed_from_u64(seed ^ (writer << 32));
    for step in 0..OPERATIONS {
        let value = format!("\"{writer}-{step}\"");
        match rng.gen_range(0..10) {
            0..4 => write_plain(&store, &known, &mut rng, writer, value).await,
            4..6 => write_pair(&store, &known, &mut rng, &value).await,
            6..9 => increment(&store, &known, rng.gen_range(0..COUNTERS)).await,
            _ => renew_lease(&store, &known, writer, &value).await,
        }
    }
}

/// Creates, replaces or deletes a key that only this writer touches.
async fn write_plain(store: &Store, known: &Mutex<Known>, rng: &mut StdRng, writer: u64, new: String) {
    let key = pod(&format!("plain-{writer}-{}", rng.gen_range(0..3)));
    let (change, state) = match store.get(&key) {
        None => (create(&key, &new), Some(new)),
        Some(_) if rng.gen_ratio(1, 3) => (delete(&key, Expect::Any), None),
        Some(object) => (put(&key, &new, Expect::Revision(object.revision)), Some(new)),
    };
    let result = store.apply(change).await;
    let mut known = known.lock().unwrap();
    match result {
        Ok(object) => {
            known.saw(&object);
            known.answered.insert(key, (object.revision, state));
        }
        Err(error) => {
            assert!(!surely_not_made(&error), "only this writer touches {key}: {error}");
            known.unanswered.entry(key).or_default().push(state);
        }
    }
}

/// Writes two keys together; they must never differ.
async fn write_pair(store: &Store, known: &Mutex<Known>, rng: &mut StdRng, new: &str) {
    let pair = rng.gen_range(0..2);
    let changes: Vec<_> = ["left", "right"]
        .map(|side| {
            let key = key("configmaps", side, &format!("pair-{pair}"));
            let expect = store.get(&key).map_or(Expect::Absent, |object| Expect::Revision(object.revision));
            put(&key, new, expect)
        })
        .into();
    if let Ok(objects) = store.apply_all(changes).await {
        assert_eq!(objects[0].revision + 1, objects[1].revision);
        known.lock().unwrap().saw(&objects[1]);
    }
}

/// Adds one by compare-and-set, trying again while others are faster.
async fn increment(store: &Store, known: &Mutex<Known>, counter: u64) {
    let key = pod(&format!("counter-{counter}"));
    loop {
        let change = match store.get(&key) {
            None => create(&key, "1"),
            Some(object) => {
                let next = value(&object).parse::<u64>().unwrap() + 1;
                put(&key, &next.to_string(), Expect::Revision(object.revision))
            }
        };
        let result = store.apply(change).await;
        let mut known = known.lock().unwrap();
        match result {
            Ok(object) => {
                known.saw(&object);
                known.increments[counter as usize] += 1;
                return;
            }
            Err(error) if surely_not_made(&error) => continue,
            Err(_) => {
                known.increments_unanswered[counter as usize] += 1;
                return;
            }
        }
    }
}

async fn renew_lease(store: &Store, known: &Mutex<Known>, writer: u64, new: &str) {
    let key = key("coordination.k8s.io/leases", "nodes", &format!("node-{writer}"));
    let expect = if store.get(&key).is_some() { Expect::Any } else { Expect::Absent };
    if let Ok(object) = store.apply(put(&key, new, expect)).await {
        known.lock().unwrap().saw(&object);
    }
}

async fn run_until_power_goes(store: &Store, known: &Arc<Mutex<Known>>, seed: u64) {
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        writers.spawn(write(store.clone(), known.clone(), writer, seed));
    }
    writers.join_all().await;
    // Fails when the power is gone; then the log is not written any more, which is the point.
    let _ = store.close().await;
}

/// Compares what a restart finds with what the writers know.
fn check(store: &Store, known: &Known, seed: u64) {
    assert!(store.revision() >= known.revision_seen, "seed {seed}: the revision went back");
    for (key, (revision, state)) in &known.answered {
        let found = store.get(key);
        if found.as_ref().is_some_and(|object| object.revision < *revision) {
            panic!("seed {seed}: {key} is older than its answered revision {revision}");
        }
        let found = found.map(|object| value(&object));
        let possible = known.unanswered.get(key).into_iter().flatten().any(|other| *other == found);
        assert!(found == *state || possible, "seed {seed}: {key} is {found:?}, answered was {state:?}");
    }
    for pair in 0..2 {
        let sides = ["left", "right"].map(|side| store.get(&key("configmaps", side, &format!("pair-{pair}"))));
        let values = sides.map(|object| object.map(|object| value(&object)));
        assert_eq!(values[0], values[1], "seed {seed}: pair {pair} is torn");
    }
    for counter in 0..COUNTERS {
        let found = store.get(&pod(&format!("counter-{counter}")));
        let found = found.map_or(0, |object| value(&object).parse::<u64>().unwrap());
        let least = known.increments[counter as usize];
        let most = least + known.increments_unanswered[counter as usize];
        assert!((least..=most).contains(&found), "seed {seed}: counter is {found}, not in {least}..={most}");
    }
}

// INV-1
#[test]
fn no_answered_write_is_lost_when_power_goes() {
    let (mut cut, mut kept) = (0, 0);
    for seed in 0..SEEDS {
        let mut rng = StdRng::seed_from_u64(seed);
        let disk = FaultyDisk::default();
        let known = Arc::new(Mutex::new(Known::default()));
        let store = open_on(&disk, Options::default());
        disk.lose_power_after(rng.gen_range(1..400));
        block_on(run_until_power_goes(&store, &known, seed));
        cut += u64::from(!disk.has_power());

        let disk = disk.after_power_loss(seed);
        let store = open_on(&disk, Options::default());
        let known = known.lock().unwrap();
        check(&store, &known, seed);
        kept += known.answered.len() as u64 + known.increments.iter().sum::<u64>();

        // The survivor takes writes, above everything that was ever seen.
        let object = block_on(store.apply(create(&pod("after"), "1"))).unwrap();
        assert!(object.revision > known.revision_seen, "seed {seed}");
        block_on(store.close()).unwrap();
        let again = open_on(&disk, Options::default());
        assert_eq!(again.get(&pod("after")).as_deref(), Some(&*object), "seed {seed}");
        block_on(again.close()).unwrap();
    }
    assert!(cut > SEEDS / 2, "power went in {cut} of {SEEDS} runs only");
    assert!(kept > SEEDS * 5, "only {kept} answered writes checked");
}

#[test]
fn a_store_whose_making_was_cut_short_is_made_again() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("store.new"), b"half a file").unwrap();
    let store = Store::open(dir.path(), Options::default()).unwrap();
    block_on(store.apply(create(&pod("a"), "1"))).unwrap();
    block_on(store.close()).unwrap();
    assert!(!dir.path().join("store.new").exists());
    assert!(dir.path().join("store.redb").exists());
}
