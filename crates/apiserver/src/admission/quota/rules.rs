//! One ResourceQuota: what it is about, and what it forbids.
//!
//! Invariant: pure. Only amounts that a write raises are held against the quota. Used by the ledger.

use pumice_objects::selector::LabelRequirement;
use pumice_objects::status::{GroupResource, Status};
use serde_json::Value;

use super::usage::{self, PodTraits, Usage};
use crate::admission::pod_resources::{Amounts, amounts};
use crate::strategies::resource_quota::used_by;

/// A quota as it is enforced.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Quota {
    pub(crate) name: String,
    pub(crate) hard: Amounts,
    scopes: Vec<Scope>,
}

#[derive(Clone, Debug, PartialEq)]
enum Scope {
    Terminating(bool),
    BestEffort(bool),
    CrossNamespaceAffinity,
    Priority(LabelRequirement),
    /// One that nothing matches.
    Unknown,
}

impl Quota {
    /// Reads a stored quota.
    pub(crate) fn read(object: &Value) -> Quota {
        let spec = &object["spec"];
        let listed = |list: &Value| list.as_array().cloned().unwrap_or_default();
        let plain = listed(&spec["scopes"]).into_iter().map(|name| Scope::read(&name, None));
        let selecting = listed(&spec["scopeSelector"]["matchExpressions"]);
        let selecting = selecting.iter().map(|term| Scope::read(&term["scopeName"], Some(term)));
        Quota {
            name: pumice_objects::meta::name(object).to_owned(),
            hard: amounts(&spec["hard"]),
            scopes: plain.chain(selecting).collect(),
        }
    }

    /// The store's resources whose objects it is about.
    pub(crate) fn resources(&self) -> impl Iterator<Item = String> {
        self.hard.keys().filter_map(|name| used_by(name))
    }

    /// Whether it counts an object with this usage. Scopes are of pods: with one, nothing else counts.
    pub(crate) fn covers(&self, usage: &Usage) -> bool {
        match &usage.pod {
            _ if self.scopes.is_empty() => true,
            None => false,
            Some(pod) => self.scopes.iter().all(|scope| scope.matches(pod)),
        }
    }

    /// Refuses a pod that does not say what this quota has to know.
    pub(crate) fn check_specified(&self, resource: GroupResource<'_>, pod: &Value) -> Result<(), Status> {
        match usage::unspecified(self.hard.keys(), pod) {
            None => Ok(()),
            Some(lacking) => {
                let cause = format!("failed quota: {}: must specify {lacking}", self.name);
                Err(Status::forbidden(resource, pumice_objects::meta::name(pod), cause))
            }
        }
    }

    /// Refuses what goes over the quota. `raised` is what the write adds; what is not above zero is not looked at.
    pub(crate) fn check(
        &self,
        used: &Amounts,
        raised: &Amounts,
        resource: GroupResource<'_>,
        name: &str,
    ) -> Result<(), Status> {
        let (mut asked, mut held, mut limits) = (Amounts::new(), Amounts::new(), Amounts::new());
        for (key, hard) in &self.hard {
            let Some(more) = raised.get(key).filter(|more| !more.is_negative() && !more.is_zero()) else { continue };
            let now = used.get(key).copied().unwrap_or_default();
            if now.checked_add(*more).is_none_or(|sum| sum > *hard) {
                asked.insert(key.clone(), *more);
                held.insert(key.clone(), now);
                limits.insert(key.clone(), *hard);
            }
        }
        if asked.is_empty() {
            return Ok(());
        }
        let (asked, held, limits) = (format_amounts(&asked), format_amounts(&held), format_amounts(&limits));
        let cause = format!("exceeded quota: {}, requested: {asked}, used: {held}, limited: {limits}", self.name);
        Err(Status::forbidden(resource, name, cause))
    }
}

fn format_amounts(amounts: &Amounts) -> String {
    amounts.iter().map(|(name, amount)| format!("{name}={amount}")).collect::<Vec<_>>().join(",")
}

