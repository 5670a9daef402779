//! Carries out what is to be done about a Tenant.
//!
//! Invariant: in order, and after a call that failed only what takes something away goes on: nobody has rights in a namespace that doesn't
//! say yet what its pods are, and nobody has them longer because something else fails. Each call is safe to repeat.

use std::fmt::Debug;
use std::time::Duration;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::batch::v1 as native;
use k8s_openapi::api::core::v1::{Namespace, PersistentVolumeClaim, Pod, ResourceQuota};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::rbac::v1::RoleBinding;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::PartialObjectMeta;
use kube::{Api, Client, Resource};
use pumice_api::batch::Job;
use pumice_api::names::SUSPEND;
use pumice_api::tenant::Tenant;
use pumice_api::topology::Condition;
use pumice_cluster::{Change, Failure, failure, write};
use pumice_machines::tenant::{STOPPED, TenantEffect};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::Input;
use crate::deletion::delete;
use crate::small_loop::Answer;

/// Who applies: the field manager of all that a Tenant has.
const MANAGER: &str = "pumice-tenants";
/// On Jobs that were suspended with their tenant, and that go on with it; annotation.
const SUSPENDED_WITH_TENANT: &str = "pumice.sh/suspended-with-tenant";
/// Objects of one page of a list.
const PAGE: u32 = 500;
/// Time until a tenant whose pods are to end is looked at again.
pub(super) const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// Whether something goes on after the calls.
pub(super) fn is_awaited(effects: &[TenantEffect]) -> bool {
    effects.iter().any(|effect| matches!(effect, TenantEffect::StopPods { .. }))
}

/// The client, and the Tenant as it was when its effects were decided.
pub(super) struct Carrier {
    pub client: Client,
    pub tenant: Tenant,
    /// Whether Kubernetes' own Jobs are ours to suspend.
    pub is_own_cluster: bool,
}

impl Carrier {
    pub async fn carry_out(self, effects: Vec<TenantEffect>) -> Answer<Input> {
        let mut answer = Answer { observed: Vec::new(), failure: None };
        for effect in effects {
            if answer.failure.is_some() && !takes_away(&effect) {
                continue;
            }
            match self.one(effect).await {
                Ok(input) => answer.observed.extend(input),
                Err(error) => {
                    answer.failure = answer.failure.or(Some(failure(&error)));
                    let tenant = self.tenant.metadata.name.as_deref().unwrap_or_default();
                    tracing::debug!(tenant, %error, "a call for a tenant failed; it is made again");
                }
            }
        }
        answer
    }

