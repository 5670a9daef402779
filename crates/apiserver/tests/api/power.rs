//! The power goes at any moment of a server under load, over a disk that drops, keeps or tears what was not synced.
//!
//! After each of these moments: every answered write is there, of the others each is whole or absent, revisions have not gone
//! back, and watchers go on without a gap or get 410. `PUMICE_KILL_POINTS` says how many moments are tried (`make crash` tries
//! 600). A seed says what is asked and where the power goes; how writes share a commit is left to the machine.

mod model;
mod objects;
mod watchers;
mod writers;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pumice_apiserver::ApiServer;
use pumice_auth::{Policy, built_in};
use pumice_faulty_disk::FaultyDisk;
use pumice_store::{Options, Store};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;

use self::model::Model;
use self::objects::{Kind, definition, revision};
use self::watchers::Watcher;
use self::writers::{COUNTER, Writer, counted};
use crate::harness::{PATIENCE, Server, administrator};

/// Power losses of one disk.
const LIVES: u64 = 10;
const WRITERS: u64 = 4;
/// Most changes of one writer in one life, if the power lasts so long.
const CHANGES_MAX: u64 = 60;
/// Operations of the disk within which the power goes: in a start, and under load.
const OPERATIONS_OF_START: u64 = 30;
const OPERATIONS_OF_LOAD: u64 = 200;
/// So many times the disks are tried while what is cut short has gone one way only: when the power goes is drawn, but which
/// writes it meets depends on the machine.
const MORE: u64 = 10;

/// How often it went how.
#[derive(Debug, Default)]
struct Tally {
    in_start: AtomicU64,
    under_load: AtomicU64,
    cut_off: AtomicU64,
    answered: AtomicU64,
    made: AtomicU64,
    not_made: AtomicU64,
    resumed: AtomicU64,
    expired: AtomicU64,
    events: AtomicU64,
}

impl Tally {
    /// Whether some of the changes that were cut short were found made, and some not.
    fn went_both_ways(&self) -> bool {
        self.made.load(Ordering::Relaxed) > 0 && self.not_made.load(Ordering::Relaxed) > 0
    }
}

// INV-1
#[test]
fn nothing_answered_is_lost_when_the_power_goes() {
    let points: u64 = std::env::var_os("PUMICE_KILL_POINTS")
        .map_or(20, |text| text.to_str().and_then(|text| text.parse().ok()).expect("PUMICE_KILL_POINTS is a number"));
    let (chains, next, tally) = (points.div_ceil(LIVES), AtomicU64::new(0), Tally::default());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= chains && (seed >= chains * MORE || tally.went_both_ways()) {
                        break;
                    }
                    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
                    runtime.block_on(Box::pin(chain(seed, &tally)));
                }
            });
        }
    });
    println!("{tally:?}");
    let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
    assert!(of(&tally.under_load) * 4 > points, "the power went in the middle of few writes: {tally:?}");
    assert!(tally.went_both_ways(), "what was cut short always went one way: {tally:?}");
    assert!(of(&tally.resumed) > 0 && of(&tally.expired) > 0, "watchers went on one way only: {tally:?}");
}

/// What stays over the lives of one disk: the clients.
struct Clients {
    model: Arc<Mutex<Model>>,
    watchers: Vec<Arc<Mutex<Watcher>>>,
}

