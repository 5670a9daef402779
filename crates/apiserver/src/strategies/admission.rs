//! What configures admission: webhooks, validating policies and their bindings.
//!
//! Invariant: what is stored can be put into force: addresses, selectors and expressions were read once before.

mod matching;
pub(crate) mod policies;

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use pumice_objects::field::FieldError;
use pumice_objects::names;
use pumice_objects::selector::LabelSelector;
use pumice_objects::status::Status;
use serde_json::{Map, Value, json};

use self::matching::problems_of_match;
use self::policies::{check as check_policy, problems_of_conditions};
use super::{Hook, Strategy};
use crate::problems::Problems;

/// The group of all kinds of configurations.
pub(crate) const GROUP: &str = "admissionregistration.k8s.io";

/// Most webhooks of one configuration.
const WEBHOOKS_MAX: usize = 128;
/// Most seconds that a webhook may take.
const TIMEOUT_SECONDS_MAX: i64 = 30;
/// The one version of reviews that is sent.
const REVIEW_VERSION: &str = "v1";
const FAILURE_POLICIES: [&str; 2] = ["Fail", "Ignore"];
const REINVOCATION_POLICIES: [&str; 2] = ["IfNeeded", "Never"];
const SIDE_EFFECTS: [&str; 2] = ["None", "NoneOnDryRun"];
const ACTIONS: [&str; 3] = ["Audit", "Deny", "Warn"];

/// Both kinds of webhook configurations.
pub(crate) struct WebhookConfiguration {
    pub(crate) mutates: bool,
}

