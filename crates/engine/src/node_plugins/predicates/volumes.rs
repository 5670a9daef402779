//! Volumes: may the pod's claims be met on this node? Kubernetes' VolumeBinding, VolumeZone, NodeVolumeLimits and
//! VolumeRestrictions (ReadWriteOncePod), without the check of storage capacity.

use std::collections::BTreeSet;

use crate::cluster::node_matching::matches_term;
use crate::cluster::nodes::NodeRow;
use crate::cluster::storage::reaches;
use crate::cluster::table::key_of;
use crate::facts::{StorageClassFacts, VolumeClaimFacts, VolumeFacts};
use crate::ids::{NodeId, TaskId};
use crate::reasons::Check;
use crate::world::tables::Tables;

/// Labels of volumes that say where they are; values may be several, with `__` between.
const ZONES: [(&str, &str); 4] = [
    ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"),
    ("topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"),
    ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"),
];

/// Which of the checks are on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Switches {
    pub(super) binding: bool,
    pub(super) zone: bool,
    pub(super) limits: bool,
}

/// A failed check and what it is about.
pub(super) type Failed = (Check, String);

/// A claim that waits for its node.
struct Waiting<'a> {
    claim: &'a VolumeClaimFacts,
    class: &'a StorageClassFacts,
    candidates: Vec<&'a VolumeFacts>,
}

/// The claims of one pod, resolved.
pub(super) struct Volumes<'a> {
    tables: &'a Tables,
    switches: Switches,
    refused: Option<Failed>,
    bound: Vec<&'a VolumeFacts>,
    waiting: Vec<Waiting<'a>>,
    /// Driver and volume that the pod would attach.
    attached: BTreeSet<(&'a str, String)>,
}

impl<'a> Volumes<'a> {
    pub(super) fn of(tables: &'a Tables, task: TaskId, switches: Switches) -> Self {
        let (refused, attached) = (None, BTreeSet::new());
        let mut volumes = Self { tables, switches, refused, bound: Vec::new(), waiting: Vec::new(), attached };
        let row = tables.task(task);
        let Some(claims) = row.claims.as_deref() else { return volumes };
        for name in &claims.volumes {
            let failed = volumes.resolve(&row.namespace, name);
            volumes.refused = volumes.refused.take().or(failed);
        }
        volumes.attached = attachments(tables, task);
        volumes
    }

    fn resolve(&mut self, namespace: &str, name: &str) -> Option<Failed> {
        let storage = &self.tables.storage;
        let key = key_of(namespace, name);
        let refuse = |text: String| Some((Check::VolumeClaim, text));
        let Some(claim) = storage.claims.all.get(&key) else {
            return refuse(format!("volume claim {name} does not exist"));
        };
        if claim.lost {
            return refuse(format!("volume claim {name} has lost its volume {}", claim.volume));
        }
        if claim.terminating {
            return refuse(format!("volume claim {name} is being deleted"));
        }
        if claim.access_modes.iter().any(|mode| mode == "ReadWriteOncePod") && storage.users(&key) > 0 {
            return refuse(format!("volume claim {name} is for one pod at a time, and in use"));
        }
        if claim.bound {
            match storage.volumes.all.get(&claim.volume) {
                Some(volume) => self.bound.push(volume),
                None => {
                    return refuse(format!(
                        "volume claim {name} is bound to volume {}, which is not there",
                        claim.volume
                    ));
                }
            }
            return None;
        }
        if storage.binds_nothing() {
            return None;
        }
        let class = match storage.classes.all.get(&claim.class) {
            Some(class) if storage.waits(claim) => class,
            _ => return refuse(format!("volume claim {name} is not bound yet")),
        };
        if let Some(chosen) = storage.chosen(&key).and_then(|volume| storage.volumes.all.get(volume)) {
            self.bound.push(chosen);
            return None;
        }
        let mut candidates = storage.candidates(claim);
        candidates.retain(|volume| volume.claim.is_some() || volume.available);
        self.waiting.push(Waiting { claim, class, candidates });
        None
    }

    /// What keeps the pod's volumes off the node.
    pub(super) fn check(&self, node: NodeId) -> Option<Failed> {
        self.failed(node).next()
    }

