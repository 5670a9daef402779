//! Clients that are at hand, on `pumice up` with real processes: they do what `docs/clients.md` says.

use pumice_realkube::compatibility::Kubectl;
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
