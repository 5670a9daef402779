//! LimitRanges: their defaults, and what may stand in one. They are enforced by `admission::limit_ranges`.

use std::collections::{BTreeMap, BTreeSet};

use pumice_objects::field::FieldError;
use pumice_objects::names;
use pumice_units::Quantity;
use serde_json::{Map, Value, json};

use super::Strategy;
use super::pod::spec::parse_quantity;
use super::workload::spec_mut;
use crate::problems::Problems;

/// The lists of amounts of an item.
const LISTS: [&str; 5] = ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"];

pub(crate) struct LimitRange;

impl Strategy for LimitRange {
    /// A container's limit is the maximum where nothing else is said, its request the limit, else the minimum.
    fn defaults(&self, object: &mut Value) {
        if let Some(spec) = spec_mut(object) {
            // Upstream takes one without bounds.
            spec.entry("limits").or_insert_with(|| json!([]));
        }
        let items = object.get_mut("spec").and_then(|spec| spec.get_mut("limits")).and_then(Value::as_array_mut);
        for item in items.into_iter().flatten().filter_map(Value::as_object_mut) {
            if item.get("type").is_some_and(|kind| kind == "Container") {
                fill(item, "default", "max");
                fill(item, "defaultRequest", "default");
                fill(item, "defaultRequest", "min");
            }
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let mut seen = BTreeSet::new();
        for (index, item) in object["spec"]["limits"].as_array().into_iter().flatten().enumerate() {
            let path = format!("spec.limits[{index}]");
            let kind = item["type"].as_str().unwrap_or_default();
            if let Err(error) = names::check_qualified_name(kind) {
                problems.invalid(&format!("{path}.type"), &item["type"], &error.to_string());
            }
            if !seen.insert(kind) {
                problems.duplicate(&format!("{path}.type"), kind);
            }
            check_item(&path, kind, item, &mut problems);
        }
        problems.into_errors()
    }

    fn returns_deleted(&self) -> bool {
        true
    }
}

/// Fills a list of amounts from another one where it says nothing.
fn fill(item: &mut Map<String, Value>, into: &str, from: &str) {
    let Some(source) = item.get(from).and_then(Value::as_object).filter(|source| !source.is_empty()).cloned() else {
        return;
    };
    let target = item.entry(into.to_owned()).or_insert_with(|| json!({}));
    let Some(target) = target.as_object_mut() else { return };
    for (name, amount) in source {
        target.entry(name).or_insert(amount);
    }
}

fn check_item(path: &str, kind: &str, item: &Value, problems: &mut Problems) {
    let mut lists: BTreeMap<&str, BTreeMap<&str, Quantity>> = BTreeMap::new();
    for list in LISTS {
        for (name, amount) in item[list].as_object().into_iter().flatten() {
            let at = format!("{path}.{list}[{name}]");
            if let Err(error) = names::check_qualified_name(name) {
                problems.invalid(&at, &name.as_str().into(), &error.to_string());
            }
            match parse_quantity(amount) {
                Some(parsed) => drop(lists.entry(list).or_default().insert(name, parsed)),
                None => problems.invalid(&at, amount, "must be a quantity, as 500m or 1Gi"),
            }
        }
    }
    if kind == "Pod" {
        for list in ["default", "defaultRequest"].into_iter().filter(|list| lists.contains_key(list)) {
            problems.forbidden(&format!("{path}.{list}"), "may not be specified when `type` is 'Pod'");
        }
    }
    let of = |list: &str, name: &str| lists.get(list).and_then(|all| all.get(name)).copied();
    if kind == "PersistentVolumeClaim" && of("min", "storage").is_none() && of("max", "storage").is_none() {
        let detail = "either minimum or maximum storage value is required, but neither was provided";
        problems.required(&format!("{path}.limits"), detail);
    }
    let resources: BTreeSet<&str> = lists.values().flat_map(|all| all.keys().copied()).collect();
    for name in resources {
        let amounts = Amounts {
            max: of("max", name),
            min: of("min", name),
            default: of("default", name),
            request: of("defaultRequest", name),
            ratio: of("maxLimitRequestRatio", name),
        };
        amounts.check(path, name, problems);
    }
}

/// What an item says of one resource.
struct Amounts {
    max: Option<Quantity>,
    min: Option<Quantity>,
    default: Option<Quantity>,
    request: Option<Quantity>,
    ratio: Option<Quantity>,
}

impl Amounts {
    fn check(&self, path: &str, name: &str, problems: &mut Problems) {
        let ordered = [
            ("min", "min value", self.min, "max value", self.max),
            ("defaultRequest", "min value", self.min, "default request value", self.request),
            ("defaultRequest", "default request value", self.request, "max value", self.max),
            ("defaultRequest", "default request value", self.request, "default limit value", self.default),
            ("default", "min value", self.min, "default value", self.default),
            ("default", "default value", self.default, "max value", self.max),
        ];
        for (list, lower_name, lower, upper_name, upper) in ordered {
            if let (Some(lower), Some(upper)) = (lower, upper)
                && lower > upper
            {
                let blamed = if list == "min" || lower_name != "min value" { lower } else { upper };
                let detail = format!("{lower_name} {lower} is greater than {upper_name} {upper}");
                problems.invalid(&format!("{path}.{list}[{name}]"), &json!(blamed.to_string()), &detail);
            }
        }
        let Some(ratio) = self.ratio else { return };
        let at = format!("{path}.maxLimitRequestRatio[{name}]");
        if ratio < Quantity::from_units(1) {
            problems.invalid(&at, &json!(ratio.to_string()), &format!("ratio {ratio} is less than 1"));
        }
        if let (Some(min), Some(max)) = (self.min, self.max)
            && !min.is_zero()
        {
            let widest = max.nanos() as f64 / min.nanos() as f64;
            if ratio.nanos() as f64 / 1e9 > widest {
                let detail = format!("ratio {ratio} is greater than max/min = {widest:.6}");
                problems.invalid(&at, &json!(ratio.to_string()), &detail);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_gets_its_defaults_from_the_bounds() {
        let mut range = json!({"spec": {"limits": [
            {"type": "Container", "max": {"cpu": "2", "memory": "1Gi"}, "min": {"cpu": "1"}, "default": {"memory": "512Mi"}},
            {"type": "Pod", "max": {"cpu": "4"}},
        ]}});
        LimitRange.defaults(&mut range);
        let item = &range["spec"]["limits"][0];
        assert_eq!(item["default"], json!({"cpu": "2", "memory": "512Mi"}));
        assert_eq!(item["defaultRequest"], json!({"cpu": "2", "memory": "512Mi"}));
        assert_eq!(range["spec"]["limits"][1], json!({"type": "Pod", "max": {"cpu": "4"}}));
    }

    #[test]
    fn bounds_that_contradict_each_other_are_named() {
        for (item, wanted) in [
            (json!({"type": "Container", "max": {"cpu": "2"}, "min": {"cpu": "1"}}), None),
            (
                json!({"type": "Container", "max": {"cpu": "1"}, "min": {"cpu": "2"}}),
                Some("spec.limits[0].min[cpu]: Invalid value: \"2\": min value 2 is greater than max value 1"),
            ),
            (
                json!({"type": "Container", "max": {"cpu": "1"}, "default": {"cpu": "2"}}),
                Some("spec.limits[0].default[cpu]: Invalid value: \"2\": default value 2 is greater than max value 1"),
            ),
            (
                json!({"type": "Pod", "default": {"cpu": "1"}}),
                Some("spec.limits[0].default: Forbidden: may not be specified when `type` is 'Pod'"),
            ),
            (
                json!({"type": "PersistentVolumeClaim"}),
                Some(
                    "spec.limits[0].limits: Required value: either minimum or maximum storage value is required, but \
                     neither was provided",
                ),
            ),
            (
                json!({"type": "Pod", "maxLimitRequestRatio": {"cpu": "500m"}}),
                Some("spec.limits[0].maxLimitRequestRatio[cpu]: Invalid value: \"500m\": ratio 500m is less than 1"),
            ),
            (
                json!({"type": "Pod", "min": {"cpu": "1"}, "max": {"cpu": "2"}, "maxLimitRequestRatio": {"cpu": "3"}}),
                Some(
                    "spec.limits[0].maxLimitRequestRatio[cpu]: Invalid value: \"3\": ratio 3 is greater than max/min = \
                     2.000000",
                ),
            ),
        ] {
            let found = LimitRange.validate(&json!({"spec": {"limits": [item]}}));
            assert_eq!(found.first().map(ToString::to_string).as_deref(), wanted, "{item}");
        }
        let twice = json!({"spec": {"limits": [{"type": "Pod"}, {"type": "Pod"}]}});
        assert_eq!(LimitRange.validate(&twice).len(), 1);
    }
}
