//! Plans as calls.
//!
//! Invariant: a change says which Tenant it is about, by uid, and which version of it was looked at: what somebody wrote meanwhile
//! stays, and is looked at again. Changes go before new Tenants, which may need what they give up.

use futures::stream::{self, StreamExt as _};
use kube::api::PostParams;
use kube::{Api, Client};
use pumice_api::tenant::Tenant;
use pumice_cluster::{Failure, failure, words, write};
use pumice_machines::directory::{ChangeKind, TenantEffect};
use serde_json::json;

/// Most calls at once.
const CALLS_MAX: usize = 32;
/// Most failures that are told of.
const FAILURES_MAX: usize = 10;

/// What came of a plan.
#[derive(Default)]
pub(crate) struct Written {
    /// Tenants as they are now.
    pub tenants: Vec<Tenant>,
    /// What was suspended, resumed or changed: the Tenant, the kind, and why.
    pub changed: Vec<(Tenant, ChangeKind, String)>,
    /// What could not be written, for people.
    pub failures: Vec<String>,
    pub failed: usize,
    /// Whether another try soon may go better.
    pub is_again: bool,
}

/// Carries a plan out.
pub(crate) async fn carry_out(client: Client, effects: Vec<TenantEffect>) -> Written {
    let api: Api<Tenant> = Api::all(client);
    let mut written = Written::default();
    let (changes, creates): (Vec<_>, Vec<_>) =
        effects.into_iter().partition(|effect| matches!(effect, TenantEffect::Change(_)));
    for effects in [changes, creates] {
        let mut calls = stream::iter(effects).map(|effect| one(&api, effect)).buffer_unordered(CALLS_MAX);
        while let Some(call) = calls.next().await {
            written.take(call);
        }
    }
    written
}

/// A call, and what came of it.
struct Call {
    name: String,
    /// Its kind and message, where it was a change.
    change: Option<(ChangeKind, String)>,
    result: Result<Tenant, kube::Error>,
}

async fn one(api: &Api<Tenant>, effect: TenantEffect) -> Call {
    match effect {
        TenantEffect::Create { name, spec } => {
            let mut tenant = Tenant { spec: *spec, ..Tenant::default() };
            tenant.metadata.name = Some(name.clone());
            let result = api.create(&PostParams::default(), &tenant).await;
            Call { name, change: None, result }
        }
        TenantEffect::Change(change) => {
            let spec = &change.spec;
            // Nothing but what follows the directory: the rest is people's.
            let patch = json!({
                "metadata": {"uid": change.uid, "resourceVersion": change.resource_version},
                "spec": {
                    "user": spec.user, "gid": spec.gid, "groups": spec.groups, "suspended": spec.suspended,
                    "directory": {"suspended": spec.directory.as_ref().is_some_and(|of| of.suspended)},
                },
            });
            let result = write::merge(api, &change.name, &patch).await;
            Call { name: change.name, change: Some((change.kind, change.message)), result }
        }
    }
}

impl Written {
    fn take(&mut self, call: Call) {
        match call.result {
            Ok(tenant) => {
                if let Some((kind, message)) = call.change {
                    self.changed.push((tenant.clone(), kind, message));
                }
                self.tenants.push(tenant);
            }
            Err(error) => {
                self.failed += 1;
                if self.failures.len() < FAILURES_MAX {
                    self.failures.push(format!("Tenant {} can't be written: {}", call.name, words(&error)));
                }
                let is_again = !matches!(failure(&error), Failure::Invalid | Failure::Forbidden);
                self.is_again |= is_again;
            }
        }
    }
}