impl Strategy for WebhookConfiguration {
    fn defaults(&self, object: &mut Value) {
        for webhook in object.get_mut("webhooks").and_then(Value::as_array_mut).into_iter().flatten() {
            let Some(fields) = webhook.as_object_mut() else { continue };
            fields.entry("failurePolicy").or_insert_with(|| json!("Fail"));
            fields.entry("timeoutSeconds").or_insert_with(|| json!(10));
            if self.mutates {
                fields.entry("reinvocationPolicy").or_insert_with(|| json!("Never"));
            }
            matching_defaults(fields, "rules");
            let client = fields.get_mut("clientConfig").and_then(Value::as_object_mut);
            if let Some(service) = client.and_then(|client| client.get_mut("service")).and_then(Value::as_object_mut) {
                service.entry("port").or_insert_with(|| json!(443));
            }
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let webhooks = object["webhooks"].as_array().map_or(&[][..], Vec::as_slice);
        if webhooks.len() > WEBHOOKS_MAX {
            problems.forbidden("webhooks", &format!("at most {WEBHOOKS_MAX} webhooks are allowed"));
            return problems.into_errors();
        }
        let mut seen = BTreeSet::new();
        for (index, webhook) in webhooks.iter().enumerate() {
            let path = format!("webhooks[{index}]");
            let name = webhook["name"].as_str().unwrap_or_default();
            if !seen.insert(name) {
                problems.duplicate(&format!("{path}.name"), name);
            }
            self.webhook(webhook, &path, &mut problems);
        }
        problems.into_errors()
    }
}

impl WebhookConfiguration {
    fn webhook(&self, webhook: &Value, path: &str, problems: &mut Problems) {
        let name = webhook["name"].as_str().unwrap_or_default();
        if name.is_empty() {
            problems.required(&format!("{path}.name"), "");
        } else if names::check_dns1123_subdomain(name).is_err() || name.split('.').count() < 3 {
            let detail = "should be a domain with at least three segments separated by dots";
            problems.invalid(&format!("{path}.name"), &name.into(), detail);
        }
        let mut choice = |field: &str, allowed: &[&str]| {
            if let Some(given) = webhook[field].as_str().filter(|given| !allowed.contains(given)) {
                problems.not_supported(&format!("{path}.{field}"), given, allowed);
            }
        };
        choice("failurePolicy", &FAILURE_POLICIES);
        choice("sideEffects", &SIDE_EFFECTS);
        if self.mutates {
            choice("reinvocationPolicy", &REINVOCATION_POLICIES);
        }
        if webhook["sideEffects"].is_null() {
            problems.required(&format!("{path}.sideEffects"), "must specify one of None, NoneOnDryRun");
        }
        let versions = webhook["admissionReviewVersions"].as_array().map_or(&[][..], Vec::as_slice);
        if versions.is_empty() {
            problems.required(&format!("{path}.admissionReviewVersions"), "must specify one of v1, v1beta1");
        } else if !versions.iter().any(|version| version == REVIEW_VERSION) {
            let detail = format!("must include at least one of {REVIEW_VERSION}");
            problems.invalid(&format!("{path}.admissionReviewVersions"), &webhook["admissionReviewVersions"], &detail);
        }
        let seconds = webhook["timeoutSeconds"].as_i64().unwrap_or_default();
        if !(1..=TIMEOUT_SECONDS_MAX).contains(&seconds) {
            let detail = format!("the timeout value must be between 1 and {TIMEOUT_SECONDS_MAX} seconds");
            problems.invalid(&format!("{path}.timeoutSeconds"), &seconds.into(), &detail);
        }
        client(&webhook["clientConfig"], &format!("{path}.clientConfig"), problems);
        problems_of_match(webhook, "rules", path, problems);
        problems_of_conditions(&webhook["matchConditions"], None, &format!("{path}.matchConditions"), problems);
    }
}

/// Where a webhook is, and whom that must be.
pub(crate) fn client(client: &Value, path: &str, problems: &mut Problems) {
    let (url, service) = (client["url"].as_str(), client["service"].is_object());
    if url.is_some() == service {
        problems.required(path, "exactly one of url or service is required");
    }
    if let Some(url) = url {
        let at = format!("{path}.url");
        match url.parse::<http::Uri>() {
            Err(error) => problems
                .required(&at, &format!("url must be a valid URL: {error}; desired format: https://host[/path]")),
            Ok(uri) if uri.scheme_str() != Some("https") => {
                let detail = "'https' is the only allowed URL scheme; desired format: https://host[/path]";
                problems.invalid(&at, &url.into(), detail);
            }
            Ok(uri) if uri.host().is_none_or(str::is_empty) => {
                problems.invalid(&at, &url.into(), "host must be specified; desired format: https://host[/path]");
            }
            Ok(uri) if uri.query().is_some() || url.contains('#') => {
                problems.invalid(&at, &url.into(), "query parameters and fragments are not permitted in the URL");
            }
            Ok(uri) if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) => {
                problems.invalid(&at, &url.into(), "user information is not permitted in the URL");
            }
            Ok(_) => {}
        }
    }
    if service {
        for field in ["name", "namespace"] {
            if client["service"][field].as_str().is_none_or(str::is_empty) {
                problems.required(&format!("{path}.service.{field}"), &format!("service {field} is required"));
            }
        }
        let port = client["service"]["port"].as_i64().unwrap_or(443);
        if !(1..=65535).contains(&port) {
            let detail = "port is not valid: must be between 1 and 65535, inclusive";
            problems.invalid(&format!("{path}.service.port"), &port.into(), detail);
        }
        let at = client["service"]["path"].as_str().unwrap_or("/");
        if !at.starts_with('/') || at.contains("//") || at.contains(['?', '#', ' ']) {
            problems.invalid(&format!("{path}.service.path"), &at.into(), "must be a path that begins with one '/'");
        }
    }
    if let Some(bundle) = client["caBundle"].as_str().filter(|bundle| !bundle.is_empty()) {
        let read = BASE64.decode(bundle).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        let trusted = read.is_some_and(|pem| pumice_auth::client_config(&pem, None).is_ok());
        if !trusted {
            let detail = "unable to load root certificates: no certificates of PEM in it";
            problems.invalid(&format!("{path}.caBundle"), &"<caBundle>".into(), detail);
        }
    }
}

/// What matching is where nothing is said of it.
fn matching_defaults(fields: &mut Map<String, Value>, rules: &str) {
    fields.entry("matchPolicy").or_insert_with(|| json!("Equivalent"));
    for selector in ["namespaceSelector", "objectSelector"] {
        fields.entry(selector).or_insert_with(|| json!({}));
    }
    for rules in [rules, "excludeResourceRules"] {
        for rule in fields.get_mut(rules).and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(rule) = rule.as_object_mut() {
                rule.entry("scope").or_insert_with(|| json!("*"));
            }
        }
    }
}

