//! Clients that `tests/realkube/build` makes, on `pumice up` with real processes: a column of `docs/clients.md` each.

use pumice_realkube::compatibility::{Kubectl, client_go, fabric8, settle};
use pumice_realkube::operators::Server;
use pumice_testkit::{Clients, Platform, RealKube};

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