    /// Of each kind of check the first that fails, one after the other as they are asked for.
    pub(super) fn failed(&self, node: NodeId) -> impl Iterator<Item = Failed> + use<'_, 'a> {
        let row = self.tables.nodes.row(node);
        (0..4).filter_map(move |kind| match kind {
            0 => self.over_limit(row, node),
            1 => self.elsewhere(row),
            2 => self.out_of_reach(row),
            _ => self.without_volume(row),
        })
    }

    fn elsewhere(&self, row: &NodeRow) -> Option<Failed> {
        if !self.switches.zone {
            return None;
        }
        let volume = self.bound.iter().find(|volume| !in_zone(volume, row))?;
        Some((Check::VolumeZone, volume.name.clone()))
    }

    /// A claim that can't be used at all, or a volume that is not to be had on the node.
    fn out_of_reach(&self, row: &NodeRow) -> Option<Failed> {
        if !self.switches.binding {
            return None;
        }
        if self.refused.is_some() {
            return self.refused.clone();
        }
        let volume = self.bound.iter().find(|volume| !reaches(volume, row))?;
        Some((Check::VolumeNode, volume.name.clone()))
    }

    fn without_volume(&self, row: &NodeRow) -> Option<Failed> {
        if !self.switches.binding {
            return None;
        }
        let mut used: Vec<&str> = Vec::new();
        for waiting in &self.waiting {
            let fits = |volume: &&&VolumeFacts| !used.contains(&volume.name.as_str()) && reaches(volume, row);
            if let Some(volume) = waiting.candidates.iter().find(fits) {
                used.push(&volume.name);
            } else if !provisionable(waiting, row) {
                return Some((Check::NoVolume, waiting.claim.name.clone()));
            }
        }
        None
    }

    fn over_limit(&self, row: &NodeRow, node: NodeId) -> Option<Failed> {
        if self.attached.is_empty() || !self.switches.limits {
            return None;
        }
        let limits = &self.tables.storage.csi_nodes.all.get(&*row.name)?.limits;
        let there = self.tables.nodes.row(node).tasks.iter().filter(|task| self.tables.task(**task).state.holds_node());
        let mut all: BTreeSet<(&str, String)> = there.flat_map(|task| attachments(self.tables, *task)).collect();
        all.extend(self.attached.iter().cloned());
        let over = |(driver, limit): &(&String, &i64)| {
            let count = all.iter().filter(|(of, _)| of == driver).count();
            let wants = self.attached.iter().any(|(of, _)| of == driver);
            wants && i64::try_from(count).unwrap_or(i64::MAX) > **limit
        };
        limits.iter().find(over).map(|(driver, _)| (Check::VolumeLimit, driver.clone()))
    }
}

/// Whether a volume for the claim could be made where the node is.
fn provisionable(waiting: &Waiting<'_>, row: &NodeRow) -> bool {
    let Waiting { claim, class, .. } = waiting;
    let here = claim.selected_node.as_deref().is_none_or(|node| node == &*row.name);
    let somebody = !class.provisioner.is_empty() && class.provisioner != "kubernetes.io/no-provisioner";
    here && somebody && (class.topologies.is_empty() || class.topologies.iter().any(|term| matches_term(term, row)))
}

/// Nodes without any such label are everywhere, as in Kubernetes.
fn in_zone(volume: &VolumeFacts, row: &NodeRow) -> bool {
    if !ZONES.iter().any(|(key, _)| row.labels.contains_key(*key)) {
        return true;
    }
    ZONES.iter().all(|(key, alias)| {
        let Some(values) = volume.labels.get(*key) else { return true };
        let own = row.labels.get(*key).or_else(|| row.labels.get(*alias));
        own.is_some_and(|own| values.split("__").any(|value| value == own))
    })
}

/// Driver and volume of each claim of a task that a CSI driver attaches.
fn attachments(tables: &Tables, task: TaskId) -> BTreeSet<(&str, String)> {
    let row = tables.task(task);
    let names = row.claims.as_deref().into_iter().flat_map(|claims| &claims.volumes);
    names
        .filter_map(|name| {
            let key = key_of(&row.namespace, name);
            let claim = tables.storage.claims.all.get(&key)?;
            let volume = tables.storage.chosen(&key).unwrap_or(&claim.volume);
            if let Some(volume) = tables.storage.volumes.all.get(volume) {
                return (!volume.driver.is_empty()).then(|| (volume.driver.as_str(), volume.handle.clone()));
            }
            let class = tables.storage.classes.all.get(&claim.class)?;
            Some((class.provisioner.as_str(), key))
        })
        .collect()
}
