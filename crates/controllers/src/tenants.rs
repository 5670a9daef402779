//! Tenants: the shell around the machine of a Tenant.
//!
//! Invariant: everything about a tenant is decided from watches: no object is read for it, and nothing is written where nothing
//! differs. Of namespaces only metadata is known; of what is in them, what has the tenant's label. A Tenant whose claim another gives
//! up is looked at again.

mod work;

use std::collections::{BTreeMap, BTreeSet};

use futures::FutureExt as _;
use futures::stream::{BoxStream, SelectAll, StreamExt as _};
use k8s_openapi::api::core::v1::{Namespace, PersistentVolumeClaim, ResourceQuota};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::rbac::v1::RoleBinding;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::PartialObjectMeta;
use kube::{Api, Client, Resource};
use pumice_api::names::TENANT;
use pumice_api::tenant::{REFUSED, Tenant};
use pumice_cluster::{Change, EventRecorder, WatchScope, watch_all, watch_optional};
use pumice_machines::tenant::{Claims, Forbidden, TenantEffect, TenantView, gone, refusal, step};
use pumice_machines::workload::WorkEvent;
use tokio::time::Instant;

use crate::cache::Cache;
use crate::index::{Key, key};
use crate::object_events::ObjectEvents;
use crate::small_loop::{Controller, Plan};

/// A change of one of the kinds.
pub(crate) enum Input {
    Tenant(Change<Tenant>),
    Namespace(Change<PartialObjectMeta<Namespace>>),
    Binding(Change<RoleBinding>),
    Quota(Change<ResourceQuota>),
    Claim(Change<PersistentVolumeClaim>),
    Policy(Change<NetworkPolicy>),
}

/// Everything that is known of tenants.
pub(crate) struct Tenants {
    client: Client,
    recorder: EventRecorder,
    forbidden: Forbidden,
    is_own_cluster: bool,
    tenants: Cache<Tenant>,
    claims: Claims,
    namespaces: Cache<PartialObjectMeta<Namespace>>,
    bindings: Cache<RoleBinding>,
    /// Those of each Tenant by its label, wherever they are; some may have another label by now.
    bindings_of: BTreeMap<String, BTreeSet<Key>>,
    quotas: Cache<ResourceQuota>,
    volume_claims: Cache<PersistentVolumeClaim>,
    policies: Cache<NetworkPolicy>,
}

impl Tenants {
    pub fn new(client: Client, recorder: EventRecorder, forbidden: Forbidden, is_own_cluster: bool) -> Self {
        Self {
            client,
            recorder,
            forbidden,
            is_own_cluster,
            tenants: Cache::default(),
            claims: Claims::default(),
            namespaces: Cache::default(),
            bindings: Cache::default(),
            bindings_of: BTreeMap::new(),
            quotas: Cache::default(),
            volume_claims: Cache::default(),
            policies: Cache::default(),
        }
    }

    fn take_tenants(&mut self, change: Change<Tenant>, touched: &mut BTreeSet<String>) {
        let claims = &mut self.claims;
        self.tenants.take(change, |tenant, is_there| {
            let name = name_of(tenant);
            touched.extend(if is_there { claims.put(tenant) } else { claims.remove(&name) });
            touched.insert(name);
        });
    }

    fn take_namespaces(&mut self, change: Change<PartialObjectMeta<Namespace>>, touched: &mut BTreeSet<String>) {
        let claims = &self.claims;
        self.namespaces.take(change, |namespace, _| {
            touched.extend(label(&namespace.metadata));
            let name = namespace.metadata.name.as_deref().unwrap_or_default();
            touched.extend(claims.of_namespace(name).map(str::to_owned));
        });
    }

    fn take_bindings(&mut self, change: Change<RoleBinding>, touched: &mut BTreeSet<String>) {
        let known = &mut self.bindings_of;
        self.bindings.take(change, |binding, is_there| {
            let Some(name) = label(&binding.metadata) else { return };
            let place = key(&binding.metadata);
            let of_tenant = known.entry(name.clone()).or_default();
            if is_there {
                of_tenant.insert(place);
            } else {
                of_tenant.remove(&place);
            }
            if of_tenant.is_empty() {
                known.remove(&name);
            }
            touched.insert(name);
        });
    }

    /// RoleBindings with the label of a Tenant.
    fn bindings_of(&self, name: &str) -> Vec<&RoleBinding> {
        let known = self.bindings_of.get(name).into_iter().flatten();
        let found = known.filter_map(|place| self.bindings.items.get(place));
        found.filter(|binding| label(&binding.metadata).as_deref() == Some(name)).collect()
    }

    /// What is to be done about a Tenant that exists.
    fn effects(&self, tenant: &Tenant) -> Vec<TenantEffect> {
        let name = name_of(tenant);
        let namespace = tenant.spec.namespace.as_str();
        let refused = refusal(&tenant.spec, &self.forbidden).or_else(|| self.claims.refusal(&name));
        let is_its = |metadata: &ObjectMeta| label(metadata).as_deref() == Some(name.as_str());
        step(&TenantView {
            tenant,
            refused: refused.as_ref(),
            namespace: self.namespaces.items.get(&(String::new(), namespace.to_owned())).map(|one| &one.metadata),
            bindings: self.bindings_of(&name),
            quota: of(&self.quotas, namespace, is_its).first().copied(),
            claims: self.volume_claims.of_namespace(namespace).collect(),
            network_policy: of(&self.policies, namespace, is_its).first().copied(),
            is_own_cluster: self.is_own_cluster,
        })
    }

