//! Very many pods: what each holds in memory, and how long a start with all of them takes.

use pumice_bench::figures::Figures;
use pumice_bench::load::{self, Call};
use pumice_bench::machine;
use pumice_bench::objects::{NOBODY, PODS, pod};
use pumice_bench::setting::Setting;

use crate::server::Server;

const OBJECTS: usize = 1_000_000;
/// Bodies that are held at a time here.
const PORTION: usize = 20_000;
const IN_FLIGHT: usize = 128;

pub async fn run(setting: &Setting, figures: &mut Figures) -> anyhow::Result<()> {
    let mut server = Server::start().await?;
    let objects = setting.size(OBJECTS);
    let resident = |server: &Server| machine::resident_mib(server.cluster.pid) * 1024.0;
    let empty = resident(&server);
    let mut made = 0;
    while made < objects {
        let portion = PORTION.min(objects - made);
        let calls = (made..made + portion).map(|index| Call::create(PODS, &pod(&format!("p-{index}"), NOBODY, None)));
        load::run(&server.cluster.client, IN_FLIGHT, calls.collect()).await?;
        made += portion;
    }
    figures.add("objects/memory_per_pod", (resident(&server) - empty) / objects as f64, "KiB", objects);
    let start = server.again().await?;
    figures.add("objects/start", start.as_secs_f64(), "s", objects);
    figures.add("objects/memory_per_pod_after_start", (resident(&server) - empty) / objects as f64, "KiB", objects);
    Ok(())
}
