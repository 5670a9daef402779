//! Layers as images have them.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;

use pumice_images::digest::Digest;
use pumice_images::store::{Owners, Store};

use crate::archives::*;

fn in_a_store(test: impl FnOnce(&Store) + Send) {
    on_its_own_disk(256, |dir| test(&Store::open(&dir.join("store"), small_limits()).unwrap()));
}

fn of(path: &Path) -> fs::Metadata {
    fs::symlink_metadata(path).unwrap()
}

#[test]
fn files_are_as_in_the_archive() {
    in_a_store(|store| {
        let capability = [&[1, 0, 0, 2][..], &[0; 16]].concat();
        let items = [
            Item { uid: 7, gid: 8, mtime: 5, ..folder("./") }.mode(0o711),
            Item { uid: 1000, gid: 2000, mtime: 1, ..folder("home/").mode(0o1750) },
            Item { uid: 1000, gid: 2_000_000_000, ..file("home/f", "content").mode(0o6755) }
                .pax("mtime", "12345.678901234")
                .pax("SCHILY.xattr.user.note", b"a\n\0b"),
            file("home/ping", "x").pax("SCHILY.xattr.security.capability", capability),
            Item { uid: 3, ..symlink("home/l", "../../etc/passwd") },
            hard_link("second", "./home/f"),
            Item { uid: 4, ..item(b'6', "home/pipe").mode(0o620) },
            file("made/on/the/way", "x"),
            file("n".repeat(200), "long"),
            item(0, "old/"),
            item(b'7', "whole"),
        ];
        let layer = unpack_items(store, &items).unwrap();
        let owner = |uid: u32, gid: u32| if is_root() { (uid, gid) } else { (of(&layer).uid(), of(&layer).gid()) };
        let ids = |path: &str| (of(&layer.join(path)).uid(), of(&layer.join(path)).gid());
        let kind = |path: &str| of(&layer.join(path)).file_type();
        assert_eq!((ids(""), of(&layer).mode() & 0o7777, of(&layer).mtime()), (owner(7, 8), 0o711, 5));
        assert_eq!((ids("home"), of(&layer.join("home")).mode() & 0o7777), (owner(1000, 2000), 0o1750));
        assert_eq!(of(&layer.join("home")).mtime(), 1, "though files were made in it afterwards");
        let found = of(&layer.join("home/f"));
        assert_eq!((ids("home/f"), found.mode() & 0o7777, found.len()), (owner(1000, 2_000_000_000), 0o6755, 7));
        assert_eq!((found.mtime(), found.mtime_nsec()), (12345, 678_901_234));
        assert_eq!(attribute(&layer.join("home/f"), "user.note").as_deref(), Some(&b"a\n\0b"[..]));
        if is_root() {
            assert!(attribute(&layer.join("home/ping"), "security.capability").is_some());
            assert_eq!(ids("home/l").0, 3);
            assert_eq!(ids("home/pipe").0, 4);
        }
        assert_eq!(fs::read_link(layer.join("home/l")).unwrap(), Path::new("../../etc/passwd"));
        assert_eq!(of(&layer.join("second")).ino(), found.ino());
        assert!(kind("home/pipe").is_fifo() && of(&layer.join("home/pipe")).mode() & 0o7777 == 0o620);
        assert_eq!(of(&layer.join("made/on")).mode() & 0o7777, 0o755);
        assert_eq!(fs::read_to_string(layer.join("n".repeat(200))).unwrap(), "long");
        assert!(kind("old").is_dir() && kind("whole").is_file());
    });
}

#[test]
fn removed_files_are_marked_as_the_kernels_overlay_reads_it() {
    in_a_store(|store| {
        let items = [folder("d"), file("d/.wh.gone", ""), folder("o"), file("o/.wh..wh..opq", ""), file("o/new", "")];
        let layer = unpack_items(store, &items).unwrap();
        let gone = of(&layer.join("d/gone"));
        assert!(gone.file_type().is_char_device() && gone.rdev() == 0);
        let marks = ["trusted.overlay.opaque", "user.overlay.opaque"].map(|name| attribute(&layer.join("o"), name));
        assert_eq!(marks.map(|mark| mark.is_some()), [is_root(), true]);
        assert_eq!(names(&layer), ["d", "d/gone", "o", "o/new"]);
    });
}

