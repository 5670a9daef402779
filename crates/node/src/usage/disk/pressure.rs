//! Who goes when the node's disk is nearly full, so that the store and the other pods can go on writing.
//!
//! Rule: pods are ended, one after the other, while less than 5 % of the disk is free **and** pods that run use together more than is
//! worth it ([`Room::worth_bytes`]); until 7 % is free, or they use half of that, the node takes no new pods. A disk that
//! others have filled therefore never keeps a pod from running. Who goes is chosen as a kubelet does: those that use more than they
//! request, then the lower priority, then who uses most beyond its request. Pods that use less than half of the mean stay, for their
//! end would give nothing back.
//!
//! Invariant: pure but for [`Room::of`]. Called by the agent's loop over the pods.

use std::cmp::Reverse;
use std::path::Path;
use std::time::Instant;

use k8s_openapi::api::core::v1::{Container, Pod};
use pumice_units::Quantity;

use super::DiskUse;
use super::thresholds::{FREE_AGAIN_PERCENT, FREE_MIN_PERCENT, RELIEF_FOR, WORTH_BYTES, WORTH_PART, WORTH_PERCENT};
use crate::downward_api;
use crate::pod_spec::resolve::is_sidecar;

const RESOURCE: &str = "ephemeral-storage";

/// Room on the disk where the pods' directories are, as far as users who aren't root may fill it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Room {
    pub free_bytes: u64,
    pub total_bytes: u64,
}

impl Room {
    /// The room where `path` is; none where the kernel doesn't say.
    pub(crate) fn of(path: &Path) -> Option<Room> {
        let found = nix::sys::statvfs::statvfs(path).ok()?;
        let bytes = |blocks: u64| blocks.saturating_mul(found.fragment_size());
        let room = Room { free_bytes: bytes(found.blocks_available()), total_bytes: bytes(found.blocks()) };
        (room.total_bytes > 0).then_some(room)
    }

    /// Whether too little is free.
    pub(crate) fn is_short(self) -> bool {
        self.free_bytes < self.share(FREE_MIN_PERCENT)
    }

    /// Whether less is free than what ends a pressure.
    pub(crate) fn is_nearly_short(self) -> bool {
        self.free_bytes < self.share(FREE_AGAIN_PERCENT)
    }

    /// What pods must use together that ending one is worth it: as much as is still free, but no more than a hundredth of the
    /// disk or 64 MiB, and no less than 64 MiB or an eighth of the disk.
    pub(crate) fn worth_bytes(self) -> u64 {
        let (least, most) =
            (WORTH_BYTES.min(self.total_bytes / WORTH_PART), WORTH_BYTES.max(self.share(WORTH_PERCENT)));
        self.free_bytes.clamp(least, most)
    }

    fn share(self, percent: u64) -> u64 {
        self.total_bytes / 100 * percent
    }
}

/// What is to be done about the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    None,
    /// A pod has to go.
    Evict,
}

/// Whether the disk is so full of what pods use that the node takes no more of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Pressure {
    is_on: bool,
    /// Since when there is room again, while it is on.
    relieved_at: Option<Instant>,
}

impl Pressure {
    pub(crate) fn is_on(self) -> bool {
        self.is_on
    }

    /// Takes a look at the disk: what is free of it, and what pods that run use together.
    pub(crate) fn look(&mut self, room: Room, used_bytes: u64, now: Instant) -> Step {
        let worth_bytes = room.worth_bytes();
        let evict = room.is_short() && used_bytes > worth_bytes;
        if evict {
            *self = Pressure { is_on: true, relieved_at: None };
            return Step::Evict;
        }
        if self.is_on {
            let relieved = !room.is_nearly_short() || used_bytes <= worth_bytes / 2;
            self.relieved_at = if relieved { Some(self.relieved_at.unwrap_or(now)) } else { None };
            self.is_on = self.relieved_at.is_none_or(|since| now < since + RELIEF_FOR);
        }
        Step::None
    }
}

/// A pod that may be ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Candidate<'p> {
    pub uid: &'p str,
    pub priority: i32,
    pub requested_bytes: u64,
    pub used_bytes: u64,
}