    async fn one(&self, effect: TenantEffect) -> Result<Option<Input>, kube::Error> {
        let namespace = self.tenant.spec.namespace.as_str();
        let observed = match effect {
            TenantEffect::ApplyNamespace(wanted) => {
                let api = Api::<PartialObjectMeta<Namespace>>::all(self.client.clone());
                Input::Namespace(apply(&api, &wanted).await?)
            }
            TenantEffect::CloseNamespace { namespace, message } => {
                let api = Api::<PartialObjectMeta<Namespace>>::all(self.client.clone());
                let annotations = json!({ pumice_machines::tenant_annotations::TENANT_CLOSED: message });
                let patch = json!({ "metadata": { "annotations": annotations } });
                Input::Namespace(Change::Applied(write::merge(&api, &namespace, &patch).await?))
            }
            TenantEffect::ApplyBinding(wanted) => Input::Binding(apply(&self.api::<RoleBinding>(), &wanted).await?),
            TenantEffect::DeleteBinding { namespace, name, uid } => {
                let api = Api::<RoleBinding>::namespaced(self.client.clone(), &namespace);
                Input::Binding(delete(&api, Some(&namespace), &name, uid).await?)
            }
            TenantEffect::ApplyQuota(wanted) => Input::Quota(apply(&self.api::<ResourceQuota>(), &wanted).await?),
            TenantEffect::ApplyNetworkPolicy(wanted) => {
                Input::Policy(apply(&self.api::<NetworkPolicy>(), &wanted).await?)
            }
            TenantEffect::CreateClaim(claim) => {
                let made = self.api::<PersistentVolumeClaim>().create(&PostParams::default(), &claim).await;
                match made {
                    // One of that name is somebody's; pods use it as they find it.
                    Err(error) if failure(&error) == Failure::AlreadyExists => return Ok(None),
                    made => Input::Claim(Change::Applied(made?)),
                }
            }
            TenantEffect::WriteStatus(status) => {
                let name = self.tenant.metadata.name.as_deref().unwrap_or_default();
                // What is empty is taken away.
                let mut patch = json!({ "message": null, "observedGeneration": status.observed_generation });
                if !status.message.is_empty() {
                    patch["message"] = status.message.into();
                }
                patch["phase"] = status.phase.into();
                let api = Api::<Tenant>::all(self.client.clone());
                Input::Tenant(Change::Applied(write::merge_status(&api, name, &json!({ "status": patch })).await?))
            }
            TenantEffect::StopPods { .. } => {
                if !self.stop_pods(namespace).await? {
                    return Ok(None);
                }
                self.say_stopped(true).await?
            }
            TenantEffect::ResumeJobs { .. } => {
                self.resume_jobs().await?;
                self.say_stopped(false).await?
            }
        };
        Ok(Some(observed))
    }

    fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), &self.tenant.spec.namespace)
    }

    /// Suspends all Jobs that aren't, and deletes all pods. Whether none is left.
    async fn stop_pods(&self, namespace: &str) -> Result<bool, kube::Error> {
        for name in self.jobs(|metadata| annotation(metadata, SUSPEND).is_none()).await? {
            let annotations = json!({ SUSPEND: "true", SUSPENDED_WITH_TENANT: "true" });
            self.annotate_job(&name, annotations).await?;
        }
        for name in self.native_jobs(runs).await? {
            let patch = json!({
                "metadata": { "annotations": { SUSPENDED_WITH_TENANT: "true" } }, "spec": { "suspend": true },
            });
            self.change_job::<native::Job>(&name, &patch).await?;
        }
        let api = Api::<PartialObjectMeta<Pod>>::namespaced(self.client.clone(), namespace);
        let running = ListParams::default().fields("status.phase!=Succeeded,status.phase!=Failed").limit(PAGE);
        let pods = api.list_metadata(&running).await?.items;
        for pod in &pods {
            let is_going = pod.metadata.deletion_timestamp.is_some();
            let (Some(name), false) = (&pod.metadata.name, is_going) else { continue };
            match api.delete(name, &DeleteParams::default()).await {
                Err(error) if failure(&error) != Failure::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(pods.is_empty())
    }

    /// Lets those Jobs go on that were suspended with the tenant.
    async fn resume_jobs(&self) -> Result<(), kube::Error> {
        for name in self.jobs(|metadata| annotation(metadata, SUSPENDED_WITH_TENANT).is_some()).await? {
            let annotations = json!({ SUSPEND: null, SUSPENDED_WITH_TENANT: null });
            self.annotate_job(&name, annotations).await?;
        }
        let is_suspended_with_it = |job: &native::Job| has_mark(&job.metadata);
        for name in self.native_jobs(is_suspended_with_it).await? {
            let patch = json!({
                "metadata": { "annotations": { SUSPENDED_WITH_TENANT: null } }, "spec": { "suspend": false },
            });
            self.change_job::<native::Job>(&name, &patch).await?;
        }
        Ok(())
    }

    /// Names of the namespace's Jobs that are so.
    async fn jobs(&self, is_so: impl Fn(&PartialObjectMeta<Job>) -> bool) -> Result<Vec<String>, kube::Error> {
        let api = self.api::<Job>();
        let mut names = Vec::new();
        let mut page = ListParams::default().limit(PAGE);
        loop {
            let listed = api.list_metadata(&page).await?;
            names.extend(listed.items.iter().filter(|job| is_so(job)).filter_map(|job| job.metadata.name.clone()));
            match listed.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page.continue_token = Some(token),
                None => return Ok(names),
            }
        }
    }

    /// Names of the namespace's Jobs of `batch/v1` that are so; none where they are others' to suspend.
    async fn native_jobs(&self, is_so: impl Fn(&native::Job) -> bool) -> Result<Vec<String>, kube::Error> {
        let mut names = Vec::new();
        if !self.is_own_cluster {
            return Ok(names);
        }
        let mut page = ListParams::default().limit(PAGE);
        loop {
            let listed = self.api::<native::Job>().list(&page).await?;
            names.extend(listed.items.iter().filter(|job| is_so(job)).filter_map(|job| job.metadata.name.clone()));
            match listed.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page.continue_token = Some(token),
                None => return Ok(names),
            }
        }
    }

    async fn annotate_job(&self, name: &str, annotations: Value) -> Result<(), kube::Error> {
        self.change_job::<Job>(name, &json!({ "metadata": { "annotations": annotations } })).await
    }

    async fn change_job<K>(&self, name: &str, patch: &Value) -> Result<(), kube::Error>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        match write::merge_unread::<K>(&self.client, &self.tenant.spec.namespace, name, None, patch).await {
            Err(error) if failure(&error) != Failure::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Writes whether the tenant's pods were stopped; conditions of others stay.
    async fn say_stopped(&self, is_stopped: bool) -> Result<Input, kube::Error> {
        let name = self.tenant.metadata.name.as_deref().unwrap_or_default();
        let mut conditions = self.tenant.status.conditions.clone();
        conditions.retain(|condition| condition.type_ != STOPPED);
        let (status, message) = if is_stopped {
            ("True", "its Jobs are suspended, and its pods have ended")
        } else {
            ("False", "its Jobs go on")
        };
        conditions.push(Condition {
            type_: STOPPED.to_owned(),
            status: status.to_owned(),
            observed_generation: self.tenant.metadata.generation.unwrap_or_default(),
            last_transition_time: Some(Time(pumice_clock::now())),
            reason: "Suspension".to_owned(),
            message: message.to_owned(),
        });
        let patch = json!({ "status": { "conditions": conditions } });
        let api = Api::<Tenant>::all(self.client.clone());
        Ok(Input::Tenant(Change::Applied(write::merge_status(&api, name, &patch).await?)))
    }
}