    /// What is to be done about a Tenant that is gone.
    fn farewell(&self, name: &str) -> Vec<TenantEffect> {
        let is_its = |metadata: &ObjectMeta| label(metadata).as_deref() == Some(name);
        let namespaces = self.namespaces.items.values().map(|one| &one.metadata).filter(|one| is_its(one));
        gone(name, &namespaces.collect::<Vec<_>>(), &self.bindings_of(name))
    }

    /// Tells of a phase that is to be written.
    fn tell(&self, tenant: &Tenant, effects: &[TenantEffect]) {
        let written = effects.iter().find_map(|effect| match effect {
            TenantEffect::WriteStatus(status) if status.phase != tenant.status.phase => Some(status),
            _ => None,
        });
        let Some(status) = written else { return };
        let reason = match status.phase.as_str() {
            REFUSED => "Refused",
            "Suspended" => "Suspended",
            _ => "Activated",
        };
        let message = if status.message.is_empty() { "its users can work".to_owned() } else { status.message.clone() };
        let is_warning = status.phase == REFUSED;
        ObjectEvents::new(&self.recorder, tenant.object_ref(&())).tell(WorkEvent { is_warning, reason, message });
    }
}

impl Controller for Tenants {
    const NAME: &'static str = "tenant";
    type Key = String;
    type Input = Input;

    fn feed(&self, client: &Client) -> SelectAll<BoxStream<'static, Input>> {
        let mut feed = SelectAll::new();
        let labelled = || WatchScope::labels(TENANT);
        feed.push(watch_optional(Api::all(client.clone()), WatchScope::default()).map(Input::Tenant).boxed());
        feed.push(watch_optional(Api::all(client.clone()), WatchScope::default()).map(Input::Namespace).boxed());
        feed.push(watch_optional(Api::all(client.clone()), labelled()).map(Input::Binding).boxed());
        feed.push(watch_all(client, labelled()).map(Input::Quota).boxed());
        feed.push(watch_all(client, labelled()).map(Input::Claim).boxed());
        if !self.is_own_cluster {
            feed.push(watch_optional(Api::all(client.clone()), labelled()).map(Input::Policy).boxed());
        }
        feed
    }

    fn is_complete(&self) -> bool {
        let in_namespaces = self.bindings.is_listed && self.quotas.is_listed && self.volume_claims.is_listed;
        let policies = self.is_own_cluster || self.policies.is_listed;
        self.tenants.is_listed && self.namespaces.is_listed && in_namespaces && policies
    }

    fn take(&mut self, input: Input, touched: &mut BTreeSet<String>) {
        match input {
            Input::Tenant(change) => self.take_tenants(change, touched),
            Input::Namespace(change) => self.take_namespaces(change, touched),
            Input::Binding(change) => self.take_bindings(change, touched),
            Input::Quota(change) => take_labelled(&mut self.quotas, change, touched),
            Input::Claim(change) => take_labelled(&mut self.volume_claims, change, touched),
            Input::Policy(change) => take_labelled(&mut self.policies, change, touched),
        }
    }

    fn plan(&mut self, name: &String) -> Plan<Input> {
        let tenant = self.tenants.items.get(&(String::new(), name.clone()));
        let effects = match tenant {
            Some(tenant) if tenant.metadata.deletion_timestamp.is_none() => self.effects(tenant),
            _ => self.farewell(name),
        };
        if let Some(tenant) = tenant {
            self.tell(tenant, &effects);
        }
        if effects.is_empty() {
            return Plan { call: None, look_again: None };
        }
        let tenant = tenant.cloned().unwrap_or_default();
        let carrier = work::Carrier { client: self.client.clone(), tenant, is_own_cluster: self.is_own_cluster };
        let look_again = work::is_awaited(&effects).then(|| Instant::now() + work::LOOK_AGAIN);
        Plan { call: Some(carrier.carry_out(effects).boxed()), look_again }
    }
}

/// Takes a change of a kind of which only what has the label is known.
fn take_labelled<K: Resource>(cache: &mut Cache<K>, change: Change<K>, touched: &mut BTreeSet<String>) {
    cache.take(change, |object, _| touched.extend(label(object.meta())));
}

/// Those of a namespace whose metadata is so.
fn of<'a, K: Resource>(cache: &'a Cache<K>, namespace: &str, is_it: impl Fn(&ObjectMeta) -> bool) -> Vec<&'a K> {
    cache.of_namespace(namespace).filter(|object| is_it(object.meta())).collect()
}

fn label(metadata: &ObjectMeta) -> Option<String> {
    metadata.labels.as_ref()?.get(TENANT).cloned()
}

fn name_of(tenant: &Tenant) -> String {
    tenant.metadata.name.clone().unwrap_or_default()
}
