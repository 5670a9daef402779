//! The settings of admission, with Volcano's defaults, which may change while they are applied.
//!
//! Invariant: whoever judges an object does so by one set of rules from beginning to end. The shell sets new ones when their
//! file has changed.

use std::sync::{Arc, PoisonError, RwLock};

use pumice_api::names::{SCHEDULERS_CLUSTER, SCHEDULERS_UP, USER_CONTROLLERS};
use pumice_machines::tenant::Forbidden;

use crate::resource_groups::ResourceGroups;

/// Most queues on a path below `root`, unless said otherwise.
pub const QUEUE_DEPTH_MAX: usize = 5;

/// What an administrator may set.
#[derive(Clone, Debug, PartialEq)]
pub struct Rules {
    /// The schedulers whose pods are ours. The first is that of jobs that name none.
    pub scheduler_names: Vec<String>,
    /// Users who make jobs in the name of others, and say in whose.
    pub controller_users: Vec<String>,
    /// What pods of some namespaces or annotations are given.
    pub resource_groups: ResourceGroups,
    /// Most queues on a path below `root`.
    pub queue_depth_max: usize,
    /// Whether the amounts of `root` are fixed.
    pub root_queue_protected: bool,
    /// Whether a queue whose pods hold resources may not be deleted.
    pub queue_with_pods_protected: bool,
    /// What no tenant may be on this machine.
    pub forbidden_tenants: Forbidden,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            scheduler_names: owned(SCHEDULERS_CLUSTER),
            controller_users: owned(&[USER_CONTROLLERS]),
            resource_groups: ResourceGroups::default(),
            queue_depth_max: QUEUE_DEPTH_MAX,
            root_queue_protected: true,
            queue_with_pods_protected: false,
            forbidden_tenants: Forbidden::default(),
        }
    }
}

impl Rules {
    /// The rules of a server whose only scheduler is ours.
    pub fn alone() -> Self {
        Self { scheduler_names: owned(SCHEDULERS_UP), ..Self::default() }
    }

    /// The scheduler of jobs that name none; empty where there is none.
    pub fn scheduler_name(&self) -> &str {
        self.scheduler_names.first().map_or("", String::as_str)
    }
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// The rules of now, shared by those who apply and those who set them.
#[derive(Clone, Debug, Default)]
pub struct LiveRules(Arc<RwLock<Arc<Rules>>>);

impl LiveRules {
    /// Rules that apply until others are set.
    pub fn new(rules: Rules) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(rules))))
    }

    /// The rules of now.
    pub fn get(&self) -> Arc<Rules> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Rules from now on.
    pub fn set(&self, rules: Rules) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(rules);
    }
}