impl<'p> Candidate<'p> {
    pub(crate) fn new(uid: &'p str, pod: &Pod, used: &DiskUse) -> Candidate<'p> {
        let priority = pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or(0);
        Candidate { uid, priority, requested_bytes: requested(pod), used_bytes: used.total() }
    }

    fn beyond_request(&self) -> u64 {
        self.used_bytes.saturating_sub(self.requested_bytes)
    }
}

/// Who goes first.
pub(crate) fn victim<'p>(candidates: &[Candidate<'p>]) -> Option<&'p str> {
    let used = candidates.iter().map(|pod| pod.used_bytes).fold(0, u64::saturating_add);
    let count = u64::try_from(candidates.len()).unwrap_or(u64::MAX);
    let worth = candidates.iter().filter(|pod| pod.used_bytes > 0 && pod.used_bytes >= used / count.max(1) / 2);
    let first = worth.min_by_key(|pod| {
        (pod.beyond_request() == 0, pod.priority, Reverse(pod.beyond_request()), Reverse(pod.used_bytes), pod.uid)
    });
    first.map(|pod| pod.uid)
}

/// Why `pod` has to go, in a kubelet's words.
pub(crate) fn message(pod: &Pod, used: &DiskUse, room: Room) -> String {
    let mut text = format!(
        "The node was low on resource: {RESOURCE}. Threshold quantity: {}, available: {}. ",
        bytes(room.share(FREE_MIN_PERCENT)),
        bytes(room.free_bytes)
    );
    for container in pod.spec.iter().flat_map(|spec| &spec.containers) {
        let (requested, used) =
            (request(container), used.containers.get(&container.name).map_or(0, |used| used.total()));
        if used > requested {
            text.push_str(&format!(
                "Container {} was using {}, request is {}, has larger consumption of {RESOURCE}. ",
                container.name,
                bytes(used),
                bytes(requested)
            ));
        }
    }
    text
}

fn bytes(bytes: u64) -> Quantity {
    Quantity::from_bytes(i64::try_from(bytes >> 10 << 10).unwrap_or(i64::MAX))
}

/// Bytes of disk that a pod requests: its containers' sum, or one init container's if that is more.
fn requested(pod: &Pod) -> u64 {
    let Some(spec) = &pod.spec else { return 0 };
    let init = || spec.init_containers.iter().flatten();
    let sidecars = init().filter(|container| is_sidecar(container));
    let sum = sidecars.chain(&spec.containers).map(request).fold(0, u64::saturating_add);
    init().map(request).max().unwrap_or(0).max(sum)
}

