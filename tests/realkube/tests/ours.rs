//! The cases on our own API server, everything in one process.

use pumice_testkit::{Platform, Setup};

fn start(_case: &str) -> Platform {
    let flags = ["--local-node=false", "--simulated-nodes=10", "--simulated-node-shape=cpu=32,memory=256Gi"];
    Platform::start(Setup { flags: flags.map(str::to_owned).to_vec() })
}

pumice_realkube::on_each_case!(start);
