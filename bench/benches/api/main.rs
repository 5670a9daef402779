//! The API server alone, over its socket: what each verb costs, how it fans out to watchers, how soon it answers while it writes,
//! what an object holds, and how long it takes to start with very many.
//!
//! `verbs` is measured on kube-apiserver and etcd in the same way by the bench `realkube`.

#![allow(clippy::disallowed_methods, clippy::cast_precision_loss)] // a benchmark has its own clock; counts become figures

mod fanout;
mod gets;
mod objects;
mod server;

use std::process::ExitCode;

use pumice_bench::figures::Figures;
use pumice_bench::setting::Setting;
use pumice_bench::verbs;

use server::Server;

/// Pods that each verb is measured on.
const PODS: usize = 20_000;
/// Nodes that they are bound to.
const NODES: usize = 1_000;

fn main() -> ExitCode {
    let setting = Setting::read();
    let mut figures = Figures::open("api");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        for scene in ["verbs", "fanout", "gets", "objects"].into_iter().filter(|scene| setting.wants(scene)) {
            let outcome = match scene {
                "verbs" => each_verb(&setting, &mut figures).await,
                "fanout" => fanout::run(&setting, &mut figures).await,
                "gets" => gets::run(&setting, &mut figures).await,
                _ => objects::run(&setting, &mut figures).await,
            };
            if let Err(error) = outcome {
                eprintln!("NOT MEASURED {scene}: {error:#}");
            }
        }
    });
    figures.finish();
    ExitCode::SUCCESS
}

async fn each_verb(setting: &Setting, figures: &mut Figures) -> anyhow::Result<()> {
    let server = Server::start().await?;
    let cluster = server.over_http2().await?;
    verbs::measure(figures, "verbs", &cluster, [setting.size(PODS), NODES], || cluster.cpu()).await
}