/// What a container requests; a limit without a request is one.
fn request(container: &Container) -> u64 {
    let of =
        |list: &Option<std::collections::BTreeMap<_, _>>| list.as_ref()?.get(RESOURCE).and_then(downward_api::parse);
    let resources = container.resources.as_ref();
    let found = resources.and_then(|resources| of(&resources.requests).or_else(|| of(&resources.limits)));
    found.map_or(0, |quantity| u64::try_from(quantity.value()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pumice_clock as clock;
    use serde_json::json;
    use std::time::Duration;

    const MI: u64 = 1 << 20;
    const GI: u64 = 1 << 30;

    fn room(free_bytes: u64, total_bytes: u64) -> Room {
        Room { free_bytes, total_bytes }
    }

    #[test]
    fn what_is_worth_ending_a_pod_depends_on_the_disk_and_on_what_is_free() {
        for (free, total, expected) in [
            // A large disk: a hundredth of it, then as much as is free, then 64 MiB.
            (20 * GI, 500 * GI, 5 * GI),
            (2 * GI, 500 * GI, 2 * GI),
            (MI, 500 * GI, 64 * MI),
            // A small one: 64 MiB at most, an eighth at least.
            (100 * MI, 2 * GI, 64 * MI),
            (4 * MI, 96 * MI, 12 * MI),
            (0, 0, 0),
        ] {
            let worth = room(free, total).worth_bytes();
            assert!(worth.abs_diff(expected) < MI, "{free} of {total}: {worth}");
        }
    }

    #[test]
    fn pods_are_ended_below_five_percent_and_come_again_above_seven() {
        let (total, used, begin) = (100 * GI, 10 * GI, clock::monotonic());
        let mut pressure = Pressure::default();
        let mut second = 0;
        let mut look = |free_percent: u64, used: u64| {
            second += 1;
            let step =
                pressure.look(room(total / 100 * free_percent, total), used, begin + Duration::from_secs(second));
            (step, pressure.is_on())
        };
        assert_eq!(look(6, used), (Step::None, false), "it has not begun");
        assert_eq!(look(5, used), (Step::None, false));
        assert_eq!(look(4, used), (Step::Evict, true));
        for _ in 0..30 {
            assert_eq!(look(6, used), (Step::None, true), "neither ended nor taken in between");
        }
        for _ in 0..10 {
            assert_eq!(look(8, used), (Step::None, true), "not at once");
        }
        assert_eq!(look(8, used), (Step::None, false));
        assert_eq!(look(6, used), (Step::None, false));
    }

    #[test]
    fn a_disk_that_others_filled_takes_pods() {
        let (total, begin) = (500 * GI, clock::monotonic());
        let mut pressure = Pressure::default();
        for free in [20 * GI, 2 * GI, 100 * MI, 0] {
            assert_eq!(pressure.look(room(free, total), 60 * MI, begin), Step::None, "{free}");
            assert!(!pressure.is_on());
        }
        // Once the pods that used much have gone, others come, though the disk is as full.
        assert_eq!(pressure.look(room(GI, total), 2 * GI, begin), Step::Evict);
        let after = |seconds| begin + Duration::from_secs(seconds);
        assert_eq!(pressure.look(room(GI, total), GI, after(1)), Step::None);
        assert_eq!(pressure.look(room(GI, total), GI, after(100)), Step::None);
        assert!(pressure.is_on(), "what runs is still worth half of it and more");
        for second in 101..112 {
            pressure.look(room(GI, total), MI, after(second));
        }
        assert!(!pressure.is_on());
    }

    #[test]
    fn who_goes_is_ranked_as_a_kubelet_does() {
        let pod = |uid, priority, requested_bytes, used_bytes| Candidate { uid, priority, requested_bytes, used_bytes };
        let cases = [
            (vec![], None),
            (vec![pod("idle", 0, 0, 0)], None),
            (vec![pod("within", 0, 10, 9), pod("over", 9, 1, 5)], Some("over")),
            (vec![pod("high", 5, 0, 9), pod("low", 1, 0, 6)], Some("low")),
            (vec![pod("little", 0, 5, 9), pod("much", 0, 1, 8)], Some("much")),
            (vec![pod("small", -9, 0, 1), pod("large", 0, 0, 99)], Some("large")),
            (vec![pod("within", 0, 10, 9)], Some("within")),
            (vec![pod("b", 0, 0, 1), pod("a", 0, 0, 1)], Some("a")),
        ];
        for (candidates, expected) in cases {
            assert_eq!(victim(&candidates), expected, "{candidates:?}");
        }
    }

    #[test]
    fn the_message_says_what_is_missing_and_who_took_it() {
        let resources = |kind: &str, quantity: &str| json!({kind: {"ephemeral-storage": quantity}});
        let pod: Pod = serde_json::from_value(json!({"spec": {"priority": 7, "containers": [
            {"name": "a", "resources": resources("requests", "1Mi")},
            {"name": "b", "resources": resources("limits", "3Mi")},
            {"name": "c"},
        ]}}))
        .unwrap();
        let of = |files: u64| super::super::ContainerUse { files, logs: 0 };
        let containers = [("a", of(2 * MI)), ("b", of(2 * MI)), ("c", of(512 << 10))];
        let used =
            DiskUse { containers: containers.map(|(name, used)| (name.to_owned(), used)).into(), ..DiskUse::default() };
        assert_eq!(
            message(&pod, &used, room(40 * MI, 1000 * MI)),
            "The node was low on resource: ephemeral-storage. Threshold quantity: 50Mi, available: 40Mi. Container a was \
             using 2Mi, request is 1Mi, has larger consumption of ephemeral-storage. Container c was using 512Ki, request is 0, \
             has larger consumption of ephemeral-storage. "
        );
        let candidate = Candidate::new("u", &pod, &used);
        assert_eq!((candidate.priority, candidate.requested_bytes), (7, 4 * MI));
    }
}
