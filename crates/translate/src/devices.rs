//! Dynamic Resource Allocation: claims, classes, and the slices that drivers publish.

use k8s_openapi::api::core::v1::NodeSelector;
use k8s_openapi::api::resource::v1 as dra;
use pumice_engine::{
    Attribute, DeviceClaimFacts, DeviceClassFacts, DeviceFacts, DeviceName, DeviceRequest, DeviceSliceFacts, NodeTerm,
};

use super::template::term;
use super::text;

/// What placing pods reads of a ResourceClaim.
pub fn device_claim_facts(claim: &dra::ResourceClaim) -> DeviceClaimFacts {
    let metadata = &claim.metadata;
    let devices = claim.spec.devices.clone().unwrap_or_default();
    let mut unsupported = Vec::new();
    if devices.constraints.is_some_and(|constraints| !constraints.is_empty()) {
        unsupported.push("constraints between devices");
    }
    let mut requests = Vec::new();
    for request in devices.requests.into_iter().flatten() {
        match request.exactly {
            Some(exactly) => requests.push(exact(request.name, exactly, &mut unsupported)),
            None => unsupported.push("the first available of several"),
        }
    }
    let allocation = claim.status.as_ref().and_then(|status| status.allocation.as_ref());
    let name = |result: &dra::DeviceRequestAllocationResult| DeviceName {
        driver: result.driver.clone(),
        pool: result.pool.clone(),
        device: result.device.clone(),
    };
    let results = |allocation: &dra::AllocationResult| {
        let devices = allocation.devices.as_ref().and_then(|devices| devices.results.as_ref());
        // Devices lent to administrators are not taken.
        devices.into_iter().flatten().filter(|result| result.admin_access != Some(true)).map(name).collect()
    };
    DeviceClaimFacts {
        namespace: text(metadata.namespace.as_ref()),
        name: text(metadata.name.as_ref()),
        uid: text(metadata.uid.as_ref()),
        requests,
        unsupported: unsupported.join(" and "),
        allocated: allocation.map(results),
        node_terms: allocation.and_then(|allocation| allocation.node_selector.as_ref()).map(terms),
        terminating: metadata.deletion_timestamp.is_some(),
    }
}

fn exact(name: String, request: dra::ExactDeviceRequest, unsupported: &mut Vec<&'static str>) -> DeviceRequest {
    if request.admin_access == Some(true) {
        unsupported.push("administrators' access");
    }
    if request.capacity.is_some() {
        unsupported.push("a part of a device");
    }
    let all = request.allocation_mode.as_deref() == Some("All");
    let count = u32::try_from(request.count.unwrap_or(1).max(1)).unwrap_or(u32::MAX);
    DeviceRequest {
        name,
        class: request.device_class_name,
        count: if all { 0 } else { count },
        selectors: expressions(request.selectors.as_ref()),
    }
}

/// What the engine reads of a DeviceClass.
pub fn device_class_facts(class: &dra::DeviceClass) -> DeviceClassFacts {
    DeviceClassFacts { name: text(class.metadata.name.as_ref()), selectors: expressions(class.spec.selectors.as_ref()) }
}

fn expressions(selectors: Option<&Vec<dra::DeviceSelector>>) -> Vec<String> {
    let cel = selectors.into_iter().flatten().filter_map(|selector| selector.cel.as_ref());
    cel.map(|cel| cel.expression.clone()).collect()
}

/// Devices with taints, and those that share what they are made of, are left out: they are not given to pods.
pub fn device_slice_facts(slice: &dra::ResourceSlice) -> DeviceSliceFacts {
    let spec = &slice.spec;
    let is_given = |device: &&dra::Device| {
        spec.per_device_node_selection != Some(true)
            && device.taints.as_ref().is_none_or(Vec::is_empty)
            && device.consumes_counters.as_ref().is_none_or(Vec::is_empty)
            && device.binding_conditions.as_ref().is_none_or(Vec::is_empty)
    };
    let devices = spec.devices.iter().flatten().filter(is_given);
    let facts = |device: &dra::Device| DeviceFacts {
        name: device.name.clone(),
        attributes: device
            .attributes
            .iter()
            .flatten()
            .filter_map(|(name, value)| Some((name.clone(), attribute(value)?)))
            .collect(),
    };
    DeviceSliceFacts {
        name: text(slice.metadata.name.as_ref()),
        driver: spec.driver.clone(),
        pool: spec.pool.name.clone(),
        generation: spec.pool.generation,
        node: spec.node_name.as_deref().map(Into::into),
        node_terms: spec.node_selector.as_ref().map(terms),
        devices: devices.map(facts).collect(),
    }
}

fn attribute(value: &dra::DeviceAttribute) -> Option<Attribute> {
    let truth = value.bool.map(Attribute::Bool);
    let word = || value.string.clone().or_else(|| value.version.clone()).map(Attribute::Text);
    truth.or(value.int.map(Attribute::Int)).or_else(word)
}

fn terms(selector: &NodeSelector) -> Vec<NodeTerm> {
    selector.node_selector_terms.iter().map(term).collect()
}
