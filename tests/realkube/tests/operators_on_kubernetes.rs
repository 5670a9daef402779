//! Operators on kube-apiserver, each with the rights that its own role has, and with what kube-controller-manager makes of its
//! workloads.

use pumice_realkube::operators::Server;
use pumice_testkit::Tenant;

/// Nodes of the control plane that all cases share.
const NODES: u32 = 10;

fn start(case: &str) -> Tenant {
    Tenant::new(&case.replace('_', "-"), NODES)
}

pumice_realkube::on_each_operator!(Server::Kubernetes, start);
