//! What admission costs a pod: in process, beside the same server without it; and behind HTTPS, at a steady rate while its
//! certificate is replaced again and again.

#![allow(clippy::disallowed_methods, clippy::cast_precision_loss)] // a benchmark has its own clock; counts become figures

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use pumice_admission::VolcanoAdmission;
use pumice_api::names::{JDB_MIN_AVAILABLE, QUEUE_ALLOCATION_GATE};
use pumice_apiserver::{Admission, AdmissionRequest, AdmitAll, ApiServer, ObjectReader, Operation};
use pumice_auth::{Identity, MASTERS, Policy};
use pumice_bench::figures::Figures;
use pumice_bench::load::{self, Call};
use pumice_bench::objects::{PODS, pod};
use pumice_bench::setting::Setting;
use pumice_cluster::client_over;
use pumice_store::Store;
use serde_json::{Value, json};

mod webhook;

/// Calls in flight.
const IN_FLIGHT: usize = 64;

fn main() -> ExitCode {
    let setting = Setting::read();
    let mut figures = Figures::open("admission");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let outcomes = [
            ("rules", rules(&setting, &mut figures)),
            ("inprocess", create(&setting, &mut figures).await),
            ("webhook", webhook::steady(&setting, &mut figures).await),
        ];
        for (name, outcome) in outcomes {
            if let Err(error) = outcome {
                eprintln!("NOT MEASURED {name}: {error:#}");
            }
        }
    });
    figures.finish();
    ExitCode::SUCCESS
}

/// Nothing beside the object.
struct Nothing;

impl ObjectReader for Nothing {
    fn get(&self, _: &str, _: &str, _: &str) -> Option<Value> {
        None
    }

    fn list(&self, _: &str, _: Option<&str>) -> Vec<Value> {
        Vec::new()
    }
}

/// A pod that has all that there are rules for.
fn demanding(name: &str) -> Value {
    let mut object = pod(name, "volcano", Some("g"));
    object["metadata"]["annotations"][JDB_MIN_AVAILABLE] = json!("50%");
    object["metadata"]["annotations"][QUEUE_ALLOCATION_GATE] = json!("true");
    object
}

/// The rules alone, on one core.
fn rules(setting: &Setting, figures: &mut Figures) -> anyhow::Result<()> {
    let admission = VolcanoAdmission::default();
    let identity = Identity::new("bench", [MASTERS]);
    let request = AdmissionRequest {
        operation: Operation::Create,
        identity: &identity,
        group: "",
        version: "v1",
        resource: "pods",
        kind: "Pod",
        subresource: "",
        namespace: "default",
        name: "p",
        old: None,
        dry_run: false,
        objects: &Nothing,
        tenants: &pumice_apiserver::NoTenants,
        now: "2026-01-01T00:00:00Z".parse()?,
    };
    let count = setting.size(200_000);
    let mut pods: Vec<Value> = (0..count).map(|_| demanding("p")).collect();
    let begin = Instant::now();
    for object in &mut pods {
        admission.admit(&request, Some(object)).map_err(|status| anyhow::anyhow!(status.message))?;
        admission.validate(&request, Some(object)).map_err(|status| anyhow::anyhow!(status.message))?;
    }
    figures.add("rules/rate", count as f64 / begin.elapsed().as_secs_f64(), "pods/s", count);
    Ok(())
}

/// Pods made through the API server, which holds them in memory.
async fn create(setting: &Setting, figures: &mut Figures) -> anyhow::Result<()> {
    let count = setting.size(30_000);
    let mut rates = Vec::new();
    // The first one warms up.
    for admission in [None, None, Some(VolcanoAdmission::default()), None, Some(VolcanoAdmission::default())] {
        let admission: Arc<dyn Admission> = match admission {
            Some(admission) => Arc::new(admission),
            None => Arc::new(AdmitAll),
        };
        let store = Store::in_memory(pumice_store::Options::default())?;
        let api = ApiServer::builder(store, Policy::new(Vec::new())).admission(admission).build().await?;
        let client = client_over(api.client_service(Identity::new("bench", [MASTERS])));
        let calls = (0..count).map(|index| Call::create(PODS, &demanding(&format!("p-{index}")))).collect();
        rates.push(load::run(&client, IN_FLIGHT, calls).await?.rate());
        api.stop().await;
    }
    let [_, bare, with, bare_again, with_again] = rates[..] else { anyhow::bail!("five rounds") };
    figures.add("inprocess/rate", f64::midpoint(with, with_again), "pods/s", 2 * count);
    figures.add("inprocess/bare_rate", f64::midpoint(bare, bare_again), "pods/s", 2 * count);
    figures.add("inprocess/of_bare", (with + with_again) / (bare + bare_again), "ratio", 2 * count);
    Ok(())
}
