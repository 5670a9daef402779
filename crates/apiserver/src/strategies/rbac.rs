//! Roles and bindings: what they must say, and that nobody gives away more than he has.
//!
//! Invariant: a role or binding that is stored gives no right that its writer did not have, unless he has the verb
//! `escalate` on the role or `bind` on what is bound. Called by the pipeline through [`Strategy`].

use pumice_auth::{Attributes, MASTERS, Rule, Target, describe, named, parts, uncovered};
use pumice_objects::field::FieldError;
use pumice_objects::meta;
use pumice_objects::names::{NameRule, check_dns1123_subdomain, check_path_segment};
use pumice_objects::selector::LabelSelector;
use pumice_objects::status::{GroupResource, Status};
use serde_json::{Value, json};

use super::{Hook, Strategy};
use crate::authz::GROUP;
use crate::problems::Problems;

const SUBJECT_KINDS: [&str; 3] = ["Group", "ServiceAccount", "User"];
/// Fields of the metadata that the collector and this server change: who changes no others needs no rights.
const HOUSEKEEPING: [&str; 5] = ["ownerReferences", "finalizers", "managedFields", "resourceVersion", "generation"];

/// Most single rights that are compared with the writer's own: a body of some kilobytes could ask for billions.
const PARTS_MAX: usize = 10_000;

/// A Role, or a ClusterRole.
pub(crate) struct Role {
    pub(crate) namespaced: bool,
}

/// A RoleBinding, or a ClusterRoleBinding.
pub(crate) struct Binding {
    pub(crate) namespaced: bool,
}

impl Strategy for Role {
    fn prepare_create(&self, object: &mut Value, hook: &mut Hook<'_>) -> Result<(), Status> {
        self.check_escalation(object, "", hook)
    }

    fn prepare_update(&self, new: &mut Value, old: &Value, hook: &mut Hook<'_>) -> Result<(), Status> {
        if is_housekeeping(new, old) {
            return Ok(());
        }
        self.check_escalation(new, meta::name(old), hook)
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        for (index, rule) in items(&object["rules"]).enumerate() {
            check_rule(&format!("rules[{index}]"), rule, self.namespaced, &mut problems);
        }
        let aggregation = &object["aggregationRule"];
        if aggregation.is_object() {
            check_aggregation(&aggregation["clusterRoleSelectors"], &mut problems);
        }
        problems.into_errors()
    }

    fn name_rule(&self) -> NameRule {
        NameRule::PathSegment
    }
}

impl Role {
    fn resource(&self) -> &'static str {
        if self.namespaced { "roles" } else { "clusterroles" }
    }

    /// `named` is what the request's path names, which rights by name apply to.
    fn check_escalation(&self, role: &Value, named: &str, hook: &Hook<'_>) -> Result<(), Status> {
        let resource = GroupResource { group: GROUP, resource: self.resource() };
        if hook.may("escalate", self.resource(), named, namespace(role)) {
            return Ok(());
        }
        check_covered(&rules_of(role)?, role, resource, hook)?;
        if role["aggregationRule"].is_object() && !hook.missing(Rule::everything(), namespace(role)).is_empty() {
            let cause = "must have cluster-admin privileges to use the aggregationRule";
            return Err(Status::forbidden(resource, meta::name(role), cause));
        }
        Ok(())
    }
}

impl Strategy for Binding {
    fn defaults(&self, object: &mut Value) {
        if let Some(reference) = object.get_mut("roleRef").and_then(Value::as_object_mut) {
            let group = reference.entry("apiGroup").or_insert_with(|| json!(GROUP));
            if group.as_str() == Some("") {
                *group = json!(GROUP);
            }
        }
        for subject in object.get_mut("subjects").and_then(Value::as_array_mut).into_iter().flatten() {
            let of_group = matches!(subject["kind"].as_str(), Some("User" | "Group"));
            if of_group && let Some(subject) = subject.as_object_mut() {
                subject.entry("apiGroup").or_insert_with(|| json!(GROUP));
            }
        }
    }

    fn prepare_create(&self, object: &mut Value, hook: &mut Hook<'_>) -> Result<(), Status> {
        self.check_escalation(object, hook)
    }

