//! Jobs of Kubernetes' own (`batch/v1`): defaults, the labels that tell a Job's pods, rules and what may not change.
//!
//! Invariant: a Job that is stored has a selector that finds its pods and nobody else's, unless it says `manualSelector`.

use pumice_objects::field::FieldError;
use pumice_objects::meta;
use pumice_objects::status::Status;
use serde_json::{Map, Value, json};

use super::workload::{
    fill, fill_template, immutable, labels_match, not_negative, one_of, read_selector, spec_mut, template_errors,
};
use super::{Hook, Strategy};
use crate::problems::Problems;

/// Labels with the Job's uid, the newer first; the same with its name.
const UID_LABELS: [&str; 2] = ["batch.kubernetes.io/controller-uid", "controller-uid"];
const NAME_LABELS: [&str; 2] = ["batch.kubernetes.io/job-name", "job-name"];
const INDEXED: &str = "Indexed";
/// Most indexes of a Job that is indexed, and how many of them may run at once.
const COMPLETIONS_MAX: i64 = 100_000;
/// Most indexes and pods at once of a Job with `backoffLimitPerIndex`, and of any with a smaller number of indexes.
const PARALLELISM_MAX: i64 = 100_000;
const RULES_MAX: usize = 20;
const VALUES_MAX: usize = 255;

pub(crate) struct Job;

impl Strategy for Job {
    fn defaults(&self, object: &mut Value) {
        let Some(spec) = spec_mut(object) else { return };
        if spec.get("completions").is_none() && spec.get("parallelism").is_none() {
            fill(spec, "completions", json!(1));
        }
        fill(spec, "parallelism", json!(1));
        let is_per_index = spec.get("backoffLimitPerIndex").is_some_and(Value::is_i64);
        fill(spec, "backoffLimit", json!(if is_per_index { i32::MAX } else { 6 }));
        fill(spec, "completionMode", json!("NonIndexed"));
        fill(spec, "suspend", json!(false));
        fill(spec, "manualSelector", json!(false));
        let replaced = if spec.contains_key("podFailurePolicy") { "Failed" } else { "TerminatingOrFailed" };
        fill(spec, "podReplacementPolicy", json!(replaced));
        fill_template(spec);
        fill_rules(spec);
        // A new one gets them once those that tell its pods are among them.
        if meta::uid(object).is_some() {
            take_labels(object);
        }
    }

    fn prepare_create(&self, object: &mut Value, _hook: &mut Hook<'_>) -> Result<(), Status> {
        let is_labelled = has_labels(&object["spec"]["template"]);
        if object["spec"]["manualSelector"] == true {
            take_labels(object);
            return Ok(());
        }
        let uid = json!(meta::uid(object).unwrap_or_default());
        let name = json!(meta::name(object));
        let template = &mut object["spec"]["template"];
        if !template["metadata"].is_object() {
            template["metadata"] = json!({});
        }
        if !template["metadata"]["labels"].is_object() {
            template["metadata"]["labels"] = json!({});
        }
        let labels = &mut template["metadata"]["labels"];
        for (keys, value) in [(UID_LABELS, &uid), (NAME_LABELS, &name)] {
            for key in keys {
                labels[key] = value.clone();
            }
        }
        let selector = &mut object["spec"]["selector"];
        if !selector.is_object() {
            *selector = json!({});
        }
        selector["matchLabels"][UID_LABELS[0]] = uid;
        if is_labelled {
            take_labels(object);
        }
        Ok(())
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let spec = &object["spec"];
        spec_rules(&mut problems, spec, "spec");
        if spec["selector"].is_null() {
            problems.required("spec.selector", "");
        } else if let Some(selector) = read_selector(&mut problems, &spec["selector"]) {
            labels_match(&mut problems, &selector, &spec["template"]["metadata"]["labels"]);
        }
        let mut errors = problems.into_errors();
        errors.extend(template_errors(&spec["template"], "spec.template"));
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let fixed =
            ["selector", "completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"];
        immutable(&mut problems, new, old, &fixed);
        if !scales_alike(new, old) {
            immutable(&mut problems, new, old, &["completions"]);
        }
        if !may_be_placed_anew(old) || without_placing(new) != without_placing(old) {
            immutable(&mut problems, new, old, &["template"]);
        }
        problems.into_errors()
    }
}

fn has_labels(object: &Value) -> bool {
    object["metadata"]["labels"].as_object().is_some_and(|labels| !labels.is_empty())
}

/// A Job without labels has those of its template.
fn take_labels(object: &mut Value) {
    let template = &object["spec"]["template"];
    if has_labels(template) && !has_labels(object) {
        let labels = template["metadata"]["labels"].clone();
        meta::metadata_mut(object).insert("labels".to_owned(), labels);
    }
}

