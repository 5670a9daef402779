//! A pod that gets more memory than was submitted, because its job failed for want of it.
//!
//! Invariant: what its containers ask for grows by what the job has grown by, all together and no more; limits grow with
//! requests. Amounts that can't be read stay: no check lets one through.

use pumice_ledger::Grown;
use pumice_units::Quantity;
use serde_json::Value;

const MEMORY: &str = "memory";

/// Gives a pod's containers more memory.
pub(super) fn grow(pod_spec: &mut Value, grown: Grown) {
    match grown {
        Grown::Factor(factor) => {
            let times = |bytes: i64| {
                #[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "floats saturate")]
                let times = (bytes as f64 * factor).floor() as i64;
                times
            };
            of_pod(pod_spec).into_iter().for_each(|resources| change(resources, times));
            let (beside, before) = containers(pod_spec);
            beside.into_iter().chain(before).for_each(|resources| change(resources, times));
        }
        Grown::Static(more) => {
            of_pod(pod_spec).into_iter().for_each(|resources| change(resources, |bytes| bytes.saturating_add(more)));
            let (mut beside, before) = containers(pod_spec);
            // They run one after the other, before the rest.
            before.into_iter().for_each(|resources| change(resources, |bytes| bytes.saturating_add(more)));
            let asked: Vec<i64> = beside.iter().map(|resources| requested(resources)).collect();
            for (resources, share) in beside.iter_mut().zip(shares(more, &asked)) {
                change(resources, |bytes| bytes.saturating_add(share));
            }
        }
    }
}

/// An amount in proportion to what is asked for; what is left over by whole bytes goes to the first.
fn shares(amount: i64, asked: &[i64]) -> Vec<i64> {
    let sum: i128 = asked.iter().copied().map(i128::from).sum();
    if sum == 0 {
        return vec![0; asked.len()];
    }
    let part = |asked: i64| i64::try_from(i128::from(amount) * i128::from(asked) / sum).unwrap_or(i64::MAX);
    let mut parts: Vec<i64> = asked.iter().copied().map(part).collect();
    let left = amount.saturating_sub(parts.iter().copied().fold(0, i64::saturating_add));
    if let Some((first, _)) = parts.iter_mut().zip(asked).find(|(_, asked)| **asked > 0) {
        *first = first.saturating_add(left);
    }
    parts
}

fn of_pod(pod_spec: &mut Value) -> Option<&mut Value> {
    pod_spec.get_mut("resources")
}

/// Resources of the containers that run side by side, and of those that run before.
fn containers(pod_spec: &mut Value) -> (Vec<&mut Value>, Vec<&mut Value>) {
    let (mut beside, mut before) = (Vec::new(), Vec::new());
    let Some(fields) = pod_spec.as_object_mut() else { return (beside, before) };
    for (name, list) in fields.iter_mut().filter(|(name, _)| ["containers", "initContainers"].contains(&name.as_str()))
    {
        for container in list.as_array_mut().into_iter().flatten() {
            let stays = name == "containers" || container.get("restartPolicy").is_some_and(|policy| policy == "Always");
            let Some(resources) = container.get_mut("resources") else { continue };
            if stays { beside.push(resources) } else { before.push(resources) }
        }
    }
    (beside, before)
}

fn bytes(amount: &Value) -> Option<i64> {
    serde_json::from_value::<Quantity>(amount.clone()).ok().map(Quantity::value)
}

fn requested(resources: &Value) -> i64 {
    resources.get("requests").and_then(|requests| bytes(requests.get(MEMORY)?)).unwrap_or(0).max(0)
}

/// Changes what is asked for of memory, where something is.
fn change(resources: &mut Value, change: impl Fn(i64) -> i64) {
    for of in ["requests", "limits"] {
        if let Some(amount) = resources.get_mut(of).and_then(|amounts| amounts.get_mut(MEMORY))
            && let Some(bytes) = bytes(amount)
        {
            *amount = Quantity::from_bytes(change(bytes)).to_string().into();
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(main: &str, side: &str, limit: &str, init: &str) -> Value {
        let of = |request: &str, limit: &str| json!({ "resources": { "requests": { "cpu": "1", "memory": request }, "limits": { "memory": limit } } });
        let mut sidecar = of(side, side);
        sidecar["restartPolicy"] = json!("Always");
        json!({ "containers": [of(main, limit), { "name": "bare" }], "initContainers": [of(init, init), sidecar] })
    }

    #[test]
    fn containers_share_what_is_added() {
        for (grown, before, after) in [
            (Grown::Factor(1.5), pod("2Gi", "1Gi", "4Gi", "1Gi"), pod("3Gi", "1536Mi", "6Gi", "1536Mi")),
            (Grown::Static(3 << 30), pod("2Gi", "1Gi", "4Gi", "1Gi"), pod("4Gi", "2Gi", "6Gi", "4Gi")),
            // What is left over goes to the first.
            (Grown::Static(10), pod("2", "1", "2", "5"), pod("9", "4", "9", "15")),
            (Grown::Static(10), pod("much", "1", "2", "5"), pod("much", "11", "2", "15")),
        ] {
            let mut pod = before;
            grow(&mut pod, grown);
            let sums = |pod: &Value| pod["containers"][0]["resources"]["limits"]["memory"].clone();
            assert_eq!(sums(&pod), sums(&after), "{grown:?}");
            assert_eq!(pod, after, "{grown:?}");
        }
        let mut whole = json!({ "resources": { "requests": { "memory": "1Gi" }, "limits": { "memory": "1Gi" } } });
        grow(&mut whole, Grown::Static(1 << 30));
        assert_eq!(whole, json!({ "resources": { "requests": { "memory": "2Gi" }, "limits": { "memory": "2Gi" } } }));
        assert_eq!(shares(7, &[0, 0]), [0, 0]);
        assert_eq!(shares(i64::MAX, &[0, i64::MAX, i64::MAX]), [0, i64::MAX / 2 + 1, i64::MAX / 2]);
    }
}