impl Scope {
    fn read(name: &Value, term: Option<&Value>) -> Scope {
        match name.as_str().unwrap_or_default() {
            "Terminating" => Scope::Terminating(true),
            "NotTerminating" => Scope::Terminating(false),
            "BestEffort" => Scope::BestEffort(true),
            "NotBestEffort" => Scope::BestEffort(false),
            "CrossNamespacePodAffinity" => Scope::CrossNamespaceAffinity,
            "PriorityClass" => {
                let (operator, values) = match term {
                    Some(term) => (term["operator"].clone(), term["values"].clone()),
                    None => (Value::from("Exists"), Value::Null),
                };
                let requirement = serde_json::json!({ "key": "class", "operator": operator, "values": values });
                LabelRequirement::from_json(&requirement).map_or(Scope::Unknown, Scope::Priority)
            }
            _ => Scope::Unknown,
        }
    }

    fn matches(&self, pod: &PodTraits) -> bool {
        match self {
            Scope::Terminating(wanted) => pod.terminating == *wanted,
            Scope::BestEffort(wanted) => pod.best_effort == *wanted,
            Scope::CrossNamespaceAffinity => pod.cross_namespace_affinity,
            Scope::Priority(requirement) => {
                requirement.matches(Some(pod.priority_class.as_str()).filter(|class| !class.is_empty()))
            }
            Scope::Unknown => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const PODS: GroupResource<'_> = GroupResource { group: "", resource: "pods" };

    fn quota(spec: Value) -> Quota {
        Quota::read(&json!({"metadata": {"name": "q"}, "spec": spec}))
    }

    #[test]
    fn what_goes_over_is_named() {
        let quota = quota(json!({"hard": {"pods": "2", "requests.memory": "1Gi", "cpu": "4"}}));
        let amounts = |value: Value| amounts(&value);
        let used = amounts(json!({"pods": "2", "requests.memory": "512Mi", "cpu": "1"}));
        let more = amounts(json!({"pods": "1", "requests.memory": "1Gi", "cpu": "1", "memory": "1Gi"}));
        let refused = quota.check(&used, &more, PODS, "x").unwrap_err();
        assert_eq!(refused.code, 403);
        assert_eq!(
            refused.message,
            "pods \"x\" is forbidden: exceeded quota: q, requested: pods=1,requests.memory=1Gi, \
             used: pods=2,requests.memory=512Mi, limited: pods=2,requests.memory=1Gi"
        );
        // Nothing is raised: what is over stays, and nobody is refused for it.
        let over = amounts(json!({"pods": "9"}));
        assert!(quota.check(&over, &amounts(json!({"pods": "0", "cpu": "3"})), PODS, "x").is_ok());
    }

    #[test]
    fn scopes_choose_pods() {
        let pod = |traits: PodTraits| Usage { pod: Some(traits), ..Usage::default() };
        let long = pod(PodTraits::default());
        let short = pod(PodTraits { terminating: true, best_effort: true, ..PodTraits::default() });
        let high = pod(PodTraits { priority_class: "high".into(), ..PodTraits::default() });
        let select = |operator: &str, values: Value| {
            let term = json!({"scopeName": "PriorityClass", "operator": operator, "values": values});
            json!({"scopeSelector": {"matchExpressions": [term]}})
        };
        for (spec, wanted) in [
            (json!({}), [true, true, true]),
            (json!({"scopes": ["Terminating"]}), [false, true, false]),
            (json!({"scopes": ["NotTerminating"]}), [true, false, true]),
            (json!({"scopes": ["BestEffort", "NotTerminating"]}), [false, false, false]),
            (json!({"scopes": ["NotBestEffort"]}), [true, false, true]),
            (json!({"scopes": ["PriorityClass"]}), [false, false, true]),
            (select("In", json!(["high", "low"])), [false, false, true]),
            (select("NotIn", json!(["high"])), [true, true, false]),
            (select("DoesNotExist", json!([])), [true, true, false]),
            (json!({"scopes": ["Other"]}), [false, false, false]),
        ] {
            let quota = quota(spec.clone());
            assert_eq!([&long, &short, &high].map(|usage| quota.covers(usage)), wanted, "{spec}");
        }
        assert!(!quota(json!({"scopes": ["Terminating"]})).covers(&Usage::default()), "claims have no scope");
    }
}