pub(crate) struct ValidatingAdmissionPolicy;

impl Strategy for ValidatingAdmissionPolicy {
    fn defaults(&self, object: &mut Value) {
        let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return };
        spec.entry("failurePolicy").or_insert_with(|| json!("Fail"));
        if let Some(constraints) = spec.get_mut("matchConstraints").and_then(Value::as_object_mut) {
            matching_defaults(constraints, "resourceRules");
        }
    }

    fn prepare_create(&self, object: &mut Value, _: &mut Hook<'_>) -> Result<(), Status> {
        object["status"] = json!({ "observedGeneration": 1, "typeChecking": {} });
        Ok(())
    }

    fn prepare_update(&self, new: &mut Value, old: &Value, _: &mut Hook<'_>) -> Result<(), Status> {
        let generation = old["metadata"]["generation"].as_i64().unwrap_or(1);
        let next = if new["spec"] == old["spec"] { generation } else { generation + 1 };
        if let Some(status) = new["status"].as_object_mut() {
            status.insert("observedGeneration".to_owned(), json!(next));
        }
        Ok(())
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        if let Some(policy) = object["spec"]["failurePolicy"].as_str().filter(|one| !FAILURE_POLICIES.contains(one)) {
            problems.not_supported("spec.failurePolicy", policy, &FAILURE_POLICIES);
        }
        check_policy(object, &mut problems);
        problems.into_errors()
    }
}

pub(crate) struct ValidatingAdmissionPolicyBinding;

impl Strategy for ValidatingAdmissionPolicyBinding {
    fn defaults(&self, object: &mut Value) {
        let resources = object.get_mut("spec").and_then(|spec| spec.get_mut("matchResources"));
        if let Some(resources) = resources.and_then(Value::as_object_mut) {
            matching_defaults(resources, "resourceRules");
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let spec = &object["spec"];
        if spec["policyName"].as_str().is_none_or(str::is_empty) {
            problems.required("spec.policyName", "");
        }
        let actions: Vec<&str> =
            spec["validationActions"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        if actions.is_empty() {
            problems.required("spec.validationActions", "at least one validation action is required");
        }
        let mut seen = BTreeSet::new();
        for (index, action) in actions.iter().enumerate() {
            let path = format!("spec.validationActions[{index}]");
            if !ACTIONS.contains(action) {
                problems.not_supported(&path, action, &ACTIONS);
            } else if !seen.insert(*action) {
                problems.duplicate(&path, action);
            }
        }
        if seen.contains("Deny") && seen.contains("Warn") {
            let detail = "must not contain both Deny and Warn (repeating the same validation failure information in the API \
                          response and headers serves no purpose)";
            problems.invalid("spec.validationActions", &spec["validationActions"], detail);
        }
        params(&spec["paramRef"], &mut problems);
        problems_of_match(&spec["matchResources"], "resourceRules", "spec.matchResources", &mut problems);
        problems.into_errors()
    }
}

fn params(params: &Value, problems: &mut Problems) {
    if params.is_null() {
        return;
    }
    let is_named = params["name"].as_str().is_some_and(|name| !name.is_empty());
    if is_named && !params["selector"].is_null() {
        problems.forbidden("spec.paramRef.name", "name and selector are mutually exclusive");
    } else if !is_named && params["selector"].is_null() {
        problems.required("spec.paramRef", "one of name or selector must be specified");
    }
    if !params["selector"].is_null()
        && let Err(error) = LabelSelector::from_json(&params["selector"])
    {
        problems.invalid("spec.paramRef.selector", &params["selector"], &error.to_string());
    }
    match params["parameterNotFoundAction"].as_str() {
        None => problems.required("spec.paramRef.parameterNotFoundAction", ""),
        Some(action) if !["Allow", "Deny"].contains(&action) => {
            problems.not_supported("spec.paramRef.parameterNotFoundAction", action, &["Allow", "Deny"]);
        }
        Some(_) => {}
    }
}
