//! What the numbers of built-in types may be, beside their formats.
//!
//! Invariant: a range belongs to a field of a type, not to a kind, so a pod, the template of a Deployment and that of a CronJob
//! keep to the same one, and whatever refers to the type later does too. The words are upstream's. Numbers whose range depends
//! on other fields, and those of a kind's own specification, are checked by the strategies; a test drives every integer of a pod
//! through both. Called when schemas are compiled.

use pumice_objects::schema::Range;

/// Users and groups: what a `uid_t` holds, less the half in which -1 means "none".
const IDENTITY: Range = Range::between(0, 2_147_483_647, "must be between 0 and 2147483647, inclusive");
const PORT: Range = Range::between(1, 65_535, "must be between 1 and 65535, inclusive");
/// Zero stands for none.
const PORT_OR_NONE: Range = Range::between(0, 65_535, "must be between 1 and 65535, inclusive");
const FILE_MODE: Range = Range::between(0, 0o777, "must be a number between 0 and 0777 (octal), both inclusive");
const NOT_NEGATIVE: Range = Range::at_least(0, "must be greater than or equal to 0");
const POSITIVE: Range = Range::at_least(1, "must be greater than 0");
const DEADLINE_SECONDS: Range = Range::between(1, 2_147_483_647, "must be between 1 and 2147483647, inclusive");
const WEIGHT: Range = Range::between(1, 100, "must be in the range 1-100");
const LUN: Range = Range::between(0, 255, "must be between 0 and 255, inclusive");
/// Zero stands for the whole disk; the words are upstream's.
const PARTITION: Range = Range::between(0, 255, "must be between 1 and 255, inclusive");
const TOKEN_SECONDS: Range = Range {
    minimum: 600,
    maximum: 1 << 32,
    too_small: "may not specify a duration less than 10 minutes",
    too_large: "may not specify a duration larger than 2^32 seconds",
};
const AFFINITY_SECONDS: Range = Range::between(1, 86_400, "must be greater than 0 and less than 86400");

/// Groups of types by where their names begin.
const CORE: &str = "io.k8s.api.core.v1.";
const NETWORKING: &str = "io.k8s.api.networking.v1.";
const DISCOVERY: &str = "io.k8s.api.discovery.v1.";

/// Fields of a type with their ranges.
type Fields = &'static [(&'static str, Range)];

/// What is known of one type.
struct TypeRanges {
    /// What the name of its component begins with: one of the groups above.
    group: &'static str,
    name: &'static str,
    fields: Fields,
}

const fn of(group: &'static str, name: &'static str, fields: Fields) -> TypeRanges {
    TypeRanges { group, name, fields }
}

const RANGES: &[TypeRanges] = &[
    of(CORE, "AWSElasticBlockStoreVolumeSource", &[("partition", PARTITION)]),
    of(CORE, "ClientIPConfig", &[("timeoutSeconds", AFFINITY_SECONDS)]),
    of(CORE, "ConfigMapVolumeSource", &[("defaultMode", FILE_MODE)]),
    of(CORE, "ContainerPort", &[("containerPort", PORT_OR_NONE), ("hostPort", PORT_OR_NONE)]),
    of(CORE, "DaemonEndpoint", &[("Port", PORT_OR_NONE)]),
    of(CORE, "DownwardAPIVolumeFile", &[("mode", FILE_MODE)]),
    of(CORE, "DownwardAPIVolumeSource", &[("defaultMode", FILE_MODE)]),
    of(CORE, "FCVolumeSource", &[("lun", LUN)]),
    of(CORE, "GCEPersistentDiskVolumeSource", &[("partition", PARTITION)]),
    of(CORE, "GRPCAction", &[("port", PORT)]),
    of(CORE, "HTTPGetAction", &[("port", PORT)]),
    of(CORE, "ISCSIPersistentVolumeSource", &[("lun", LUN)]),
    of(CORE, "ISCSIVolumeSource", &[("lun", LUN)]),
    of(CORE, "KeyToPath", &[("mode", FILE_MODE)]),
    of(
        CORE,
        "PodSecurityContext",
        &[("fsGroup", IDENTITY), ("runAsGroup", IDENTITY), ("runAsUser", IDENTITY), ("supplementalGroups", IDENTITY)],
    ),
    of(
        CORE,
        "PodSpec",
        &[("activeDeadlineSeconds", DEADLINE_SECONDS), ("terminationGracePeriodSeconds", NOT_NEGATIVE)],
    ),
    of(CORE, "PreferredSchedulingTerm", &[("weight", WEIGHT)]),
    of(
        CORE,
        "Probe",
        &[
            ("failureThreshold", NOT_NEGATIVE),
            ("initialDelaySeconds", NOT_NEGATIVE),
            ("periodSeconds", NOT_NEGATIVE),
            ("successThreshold", NOT_NEGATIVE),
            ("terminationGracePeriodSeconds", POSITIVE),
            ("timeoutSeconds", NOT_NEGATIVE),
        ],
    ),
    of(CORE, "ProjectedVolumeSource", &[("defaultMode", FILE_MODE)]),
    of(CORE, "SecretVolumeSource", &[("defaultMode", FILE_MODE)]),
    of(CORE, "SecurityContext", &[("runAsGroup", IDENTITY), ("runAsUser", IDENTITY)]),
    of(CORE, "ServiceAccountTokenProjection", &[("expirationSeconds", TOKEN_SECONDS)]),
    of(CORE, "ServicePort", &[("nodePort", PORT_OR_NONE), ("targetPort", PORT)]),
    of(CORE, "ServiceSpec", &[("healthCheckNodePort", PORT_OR_NONE)]),
    of(CORE, "TCPSocketAction", &[("port", PORT)]),
    of(
        CORE,
        "TopologySpreadConstraint",
        &[
            ("maxSkew", Range::at_least(1, "must be greater than zero")),
            ("minDomains", Range::at_least(1, "must be greater than 0")),
        ],
    ),
    of(CORE, "WeightedPodAffinityTerm", &[("weight", WEIGHT)]),
    of(DISCOVERY, "EndpointPort", &[("port", PORT_OR_NONE)]),
    of(NETWORKING, "NetworkPolicyPort", &[("endPort", PORT)]),
];

