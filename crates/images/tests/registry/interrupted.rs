//! Pulls whose process is killed, and disks that are full.

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::resource::{Resource, setrlimit};
use nix::unistd::Uid;

use crate::image::{Image, Packed, noise, tar};
use crate::machine::Machine;
use crate::server::{Fault, Registry};

/// Says to this program that it is the one that is killed: where its machine is, and what it pulls.
const MACHINE: &str = "PUMICE_TEST_PULL_MACHINE";
const IMAGE: &str = "PUMICE_TEST_PULL_IMAGE";
/// Largest file that it may write, in bytes.
const FILE_BYTES_MAX: &str = "PUMICE_TEST_PULL_FILE_BYTES_MAX";
/// A pull writes so many bytes at a time.
const WRITTEN_AT_ONCE: u64 = 1 << 20;
/// Wait for another process.
const WITHIN: Duration = Duration::from_secs(30);

/// The program that is killed; nothing in a run of the tests themselves.
#[test]
fn child() {
    let setting = |name: &str| std::env::var_os(name).map(|value| value.into_string().unwrap());
    let (Some(dir), Some(name)) = (setting(MACHINE), setting(IMAGE)) else { return };
    if let Some(limit) = setting(FILE_BYTES_MAX) {
        let limit = limit.parse().unwrap();
        setrlimit(Resource::RLIMIT_FSIZE, limit, limit).unwrap();
        setrlimit(Resource::RLIMIT_CORE, 0, 0).unwrap();
    }
    let machine = Machine::at(Path::new(&dir));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(machine.pull(&name)).unwrap();
}

