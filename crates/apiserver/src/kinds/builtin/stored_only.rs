//! Kinds that nothing here makes or reads: programs that people bring write them, and list them before they begin.

use super::kind::{CORE, Kind};
use crate::kinds::descriptor::Subresource;
use crate::kinds::tables::{devices as device_tables, storage, workloads};
use crate::strategies::{csi, devices, replication_controller};

pub(super) static KINDS: &[Kind] = &[
    Kind {
        plural: "replicationcontrollers",
        kind: "ReplicationController",
        short_names: &["rc"],
        categories: &["all"],
        component: "io.k8s.api.core.v1.ReplicationController",
        table: workloads::replication_controller,
        subresources: &[Subresource::Status],
        scales: true,
        selectable: &["status.replicas"],
        strategy: &replication_controller::ReplicationController,
        ..CORE
    },
    Kind {
        group: "storage.k8s.io",
        plural: "csidrivers",
        kind: "CSIDriver",
        namespaced: false,
        component: "io.k8s.api.storage.v1.CSIDriver",
        table: storage::csi_driver,
        strategy: &csi::CSIDriver,
        ..CORE
    },
    Kind {
        group: "storage.k8s.io",
        plural: "csinodes",
        kind: "CSINode",
        namespaced: false,
        component: "io.k8s.api.storage.v1.CSINode",
        table: storage::csi_node,
        strategy: &csi::CSINode,
        ..CORE
    },
    Kind {
        group: "storage.k8s.io",
        plural: "csistoragecapacities",
        kind: "CSIStorageCapacity",
        component: "io.k8s.api.storage.v1.CSIStorageCapacity",
        table: storage::csi_storage_capacity,
        strategy: &csi::CSIStorageCapacity,
        ..CORE
    },
    Kind {
        group: "storage.k8s.io",
        plural: "volumeattachments",
        kind: "VolumeAttachment",
        namespaced: false,
        component: "io.k8s.api.storage.v1.VolumeAttachment",
        table: storage::volume_attachment,
        subresources: &[Subresource::Status],
        strategy: &csi::VolumeAttachment,
        ..CORE
    },
    Kind {
        group: "resource.k8s.io",
        plural: "deviceclasses",
        kind: "DeviceClass",
        namespaced: false,
        component: "io.k8s.api.resource.v1.DeviceClass",
        table: device_tables::named,
        strategy: &devices::DeviceClass,
        ..CORE
    },
    Kind {
        group: "resource.k8s.io",
        plural: "resourceclaims",
        kind: "ResourceClaim",
        component: "io.k8s.api.resource.v1.ResourceClaim",
        table: device_tables::claim,
        subresources: &[Subresource::Status],
        strategy: &devices::ResourceClaim,
        ..CORE
    },
    Kind {
        group: "resource.k8s.io",
        plural: "resourceclaimtemplates",
        kind: "ResourceClaimTemplate",
        component: "io.k8s.api.resource.v1.ResourceClaimTemplate",
        table: device_tables::named,
        strategy: &devices::ResourceClaimTemplate,
        ..CORE
    },
    Kind {
        group: "resource.k8s.io",
        plural: "resourceslices",
        kind: "ResourceSlice",
        namespaced: false,
        component: "io.k8s.api.resource.v1.ResourceSlice",
        table: device_tables::slice,
        selectable: &["spec.driver", "spec.nodeName"],
        strategy: &devices::ResourceSlice,
        ..CORE
    },
];