/// The range of a field of a type, if it has one here.
pub(crate) fn range_of(component: &str, field: &str) -> Option<Range> {
    let is_it = |of: &&TypeRanges| component.strip_prefix(of.group).is_some_and(|name| name == of.name);
    let known = RANGES.iter().find(is_it)?;
    known.fields.iter().find(|(name, _)| *name == field).map(|(_, range)| *range)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::schemas;

    /// Paths of the integers below a schema, with `[0]` for an item of a list. A type within itself is passed over.
    fn integers(schema: &'static Value, within: &[&str], path: &str, found: &mut Vec<String>) {
        let referred = schema["$ref"].as_str().or_else(|| schema["allOf"][0]["$ref"].as_str());
        if let Some(name) = referred.and_then(|target| target.rsplit('/').next()) {
            if !within.contains(&name) {
                integers(&schemas::components()[name], &[within, &[name]].concat(), path, found);
            }
            return;
        }
        if schema["type"] == "integer" {
            found.push(path.to_owned());
        }
        for (name, member) in schema["properties"].as_object().into_iter().flatten() {
            integers(member, within, &format!("{path}.{name}"), found);
        }
        if schema["items"].is_object() {
            integers(&schema["items"], within, &format!("{path}[0]"), found);
        }
    }

    /// The smallest object with a value at a path.
    fn object(path: &str, value: Value) -> Value {
        path.rsplit('.').fold(value, |value, step| match step.strip_suffix("[0]") {
            Some(name) => json!({ name: [value] }),
            None => json!({ step: value }),
        })
    }

    #[test]
    fn each_range_is_of_a_number_that_there_is() {
        for TypeRanges { group, name, fields } in RANGES {
            let properties = &schemas::components()[&format!("{group}{name}")]["properties"];
            for (field, range) in *fields {
                let property = &properties[*field];
                let text = property.to_string();
                assert!(text.contains("integer") || text.contains("IntOrString"), "{name}.{field}: {property}");
                assert!(range.minimum <= range.maximum, "{name}.{field}");
                assert_eq!(range_of(&format!("{group}{name}"), field), Some(*range));
            }
        }
        assert_eq!(range_of("io.k8s.api.core.v1.PodSpec", "priority"), None);
        assert_eq!(range_of("PodSpec", "activeDeadlineSeconds"), None);
    }

    #[test]
    fn no_integer_of_a_pod_takes_what_is_none() {
        let component = "io.k8s.api.core.v1.Pod";
        let (schema, mut paths) = (schemas::builtin(component), Vec::new());
        integers(&schemas::components()[component], &[component], "", &mut paths);
        assert!(paths.len() > 100, "{}", paths.len());
        for path in paths.iter().map(|path| path.trim_start_matches('.')) {
            let wrong = [
                json!(1.5),
                json!(1e3),
                json!(1e30),
                json!("7"),
                json!(true),
                json!({}),
                json!(9_223_372_036_854_775_808_u64),
            ];
            for value in wrong {
                let found = schema.validate(&mut object(path, value.clone()));
                assert!(found.iter().any(|error| error.path == path), "{path} takes {value}: {found:?}");
            }
        }
    }
}
