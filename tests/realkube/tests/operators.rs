//! Operators on our own API server: one platform, a namespace for each.

use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use pumice_realkube::operators::Server;
use pumice_testkit::{Clients, Platform, Setup};

/// A namespace of the platform that all cases share as long as one of them runs.
struct Place {
    clients: Clients,
    _platform: Arc<Platform>,
}

impl Deref for Place {
    type Target = Clients;

    fn deref(&self) -> &Clients {
        &self.clients
    }
}

fn platform() -> Arc<Platform> {
    static SHARED: Mutex<Weak<Platform>> = Mutex::new(Weak::new());
    // Who panics here has left it as it was.
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    let platform = shared.upgrade().unwrap_or_else(|| {
        let flags = ["--local-node=false", "--simulated-nodes=10", "--simulated-node-shape=cpu=32,memory=256Gi"];
        Arc::new(Platform::start(Setup { flags: flags.map(str::to_owned).to_vec() }))
    });
    *shared = Arc::downgrade(&platform);
    platform
}

fn start(case: &str) -> Place {
    let platform = platform();
    let kubeconfig = platform.data_dir().join("kubeconfig");
    Place { clients: platform.in_namespace(&kubeconfig, &case.replace('_', "-")), _platform: platform }
}

pumice_realkube::on_each_operator!(Server::Ours, start);
