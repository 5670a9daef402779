//! What is stored, what follows from it, and how it is changed.
//!
//! Invariant: a change goes through [`Storage::commit`], so that kinds, admission and rights are those of what is stored when
//! it is answered. Shared by requests and workers.

mod delete;

use std::collections::BTreeSet;
use std::sync::Arc;

use pumice_clock::Clock;
use pumice_objects::status::{GroupResource, Status};
use pumice_store::{ApplyError, Change, Object, Store};

use crate::admission::dynamic::DynamicAdmission;
use crate::admission::tenants::{Tenancy, TenantReader, TenantsCell};
use crate::authn::Authenticator;
use crate::authn::local_users::TenantUsersCell;
use crate::authn::logins::Logins;
use crate::authn::service_accounts::Accounts;
use crate::authz::RightsCell;
use crate::kinds::DEFINITIONS;
use crate::kinds::registry::RegistryCell;
use crate::webhooks::Webhooks;

pub(crate) use delete::{DeleteOptions, Deleted, FOREGROUND, ORPHAN, Propagation, check_preconditions, ends_deletion};

/// The store, and what is derived from objects in it.
pub(crate) struct Storage {
    pub(crate) store: Store,
    pub(crate) registry: RegistryCell,
    pub(crate) rights: RightsCell,
    pub(crate) accounts: Accounts,
    pub(crate) logins: Logins,
    /// Whose namespaces are.
    pub(crate) tenants: TenantsCell,
    /// Who is whose tenant.
    pub(crate) tenant_users: TenantUsersCell,
    /// What people configured to judge writes.
    pub(crate) dynamic: DynamicAdmission,
    pub(crate) webhooks: Arc<Webhooks>,
    pub(crate) clock: Arc<dyn Clock>,
}

impl Storage {
    /// Makes a change. That of a definition makes the registry anew at once, so that the collector hears of it; a new
    /// namespace comes with what every namespace has.
    pub(crate) async fn commit(&self, change: Change) -> Result<Arc<Object>, ApplyError> {
        let defines = *change.key().resource == *DEFINITIONS;
        let configures = DynamicAdmission::is_configuration(&change.key().resource);
        let beside = self.accounts.beside(&self.store, &change, &*self.clock);
        let object = if beside.is_empty() {
            self.store.apply(change).await?
        } else {
            let made = self.store.apply_all([vec![change], beside].concat()).await?;
            made.into_iter().next().ok_or(ApplyError::Closed)?
        };
        if defines {
            self.registry.load(&self.store);
        }
        if configures {
            self.dynamic.load(&self.store);
        }
        Ok(object)
    }

    /// Who sends a request, by what is stored now.
    pub(crate) fn authenticator(&self) -> Authenticator<'_> {
        let Self { store, accounts, rights, logins, clock, .. } = self;
        Authenticator { store, accounts, rights, logins, clock: &**clock }
    }
}

impl TenantReader for Storage {
    fn tenancy(&self, namespace: &str) -> Tenancy {
        self.tenants.tenancy(&self.store, namespace)
    }

    fn volume_namespaces(&self, volume: &str) -> Option<BTreeSet<String>> {
        self.tenants.load(&self.store).volume_namespaces(volume)
    }
}

/// What a client is told when the store refuses.
pub(crate) fn apply_status(resource: GroupResource<'_>, error: &ApplyError) -> Status {
    match error {
        ApplyError::AlreadyExists(object) => Status::already_exists(resource, &object.key.name),
        ApplyError::Conflict(object) => Status::conflict_modified(resource, &object.key.name),
        ApplyError::NotFound(key) => Status::not_found(resource, &key.name),
        ApplyError::Key(_) => Status::bad_request(error.to_string()),
        ApplyError::BodyTooLarge { .. } | ApplyError::BatchTooLarge { .. } => Status::too_large(error),
        ApplyError::Full(_) => Status::insufficient_storage(
            "the disk under the data directory is full: nothing was changed; free some space and try again",
        ),
        ApplyError::Write(_) => Status::internal_error(error),
        ApplyError::Closed => Status::service_unavailable("the server is shutting down"),
    }
}
