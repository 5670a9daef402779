//! Facts as bytes, and back: as their JSON, which they have anyway. Used by `save`.

use super::{LoadError, Save, Source, saved, saved_inside};
use crate::config::Sharding;
use crate::facts::{
    BudgetFacts, CsiNodeFacts, DependsOn, DeviceClaimFacts, DeviceClassFacts, DeviceName, DeviceSliceFacts, GroupPhase,
    GroupStatus, HostPort, HyperNodeFacts, LabelSelector, NodeGroupAffinity, NodeTerm, NodeUsage, NumaFacts, Operator,
    OwnerFacts, PodClaims, PodSelector, PodTemplate, QueueState, QuotaFacts, ShardFacts, StorageClassFacts,
    SubGroupPolicy, Taint, Toleration, TopologySpec, VolumeClaimFacts, VolumeFacts, WindowFacts,
};
use crate::ids::{ClassId, DimId, GroupId, NamespaceId, NodeId, QueueId, TaskId, TimeMs};
use crate::reasons::{Reason, Stage};

/// Reads facts, in other words where the source has them.
fn load_json<T: serde::de::DeserializeOwned>(from: &mut Source<'_>, what: &'static str) -> Result<T, LoadError> {
    let bad = |_| LoadError::Value { what };
    let length = usize::load(from)?;
    let json = from.take(length)?;
    let Some(texts) = &mut from.texts else { return serde_json::from_slice(json).map_err(bad) };
    let mut facts = serde_json::from_slice(json).map_err(bad)?;
    texts.facts(&mut facts);
    serde_json::from_value(facts).map_err(bad)
}

macro_rules! saved_as_json {
    ($($kind:ident),+ $(,)?) => {
        $(
            impl Save for $kind {
                fn save(&self, out: &mut Vec<u8>) {
                    let json = serde_json::to_vec(self).expect("facts have text keys only");
                    json.len().save(out);
                    out.extend(json);
                }

                fn load(from: &mut Source<'_>) -> Result<Self, LoadError> {
                    load_json(from, stringify!($kind))
                }
            }
        )+
    };
}

saved_as_json!(
    BudgetFacts,
    CsiNodeFacts,
    DependsOn,
    DeviceClaimFacts,
    DeviceClassFacts,
    DeviceName,
    DeviceSliceFacts,
    GroupPhase,
    GroupStatus,
    HostPort,
    HyperNodeFacts,
    LabelSelector,
    NodeGroupAffinity,
    NodeTerm,
    NodeUsage,
    NumaFacts,
    Operator,
    OwnerFacts,
    PodClaims,
    PodSelector,
    PodTemplate,
    QueueState,
    QuotaFacts,
    Reason,
    ShardFacts,
    Stage,
    StorageClassFacts,
    SubGroupPolicy,
    Taint,
    Toleration,
    TopologySpec,
    VolumeClaimFacts,
    VolumeFacts,
    WindowFacts,
);

saved_inside!(ClassId, DimId, GroupId, NamespaceId, NodeId, QueueId, TaskId, TimeMs);
saved! { Sharding { hard, name } }
