//! `resourcequota`: a group is admitted only if every ResourceQuota of its namespace leaves room for its minimum,
//! beside what pods use, what admitted groups will still ask for, and what was admitted in this cycle.
//!
//! Scopes are not supported (as in Volcano); what a quota counts that scheduling does not know (`limits.*`, `count/*`) is
//! left to the API server.

use std::ops::Bound;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::cluster::classes::ClassRow;
use crate::facts::QuotaFacts;
use crate::ids::{DimId, GroupId, TimeMs};
use crate::plugin::{Plugin, Vote};
use crate::reasons::Reason;
use crate::share::{self, at};
use crate::world::minimum::Missing;
use crate::world::tables::Tables;

#[derive(Debug, Default)]
pub(crate) struct ResourceQuota {
    /// Admitted in this cycle, by namespace.
    admitted: FxHashMap<Arc<str>, Vec<i64>>,
}

impl Plugin for ResourceQuota {
    fn scores_nodes(&self) -> bool {
        false
    }

    fn checks_use_of(&self, _class: &ClassRow) -> bool {
        false
    }

    fn open(&mut self, _tables: &Tables, _now: TimeMs) {
        self.admitted.clear();
    }

    fn job_enqueueable(&self, tables: &Tables, group: GroupId, missing: &Missing) -> Result<Vote, Reason> {
        let namespace = &tables.groups.row(group).namespace;
        let mut pending = tables.inqueue_demand.unmade(namespace).to_vec();
        share::add(&mut pending, self.admitted.get(namespace).map_or(&[], Vec::as_slice), 1);
        match quotas(tables, namespace).find_map(|quota| exceeded(tables, quota, &missing.total, &pending)) {
            Some(reason) => Err(reason),
            None => Ok(Vote::Permit),
        }
    }

    fn job_enqueued(&mut self, tables: &Tables, group: GroupId, missing: &Missing) {
        let namespace = tables.groups.row(group).namespace.clone();
        share::add(self.admitted.entry(namespace).or_default(), &missing.total, 1);
    }
}

/// The quotas of a namespace: their keys are `namespace/name`, in order.
fn quotas<'a>(tables: &'a Tables, namespace: &'a str) -> impl Iterator<Item = &'a QuotaFacts> {
    let from = format!("{namespace}/");
    let all = tables.objects.quotas.all.range::<str, _>((Bound::Included(from.as_str()), Bound::Unbounded));
    all.map(|(_, quota)| quota).take_while(move |quota| quota.namespace == namespace)
}

/// The dimension that a quota's key counts.
fn dim(tables: &Tables, key: &str) -> Option<DimId> {
    tables.dims.lookup(key.strip_prefix("requests.").unwrap_or(key))
}

fn exceeded(tables: &Tables, quota: &QuotaFacts, wanted: &[i64], pending: &[i64]) -> Option<Reason> {
    quota.hard.iter().find_map(|(key, hard)| {
        let dim = dim(tables, key)?;
        let requested = at(wanted, dim);
        let used = quota.used.get(key).copied().unwrap_or(0).saturating_add(at(pending, dim));
        if requested <= 0 || used.saturating_add(requested) <= *hard {
            return None;
        }
        Some(Reason::Quota { quota: quota.name.clone(), resource: key.clone(), hard: *hard, used, requested })
    })
}

#[cfg(test)]
mod tests;
