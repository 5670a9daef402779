//! Reservations of administrators.

use pumice_api::reservation::Reservation;
use pumice_engine::{Operator, Requirement, WindowFacts};

use super::{at, text};

/// One without a beginning, which no server takes, has always been there.
pub fn window_facts(reservation: &Reservation) -> WindowFacts {
    let spec = &reservation.spec;
    let has = |(key, value): (&String, &String)| Requirement {
        key: key.clone(),
        operator: Operator::In,
        values: vec![value.clone()],
    };
    WindowFacts {
        name: text(reservation.metadata.name.as_ref()),
        nodes: spec.nodes.iter().map(|node| node.as_str().into()).collect(),
        selector: spec.node_selector.iter().map(has).collect(),
        from: spec.from.as_ref().map(at).unwrap_or_default(),
        to: spec.to.as_ref().map(at),
        queues: spec.queues.clone(),
        namespaces: spec.namespaces.clone(),
    }
}

#[cfg(test)]
mod tests {
    use pumice_engine::TimeMs;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_reservation_says_which_nodes_when_and_for_whom() {
        let reservation: Reservation = serde_json::from_value(json!({
            "metadata": {"name": "upgrade"},
            "spec": {
                "nodes": ["n1", "n2"], "nodeSelector": {"rack": "a"}, "queues": ["q"], "namespaces": ["ns"],
                "from": "1970-01-01T00:00:10Z", "to": "1970-01-01T00:01:00Z", "reason": "new kernel",
            },
        }))
        .unwrap();
        let rack = Requirement { key: "rack".into(), operator: Operator::In, values: vec!["a".into()] };
        let facts = WindowFacts {
            name: "upgrade".into(),
            nodes: vec!["n1".into(), "n2".into()],
            selector: vec![rack],
            from: TimeMs(10_000),
            to: Some(TimeMs(60_000)),
            queues: vec!["q".into()],
            namespaces: vec!["ns".into()],
        };
        assert_eq!(window_facts(&reservation), facts);
        assert_eq!(window_facts(&Reservation::default()), WindowFacts::default());
    }
}
