//! The same clients on kube-apiserver, where nodes are simulated: the columns beside ours.

use pumice_realkube::compatibility::{Kubectl, client_go, fabric8, kube_rs, python, settle};
use pumice_realkube::operators::Server;
use pumice_realkube::operators_themselves::{leader_worker_set, mpi_operator};
use pumice_testkit::{Clients, RealKube, eventually};

fn place(cluster: &RealKube, name: &str) -> Clients {
    let clients = cluster.in_namespace(&cluster.kubeconfig(), name);
    // Pods are refused without it.
    eventually("there is a service account", || clients.get("serviceaccount", "default").ok_or(String::new()));
    clients
}

#[test]
fn clients_of_others_do_the_same() {
    let mut cluster = RealKube::with_pumice(3);
    cluster.start_admission(&[]);
    for minor in [27, 33] {
        let kubectl =
            Kubectl { server: Server::Kubernetes, program: RealKube::program(&format!("kubectl-1.{minor}")), minor };
        settle(&kubectl.try_all(|name| place(&cluster, name)));
    }
    let rust = place(&cluster, "kube-rs");
    settle(&kube_rs(Server::Kubernetes, &rust.scratch().join("kubeconfig")));
    settle(&python(Server::Kubernetes, &place(&cluster, "python")).expect("the Python client"));
    settle(&client_go(Server::Kubernetes, &place(&cluster, "client-go")));
    settle(&fabric8(Server::Kubernetes, &place(&cluster, "fabric8")));
}

#[test]
fn the_mpi_operator_runs_a_job() {
    settle(&mpi_operator(Server::Kubernetes, RealKube::with_pumice(4)));
}

#[test]
fn leader_worker_set_makes_a_group_for_each_replica() {
    settle(&leader_worker_set(Server::Kubernetes, RealKube::with_pumice(4)));
}
