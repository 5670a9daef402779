//! EndpointSlices: what may stand in one. Those of headless services are made by `workers::endpoints`.

use pumice_objects::field::FieldError;
use serde_json::Value;

use super::Strategy;
use crate::problems::Problems;

const ADDRESS_TYPES: [&str; 3] = ["FQDN", "IPv4", "IPv6"];
const ENDPOINTS_MAX: usize = 1_000;
const ADDRESSES_MAX: usize = 100;
const PORTS_MAX: usize = 20_000;

pub(crate) struct EndpointSlice;

impl Strategy for EndpointSlice {
    /// What version 1 reads and does not take any more.
    fn defaults(&self, object: &mut Value) {
        for endpoint in object
            .get_mut("endpoints")
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
            .filter_map(Value::as_object_mut)
        {
            endpoint.remove("deprecatedTopology");
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let kind = object["addressType"].as_str().unwrap_or_default();
        if kind.is_empty() {
            problems.required("addressType", "");
        } else if !ADDRESS_TYPES.contains(&kind) {
            problems.not_supported("addressType", kind, &ADDRESS_TYPES);
        }
        let list = |field: &str| object[field].as_array().map_or(&[][..], Vec::as_slice);
        for (field, most) in [("endpoints", ENDPOINTS_MAX), ("ports", PORTS_MAX)] {
            if list(field).len() > most {
                problems.invalid(field, &list(field).len().into(), &format!("must have at most {most} items"));
            }
        }
        for (index, endpoint) in list("endpoints").iter().enumerate().take(ENDPOINTS_MAX) {
            let path = format!("endpoints[{index}].addresses");
            match endpoint["addresses"].as_array().map_or(0, Vec::len) {
                0 => problems.required(&path, "must contain at least 1 address"),
                1..=ADDRESSES_MAX => {}
                count => problems.invalid(&path, &count.into(), &format!("must have at most {ADDRESSES_MAX} items")),
            }
        }
        problems.into_errors()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        problems.immutable("addressType", &new["addressType"], &old["addressType"]);
        problems.into_errors()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn slices_are_checked() {
        for (slice, path) in [
            (json!({"addressType": "IPv4", "endpoints": [{"addresses": ["1.2.3.4"]}]}), None),
            (json!({"endpoints": []}), Some("addressType")),
            (json!({"addressType": "IPX", "endpoints": []}), Some("addressType")),
            (json!({"addressType": "IPv4", "endpoints": [{"addresses": []}]}), Some("endpoints[0].addresses")),
            (json!({"addressType": "IPv4", "endpoints": vec![json!({"addresses": ["a"]}); 1001]}), Some("endpoints")),
        ] {
            let found = EndpointSlice.validate(&slice);
            assert_eq!(found.first().map(|error| error.path.as_str()), path);
        }
    }
}
