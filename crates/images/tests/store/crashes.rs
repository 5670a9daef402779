//! Processes that end in the middle, and several at once.

use std::fs;
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use pumice_images::digest::Digest;
use pumice_images::store::Store;

use crate::archives::*;

fn child(dir: &Path) -> Child {
    let program = std::env::current_exe().unwrap();
    let arguments = ["--exact", "crashes::child_that_unpacks", "--ignored"];
    Command::new(program).args(arguments).current_dir(dir).stdout(std::process::Stdio::null()).spawn().unwrap()
}

/// Many files, so that it takes a while.
fn archive() -> Vec<u8> {
    let folders = (0..40).flat_map(|at| {
        let files = (0..300).map(move |file_at| file(format!("d{at}/f{file_at}"), "x".repeat(500)));
        std::iter::once(folder(format!("d{at}"))).chain(files)
    });
    tar(&folders.collect::<Vec<_>>())
}

/// Unpacks the file `archive` in the store `store`.
#[test]
#[ignore = "run by other tests, in a process of its own"]
fn child_that_unpacks() {
    let store = Store::open(Path::new("store"), small_limits()).unwrap();
    let archive = fs::read("archive").unwrap();
    unpack(&store, &zstd(&archive), &Digest::of(&archive)).unwrap();
}

#[test]
fn what_a_killed_process_leaves_is_removed_and_the_layer_taken() {
    on_its_own_disk(256, |dir| {
        let archive = archive();
        let diff_id = Digest::of(&archive);
        fs::write(dir.join("archive"), &archive).unwrap();
        let store_dir = dir.join("store");
        let partial = store_dir.join("partial").join(format!("layer-{}", diff_id.hex()));
        let mut in_the_middle = 0;
        for wanted in [1, 3, 9, 20, 30] {
            let mut child = child(dir);
            // As soon as so many folders are there.
            while child.try_wait().unwrap().is_none() {
                if fs::read_dir(partial.join("root")).is_ok_and(|entries| entries.count() >= wanted) {
                    break;
                }
                std::thread::sleep(Duration::from_micros(200));
            }
            child.kill().unwrap();
            child.wait().unwrap();
            in_the_middle += usize::from(partial.exists());
            let store = Store::open(&store_dir, small_limits()).unwrap();
            assert_eq!(names(&store_dir.join("partial")), [""; 0]);
            if store.has_layer(&diff_id) {
                break;
            }
            assert_eq!(names(&store_dir.join("layers")), [""; 0]);
        }
        assert!(in_the_middle > 0, "no process was killed in the middle");
        let store = Store::open(&store_dir, small_limits()).unwrap();
        let layer = unpack(&store, &zstd(&archive), &diff_id).unwrap();
        assert_eq!(names(&layer).len(), 40 * 301);
        assert_eq!(names(&store_dir.join("partial")), [""; 0]);
    });
}

#[test]
fn two_processes_and_threads_unpack_a_layer_once() {
    on_its_own_disk(256, |dir| {
        let archive = archive();
        let diff_id = Digest::of(&archive);
        fs::write(dir.join("archive"), &archive).unwrap();
        let mut children = [child(dir), child(dir)];
        let store = Store::open(&dir.join("store"), small_limits()).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| unpack(&store, &zstd(&archive), &diff_id).unwrap());
            }
        });
        let layer = store.layer_dir(&diff_id);
        let inode = std::os::unix::fs::MetadataExt::ino(&fs::metadata(&layer).unwrap());
        for child in &mut children {
            assert!(child.wait().unwrap().success());
        }
        assert_eq!(std::os::unix::fs::MetadataExt::ino(&fs::metadata(&layer).unwrap()), inode, "it was made once");
        assert_eq!(names(&layer).len(), 40 * 301);
        for empty in ["partial", "locks"] {
            assert_eq!(names(&dir.join("store").join(empty)), [""; 0], "{empty}");
        }
    });
}

#[test]
fn who_opens_a_store_leaves_alone_what_others_are_at() {
    on_its_own_disk(256, |dir| {
        let archive = archive();
        let diff_id = Digest::of(&archive);
        fs::write(dir.join("archive"), &archive).unwrap();
        let store_dir = dir.join("store");
        let mut child = child(dir);
        let mut opened = 0;
        while child.try_wait().unwrap().is_none() {
            if store_dir.join("partial").join(format!("layer-{}", diff_id.hex())).exists() {
                Store::open(&store_dir, small_limits()).unwrap();
                opened += 1;
            }
        }
        assert!(child.wait().unwrap().success() && opened > 0);
        let store = Store::open(&store_dir, small_limits()).unwrap();
        assert_eq!(names(&store.layer_dir(&diff_id)).len(), 40 * 301);
    });
}

#[test]
fn a_layer_that_a_loss_of_power_may_have_torn_is_none() {
    on_its_own_disk(64, |dir| {
        let store = Store::open(dir, small_limits()).unwrap();
        let archive = tar(&[file("a", "x")]);
        let diff_id = Digest::of(&archive);
        let record = dir.join("layers").join(format!("{}.json", diff_id.hex()));
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        let start_anew = || {
            let text = fs::read_to_string(&record).unwrap();
            fs::write(&record, text.replace(boot.trim(), "the run of the kernel before")).unwrap();
        };
        unpack(&store, &archive, &diff_id).unwrap();
        assert!(store.has_layer(&diff_id));
        start_anew();
        assert!(!store.has_layer(&diff_id));
        Store::open(dir, small_limits()).unwrap();
        assert_eq!(names(&dir.join("layers")), [""; 0]);
        unpack(&store, &archive, &diff_id).unwrap();
        assert_eq!((store.settle().unwrap(), store.settle().unwrap()), (1, 0));
        start_anew();
        assert!(Store::open(dir, small_limits()).unwrap().has_layer(&diff_id));
    });
}
