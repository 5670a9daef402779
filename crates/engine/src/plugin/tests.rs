//! What the tests of plugins share.

pub(crate) mod small_cluster;
pub(crate) mod victim_bench;