/// A rule on conditions of pods asks for those that are true.
fn fill_rules(spec: &mut Map<String, Value>) {
    let rules = spec.get_mut("podFailurePolicy").and_then(|policy| policy.get_mut("rules"));
    for rule in rules.and_then(Value::as_array_mut).into_iter().flatten() {
        for pattern in rule.get_mut("onPodConditions").and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(pattern) = pattern.as_object_mut() {
                fill(pattern, "status", json!("True"));
            }
        }
    }
}

/// Rules of a Job's specification, wherever it stands.
pub(super) fn spec_rules(problems: &mut Problems, spec: &Value, path: &str) {
    let numbers = [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ];
    not_negative(problems, spec, path, &numbers);
    let at = |field: &str| format!("{path}.{field}");
    one_of(problems, &at("completionMode"), &spec["completionMode"], &[INDEXED, "NonIndexed"]);
    let replaced = &spec["podReplacementPolicy"];
    one_of(problems, &at("podReplacementPolicy"), replaced, &["Failed", "TerminatingOrFailed"]);
    if spec["podFailurePolicy"].is_object() && replaced == "TerminatingOrFailed" {
        problems.not_supported(&at("podReplacementPolicy"), "TerminatingOrFailed", &["Failed"]);
    }
    let restarts = &spec["template"]["spec"]["restartPolicy"];
    one_of(problems, &at("template.spec.restartPolicy"), restarts, &["OnFailure", "Never"]);
    let is_indexed = spec["completionMode"] == INDEXED;
    if is_indexed {
        indexed_rules(problems, spec, path);
    } else {
        let only = "requires indexed completion mode";
        if spec["backoffLimitPerIndex"].is_i64() {
            problems.invalid(&at("backoffLimitPerIndex"), &spec["backoffLimitPerIndex"], only);
        }
        if spec["successPolicy"].is_object() {
            problems.invalid(&at("successPolicy"), &spec["successPolicy"], only);
        }
    }
    if spec["maxFailedIndexes"].is_i64() && spec["backoffLimitPerIndex"].is_null() {
        problems.required(&at("backoffLimitPerIndex"), "when maxFailedIndexes is specified");
    }
    failure_policy(problems, spec, &at("podFailurePolicy"));
    success_policy(problems, spec, &at("successPolicy"));
}

fn indexed_rules(problems: &mut Problems, spec: &Value, path: &str) {
    let Some(completions) = spec["completions"].as_i64() else {
        problems.required(&format!("{path}.completions"), "when completion mode is Indexed");
        return;
    };
    if completions > COMPLETIONS_MAX {
        let detail = format!("must be less than or equal to {COMPLETIONS_MAX} when completion mode is Indexed");
        problems.invalid(&format!("{path}.completions"), &json!(completions), &detail);
    }
    let parallelism = &spec["parallelism"];
    if parallelism.as_i64().is_some_and(|pods| pods > PARALLELISM_MAX) {
        let detail = format!("must be less than or equal to {PARALLELISM_MAX} when completion mode is Indexed");
        problems.invalid(&format!("{path}.parallelism"), parallelism, &detail);
    }
    let failed = &spec["maxFailedIndexes"];
    if failed.as_i64().is_some_and(|failed| failed > completions) {
        problems.invalid(&format!("{path}.maxFailedIndexes"), failed, "must be less than or equal to completions");
    }
}

fn failure_policy(problems: &mut Problems, spec: &Value, path: &str) {
    let policy = &spec["podFailurePolicy"];
    if !policy.is_object() {
        return;
    }
    if spec["template"]["spec"]["restartPolicy"] != "Never" {
        let detail = "only \"Never\" is supported when podFailurePolicy is specified";
        problems.invalid("spec.template.spec.restartPolicy", &spec["template"]["spec"]["restartPolicy"], detail);
    }
    let rules = policy["rules"].as_array().map_or(&[][..], Vec::as_slice);
    if rules.len() > RULES_MAX {
        problems.invalid(&format!("{path}.rules"), &json!(rules.len()), "must have at most 20 items");
    }
    for (index, rule) in rules.iter().take(RULES_MAX).enumerate() {
        let path = format!("{path}.rules[{index}]");
        let actions = ["Count", "FailIndex", "FailJob", "Ignore"];
        if rule["action"].as_str().unwrap_or_default().is_empty() {
            problems
                .required(&format!("{path}.action"), "valid values: [\"Count\" \"FailIndex\" \"FailJob\" \"Ignore\"]");
        }
        one_of(problems, &format!("{path}.action"), &rule["action"], &actions);
        if rule["action"] == "FailIndex" && spec["backoffLimitPerIndex"].is_null() {
            let detail = "requires the backoffLimitPerIndex to be set";
            problems.invalid(&format!("{path}.action"), &rule["action"], detail);
        }
        let codes = &rule["onExitCodes"];
        let has_conditions = rule["onPodConditions"].as_array().is_some_and(|patterns| !patterns.is_empty());
        match (codes.is_object(), has_conditions) {
            (true, true) => {
                problems.invalid(
                    &path,
                    &Value::Null,
                    "specifying both OnExitCodes and OnPodConditions is not supported",
                );
            }
            (false, false) => {
                problems.invalid(&path, &Value::Null, "specifying one of OnExitCodes and OnPodConditions is required");
            }
            (true, false) => exit_codes(problems, codes, spec, &format!("{path}.onExitCodes")),
            (false, true) => {}
        }
    }
}