fn spawn(machine: &Machine, name: &str, file_bytes_max: Option<u64>) -> Child {
    // It writes the settings, too.
    drop(machine.images());
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["interrupted::child", "--exact", "--test-threads=1"]).env(MACHINE, machine.dir()).env(IMAGE, name);
    if let Some(limit) = file_bytes_max {
        command.env(FILE_BYTES_MAX, limit.to_string());
    }
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Bytes of downloads that are not complete.
fn partial_bytes(machine: &Machine) -> u64 {
    let entries = std::fs::read_dir(machine.store_dir().join("partial")).unwrap();
    entries
        .filter_map(|entry| entry.ok()?.metadata().ok())
        .filter(|found| found.is_file())
        .map(|found| found.len())
        .sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_download_that_was_killed_goes_on_where_it_was() {
    let registry = Registry::start().await;
    let image = Image::new(&[(Packed::Plain, tar(&[("file", &noise(3 << 20))]))]);
    registry.push("team/app", "1", &image);
    let machine = Machine::new(&[&registry]);
    let name = registry.name("team/app", "1");
    registry.spoil("GET", &image.layer_path(), 1, Fault::Stall(5 << 19));
    let mut child = spawn(&machine, &name, None);
    let written = async {
        while partial_bytes(&machine) < 2 * WRITTEN_AT_ONCE {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(WITHIN, written).await.expect("the child downloads");
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(9));
    assert!(machine.is_empty());
    let there = usize::try_from(partial_bytes(&machine)).unwrap();
    registry.requests();
    registry.sent_bytes();
    machine.pull(&name).await.unwrap();
    assert_eq!(registry.sent_bytes(), image.layers[0].len() - there + image.config.len());
    let requests = registry.requests();
    let layer = requests.iter().find(|request| request.path.contains(&image.layer_path())).unwrap();
    assert_eq!(layer.headers.get("range"), Some(&format!("bytes={there}-")));
    assert_eq!(partial_bytes(&machine), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_layer_that_came_whole_does_not_come_again_after_a_kill() {
    let registry = Registry::start().await;
    let tars = [tar(&[("below", &noise(300_000))]), tar(&[("file", &noise(3 << 20))])];
    let image = Image::new(&tars.map(|tar| (Packed::Plain, tar)));
    registry.push("team/app", "1", &image);
    let machine = Machine::new(&[&registry]);
    let name = registry.name("team/app", "1");
    let second = pumice_images::digest::Digest::of(&image.layers[1]).to_string();
    registry.spoil("GET", &second, 1, Fault::Stall(0));
    let mut child = spawn(&machine, &name, None);
    let first = machine.store_dir().join("blobs").join(image.layer_digest().hex());
    let came = async {
        while !first.is_file() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(WITHIN, came).await.expect("the child downloads");
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(9));
    registry.requests();
    machine.pull(&name).await.unwrap();
    assert_eq!((registry.count("GET", &image.layer_path()), registry.count("GET", &second)), (0, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_dies_while_it_unpacks_leaves_no_layer() {
    let registry = Registry::start().await;
    // Small as a blob, so that the kernel ends the process only in the second file of the layer.
    let content = vec![0; 4 << 20];
    let image = Image::new(&[(Packed::Gzip, tar(&[("first", b"hello"), ("file", &content)]))]);
    assert!(image.layers[0].len() < 1 << 20);
    registry.push("team/app", "1", &image);
    let machine = Machine::new(&[&registry]);
    let name = registry.name("team/app", "1");
    let mut child = spawn(&machine, &name, Some(1 << 20));
    let status = child.wait().unwrap();
    assert_eq!(status.signal(), Some(nix::libc::SIGXFSZ), "{status}");
    assert!(machine.is_empty());
    let half = std::fs::read_dir(machine.store_dir().join("partial")).unwrap();
    let half = half.filter(|entry| entry.as_ref().is_ok_and(|entry| entry.path().join("root/first").is_file()));
    assert_eq!(half.count(), 1, "it was in the middle");
    registry.requests();
    let pulled = machine.pull(&name).await.unwrap();
    assert_eq!(std::fs::metadata(pulled.layers[0].join("file")).unwrap().len(), 4 << 20);
    assert_eq!(std::fs::read_dir(machine.store_dir().join("partial")).unwrap().count(), 0);
}

/// Runs something on a thread with mounts of its own: there `dir` is a disk of so many bytes, which `grow` changes.
fn on_small_disk<T: Send>(dir: &Path, bytes: u64, work: impl FnOnce(&dyn Fn(u64)) -> T + Send) -> T {
    let size = |bytes: u64| format!("size={bytes}");
    let nothing: Option<&str> = None;
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            unshare(CloneFlags::CLONE_NEWNS).unwrap();
            mount(nothing, "/", nothing, MsFlags::MS_REC | MsFlags::MS_PRIVATE, nothing).unwrap();
            mount(Some("tmpfs"), dir, Some("tmpfs"), MsFlags::empty(), Some(size(bytes).as_str())).unwrap();
            work(&|bytes| {
                mount(nothing, dir, nothing, MsFlags::MS_REMOUNT, Some(size(bytes).as_str())).unwrap();
            })
        });
        thread.join().unwrap()
    })
}

#[test]
fn a_full_disk_is_named_and_a_pull_goes_well_once_there_is_room() {
    if !Uid::effective().is_root() {
        eprintln!("not run: needs root, for a small disk");
        assert!(std::env::var_os("CI").is_none(), "tests with CI set run as root");
        return;
    }
    // One has no room for the blob, the other for what is in it.
    let large = Image::new(&[(Packed::Plain, tar(&[("file", &noise(12 << 20))]))]);
    let wide = Image::new(&[(Packed::Gzip, tar(&[("file", &vec![0; 12 << 20])]))]);
    for (what, image) in [("blob", large), ("layer", wide)] {
        let machine = Machine::new(&[]);
        on_small_disk(machine.dir(), 8 << 20, |grow| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let registry = Registry::start().await;
                registry.push("team/app", "1", &image);
                let mut inside = Machine::at(machine.dir());
                inside.set(&registry.host, "plainHttp: true");
                let name = registry.name("team/app", "1");
                let failure = inside.failure(&name).await;
                let is_named = failure.contains("pumice image prune") || failure.contains("No space left");
                assert!(is_named, "{what}: {failure}");
                assert!(inside.is_empty());
                let free = nix::sys::statvfs::statvfs(inside.dir()).unwrap();
                let used = (free.blocks() - free.blocks_free()) * free.fragment_size();
                assert!(used < 1 << 20, "{what}: {used} bytes stay");
                grow(64 << 20);
                inside.pull(&name).await.unwrap_or_else(|error| panic!("{what}: {error:?}"));
            });
        });
    }
}
