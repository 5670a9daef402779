//! Pods that use more of the disk than they may are ended, and those that use most of a disk that is nearly full.
//!
//! Invariant: a pod that is about to end anyway ends as it would have; whoever is evicted says so by its status, also where this
//! agent dies before it can. When the disk is nearly full, one pod goes at a time, and the next when its room had time to be free.

use std::time::{Duration, Instant};

use pumice_clock as clock;
use tokio::sync::{mpsc, watch};

use crate::agent::pods::Pods;
use crate::agent::pods::entry::{Entry, Stage};
use crate::agent::teardown::KILL_WITHIN;
use crate::usage::disk;
use crate::usage::disk::measuring::{DiskFinding, Measured};
use crate::usage::disk::pressure::{self, Candidate, Pressure, Room, Step};
use crate::usage::disk::thresholds::FREED_WITHIN;
use pumice_shim::control::{self, Stop, Termination};
use pumice_shim::status::EVICTED;

/// Seconds that an evicted pod has, as a kubelet gives it.
const GRACE_SECONDS: u64 = 1;
/// Why pods do not start meanwhile.
pub(super) const NEARLY_FULL: &str =
    "the node's disk is nearly full; pods start again when those that use much of it have ended";

/// The disk that pods share.
pub(crate) struct SharedDisk {
    /// What is found of it and of the pods on it.
    pub findings: mpsc::Receiver<DiskFinding>,
    /// Who tells the Node of a pressure.
    pub node: watch::Sender<bool>,
    pressure: Pressure,
    going: Option<Going>,
}

/// A pod whose room will be free.
struct Going {
    uid: String,
    /// Until then no other pod has to go.
    until: Instant,
    ended: bool,
}

impl SharedDisk {
    pub(crate) fn new(findings: mpsc::Receiver<DiskFinding>, node: watch::Sender<bool>) -> SharedDisk {
        SharedDisk { findings, node, pressure: Pressure::default(), going: None }
    }

    /// Whether pods have to wait until there is room.
    pub(super) fn is_short(&self) -> bool {
        self.pressure.is_on()
    }
}

impl Pods {
    pub(super) fn on_disk_finding(&mut self, finding: DiskFinding) {
        match finding {
            DiskFinding::Pod(measured) => self.on_measured(measured),
            DiskFinding::Room(room) => self.on_room(room),
        }
    }

    /// Judges what a pod uses of the disk.
    fn on_measured(&mut self, Measured { uid, used, finished }: Measured) {
        let Some(entry) = self.pods.get_mut(&uid) else { return };
        if entry.stage != Stage::Running {
            return;
        }
        let over = entry.pod().and_then(|pod| disk::excess(pod, &used));
        if finished || used.total() > entry.disk.total() {
            entry.disk = used;
        }
        if let Some(message) = over {
            self.evict(&uid, message);
        }
    }

    /// Judges how much of the disk is free.
    fn on_room(&mut self, room: Room) {
        let now = clock::monotonic();
        let running = || self.pods.values().filter(|entry| entry.stage == Stage::Running);
        let used = running().map(|entry| entry.disk.total()).fold(0, u64::saturating_add);
        let was_short = self.disk.is_short();
        let step = self.disk.pressure.look(room, used, now);
        if self.disk.is_short() != was_short {
            let short = self.disk.is_short();
            tracing::warn!(
                short,
                free_bytes = room.free_bytes,
                used_by_pods_bytes = used,
                "pressure on the disk has changed"
            );
            self.disk.node.send_replace(short);
        }
        if step != Step::Evict || self.is_room_awaited(now) {
            return;
        }
        let pods = self.pods.values().filter(|entry| may_be_evicted(entry));
        let candidates: Vec<Candidate<'_>> =
            pods.filter_map(|entry| Some(Candidate::new(&entry.uid, entry.pod()?, &entry.disk))).collect();
        let Some(uid) = pressure::victim(&candidates).map(str::to_owned) else { return };
        let Some(entry) = self.pods.get(&uid) else { return };
        let Some(message) = entry.pod().map(|pod| pressure::message(pod, &entry.disk, room)) else { return };
        if self.evict(&uid, message) {
            let until = now + Duration::from_secs(GRACE_SECONDS) + KILL_WITHIN + FREED_WITHIN;
            self.disk.going = Some(Going { uid, until, ended: false });
        }
    }

    /// Whether the room of the pod that was evicted last may still become free.
    fn is_room_awaited(&mut self, now: Instant) -> bool {
        let Some(going) = &mut self.disk.going else { return false };
        if !going.ended && self.pods.get(&going.uid).is_none_or(Entry::has_ended) {
            going.ended = true;
            going.until = now + FREED_WITHIN;
        }
        let awaited = now < going.until;
        if !awaited {
            self.disk.going = None;
        }
        awaited
    }

    /// Ends a pod; whether its shim has heard of it.
    fn evict(&mut self, uid: &str, message: String) -> bool {
        let Some(entry) = self.pods.get_mut(uid).filter(|entry| may_be_evicted(entry)) else { return false };
        tracing::info!(uid, namespace = entry.namespace, pod = entry.name, message, "pod is evicted");
        let why = Termination { reason: EVICTED.to_owned(), message };
        match control::request_termination(&entry.dir, &why, Stop { grace_seconds: GRACE_SECONDS }) {
            Ok(()) => {
                let kill_at = clock::monotonic() + Duration::from_secs(GRACE_SECONDS);
                entry.kill_at = Some(kill_at);
                entry.expect_gone_by(kill_at + KILL_WITHIN);
                self.marked.insert(uid.to_owned());
                true
            }
            // It is measured again, and asked again.
            Err(error) => {
                tracing::error!(uid, error = %error, "can't tell a shim that its pod is evicted");
                false
            }
        }
    }
}

fn may_be_evicted(entry: &Entry) -> bool {
    entry.stage == Stage::Running && !entry.is_leaving() && entry.kill_at.is_none()
}
