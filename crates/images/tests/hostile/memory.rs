//! Layers cost little memory, whatever they say of themselves: unpacked by a process of their own, whose peak is read.

use std::fs;
use std::path::Path;
use std::process::Command;

use pumice_images::digest::Digest;
use pumice_images::store::Store;

use crate::archives::*;
use crate::layers::noise;

/// What the process may have at most: its program, buffers, and a window of 8 MiB.
const PEAK_KIB: u64 = 48 << 10;

#[test]
fn layers_take_little_memory() {
    let huge = [file("x", "").size(31 << 20).bytes(), vec![0; 100 << 20]].concat();
    let blobs = [
        zstd(&huge),
        zstd(&tar(&vec![folder("d"); 30_000])),
        zstd(&tar(&(0..19_000).map(|at| folder(format!("{at:0200}"))).collect::<Vec<_>>())),
        [announcement(b'x', &pax_record(b"comment", &noise(900_000))), tar(&[file("a", "")])].concat(),
        zstd(&[item(b'L', "x").size(1 << 40).bytes(), vec![b'x'; 50 << 20]].concat()),
        zstd(&tar(&[file("big", vec![7; 30 << 20])])),
    ];
    on_its_own_disk(512, |host| {
        for (at, blob) in blobs.iter().enumerate() {
            let dir = host.join(at.to_string());
            fs::create_dir(&dir).unwrap();
            fs::write(dir.join("blob"), blob).unwrap();
            let program = std::env::current_exe().unwrap();
            let arguments = ["--exact", "memory::child_that_unpacks", "--ignored", "--nocapture"];
            let output = Command::new(program).args(arguments).current_dir(&dir).output().unwrap();
            assert!(output.status.success(), "blob {at}: {}", String::from_utf8_lossy(&output.stderr));
            let peak: u64 = fs::read_to_string(dir.join("peak")).unwrap().parse().unwrap();
            assert!(peak > 1000 && peak < PEAK_KIB, "blob {at}: {peak} KiB");
        }
    });
}

/// Unpacks the file `blob` and says in the file `peak` how much memory it took.
#[test]
#[ignore = "run by another test, in a process of its own"]
fn child_that_unpacks() {
    let store = Store::open(Path::new("store"), small_limits()).unwrap();
    let blob = fs::read("blob").unwrap();
    // Whether it goes well is not what is looked at.
    let layer = pumice_images::manifest::Layer {
        blob: put(&store, &blob),
        compression: pumice_images::manifest::Compression::Plain,
    };
    drop(blob);
    let _ = store.unpack(&layer, &Digest::of(b"another"));
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    fs::write("peak", line.trim().trim_end_matches(" kB").trim()).unwrap();
}
