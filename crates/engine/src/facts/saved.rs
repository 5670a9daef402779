//! Facts as bytes, and back: as their JSON, which they have anyway.

use super::{
    BudgetFacts, CsiNodeFacts, DependsOn, DeviceClaimFacts, DeviceClassFacts, DeviceName, DeviceSliceFacts, GroupPhase,
    GroupStatus, HostPort, HyperNodeFacts, LabelSelector, NodeGroupAffinity, NodeTerm, NodeUsage, NumaFacts, Operator,
    OwnerFacts, PodClaims, PodSelector, PodTemplate, QueueState, QuotaFacts, ShardFacts, Shared, StorageClassFacts,
    SubGroupPolicy, Taint, Toleration, TopologySpec, VolumeClaimFacts, VolumeFacts, WindowFacts,
};
use crate::save::{LoadError, Save, Source, saved_as_json};

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
    ShardFacts,
    StorageClassFacts,
    SubGroupPolicy,
    Taint,
    Toleration,
    TopologySpec,
    VolumeClaimFacts,
    VolumeFacts,
    WindowFacts,
);

impl<T: Save + Clone> Save for Shared<T> {
    fn save(&self, out: &mut Vec<u8>) {
        T::save(self, out);
    }

    fn load(from: &mut Source<'_>) -> Result<Self, LoadError> {
        T::load(from).map(Self::from)
    }
}
