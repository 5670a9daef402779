//! The nodes that this scheduler may use, where several share a cluster by NodeShards. Hard: no other node. Soft: its
//! own first.
//!
//! Invariant: the set is what its NodeShard desires, less what the shards of others say they use. Without its NodeShard
//! it is empty. Refreshed at the start of a cycle; asked by `Policy`.

use rustc_hash::FxHashSet;

use crate::cluster::nodes::Nodes;
use crate::cluster::objects::Versioned;
use crate::config::Sharding;
use crate::facts::{NodeName, ShardFacts};
use crate::ids::NodeId;

/// Added to the score of a node of the own shard, where others are allowed: above all that plugins give.
pub(crate) const OWN_FIRST: i64 = 1 << 50;

#[derive(Debug, Default)]
pub(crate) struct Shard {
    sharding: Option<Sharding>,
    seen: Option<u64>,
    usable: FxHashSet<NodeName>,
}

impl Shard {
    /// Brings the set up to date, and marks the nodes that go in or out.
    pub(crate) fn refresh(&mut self, sharding: Option<&Sharding>, shards: &Versioned<ShardFacts>, nodes: &mut Nodes) {
        if self.sharding.as_ref() == sharding && (sharding.is_none() || self.seen == Some(shards.version)) {
            return;
        }
        let mode_changed = self.sharding.as_ref() != sharding;
        let usable = sharding.map_or_else(FxHashSet::default, |sharding| usable(&sharding.name, shards));
        let changes = |name: &str| mode_changed || usable.contains(name) != self.usable.contains(name);
        let changed: Vec<NodeId> = nodes.ids().filter(|node| changes(&nodes.row(*node).name)).collect();
        changed.into_iter().for_each(|node| nodes.note_facts(node));
        self.sharding = sharding.cloned();
        self.seen = Some(shards.version);
        self.usable = usable;
    }

    /// May the node be used at all?
    pub(crate) fn allows(&self, node: &str) -> bool {
        self.sharding.as_ref().is_none_or(|sharding| !sharding.hard || self.usable.contains(node))
    }

    /// Whether nodes of others may be used, after the own ones.
    pub(crate) fn is_soft(&self) -> bool {
        self.sharding.as_ref().is_some_and(|sharding| !sharding.hard)
    }

    /// What the node's score gets for being of the own shard.
    pub(crate) fn bonus(&self, node: &str) -> i64 {
        if self.is_soft() && self.usable.contains(node) { OWN_FIRST } else { 0 }
    }

    /// The set, sorted, where there is one: what the own NodeShard's status says is in use.
    pub(crate) fn usable(&self) -> Option<Vec<&str>> {
        self.sharding.as_ref()?;
        let mut names: Vec<&str> = self.usable.iter().map(NodeName::as_str).collect();
        names.sort_unstable();
        Some(names)
    }
}

fn usable(name: &str, shards: &Versioned<ShardFacts>) -> FxHashSet<NodeName> {
    let mut usable: FxHashSet<NodeName> =
        shards.all.get(name).into_iter().flat_map(|own| own.desired.iter().cloned()).collect();
    for taken in shards.all.values().filter(|shard| shard.name != name).flat_map(|shard| &shard.in_use) {
        usable.remove(taken);
    }
    usable
}

crate::save::saved! {
    Shard { sharding, seen, usable };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shard(name: &str, desired: &[&str], in_use: &[&str]) -> ShardFacts {
        let names = |names: &[&str]| names.iter().map(|name| (*name).into()).collect();
        ShardFacts { name: name.to_owned(), desired: names(desired), in_use: names(in_use) }
    }

    #[test]
    fn a_shard_is_what_it_desires_less_what_others_use() {
        let mut shards = Versioned::default();
        let mut own = Shard::default();
        let mut nodes = Nodes::new();
        let (hard, soft) = (Sharding { hard: true, name: "a".into() }, Sharding { hard: false, name: "a".into() });
        own.refresh(None, &shards, &mut nodes);
        assert!(own.allows("n1") && own.usable().is_none());
        own.refresh(Some(&hard), &shards, &mut nodes);
        assert!(!own.allows("n1"), "without a NodeShard nothing may be used");
        shards.upsert("a".into(), &shard("a", &["n1", "n2"], &["n3"]));
        shards.upsert("b".into(), &shard("b", &["n1"], &["n2"]));
        own.refresh(Some(&hard), &shards, &mut nodes);
        assert_eq!(own.usable(), Some(vec!["n1"]));
        assert_eq!((own.allows("n1"), own.allows("n2"), own.bonus("n1")), (true, false, 0));
        own.refresh(Some(&soft), &shards, &mut nodes);
        assert_eq!((own.allows("n2"), own.bonus("n1"), own.bonus("n2")), (true, OWN_FIRST, 0));
    }
}