/// One disk through all its power losses, and a last start that ends well.
async fn chain(seed: u64, tally: &Tally) {
    let mut rng = StdRng::seed_from_u64(seed);
    let watchers = Kind::ALL.into_iter().filter(|kind| *kind != Kind::Lease).map(Watcher::new);
    let clients =
        Clients { model: Arc::default(), watchers: watchers.map(|watcher| Arc::new(Mutex::new(watcher))).collect() };
    let mut disk = FaultyDisk::default();
    for life in 0..LIVES {
        let told = format!("seed {seed}, life {life}");
        let dies_young = rng.gen_ratio(1, 5);
        if dies_young {
            disk.lose_power_after(rng.gen_range(1..OPERATIONS_OF_START));
        }
        let after = live(&disk, &clients, &mut rng, life, &told).await;
        let count = match &after {
            None => &tally.in_start,
            Some(_) if disk.has_power() => &tally.cut_off,
            Some(_) => &tally.under_load,
        };
        count.fetch_add(1, Ordering::Relaxed);
        disk = after.unwrap_or_else(|| disk.after_power_loss(rng.r#gen()));
    }
    let told = format!("seed {seed}, the end");
    let server = start(&disk).await.expect("a start with power");
    check(&server, &clients, &told).await;
    count_up(&clients, tally, &told);
    server.api.stop().await;
}

/// What the clients of one disk saw; and whether they were told all of it.
fn count_up(clients: &Clients, tally: &Tally, told: &str) {
    let mut model = clients.model.lock().expect("model");
    for watcher in &clients.watchers {
        let mut watcher = watcher.lock().expect("watcher");
        watcher.check_answered(&model.answered, told);
        tally.resumed.fetch_add(watcher.resumed, Ordering::Relaxed);
        tally.expired.fetch_add(watcher.expired, Ordering::Relaxed);
        tally.events.fetch_add(watcher.events, Ordering::Relaxed);
    }
    tally.answered.fetch_add(model.answered.len() as u64, Ordering::Relaxed);
    tally.made.fetch_add(std::mem::take(&mut model.made), Ordering::Relaxed);
    tally.not_made.fetch_add(std::mem::take(&mut model.not_made), Ordering::Relaxed);
}

/// One start, its check, and a load until the power goes. None: it went before there was load.
async fn live(disk: &FaultyDisk, clients: &Clients, rng: &mut StdRng, life: u64, told: &str) -> Option<FaultyDisk> {
    let server = start(disk).await?;
    check(&server, clients, told).await;
    // Who is away comes back with what it knew before.
    let present: Vec<_> = clients.watchers.iter().filter(|_| life == 0 || rng.gen_ratio(3, 4)).cloned().collect();
    let mut watching = JoinSet::new();
    for watcher in &present {
        let (watcher, server) = (Arc::clone(watcher), server.clone());
        watching.spawn(async move { Watcher::run(&watcher, &server).await });
    }
    // Watchers come back to a quiet server, or in the middle of writes.
    if rng.gen_ratio(1, 2) {
        caught_up(&server, &present, told).await;
    }
    write(disk, &server, clients, rng, life).await;
    // Watchers have seen all that happened, or part of it.
    if rng.gen_ratio(2, 3) {
        caught_up(&server, &present, told).await;
    }
    watching.abort_all();
    while let Some(ended) = watching.join_next().await {
        assert!(ended.is_err_and(|error| error.is_cancelled()), "{told}: a watcher failed");
    }
    // What the server still does is done on the disk that is gone.
    let after = disk.after_power_loss(rng.r#gen());
    server.api.stop().await;
    Some(after)
}

/// Load until the power goes, or until the clients are cut off in the middle of what they ask.
async fn write(disk: &FaultyDisk, server: &Server, clients: &Clients, rng: &mut StdRng, life: u64) {
    let (leases, changes) = (rng.gen_ratio(1, 3), rng.gen_range(1..CHANGES_MAX));
    let cut = rng.gen_ratio(1, 4).then(|| rng.gen_range(1..=WRITERS * changes));
    if cut.is_none() {
        disk.lose_power_after(rng.gen_range(1..OPERATIONS_OF_LOAD));
    }
    let steps = watch::Sender::new(0);
    let mut reached = steps.subscribe();
    let mut writing = JoinSet::new();
    for number in 0..WRITERS {
        let rng = StdRng::seed_from_u64(rng.r#gen());
        let (server, model, disk, steps) = (server.clone(), Arc::clone(&clients.model), disk.clone(), steps.clone());
        writing.spawn(Writer { server, model, disk, rng, number, leases, life, steps }.run(changes));
    }
    drop(steps);
    // An error says that all writers have ended.
    let _ = reached.wait_for(|steps| cut.is_some_and(|cut| *steps >= cut)).await;
    writing.abort_all();
    while let Some(ended) = writing.join_next().await {
        assert!(ended.is_ok() || ended.is_err_and(|error| error.is_cancelled()), "a writer failed");
    }
}

/// Waits until the watchers have heard of all that is there.
async fn caught_up(server: &Server, watchers: &[Arc<Mutex<Watcher>>], told: &str) {
    let revision = server.api.store().revision();
    for watcher in watchers {
        let mut reached = watcher.lock().expect("watcher").reached();
        let reached = tokio::time::timeout(PATIENCE, reached.wait_for(|reached| *reached >= revision)).await;
        reached.unwrap_or_else(|_| panic!("{told}: a watcher never came to {revision}")).expect("a watcher");
    }
}

/// A server on what is on the disk; none when the power goes meanwhile.
async fn start(disk: &FaultyDisk) -> Option<Server> {
    let excuse = |error: &dyn std::error::Error| assert!(!disk.has_power(), "a start failed: {error}");
    let store = Store::with_log(Box::new(disk.log()), Options::default()).inspect_err(|error| excuse(error)).ok()?;
    let builder = ApiServer::builder(store, Policy::new(built_in())).bookmark_every(Duration::from_millis(20));
    let api = builder.build().await.inspect_err(|error| excuse(error)).ok()?;
    let server = Server::of(api, administrator());
    let counter = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "counter"}, "data": {"n": "0"}});
    for (path, object) in [
        ("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition()),
        ("/api/v1/namespaces/kube-system/configmaps", counter),
    ] {
        let answer = server.post(path, &object).await;
        if answer.code.is_server_error() {
            assert!(!disk.has_power(), "{}", answer.text);
            return None;
        }
        assert!(answer.code == 201 || answer.code == 409, "{}", answer.text);
    }
    Some(server)
}

/// Everything that clients know against what a start finds.
async fn check(server: &Server, clients: &Clients, told: &str) {
    for kind in Kind::ALL {
        let list = server.get(kind.path()).await.is(200).body;
        let items = list["items"].as_array().expect("items").iter();
        let found: BTreeMap<String, Value> = items.map(|item| (objects::name(item).to_owned(), item.clone())).collect();
        for watcher in &clients.watchers {
            let watcher = watcher.lock().expect("watcher");
            if watcher.kind == kind {
                watcher.check(&found, told);
            }
        }
        let ours = found.into_iter().filter(|(name, _)| name.starts_with('w')).collect();
        let mut model = clients.model.lock().expect("model");
        assert!(revision(&list) >= model.revision_seen, "{told}: revisions went back");
        model.check(kind, &ours, told);
    }
    let counter = counted(&server.get(COUNTER).await.is(200).body);
    clients.model.lock().expect("model").check_counter(counter, told);
}
