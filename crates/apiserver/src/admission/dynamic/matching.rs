//! Which requests a webhook or a policy is about.
//!
//! Invariant: a request matches if a rule names it, no excluding rule does, and the labels of its namespace and of its object
//! are selected, as upstream. Pure but for the namespace.

use pumice_objects::meta;
use pumice_objects::selector::LabelSelector;
use serde::Deserialize;
use serde_json::Value;

use super::Subject;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Rule {
    operations: Vec<String>,
    api_groups: Vec<String>,
    api_versions: Vec<String>,
    resources: Vec<String>,
    resource_names: Vec<String>,
    scope: Option<String>,
}

/// The requests that somebody judges.
#[derive(Debug)]
pub(super) struct Matching {
    rules: Vec<Rule>,
    excluding: Vec<Rule>,
    namespaces: LabelSelector,
    objects: LabelSelector,
    /// Whether a rule that names another version of the resource is about it too.
    is_equivalent: bool,
}

impl Matching {
    /// Of a webhook, or of a policy's `matchConstraints` or a binding's `matchResources`: `rules` is the name of its rules.
    pub(super) fn new(declared: &Value, rules: &str) -> Self {
        let read = |field: &str| Vec::<Rule>::deserialize(&declared[field]).unwrap_or_default();
        let selector = |field: &str| match &declared[field] {
            Value::Null => LabelSelector::everything(),
            // One that can't be read was refused when it was written; it selects nothing.
            selector => LabelSelector::from_json(selector).unwrap_or_else(|_| LabelSelector::nothing()),
        };
        Self {
            rules: read(rules),
            excluding: read("excludeResourceRules"),
            namespaces: selector("namespaceSelector"),
            objects: selector("objectSelector"),
            is_equivalent: declared["matchPolicy"] != "Exact",
        }
    }

    /// Whether it is about anything by itself; a binding without rules leaves that to its policy.
    pub(super) fn has_rules(&self) -> bool {
        !self.rules.is_empty()
    }

    /// The version in which the object is to be shown, if the request matches.
    pub(super) fn version(&self, subject: &Subject<'_>, object: Option<&Value>) -> Option<String> {
        if !self.selects(subject, object) {
            return None;
        }
        if self.excluding.iter().any(|rule| self.named(rule, subject).is_some()) {
            return None;
        }
        self.rules.iter().find_map(|rule| self.named(rule, subject))
    }

    /// Whether the labels of object and namespace are selected.
    pub(super) fn selects(&self, subject: &Subject<'_>, object: Option<&Value>) -> bool {
        let objects = [object, subject.old];
        let labelled = |selector: &LabelSelector, object: &Value| selector.matches(|key| meta::label(object, key));
        if self.objects != LabelSelector::everything() {
            let selected = objects.iter().flatten().any(|object| labelled(&self.objects, object));
            if !selected {
                return false;
            }
        }
        if self.namespaces == LabelSelector::everything() {
            return true;
        }
        if subject.is_namespace() {
            return objects.into_iter().flatten().next().is_none_or(|object| labelled(&self.namespaces, object));
        }
        match subject.namespace {
            "" => true,
            _ => subject.namespace_object().is_some_and(|namespace| labelled(&self.namespaces, &namespace)),
        }
    }

    fn named(&self, rule: &Rule, subject: &Subject<'_>) -> Option<String> {
        let descriptor = subject.descriptor;
        let says = |list: &[String], value: &str| list.iter().any(|one| one == "*" || one == value);
        let in_scope = match rule.scope.as_deref() {
            Some("Cluster") => !descriptor.namespaced,
            Some("Namespaced") => descriptor.namespaced,
            _ => true,
        };
        let of_resource =
            rule.resources.iter().any(|one| resource_matches(one, &descriptor.plural, subject.subresource));
        let of_name = rule.resource_names.is_empty() || rule.resource_names.iter().any(|name| name == subject.name);
        if !in_scope
            || !of_resource
            || !of_name
            || !says(&rule.operations, subject.operation)
            || !says(&rule.api_groups, &descriptor.group)
        {
            return None;
        }
        if says(&rule.api_versions, &descriptor.version) {
            return Some(descriptor.version.clone());
        }
        if !self.is_equivalent {
            return None;
        }
        let registry = subject.registry.load(subject.store);
        let served = |version: &&String| registry.find(&descriptor.group, version, &descriptor.plural).is_some();
        rule.api_versions.iter().find(served).cloned()
    }
}

/// Whether `pods`, `pods/status`, `pods/*`, `*/status`, `*` or `*/*` names a resource.
fn resource_matches(rule: &str, resource: &str, subresource: &str) -> bool {
    let (wanted, below) = match rule.split_once('/') {
        Some((wanted, below)) => (wanted, Some(below)),
        None => (rule, None),
    };
    let of_resource = wanted == "*" || wanted == resource;
    let of_below = match below {
        None => subresource.is_empty(),
        Some("*") => true,
        Some(below) => below == subresource,
    };
    of_resource && of_below
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_are_named_as_upstream() {
        for (rule, resource, below, wanted) in [
            ("pods", "pods", "", true),
            ("pods", "pods", "status", false),
            ("pods/status", "pods", "status", true),
            ("pods/status", "pods", "", false),
            ("pods/*", "pods", "status", true),
            ("pods/*", "pods", "", true),
            ("*/status", "nodes", "status", true),
            ("*/status", "nodes", "", false),
            ("*", "nodes", "", true),
            ("*", "nodes", "status", false),
            ("*/*", "nodes", "status", true),
            ("*/*", "nodes", "", true),
            ("pod", "pods", "", false),
        ] {
            assert_eq!(resource_matches(rule, resource, below), wanted, "{rule} {resource} {below}");
        }
    }
}
