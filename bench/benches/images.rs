//! How long a user waits for the first output of a program in an image of 50 MB that nothing has here yet, and once it is here:
//! `jobctl run --image` beside `podman run`, with the same images of the same registry on the loopback in the same run.

#![allow(clippy::disallowed_methods)] // a benchmark has its own clock

use std::io::Read;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use pumice_bench::figures::Figures;
use pumice_bench::setting::Setting;
use pumice_testkit::{Files, Layer, Platform, Registry, Setup, TestImage, binary};
use tempfile::TempDir;

/// Images, each with other content, so that each is pulled whole.
const IMAGES: usize = 10;
/// Runs of an image that is here.
const WARM_RUNS: usize = 5;
/// What a registry sends for each image, at full size.
const MEGABYTES: usize = 50;
const FILE_BYTES: usize = 50_000;
const SAYS: [&str; 2] = ["echo", "here"];

fn main() -> ExitCode {
    let setting = Setting::read();
    let mut figures = Figures::open("images");
    if let Err(error) = measure(&setting, &mut figures) {
        eprintln!("NOT MEASURED: {error:#}");
    }
    figures.finish();
    ExitCode::SUCCESS
}

fn measure(setting: &Setting, figures: &mut Figures) -> anyhow::Result<()> {
    let registry = Registry::start();
    let names: Vec<String> = (0..setting.size(IMAGES))
        .map(|number| {
            let image = TestImage::busybox().with_layer(random_files(setting.size(MEGABYTES), number as u64));
            registry.put(&format!("bench/of-50-mb-{number}"), "1", &image).0
        })
        .collect();
    let directory = tempfile::tempdir()?;
    let settings = directory.path().join("registries.yaml");
    registry.settings(&settings);
    let flags = vec!["--images=registry".to_owned(), format!("--registries={}", settings.display())];
    let platform = Platform::start(Setup { flags });
    // What the first job on a platform makes is no image's.
    let jobctl = |name: &str| {
        let mut command = platform.command(&binary("jobctl"));
        command.args(["run", "--image", name, "--"]).args(SAYS);
        command
    };
    first_output(jobctl("pumice.sh/host"))?;
    let own = times(figures, "jobctl", &names, jobctl)?;
    drop(platform);
    let podman = Podman::new()?;
    let peer = times(figures, "podman", &names, |name| podman.run(name))?;
    figures.add("cold_of_podman", own.cold_ms / peer.cold_ms, "ratio", names.len());
    figures.add("warm_of_podman", own.warm_ms / peer.warm_ms, "ratio", WARM_RUNS);
    Ok(())
}

/// Files that are so many megabytes together when they are compressed. The same `seed` makes the same.
fn random_files(megabytes: usize, seed: u64) -> Layer {
    let mut state = 2 * seed + 1;
    // Sixteen letters: half of each byte says something.
    let mut letter = || {
        // Knuth's linear congruential generator of 64 bits (MMIX).
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        b"abcdefghijklmnop"[(state >> 60) as usize]
    };
    let mut files = Files::new();
    for number in 0..megabytes * 2 * 1_000_000 / FILE_BYTES {
        let content: Vec<u8> = (0..FILE_BYTES).map(|_| letter()).collect();
        files.file(&format!("srv/random/{number}"), 0o644, &content);
    }
    files.end().compressed()
}

/// Medians of one program.
struct Medians {
    cold_ms: f64,
    warm_ms: f64,
}

/// The first run of each image, then more runs of the last.
fn times(figures: &mut Figures, row: &str, names: &[String], run: impl Fn(&str) -> Command) -> anyhow::Result<Medians> {
    let measured = |name: &String| first_output(run(name)).with_context(|| format!("{row}: {name}"));
    let cold: Vec<Duration> = names.iter().map(measured).collect::<Result<_, _>>()?;
    let warm: Vec<Duration> =
        names.last().into_iter().cycle().take(WARM_RUNS).map(measured).collect::<Result<_, _>>()?;
    let (cold_ms, _) = figures.times(&format!("{row}/cold"), &cold);
    let (warm_ms, _) = figures.times(&format!("{row}/warm"), &warm);
    Ok(Medians { cold_ms, warm_ms })
}

/// How long after its start a program says its first byte.
fn first_output(mut command: Command) -> anyhow::Result<Duration> {
    let begin = Instant::now();
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let mut output = child.stdout.take().context("its output is a pipe")?;
    let mut first = [0];
    let read = output.read(&mut first)?;
    let taken = begin.elapsed();
    let ended = child.wait_with_output()?;
    anyhow::ensure!(read == 1 && ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    Ok(taken)
}

/// Debian's podman with a store of its own.
struct Podman {
    directory: TempDir,
}

impl Podman {
    fn new() -> anyhow::Result<Podman> {
        if Command::new("podman").arg("--version").stdout(Stdio::null()).status().is_err() {
            let _ =
                Command::new("apt-get").args(["install", "--yes", "--quiet", "podman"]).stdout(Stdio::null()).status();
        }
        let podman = Podman { directory: tempfile::tempdir()? };
        let told = podman.command(&["info"]).output().context("podman is not there: apt-get install podman")?;
        anyhow::ensure!(told.status.success(), "podman info: {}", String::from_utf8_lossy(&told.stderr));
        Ok(podman)
    }

    fn command(&self, words: &[&str]) -> Command {
        let folder = |name: &str| self.directory.path().join(name);
        let mut command = Command::new("podman");
        command.arg("--root").arg(folder("root")).arg("--runroot").arg(folder("run"));
        command.args(["--cgroup-manager", "cgroupfs"]).args(words);
        command
    }

    /// Without a network, which needs rules of a firewall, and within limits that a machine's administrator may set.
    fn run(&self, image: &str) -> Command {
        let limits = ["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096"];
        let mut command = self.command(&["run", "--rm", "--quiet", "--tls-verify=false", "--network", "none"]);
        command.args(limits).arg(image).args(SAYS);
        command
    }
}

impl Drop for Podman {
    fn drop(&mut self) {
        let _ = self.command(&["rmi", "--all", "--force"]).stdout(Stdio::null()).status();
        // Its store is a mount of its own.
        let _ = nix::mount::umount(Path::new(&self.directory.path().join("root/overlay")));
    }
}
