//! Who gets in, as the configuration says it now.
//!
//! Invariant: a request is judged by one state of the configuration, whole; the next one by what there is then.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError, RwLock};

use pumice_auth::{AUTHENTICATED, Identity, Issuer};
use serde::Deserialize;

use super::{ADMINISTRATORS, EXECUTORS, PermissionGroups, Users};
use crate::api::{Permission, Who};

/// Who is known, and who may what.
#[derive(Debug)]
pub struct Access {
    /// Those with a password or a token of the configuration.
    pub users: Users,
    /// Groups by what they may do everywhere.
    pub permissions: PermissionGroups,
    /// Whose tokens are taken besides.
    pub issuer: Option<Issuer>,
    /// Who may read specifications and reports of others' jobs.
    pub reports: ReportsFor,
}

/// Who may read specifications and reports of others' jobs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub enum ReportsFor {
    /// Who may watch the jobs' queue.
    #[default]
    #[serde(rename = "watchers")]
    Watchers,
    /// Whoever is known, as in Armada.
    #[serde(rename = "open")]
    Everybody,
}

impl Access {
    /// Somebody with these groups.
    pub(super) fn who(&self, name: String, groups: impl IntoIterator<Item = String>) -> Arc<Who> {
        let groups: BTreeSet<String> = groups.into_iter().filter(|group| group != AUTHENTICATED).collect();
        let permissions = if groups.contains(ADMINISTRATORS) {
            Permission::ALL.iter().copied().collect()
        } else {
            let given = self.permissions.iter().filter(|(_, to)| !to.is_disjoint(&groups));
            let as_executor = groups.contains(EXECUTORS).then_some(Permission::ExecuteJobs);
            given.map(|(permission, _)| *permission).chain(as_executor).collect()
        };
        Arc::new(Who { name, groups, permissions, reads_all: self.reports == ReportsFor::Everybody })
    }

    /// Whoever a certificate names.
    pub(super) fn of_certificate(&self, identity: &Identity) -> Arc<Who> {
        self.who(identity.user.clone(), identity.groups.iter().cloned())
    }
}

/// The access that counts; shared by the listener and whoever reads the configuration anew.
#[derive(Debug)]
pub struct Gate(RwLock<Arc<Access>>);

impl Gate {
    /// A gate of such an access.
    pub fn new(access: Access) -> Self {
        Self(RwLock::new(Arc::new(access)))
    }

    /// The access that counts now. A request keeps the one with which it began.
    pub fn access(&self) -> Arc<Access> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// From now on something else counts. Logins that were remembered are forgotten.
    pub fn replace(&self, access: Access) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(access);
    }
}
