//! Which requests a webhook or a policy is about, as it is written: rules, selectors, the policy of matching.

use pumice_objects::selector::LabelSelector;
use serde_json::Value;

use crate::problems::Problems;

const OPERATIONS: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];

const SCOPES: [&str; 3] = ["*", "Cluster", "Namespaced"];

/// Most rules of one webhook or policy, and most values of one of its lists.
const RULES_MAX: usize = 256;

/// Checks rules, selectors and the policy of matching.
pub(crate) fn problems_of_match(declared: &Value, rules: &str, path: &str, problems: &mut Problems) {
    for field in [rules, "excludeResourceRules"] {
        let listed = declared[field].as_array().map_or(&[][..], Vec::as_slice);
        if listed.len() > RULES_MAX {
            problems.forbidden(&format!("{path}.{field}"), &format!("at most {RULES_MAX} rules are allowed"));
            continue;
        }
        for (index, rule) in listed.iter().enumerate() {
            problems_of_rule(rule, &format!("{path}.{field}[{index}]"), problems);
        }
    }
    for field in ["namespaceSelector", "objectSelector"] {
        if !declared[field].is_null()
            && let Err(error) = LabelSelector::from_json(&declared[field])
        {
            problems.invalid(&format!("{path}.{field}"), &declared[field], &error.to_string());
        }
    }
    let policy = declared["matchPolicy"].as_str().unwrap_or("Equivalent");
    if !["Equivalent", "Exact"].contains(&policy) {
        problems.not_supported(&format!("{path}.matchPolicy"), policy, &["Equivalent", "Exact"]);
    }
}

fn problems_of_rule(rule: &Value, path: &str, problems: &mut Problems) {
    let texts = |field: &str| -> Vec<String> {
        rule[field].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    for field in ["operations", "apiGroups", "apiVersions", "resources"] {
        let (listed, at) = (texts(field), format!("{path}.{field}"));
        if listed.is_empty() {
            problems.required(&at, "");
        }
        if listed.len() > RULES_MAX {
            problems.forbidden(&at, &format!("at most {RULES_MAX} values are allowed"));
        }
        if field != "resources" && listed.len() > 1 && listed.iter().any(|one| one == "*") {
            problems.invalid(&at, &rule[field], "if '*' is present, must not specify other values");
        }
    }
    for (index, operation) in texts("operations").iter().enumerate() {
        if !OPERATIONS.contains(&operation.as_str()) {
            problems.not_supported(&format!("{path}.operations[{index}]"), operation, &OPERATIONS);
        }
    }
    for field in ["apiVersions", "resources"] {
        for (index, _) in texts(field).iter().enumerate().filter(|(_, text)| text.is_empty()) {
            problems.required(&format!("{path}.{field}[{index}]"), "");
        }
    }
    if let Some(scope) = rule["scope"].as_str().filter(|scope| !SCOPES.contains(scope)) {
        problems.not_supported(&format!("{path}.scope"), scope, &SCOPES);
    }
}
