//! Which device claims count against which queue.
//!
//! Invariant: a claim is listed for a queue once, however many pods of the queue that have a place or are promised one
//! name it, and goes with the last of them. Kept by `Tables`; read by the plugin `capacity`.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::cluster::table::key_of;
use crate::ids::QueueId;

#[derive(Debug, Default)]
pub(crate) struct Charges {
    /// How many times pods of the queue name a claim, by its `namespace/name`.
    of: FxHashMap<QueueId, BTreeMap<String, u32>>,
}

impl Charges {
    /// Counts a pod that names `claims` (`sign` 1), or no longer does (-1).
    pub(super) fn count(&mut self, queue: QueueId, namespace: &str, claims: &[String], sign: i32) {
        if claims.is_empty() {
            return;
        }
        let charged = self.of.entry(queue).or_default();
        for name in claims {
            let key = key_of(namespace, name);
            let pods = charged.entry(key.clone()).or_default();
            *pods = pods.checked_add_signed(sign).expect("charges follow the tasks' states");
            if *pods == 0 {
                charged.remove(&key);
            }
        }
        if charged.is_empty() {
            self.of.remove(&queue);
        }
    }

    /// The claims of each queue that has any, in no order that means anything.
    pub(crate) fn by_queue(&self) -> impl Iterator<Item = (QueueId, impl Iterator<Item = &str>)> {
        self.of.iter().map(|(queue, claims)| (*queue, claims.keys().map(String::as_str)))
    }
}

crate::save::saved! {
    Charges { of };
}
