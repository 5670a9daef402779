//! Gets while others write as fast as the server takes it, beside gets on a server that does nothing else.

use pumice_bench::figures::{Figures, percentile};
use pumice_bench::load::{self, Call};
use pumice_bench::objects::{NOBODY, PODS, pod};
use pumice_bench::setting::Setting;

use crate::server::Server;

const THERE: usize = 10_000;
const GETS: usize = 5_000;
/// Writes at a time.
const IN_FLIGHT: usize = 64;

pub async fn run(setting: &Setting, figures: &mut Figures) -> anyhow::Result<()> {
    let server = Server::start().await?;
    let client = &server.cluster.client;
    let (there, gets) = (setting.size(THERE), setting.size(GETS));
    let create = |index: usize| Call::create(PODS, &pod(&format!("p-{index}"), NOBODY, None));
    server.cluster.set((0..there).map(create).collect()).await?;
    let reads = || (0..gets).map(|index| Call::get(format!("{PODS}/p-{}", index * 7 % there))).collect();
    let alone = load::run(client, 1, reads()).await?;
    figures.times("gets/alone", &alone.times);
    let writes = async {
        let mut next = there;
        loop {
            load::run(client, IN_FLIGHT, (next..next + there).map(create).collect()).await?;
            next += there;
        }
    };
    let times = tokio::select! {
        ended = writes => return ended,
        outcome = load::run(client, 1, reads()) => outcome?.times,
    };
    figures.times("gets/under_load", &times);
    figures.add("gets/p99_of_alone", percentile(&times, 99) / percentile(&alone.times, 99), "ratio", times.len());
    Ok(())
}
