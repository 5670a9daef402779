//! The Python client of Kubernetes, of one version, in an environment that is kept between runs.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

const CLIENT: &str = "kubernetes==31.0.0";
/// One test of a process makes the environment; between processes a file's lock does that.
static MAKING: Mutex<()> = Mutex::new(());

/// The interpreter of the environment; `None` where it can't be had.
///
/// # Panics
/// When it can't be had although `CI` is set.
#[allow(clippy::disallowed_methods)] // whether a client may be left out is the caller's choice
pub fn python_client() -> Option<PathBuf> {
    let _one = MAKING.lock();
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/python").join(CLIENT);
    match made(&directory) {
        Ok(python) => Some(python),
        Err(error) => {
            assert!(std::env::var("CI").is_err(), "the Python client can't be installed although CI is set: {error}");
            eprintln!("left out: the Python client can't be installed: {error}");
            None
        }
    }
}

fn made(directory: &Path) -> Result<PathBuf, String> {
    let words = |error: std::io::Error| error.to_string();
    std::fs::create_dir_all(directory).map_err(words)?;
    let python = directory.join("environment/bin/python");
    let lock = std::fs::File::create(directory.join("lock")).map_err(words)?;
    lock.lock().map_err(words)?;
    if !directory.join("complete").exists() {
        run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(directory.join("environment")))?;
        run(Command::new(&python).args(["-m", "pip", "install", "--quiet", CLIENT]))?;
        std::fs::write(directory.join("complete"), "").map_err(words)?;
    }
    Ok(python)
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    let said = || format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    if output.status.success() { Ok(()) } else { Err(said()) }
}