/// Layers over each other, mounted by the kernel, are what the image is.
#[test]
fn an_overlay_of_two_layers_is_the_image() {
    if !is_root() {
        return;
    }
    on_its_own_disk(64, |host| {
        let store = Store::open(&host.join("store"), small_limits()).unwrap();
        let lower =
            [file("a", "1"), file("b", "1"), file("d/x", "1"), file("d/y", "1"), file("o/x", "1"), file("f", "1")];
        let upper = [
            file(".wh.a", ""),
            file("b", "2"),
            folder("d"),
            file("d/.wh.x", ""),
            folder("o"),
            file("o/.wh..wh..opq", ""),
            file("o/z", "2"),
            folder("f"),
        ];
        let [lower, upper] = [&lower[..], &upper[..]].map(|items| unpack_items(&store, items).unwrap());
        let merged = host.join("merged");
        fs::create_dir(&merged).unwrap();
        let options = format!("lowerdir={}:{}", upper.display(), lower.display());
        let flags = nix::mount::MsFlags::MS_RDONLY;
        nix::mount::mount(Some("overlay"), &merged, Some("overlay"), flags, Some(options.as_str())).unwrap();
        assert_eq!(names(&merged), ["b", "d", "d/y", "f", "o", "o/z"]);
        assert_eq!(fs::read_to_string(merged.join("b")).unwrap(), "2");
        nix::mount::umount(&merged).unwrap();
    });
}

#[test]
fn layers_come_in_any_compression_whatever_is_said_of_it() {
    in_a_store(|store| {
        let archive = tar(&[file("a", "x".repeat(100_000))]);
        let diff_id = Digest::of(&archive);
        for blob in [archive.clone(), gzip(&archive), zstd(&archive)] {
            let layer = unpack(store, &blob, &diff_id).unwrap();
            assert_eq!(of(&layer.join("a")).len(), 100_000);
            let record = store.layer_record(&diff_id).unwrap().unwrap();
            assert_eq!((record.tar_bytes, record.entries), (archive.len() as u64, 1));
            store.prune(pumice_images::store::Extent::Unnamed, &|_| false, jiff::Timestamp::UNIX_EPOCH).unwrap();
            assert!(!store.has_layer(&diff_id));
        }
    });
}

/// Another tar than our own, with long names, links, attributes.
#[test]
fn what_gnu_tar_writes_is_read() {
    on_its_own_disk(256, |dir| {
        let from = dir.join("from");
        let deep = from.join(["long-name-of-a-folder"; 20].join("/"));
        fs::create_dir_all(&deep).unwrap();
        fs::write(deep.join("n".repeat(250)), "deep").unwrap();
        std::os::unix::fs::symlink("t".repeat(300), from.join("link")).unwrap();
        fs::hard_link(deep.join("n".repeat(250)), from.join("second")).unwrap();
        fs::write(from.join("big"), vec![1; 3 << 20]).unwrap();
        let store = Store::open(&dir.join("store"), small_limits()).unwrap();
        let mut seen = Vec::new();
        for format in ["gnu", "pax"] {
            let archive = dir.join(format);
            let tar = std::process::Command::new("tar")
                .args(["--create", "--format", format, "--directory"])
                .arg(&from)
                .arg("--file")
                .arg(&archive)
                .arg(".")
                .status();
            assert!(tar.unwrap().success());
            let bytes = fs::read(&archive).unwrap();
            let layer = unpack(&store, &bytes, &Digest::of(&bytes)).unwrap();
            seen.push(names(&layer));
            assert_eq!(fs::read_link(layer.join("link")).unwrap(), Path::new(&"t".repeat(300)));
            assert_eq!(of(&layer.join("second")).nlink(), 2);
            for name in names(&from) {
                let (here, there) = (of(&from.join(&name)), of(&layer.join(&name)));
                assert_eq!(
                    (here.mode(), here.len(), here.mtime()),
                    (there.mode(), there.len(), there.mtime()),
                    "{name}"
                );
            }
        }
        assert_eq!(seen, [names(&from), names(&from)]);
    });
}

#[test]
fn without_root_files_are_of_this_user() {
    on_its_own_disk(256, |dir| {
        let store = Store::open(dir, small_limits()).unwrap().with_owners(Owners::OfThisProcess);
        let items = [Item { uid: 1000, ..folder("d").mode(0o511) }, Item { uid: 1000, ..file("d/f", "").mode(0o400) }];
        let layer = unpack_items(&store, &items).unwrap();
        let (folder, file) = (of(&layer.join("d")), of(&layer.join("d/f")));
        assert_eq!(folder.uid(), nix::unistd::Uid::effective().as_raw());
        assert_eq!(file.uid(), nix::unistd::Uid::effective().as_raw());
        // Who owns a folder can go into it, so that it can be removed.
        assert_eq!((folder.mode() & 0o7777, file.mode() & 0o7777), (0o711, 0o400));
    });
}
