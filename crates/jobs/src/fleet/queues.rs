//! A fleet's queues: as objects, and as rows.

use pumice_wire::api::Queue;
use serde_json::{Map, Value, json};

use crate::json::text_at;
use crate::output::table::{Table, Tint};

/// The object of a queue: its definition is Armada's.
pub fn object(queue: &Queue) -> Value {
    let labels: Map<String, Value> = queue.labels.iter().map(|(key, text)| (key.clone(), json!(text))).collect();
    let definition = serde_json::to_value(queue).unwrap_or_default();
    json!({
        "apiVersion": "api/v1",
        "kind": "Queue",
        "metadata": {"name": queue.name, "labels": labels},
        "spec": definition,
    })
}

/// The table of queues: `FACTOR` is what Armada calls the priority factor, a queue's weight is one over it.
pub fn table(queues: &[Value]) -> Table {
    let mut table = Table::new(["NAME", "STATE", "FACTOR", "OWNERS", "LIMITS"]);
    table.tint(1, |state| if state == "Open" { Tint::Good } else { Tint::Bad });
    for queue in queues {
        let spec = &queue["spec"];
        let texts = |field: &str| spec[field].as_array().into_iter().flatten().filter_map(Value::as_str);
        let owners: Vec<String> = texts("userOwners")
            .map(str::to_owned)
            .chain(texts("groupOwners").map(|group| format!("group {group}")))
            .collect();
        let state = if spec["cordoned"] == true { "Cordoned" } else { "Open" };
        let factor = spec["priorityFactor"].as_f64().unwrap_or_default().to_string();
        let name = text_at(queue, "/metadata/name").to_owned();
        table.push([name, state.to_owned(), factor, owners.join(","), limits(spec)]);
    }
    table
}

/// The limits of a queue by priority class, such as `armada-default: cpu=50%`.
fn limits(spec: &Value) -> String {
    let classes = spec["resourceLimitsByPriorityClassName"].as_object().into_iter().flatten();
    let view = classes.map(|(class, limit)| {
        let fractions = limit["maximumResourceFraction"].as_object().into_iter().flatten();
        let amounts: Vec<String> = fractions
            .map(|(resource, fraction)| format!("{resource}={}%", fraction.as_f64().unwrap_or_default() * 100.0))
            .collect();
        format!("{class}: {}", amounts.join(","))
    });
    view.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_queues() {
        let queue = |value: Value| object(&serde_json::from_value::<Queue>(value).unwrap());
        let queues = [
            queue(
                json!({"name": "research", "priorityFactor": 1.5, "userOwners": ["ada"], "groupOwners": ["physics"]}),
            ),
            queue(json!({"name": "night", "priorityFactor": 1, "cordoned": true, "resourceLimitsByPriorityClassName":
                {"armada-default": {"maximumResourceFraction": {"cpu": 0.5}}}})),
        ];
        insta::assert_snapshot!(table(&queues).render(false));
    }
}
