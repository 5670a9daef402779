//! The Python client of Kubernetes.

use std::path::Path;
use std::process::Output;

use pumice_testkit::python_client;

use crate::cluster::Cluster;

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_python_client_is_at_home() {
    let Some(python) = tokio::task::spawn_blocking(python_client).await.expect("no panic") else { return };
    let cluster = Cluster::over(pumice_store::Options { window_events_max: 8, ..Default::default() }).await;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stock/python/client.py");
    let output = tokio::process::Command::new(python)
        .arg(script)
        .env("KUBECONFIG", &cluster.kubeconfig)
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(3 * crate::cluster::PATIENCE, output).await.expect("it ends").expect("it starts");
    assert!(output.status.success(), "{}", text(&output));
    assert!(text(&output).ends_with("all good\n"), "{}", text(&output));
}
