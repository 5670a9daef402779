//! Dynamic admission: webhooks and validating policies that people configure, which change and judge writes.
//!
//! Invariant: without any configuration a write pays one atomic load. What is in force is made anew before the write of a
//! configuration is answered. Nothing is locked while somebody is asked. Configurations themselves are never judged, so a
//! broken one can be mended. Called by the write verbs and by subresources.

mod matching;
mod policy;
mod review;
mod subject;
mod webhook;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use futures::future::join_all;
use pumice_objects::status::Status;
use pumice_store::{Object, Store};
use serde_json::Value;

use crate::stored::parse;
use crate::strategies::admission::GROUP;
use crate::webhooks::Webhooks;
use policy::{Binding, Policy};
pub(crate) use subject::Subject;
use webhook::{Answered, Webhook};

/// The store's names of them.
const RESOURCES: [&str; 4] = [
    "admissionregistration.k8s.io/mutatingwebhookconfigurations",
    "admissionregistration.k8s.io/validatingwebhookconfigurations",
    "admissionregistration.k8s.io/validatingadmissionpolicies",
    "admissionregistration.k8s.io/validatingadmissionpolicybindings",
];

/// Everything in force at one moment. Configurations that did not change are shared with the moment before.
#[derive(Default)]
struct Configurations {
    mutating: Vec<Configured<Vec<Webhook>>>,
    validating: Vec<Configured<Vec<Webhook>>>,
    policies: Vec<Configured<Policy>>,
    bindings: Vec<Configured<Option<Binding>>>,
}

/// What a stored configuration means.
struct Configured<T> {
    name: String,
    revision: u64,
    meaning: Arc<T>,
}

impl<T> Clone for Configured<T> {
    fn clone(&self) -> Self {
        Self { name: self.name.clone(), revision: self.revision, meaning: Arc::clone(&self.meaning) }
    }
}

/// What is in force, and how to replace it.
pub(crate) struct DynamicAdmission {
    any: AtomicBool,
    current: RwLock<Arc<Configurations>>,
    reload: Mutex<()>,
    webhooks: Arc<Webhooks>,
}

impl DynamicAdmission {
    pub(crate) fn new(store: &Store, webhooks: Arc<Webhooks>) -> Self {
        let cell = Self { any: AtomicBool::new(false), current: RwLock::default(), reload: Mutex::default(), webhooks };
        cell.load(store);
        cell
    }

    /// Whether a stored resource is a configuration.
    pub(crate) fn is_configuration(resource: &str) -> bool {
        resource.strip_prefix(GROUP).is_some_and(|rest| rest.starts_with('/'))
    }

    /// Whether anything is configured.
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// Takes what is stored now into force.
    pub(crate) fn load(&self, store: &Store) {
        let _turn = self.reload.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.now();
        let [mutating, validating, policies, bindings] = RESOURCES.map(|resource| store.list(resource, None).items);
        let configurations = Configurations {
            mutating: meant(&mutating, &before.mutating, |body| webhook::webhooks(body, true)),
            validating: meant(&validating, &before.validating, |body| webhook::webhooks(body, false)),
            policies: meant(&policies, &before.policies, Policy::new),
            bindings: meant(&bindings, &before.bindings, Binding::new),
        };
        let any = !configurations.mutating.is_empty()
            || !configurations.validating.is_empty()
            || !configurations.policies.is_empty() && !configurations.bindings.is_empty();
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(configurations);
        self.any.store(any, Ordering::Release);
    }

    fn now(&self) -> Arc<Configurations> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Has an object changed by the mutating webhooks, in the order of their names. Says whether any changed it.
    pub(crate) async fn mutate(
        &self,
        subject: &Subject<'_>,
        object: &mut Value,
        warnings: &mut Vec<String>,
    ) -> Result<bool, Status> {
        if !self.any() || subject.is_exempt() {
            return Ok(false);
        }
        let configurations = self.now();
        let before = object.clone();
        let mut asked: Vec<(&Webhook, Value)> = Vec::new();
        for webhook in configurations.mutating.iter().flat_map(|one| one.meaning.iter()) {
            if let Some(answered) = webhook.ask(&self.webhooks, subject, Some(object)).await? {
                apply(webhook, object, answered, warnings)?;
                asked.push((webhook, object.clone()));
            }
        }
        // Whoever wishes it sees what others changed after him.
        for (webhook, left) in asked.iter().filter(|(webhook, _)| webhook.reinvoked) {
            if left != object
                && let Some(answered) = webhook.ask(&self.webhooks, subject, Some(object)).await?
            {
                apply(webhook, object, answered, warnings)?;
            }
        }
        Ok(*object != before)
    }

    /// Has a final object judged by policies, then by the validating webhooks, all at once. `None` for a deletion.
    pub(crate) async fn validate(
        &self,
        subject: &Subject<'_>,
        object: Option<&Value>,
        warnings: &mut Vec<String>,
    ) -> Result<(), Status> {
        if !self.any() || subject.is_exempt() {
            return Ok(());
        }
        let configurations = self.now();
        let policies: BTreeMap<&str, &Policy> =
            configurations.policies.iter().map(|one| (one.name.as_str(), &*one.meaning)).collect();
        let bindings = configurations.bindings.iter().filter_map(|one| (*one.meaning).as_ref());
        policy::validate(&policies, bindings, subject, object, warnings)?;
        // Of what is not stored as it comes a mutating webhook changes nothing, but it may refuse.
        if object.is_none() || subject.schema().is_none() {
            for webhook in configurations.mutating.iter().flat_map(|one| one.meaning.iter()) {
                let answered = webhook.ask(&self.webhooks, subject, object).await?;
                warnings.extend(answered.into_iter().flat_map(|answered| answered.warnings));
            }
        }
        let webhooks = configurations.validating.iter().flat_map(|one| one.meaning.iter());
        let answers = join_all(webhooks.map(|webhook| webhook.ask(&self.webhooks, subject, object))).await;
        let mut refusal = None;
        for answer in answers {
            match answer {
                Ok(answered) => warnings.extend(answered.into_iter().flat_map(|answered| answered.warnings)),
                Err(status) => refusal = refusal.or(Some(status)),
            }
        }
        refusal.map_or(Ok(()), Err)
    }
}

/// The meaning of stored configurations, in the order of their names. What is as it was is not read again.
fn meant<T>(stored: &[Arc<Object>], before: &[Configured<T>], read: impl Fn(&Value) -> T) -> Vec<Configured<T>> {
    let mut all: Vec<Configured<T>> = stored
        .iter()
        .map(|object| {
            let known = before.iter().find(|one| one.revision == object.revision && *one.name == *object.key.name);
            known.cloned().unwrap_or_else(|| Configured {
                name: object.key.name.to_string(),
                revision: object.revision,
                meaning: Arc::new(read(&parse(object))),
            })
        })
        .collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

/// Applies the patch of an answer.
fn apply(webhook: &Webhook, object: &mut Value, answered: Answered, warnings: &mut Vec<String>) -> Result<(), Status> {
    warnings.extend(answered.warnings);
    if let Some(patch) = answered.patch {
        let patched = pumice_objects::patch::apply_json_patch(object, &patch);
        *object = patched.map_err(|error| {
            let status = Status::from(error);
            Status::internal_error(format!("failed calling webhook {:?}: {}", webhook.name, status.message))
        })?;
    }
    Ok(())
}