    fn prepare_update(&self, new: &mut Value, old: &Value, hook: &mut Hook<'_>) -> Result<(), Status> {
        if is_housekeeping(new, old) {
            return Ok(());
        }
        self.check_escalation(new, hook)
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let reference = &object["roleRef"];
        let text = |field: &str| reference[field].as_str().unwrap_or_default();
        if text("apiGroup") != GROUP {
            problems.not_supported("roleRef.apiGroup", text("apiGroup"), &[GROUP]);
        }
        let kinds: &[&str] = if self.namespaced { &["ClusterRole", "Role"] } else { &["ClusterRole"] };
        if !kinds.contains(&text("kind")) {
            problems.not_supported("roleRef.kind", text("kind"), kinds);
        }
        if text("name").is_empty() {
            problems.required("roleRef.name", "");
        } else if let Err(error) = check_path_segment(text("name")) {
            problems.invalid("roleRef.name", &reference["name"], &error.to_string());
        }
        for (index, subject) in items(&object["subjects"]).enumerate() {
            check_subject(&format!("subjects[{index}]"), subject, self.namespaced, &mut problems);
        }
        problems.into_errors()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        if new["roleRef"] != old["roleRef"] {
            problems.invalid("roleRef", &new["roleRef"], "cannot change roleRef");
        }
        problems.into_errors()
    }

    fn name_rule(&self) -> NameRule {
        NameRule::PathSegment
    }
}

impl Binding {
    fn check_escalation(&self, binding: &Value, hook: &Hook<'_>) -> Result<(), Status> {
        if hook.identity.is_in(MASTERS) {
            return Ok(());
        }
        let (kind, name) = (binding["roleRef"]["kind"].as_str(), binding["roleRef"]["name"].as_str());
        let (place, roles) = match kind {
            Some("Role") => (namespace(binding), "roles"),
            Some("ClusterRole") => ("", "clusterroles"),
            // Refused for its kind right after.
            _ => return Ok(()),
        };
        let name = name.unwrap_or_default();
        if hook.may("bind", roles, name, namespace(binding)) {
            return Ok(());
        }
        let rights = hook.rights.load();
        let Some(role) = rights.role(place, name) else {
            return Err(Status::not_found(GroupResource { group: GROUP, resource: roles }, name));
        };
        let resource = if self.namespaced { "rolebindings" } else { "clusterrolebindings" };
        check_covered(&role.rules, binding, GroupResource { group: GROUP, resource }, hook)
    }
}

impl Hook<'_> {
    /// Whether the writer has a right on a role.
    fn may(&self, verb: &str, resource: &str, name: &str, namespace: &str) -> bool {
        let (namespace, name) = (named(namespace), named(name));
        let target = Target::Resource { group: GROUP, resource, subresource: None, namespace, name };
        self.rights.load().decide(self.identity, &Attributes { verb, target }).is_allowed()
    }

    /// What the writer does not have of these rights in a namespace, or in the cluster where that is empty.
    fn missing(&self, wanted: &[Rule], namespace: &str) -> Vec<Rule> {
        uncovered(&self.rights.load().rules_of(self.identity, named(namespace)), wanted)
    }
}

fn namespace(object: &Value) -> &str {
    meta::namespace(object).unwrap_or_default()
}

/// 403 that names what the writer of `object` does not have himself.
fn check_covered(wanted: &[Rule], object: &Value, resource: GroupResource<'_>, hook: &Hook<'_>) -> Result<(), Status> {
    let count = wanted.iter().map(parts).fold(0, usize::saturating_add);
    if count > PARTS_MAX {
        return Err(Status::bad_request(format!(
            "the rules are {count} rights of one verb and one resource each, more than the {PARTS_MAX} that are compared with the \
             writer's own: write \"*\", or several roles"
        )));
    }
    let missing = hook.missing(wanted, namespace(object));
    if missing.is_empty() {
        return Ok(());
    }
    let groups: Vec<String> = hook.identity.groups.iter().map(|group| format!("{group:?}")).collect();
    let cause = format!(
        "user {:?} (groups=[{}]) is attempting to grant RBAC permissions not currently held:\n{}",
        hook.identity.user,
        groups.join(" "),
        describe(&missing)
    );
    Err(Status::forbidden(resource, meta::name(object), cause))
}

/// The rules as they are judged; their types were checked before.
fn rules_of(role: &Value) -> Result<Vec<Rule>, Status> {
    let rules = &role["rules"];
    if rules.is_null() {
        return Ok(Vec::new());
    }
    serde_json::from_value(rules.clone()).map_err(|error| Status::bad_request(format!("rules can't be read: {error}")))
}