fn exit_codes(problems: &mut Problems, codes: &Value, spec: &Value, path: &str) {
    one_of(problems, &format!("{path}.operator"), &codes["operator"], &["In", "NotIn"]);
    let values = codes["values"].as_array().map_or(&[][..], Vec::as_slice);
    let at = format!("{path}.values");
    if values.is_empty() {
        problems.invalid(&at, &codes["values"], "at least one value is required");
    } else if values.len() > VALUES_MAX {
        problems.invalid(&at, &json!(values.len()), "must have at most 255 items");
    }
    if codes["operator"] == "In" && values.iter().any(|value| value == 0) {
        problems.invalid(&at, &json!(0), "must not be 0 for the In operator");
    }
    if let Some(name) = codes["containerName"].as_str() {
        let lists = ["containers", "initContainers"];
        let mut all = lists.iter().flat_map(|list| spec["template"]["spec"][*list].as_array().into_iter().flatten());
        if !all.any(|container| container["name"] == name) {
            let detail = "must be one of the container or initContainer names in the pod template";
            problems.invalid(&format!("{path}.containerName"), &json!(name), detail);
        }
    }
}

fn success_policy(problems: &mut Problems, spec: &Value, path: &str) {
    let policy = &spec["successPolicy"];
    if !policy.is_object() {
        return;
    }
    let rules = policy["rules"].as_array().map_or(&[][..], Vec::as_slice);
    if rules.is_empty() {
        problems.required(
            &format!("{path}.rules"),
            "at least one rules must be specified when the successPolicy is specified",
        );
    }
    for (index, rule) in rules.iter().take(RULES_MAX).enumerate() {
        let path = format!("{path}.rules[{index}]");
        let (count, indexes) = (&rule["succeededCount"], &rule["succeededIndexes"]);
        if count.is_null() && indexes.is_null() {
            problems.required(&path, "at least one of succeededCount or succeededIndexes must be specified");
        }
        not_negative(problems, rule, &path, &["succeededCount"]);
        if let (Some(count), Some(completions)) = (count.as_i64(), spec["completions"].as_i64())
            && count > completions
        {
            let detail = format!("must be less than or equal to {completions} (the number of specified completions)");
            problems.invalid(&format!("{path}.succeededCount"), &json!(count), &detail);
        }
        if let Some(text) = indexes.as_str()
            && !is_ranges(text, spec["completions"].as_i64().unwrap_or(0))
        {
            let detail = "error parsing succeededIndexes: write numbers and ranges such as 1,3-5, ascending and below completions";
            problems.invalid(&format!("{path}.succeededIndexes"), indexes, detail);
        }
    }
}

/// Whether a text is ascending numbers and ranges below `end`.
fn is_ranges(text: &str, end: i64) -> bool {
    let mut next = 0;
    text.split(',').all(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (Ok(first), Ok(last)) = (first.parse::<i64>(), last.parse::<i64>()) else { return false };
        let fits = first >= next && last >= first && last < end;
        next = last.saturating_add(1);
        fits
    })
}

/// An indexed Job may grow and shrink with its parallelism.
fn scales_alike(new: &Value, old: &Value) -> bool {
    let (new, old) = (&new["spec"], &old["spec"]);
    new["completionMode"] == INDEXED && old["completionMode"] == INDEXED && new["completions"] == new["parallelism"]
}

/// Whether pods of this Job were never made, so that where they go may change.
fn may_be_placed_anew(old: &Value) -> bool {
    old["spec"]["suspend"] == true && old["status"]["startTime"].is_null()
}

