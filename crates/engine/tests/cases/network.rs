//! The parts of a case that are about the network: HyperNodes, `networkTopology`, `subGroupPolicy`.

use pumice_engine::{HyperNodeFacts, HyperNodeMember, MemberKind, SubGroupPolicy, TopologySpec};
use serde_json::Value;

use super::{list, number, text};

pub fn hyper_node(value: &Value) -> HyperNodeFacts {
    let member = |member: &Value| HyperNodeMember {
        hyper_node: member["type"] == "HyperNode",
        which: match member["exactMatch"]["name"].as_str() {
            Some(name) => MemberKind::Exact(name.to_owned()),
            None => MemberKind::Pattern(text(&member["regexMatch"]["pattern"])),
        },
    };
    HyperNodeFacts {
        name: text(&value["name"]),
        tier: number(&value["tier"]) as u32,
        tier_name: text(&value["tierName"]),
        members: list(&value["members"]).iter().map(member).collect(),
    }
}

pub fn topology(value: &Value) -> Option<TopologySpec> {
    (!value.is_null()).then(|| TopologySpec {
        hard: value["mode"] != "soft",
        highest_tier: value["highestTierAllowed"].as_u64().map(|tier| tier as u32),
        highest_tier_name: value["highestTierName"].as_str().map(str::to_owned),
    })
}

pub fn sub_group(value: &Value) -> SubGroupPolicy {
    SubGroupPolicy {
        name: text(&value["name"]),
        selector: Vec::new(),
        match_label_keys: list(&value["matchLabelKeys"]).iter().map(text).collect(),
        size: value["subGroupSize"].as_u64().map(|size| size as u32),
        min_sub_groups: value["minSubGroups"].as_u64().map(|min| min as u32),
        topology: topology(&value["networkTopology"]),
    }
}