/// Whether nothing differs but what belongs to no right.
fn is_housekeeping(new: &Value, old: &Value) -> bool {
    let judged = |object: &Value| {
        let mut object = object.clone();
        let metadata = meta::metadata_mut(&mut object);
        HOUSEKEEPING.iter().for_each(|field| drop(metadata.remove(*field)));
        object
    };
    judged(new) == judged(old)
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn check_rule(path: &str, rule: &Value, namespaced: bool, problems: &mut Problems) {
    let given = |field: &str| items(&rule[field]).next().is_some();
    if !given("verbs") {
        problems.required(&format!("{path}.verbs"), "verbs must contain at least one value");
    }
    if given("nonResourceURLs") {
        let (path, urls) = (format!("{path}.nonResourceURLs"), &rule["nonResourceURLs"]);
        if namespaced {
            problems.invalid(&path, urls, "namespaced rules cannot apply to non-resource URLs");
        }
        if ["apiGroups", "resources", "resourceNames"].into_iter().any(given) {
            problems.invalid(&path, urls, "rules cannot apply to both regular resources and non-resource URLs");
        }
        return;
    }
    if !given("apiGroups") {
        problems.required(&format!("{path}.apiGroups"), "resource rules must supply at least one api group");
    }
    if !given("resources") {
        problems.required(&format!("{path}.resources"), "resource rules must supply at least one resource");
    }
}

fn check_aggregation(selectors: &Value, problems: &mut Problems) {
    const PATH: &str = "aggregationRule.clusterRoleSelectors";
    if items(selectors).next().is_none() {
        problems.required(PATH, "at least one clusterRoleSelector required if aggregationRule is non-nil");
    }
    for (index, selector) in items(selectors).enumerate() {
        if let Err(error) = LabelSelector::from_json(selector) {
            problems.invalid(&format!("{PATH}[{index}]"), selector, &error.to_string());
        }
    }
}

fn check_subject(path: &str, subject: &Value, namespaced: bool, problems: &mut Problems) {
    let text = |field: &str| subject[field].as_str().unwrap_or_default();
    let at = |field: &str| format!("{path}.{field}");
    if text("name").is_empty() {
        problems.required(&at("name"), "");
    }
    match text("kind") {
        "ServiceAccount" => {
            if let Some(Err(error)) = Some(text("name")).filter(|name| !name.is_empty()).map(check_dns1123_subdomain) {
                problems.invalid(&at("name"), &subject["name"], &error.to_string());
            }
            if !text("apiGroup").is_empty() {
                problems.not_supported(&at("apiGroup"), text("apiGroup"), &[""]);
            }
            if !namespaced && text("namespace").is_empty() {
                problems.required(&at("namespace"), "");
            }
        }
        "User" | "Group" if text("apiGroup") == GROUP => {}
        "User" | "Group" => problems.not_supported(&at("apiGroup"), text("apiGroup"), &[GROUP]),
        kind => problems.not_supported(&at("kind"), kind, &SUBJECT_KINDS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(errors: &[FieldError]) -> Vec<&str> {
        errors.iter().map(|error| error.path.as_str()).collect()
    }

    #[test]
    fn rules_say_what_they_lack() {
        let rule = |fields: Value| json!({"rules": [fields]});
        let good = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]});
        let url = json!({"verbs": ["get"], "nonResourceURLs": ["/x"]});
        let both = json!({"verbs": ["get"], "nonResourceURLs": ["/x"], "resources": ["pods"]});
        for (rule, namespaced, wanted) in [
            (rule(good), true, &[][..]),
            (rule(json!({})), true, &["rules[0].verbs", "rules[0].apiGroups", "rules[0].resources"]),
            (rule(url.clone()), false, &[]),
            (rule(url), true, &["rules[0].nonResourceURLs"]),
            (rule(both), false, &["rules[0].nonResourceURLs"]),
            (json!({"aggregationRule": {}}), false, &["aggregationRule.clusterRoleSelectors"]),
        ] {
            assert_eq!(paths(&Role { namespaced }.validate(&rule)), wanted, "{rule}");
        }
    }

    #[test]
    fn bindings_say_what_they_lack() {
        let binding = |kind: &str, subject: Value| {
            let mut binding = json!({"roleRef": {"kind": kind, "name": "r"}, "subjects": [subject]});
            Binding { namespaced: true }.defaults(&mut binding);
            binding
        };
        let robot = json!({"kind": "ServiceAccount", "name": "robot"});
        for (object, namespaced, wanted) in [
            (binding("Role", robot.clone()), true, &[][..]),
            (binding("Role", robot), false, &["roleRef.kind", "subjects[0].namespace"]),
            (binding("ClusterRole", json!({"kind": "User", "name": "ann"})), false, &[]),
            (binding("Role", json!({"kind": "User", "name": "ann", "apiGroup": "x"})), true, &["subjects[0].apiGroup"]),
            (binding("Role", json!({"kind": "Robot", "name": ""})), true, &["subjects[0].name", "subjects[0].kind"]),
            (json!({}), true, &["roleRef.apiGroup", "roleRef.kind", "roleRef.name"]),
        ] {
            assert_eq!(paths(&Binding { namespaced }.validate(&object)), wanted, "{object}");
        }
        let (old, new) = (binding("Role", json!({})), binding("ClusterRole", json!({})));
        assert_eq!(paths(&Binding { namespaced: true }.validate_update(&new, &old)), ["roleRef"]);
    }
}
