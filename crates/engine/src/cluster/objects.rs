//! Smaller objects of the cluster, kept as they were told: HyperNodes, NodeShards, budgets, quotas, namespaces.
//! What plugins work out of them is kept against `version`.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::facts::{BudgetFacts, HyperNodeFacts, NumaFacts, QuotaFacts, ShardFacts, WindowFacts};
use crate::save::Save;

/// Objects of one kind by their key, in order.
#[derive(Debug)]
pub(crate) struct Versioned<T> {
    pub(crate) all: BTreeMap<String, T>,
    pub(crate) version: u64,
}

impl<T> Default for Versioned<T> {
    fn default() -> Self {
        Self { all: BTreeMap::new(), version: 0 }
    }
}

impl<T: Clone + PartialEq> Versioned<T> {
    /// False if it was so already.
    pub(crate) fn upsert(&mut self, key: String, object: &T) -> bool {
        if self.all.get(&key) == Some(object) {
            return false;
        }
        self.all.insert(key, object.clone());
        self.version += 1;
        true
    }

    /// False if it was not there.
    pub(crate) fn remove(&mut self, key: &str) -> bool {
        let there = self.all.remove(key).is_some();
        self.version += u64::from(there);
        there
    }
}

/// A namespace: whose work it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Namespace {
    /// At least 1.
    pub(crate) weight: i64,
    pub(crate) labels: BTreeMap<String, String>,
    /// Where its pods go that name no queue.
    pub(crate) queue: Option<Arc<str>>,
}

#[derive(Debug, Default)]
pub(crate) struct Objects {
    pub(crate) hyper_nodes: Versioned<HyperNodeFacts>,
    /// By the node's name.
    pub(crate) numa: Versioned<Arc<NumaFacts>>,
    pub(crate) shards: Versioned<ShardFacts>,
    /// By `namespace/name`.
    pub(crate) budgets: Versioned<BudgetFacts>,
    /// By `namespace/name`.
    pub(crate) quotas: Versioned<QuotaFacts>,
    pub(crate) namespaces: Versioned<Namespace>,
    /// Reservations by administrators.
    pub(crate) windows: Versioned<WindowFacts>,
}

crate::save::saved! {
    Namespace { weight, labels, queue };
    Objects { hyper_nodes, numa, shards, budgets, quotas, namespaces, windows };
}

crate::save::saved_generic!([T: Save] Versioned<T> { all, version });
