//! The Python client of Kubernetes, of one version, in an environment that is kept between runs.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::cluster::Cluster;

const CLIENT: &str = "kubernetes==31.0.0";

/// The interpreter of the environment; `None` where it can't be had.
///
/// # Panics
/// When it can't be had although `CI` is set.
#[allow(clippy::disallowed_methods)] // whether a client may be left out is the caller's choice
fn interpreter() -> Option<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/python").join(CLIENT);
    let python = directory.join("bin/python");
    if directory.join("complete").exists() {
        return Some(python);
    }
    let installed = run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&directory))
        .and_then(|()| run(Command::new(&python).args(["-m", "pip", "install", "--quiet", CLIENT])))
        .and_then(|()| std::fs::write(directory.join("complete"), "").map_err(|error| error.to_string()));
    match installed {
        Ok(()) => Some(python),
        Err(error) => {
            assert!(std::env::var("CI").is_err(), "the Python client can't be installed although CI is set: {error}");
            eprintln!("left out: the Python client can't be installed: {error}");
            None
        }
    }
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() { Ok(()) } else { Err(format!("{command:?}: {}", text(&output))) }
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_python_client_is_at_home() {
    let Some(python) = tokio::task::spawn_blocking(interpreter).await.expect("no panic") else { return };
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
