//! Clients that are at hand, on `pumice up` with real processes: they do what `docs/clients.md` says.

use pumice_realkube::compatibility::{Kubectl, kube_rs, python, settle};
use pumice_realkube::operators::Server;
use pumice_testkit::Platform;

/// The `kubectl` of the path, or of `$KUBECTL`, whatever its version.
#[test]
fn kubectl_at_hand_does_what_is_expected() {
    let platform = Platform::new();
    let kubeconfig = platform.data_dir().join("kubeconfig");
    let kubectl = Kubectl::at_hand(Server::Ours, &platform);
    kubectl.try_all(|name| platform.in_namespace(&kubeconfig, name));
}

#[test]
fn python_and_rust_do_what_the_page_says() {
    let platform = Platform::new();
    let kubeconfig = platform.data_dir().join("kubeconfig");
    let rust = platform.in_namespace(&kubeconfig, "kube-rs");
    settle(&kube_rs(Server::Ours, &rust.scratch().join("kubeconfig")));
    if let Some(column) = python(Server::Ours, &platform.in_namespace(&kubeconfig, "python")) {
        settle(&column);
    }
}
