//! What a pod claims by name, volumes and devices: checked node by node, and what has to be written before its bind.

use rustc_hash::FxHashSet;

use super::volumes::{Failed, Switches, Volumes};
use crate::cluster::devices::Unmet;
use crate::cluster::table::key_of;
use crate::facts::NodeName;
use crate::ids::{NodeId, TaskId};
use crate::plan::Prebind;
use crate::reasons::Check;
use crate::world::tables::Tables;

/// The claims of one pod, resolved.
pub(super) struct Claims<'a> {
    tables: &'a Tables,
    task: TaskId,
    volumes: Volumes<'a>,
}

impl<'a> Claims<'a> {
    /// Nothing for a pod that claims nothing.
    pub(super) fn of(tables: &'a Tables, task: TaskId, switches: Switches) -> Option<Self> {
        tables.task(task).claims.as_ref()?;
        Some(Self { tables, task, volumes: Volumes::of(tables, task, switches) })
    }

    pub(super) fn check(&self, node: NodeId) -> Option<Failed> {
        self.volumes.check(node).or_else(|| self.devices(node))
    }

    /// Of each kind of check the first that fails.
    pub(super) fn failed(&self, node: NodeId) -> Vec<Failed> {
        self.volumes.failed(node).chain(self.devices(node)).collect()
    }

    fn devices(&self, node: NodeId) -> Option<Failed> {
        let row = self.tables.task(self.task);
        let claims = row.claims.as_deref()?;
        if let Some(unmade) = claims.unmade.first() {
            return Some((Check::DeviceClaim, format!("resource claim {unmade} is not made yet")));
        }
        let mut taken = FxHashSet::default();
        claims.devices.iter().find_map(|name| {
            let key = key_of(&row.namespace, name);
            match self.tables.devices.fit(&key, self.tables.nodes.row(node), &mut taken) {
                Ok(_) => None,
                Err(Unmet::Refused(text)) => Some((Check::DeviceClaim, text)),
                Err(Unmet::Short(class)) => Some((Check::Devices, class)),
                Err(Unmet::Elsewhere) => Some((Check::DevicesElsewhere, name.clone())),
            }
        })
    }
}

/// What is to be written before the pod is bound, in order.
pub(super) fn prebind(tables: &Tables, task: TaskId, node: NodeId, binding: bool) -> Vec<Prebind> {
    let row = tables.task(task);
    let Some(claims) = row.claims.as_deref() else { return Vec::new() };
    let (namespace, node) = (row.namespace.to_string(), NodeName::from(tables.node_name(node)));
    let mut writes = Vec::new();
    if binding {
        for name in &claims.volumes {
            let key = key_of(&namespace, name);
            let Some(claim) = tables.storage.claims.all.get(&key).filter(|claim| tables.storage.waits(claim)) else {
                continue;
            };
            let (namespace, claim_name, uid) = (namespace.clone(), name.clone(), claim.uid.clone());
            writes.push(match tables.storage.chosen(&key) {
                Some(volume) => Prebind::BindVolume { namespace, claim: claim_name, uid, volume: volume.to_owned() },
                None => Prebind::SelectNode { namespace, claim: claim_name, node: node.clone() },
            });
        }
    }
    for name in &claims.devices {
        let decided = tables.devices.decided(&key_of(&namespace, name));
        writes.push(Prebind::Reserve {
            namespace: namespace.clone(),
            claim: name.clone(),
            devices: decided.map(|decided| decided.devices.clone()).unwrap_or_default(),
            node: node.clone(),
        });
    }
    writes
}