/// Applies an object whatever others wrote into its fields.
async fn apply<K>(api: &Api<K>, wanted: &Value) -> Result<Change<K>, kube::Error>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let name = wanted["metadata"]["name"].as_str().unwrap_or_default();
    let params = PatchParams::apply(MANAGER).force();
    api.patch(name, &params, &Patch::Apply(wanted)).await.map(Change::Applied)
}

fn annotation<'a>(object: &'a PartialObjectMeta<Job>, key: &str) -> Option<&'a str> {
    object.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

fn has_mark(metadata: &ObjectMeta) -> bool {
    metadata.annotations.as_ref().is_some_and(|all| all.contains_key(SUSPENDED_WITH_TENANT))
}

/// Whether a Job is neither suspended nor over.
fn runs(job: &native::Job) -> bool {
    let is_suspended = job.spec.as_ref().is_some_and(|spec| spec.suspend == Some(true));
    let conditions = job.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let is_over =
        conditions.filter(|it| it.status == "True").any(|it| matches!(it.type_.as_str(), "Complete" | "Failed"));
    !is_suspended && !is_over
}

/// Whether an effect gives nobody anything: it may follow on one that failed.
fn takes_away(effect: &TenantEffect) -> bool {
    use TenantEffect::{ApplyNamespace, CloseNamespace, DeleteBinding};
    matches!(effect, ApplyNamespace(_) | CloseNamespace { .. } | DeleteBinding { .. })
}
