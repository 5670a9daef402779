//! What keeps a container's programs to their container besides namespaces: the rights of root that they keep, the system
//! calls that they may make, profiles of AppArmor, and the accelerators that they see.
//!
//! Invariant: decided by the agent from the pod alone, written into the pod's spec, and put into effect by the shim in the
//! last steps before the program (`shim/program.rs`).

pub(crate) mod accelerators;
pub(crate) mod allotment;
pub(crate) mod app_armor;
pub(crate) mod container_devices;
pub(crate) mod seccomp;
