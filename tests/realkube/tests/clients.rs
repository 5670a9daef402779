//! Clients that `tests/realkube/build` makes, on `pumice up` with real processes: a column of `docs/clients.md` each.

use pumice_realkube::compatibility::{Kubectl, client_go, fabric8, settle};
use pumice_realkube::operators::Server;
use pumice_realkube::operators_themselves::{leader_worker_set, mpi_job_of_processes, mpi_operator};
use pumice_testkit::{Clients, Platform, RealKube, Setup};

fn place(platform: &Platform, name: &str) -> Clients {
    platform.in_namespace(&platform.data_dir().join("kubeconfig"), name)
}

fn kubectl(minor: u32) {
    let platform = Platform::new();
    let kubectl = Kubectl { server: Server::Ours, program: RealKube::program(&format!("kubectl-1.{minor}")), minor };
    settle(&kubectl.try_all(|name| place(&platform, name)));
}

#[test]
fn kubectl_1_27() {
    kubectl(27);
}

#[test]
fn kubectl_1_33() {
    kubectl(33);
}

#[test]
fn client_go_is_at_home() {
    let platform = Platform::new();
    settle(&client_go(Server::Ours, &place(&platform, "client-go")));
}

#[test]
fn fabric8_is_at_home() {
    let platform = Platform::new();
    settle(&fabric8(Server::Ours, &place(&platform, "fabric8")));
}

/// A platform whose pods are simulated.
fn simulated() -> Platform {
    let flags = ["--local-node=false", "--simulated-nodes=4", "--simulated-node-shape=cpu=32,memory=256Gi"];
    Platform::start(Setup { flags: flags.map(str::to_owned).to_vec() })
}

#[test]
fn the_mpi_operator_runs_a_job() {
    settle(&mpi_operator(Server::Ours, simulated()));
}

#[test]
fn an_mpi_job_of_real_processes_succeeds() {
    mpi_job_of_processes(Platform::new());
}

#[test]
fn leader_worker_set_makes_a_group_for_each_replica() {
    settle(&leader_worker_set(Server::Ours, simulated()));
}
