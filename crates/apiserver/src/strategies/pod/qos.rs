//! The quality-of-service class of a pod, from its requests and limits.

use pumice_units::Quantity;
use serde_json::{Map, Value};

use super::containers;

/// `Guaranteed`, `Burstable` or `BestEffort`, as upstream computes it.
pub(super) fn class(object: &Value) -> &'static str {
    let mut any = false;
    let mut guaranteed = true;
    for (_, container) in containers(&object["spec"]) {
        let limits = amounts(container, "limits");
        let requests = amounts(container, "requests");
        any |= !limits.is_empty() || !requests.is_empty();
        guaranteed &= limits.len() == 2 && requests == limits;
    }
    match (any, guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

/// The amounts of cpu and memory that are not zero.
fn amounts(container: &Map<String, Value>, field: &str) -> Vec<(&'static str, Quantity)> {
    let list = container.get("resources").and_then(|resources| resources.get(field));
    ["cpu", "memory"]
        .into_iter()
        .filter_map(|name| {
            let quantity: Quantity = list?.get(name)?.as_str()?.parse().ok()?;
            (!quantity.is_zero()).then_some((name, quantity))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn classes() {
        let both = json!({"cpu": "1", "memory": "1Gi"});
        for (resources, wanted) in [
            (json!({}), "BestEffort"),
            (json!({"requests": {"cpu": "0"}}), "BestEffort"),
            (json!({"requests": {"cpu": "1"}}), "Burstable"),
            (json!({"requests": {"cpu": "1000m", "memory": "1Gi"}, "limits": both}), "Guaranteed"),
            (json!({"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": both}), "Burstable"),
        ] {
            let pod = json!({"spec": {"containers": [{"resources": resources}]}});
            assert_eq!(class(&pod), wanted, "{resources}");
        }
    }
}