/// The template without what says where pods go.
fn without_placing(object: &Value) -> Value {
    let mut template = object["spec"]["template"].clone();
    if let Some(pod) = template.get_mut("spec").and_then(Value::as_object_mut) {
        for field in ["nodeSelector", "affinity", "tolerations", "schedulingGates"] {
            pod.remove(field);
        }
    }
    if let Some(metadata) = template.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("labels");
        metadata.remove("annotations");
    }
    template
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(spec: Value) -> Value {
        let mut object = json!({"metadata": {"name": "j", "uid": "u"}, "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}},
                "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}},
        }});
        object["spec"].as_object_mut().expect("a spec").extend(spec.as_object().expect("fields").clone());
        Job.defaults(&mut object);
        object
    }

    #[test]
    fn defaults_depend_on_what_is_said() {
        let spec = |given: Value| job(given)["spec"].clone();
        let plain = spec(json!({}));
        assert_eq!(
            (&plain["completions"], &plain["parallelism"], &plain["backoffLimit"]),
            (&json!(1), &json!(1), &json!(6))
        );
        assert_eq!(plain["podReplacementPolicy"], "TerminatingOrFailed");
        let queue = spec(json!({"parallelism": 3}));
        assert_eq!((&queue["completions"], &queue["parallelism"]), (&Value::Null, &json!(3)));
        let index = spec(json!({"completionMode": "Indexed", "completions": 2, "backoffLimitPerIndex": 1}));
        assert_eq!(index["backoffLimit"], i32::MAX);
        let policy = json!({"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]});
        let policy = spec(json!({"podFailurePolicy": policy}));
        assert_eq!(policy["podReplacementPolicy"], "Failed");
        assert_eq!(policy["podFailurePolicy"]["rules"][0]["onPodConditions"][0]["status"], "True");
        assert_eq!(job(json!({}))["metadata"]["labels"], json!({"a": "b"}));
    }

    #[test]
    fn each_rule_names_its_field() {
        let rules = |rules: Value| json!({"podFailurePolicy": {"rules": rules}});
        for (spec, wanted) in [
            (json!({}), ""),
            (json!({"parallelism": -1}), "spec.parallelism: Invalid value: -1: must be greater than or equal to 0"),
            (
                json!({"completionMode": "Indexed", "parallelism": 2}),
                "spec.completions: Required value: when completion mode is Indexed",
            ),
            (json!({"completionMode": "Odd"}), "spec.completionMode: Unsupported value: \"Odd\""),
            (json!({"backoffLimitPerIndex": 1}), "spec.backoffLimitPerIndex: Invalid value: 1: requires indexed"),
            (rules(json!([{"action": "FailJob"}])), "spec.podFailurePolicy.rules[0]: Invalid value"),
            (
                rules(json!([{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [0]}}])),
                "spec.podFailurePolicy.rules[0].onExitCodes.values: Invalid value: 0",
            ),
            (rules(json!([{"action": "FailJob", "onExitCodes": {"operator": "NotIn", "values": [0]}}])), ""),
            (
                json!({"completionMode": "Indexed", "completions": 3, "successPolicy": {"rules": [{"succeededIndexes": "0,2-3"}]}}),
                "spec.successPolicy.rules[0].succeededIndexes: Invalid value: \"0,2-3\"",
            ),
            (
                json!({"completionMode": "Indexed", "completions": 4, "successPolicy": {"rules": [{"succeededIndexes": "0,2-3"}]}}),
                "",
            ),
        ] {
            let found = Job.validate(&job(spec.clone()));
            let first = found.first().map(ToString::to_string).unwrap_or_default();
            assert!(if wanted.is_empty() { first.is_empty() } else { first.starts_with(wanted) }, "{spec}: {first}");
        }
        let mut always = job(json!({}));
        always["spec"]["template"]["spec"]["restartPolicy"] = json!("Always");
        let wanted = "spec.template.spec.restartPolicy: Unsupported value: \"Always\": supported values: \"OnFailure\", \"Never\"";
        assert!(Job.validate(&always)[0].to_string().starts_with("spec.template.spec.restartPolicy"), "{wanted}");
    }

    #[test]
    fn templates_stay_unless_nothing_was_made_of_them() {
        let old = job(json!({"suspend": true}));
        let mut new = old.clone();
        new["spec"]["template"]["spec"]["nodeSelector"] = json!({"a": "b"});
        new["spec"]["parallelism"] = json!(5);
        assert_eq!(Job.validate_update(&new, &old), []);
        let mut begun = old.clone();
        begun["status"] = json!({"startTime": "2026-01-01T00:00:00Z"});
        assert_eq!(Job.validate_update(&new, &begun)[0].path, "spec.template");
        new["spec"]["completions"] = json!(7);
        assert_eq!(Job.validate_update(&new, &old)[0].path, "spec.completions");
    }
}
