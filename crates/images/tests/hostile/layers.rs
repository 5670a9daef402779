//! Layers that mean harm.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use crate::archives::*;
use crate::table::{Outcome, Row};
use Outcome::{Harmless, Refused};

/// What is outside of the store and may be aimed at.
const OUTSIDE: &str = "/outside";

fn row(name: &'static str, items: &[Item], outcome: Outcome) -> Row {
    Row { name, blob: tar(items), archive: None, outcome }
}

/// An archive of bytes as they are.
fn raw(name: &'static str, blob: Vec<u8>, outcome: Outcome) -> Row {
    Row { name, blob, archive: None, outcome }
}

fn compressed(name: &'static str, blob: Vec<u8>, archive: Vec<u8>, outcome: Outcome) -> Row {
    Row { name, blob, archive: Some(archive), outcome }
}

fn read(layer: &Path, name: &str) -> String {
    fs::read_to_string(layer.join(name)).unwrap()
}

fn mode(layer: &Path, name: &str) -> u32 {
    fs::symlink_metadata(layer.join(name)).unwrap().permissions().mode()
}

/// For a layer of which nothing but these names is there.
fn has_only(layer: &Path, expected: &[&str]) {
    assert_eq!(names(layer), expected);
}

/// Ways out by names and links. `host` is the folder around the store.
pub fn ways_out(host: &Path) -> Vec<Row> {
    let outside = host.join(&OUTSIDE[1..]).to_str().unwrap().to_owned();
    let outside_file = format!("{outside}/file");
    let up = "../".repeat(40);
    let not_in_folder = "which is no folder";
    let no_target = "no file of this layer";
    vec![
        row("a name that goes up", &[file("../evil", "x")], Refused("`..`")),
        row("a name that goes up in its middle", &[folder("a"), file("a/../../evil", "x")], Refused("`..`")),
        row("a folder that goes up", &[folder("..")], Refused("`..`")),
        row("a long way up", &[file(format!("{up}etc/evil"), "x")], Refused("`..`")),
        row("a PAX path that goes up", &[file("ok", "x").pax("path", "../evil")], Refused("`..`")),
        row("a prefix that goes up", &[file("evil", "x").patch(345, "../..")], Refused("`..`")),
        raw(
            "a GNU long name that goes up",
            [announcement(b'L', b"../evil\0"), tar(&[file("ok", "x")])].concat(),
            Refused("`..`"),
        ),
        row(
            "an absolute name",
            &[file("/etc/passwd", "mine")],
            Harmless(|layer| {
                has_only(layer, &["etc", "etc/passwd"]);
                assert_eq!(read(layer, "etc/passwd"), "mine");
            }),
        ),
        row(
            "a file through a link to the root",
            &[symlink("out", "/"), file("out/etc/evil", "x")],
            Harmless(|layer| {
                has_only(layer, &["etc", "etc/evil", "out"]);
            }),
        ),
        row(
            "a file through a link that goes up",
            &[symlink("d/out", &up), file("d/out/evil", "x")],
            Harmless(|layer| {
                has_only(layer, &["d", "d/out", "evil"]);
            }),
        ),
        row(
            "a file through a link to the host",
            &[symlink("out", &outside), file("out/evil", "x")],
            Refused(not_in_folder),
        ),
        row(
            "a folder through a link to the host",
            &[symlink("out", &outside), folder("out/evil")],
            Refused(not_in_folder),
        ),
        row(
            "a link through a link to the host",
            &[symlink("out", &outside), symlink("out/evil", "/")],
            Refused(not_in_folder),
        ),
        row(
            "a removal through a link to the host",
            &[symlink("out", &outside), file("out/.wh.file", "")],
            Refused(not_in_folder),
        ),
        row(
            "an opaque folder through a link",
            &[symlink("out", &outside), file("out/.wh..wh..opq", "")],
            Refused(not_in_folder),
        ),
        row("a link in a circle", &[symlink("a", "b"), symlink("b", "a"), file("a/x", "")], Refused(not_in_folder)),
        row("a link into /proc", &[symlink("p", "/proc/self/root"), file("p/tmp/evil", "")], Refused(not_in_folder)),
        row(
            "links in a chain",
            &[symlink("a", "b/.."), symlink("b", "c"), folder("c"), file("a/x", "")],
            Harmless(|layer| {
                has_only(layer, &["a", "b", "c", "x"]);
            }),
        ),
        row(
            "a file in the place of a link to the host",
            &[symlink("f", &outside_file), file("f", "mine")],
            Harmless(|layer| {
                assert_eq!(read(layer, "f"), "mine");
                assert!(mode(layer, "f") & 0o170_000 == 0o100_000);
            }),
        ),
        row(
            "a folder in the place of a link to the host",
            &[symlink("d", &outside), folder("d"), file("d/file", "mine")],
            Harmless(|layer| has_only(layer, &["d", "d/file"])),
        ),
        row(
            "the attributes of a link to the host",
            &[Item { uid: 1000, mode: 0, ..symlink("f", &outside_file) }],
            Harmless(|layer| assert!(fs::symlink_metadata(layer.join("f")).unwrap().is_symlink())),
        ),
        row("a second name of a file of the host", &[hard_link("x", "/etc/passwd")], Refused(no_target)),
        row("a second name that goes up", &[hard_link("x", format!("{up}etc/passwd"))], Refused(no_target)),
        row("a second name through a link", &[symlink("d", "/"), hard_link("x", "d/etc/passwd")], Refused(no_target)),
        row(
            "a second name through a link to the host",
            &[symlink("d", &outside), hard_link("x", "d/file")],
            Refused(no_target),
        ),
        row(
            "a second name of a link to the host, written to",
            &[symlink("s", &outside_file), hard_link("h", "s"), file("h", "mine")],
            Harmless(|layer| {
                assert_eq!(read(layer, "h"), "mine");
                assert!(fs::symlink_metadata(layer.join("s")).unwrap().is_symlink());
            }),
        ),
        row("a second name of a folder", &[folder("d"), hard_link("x", "d")], Refused(no_target)),
        row("a second name of the layer", &[hard_link("x", "/")], Refused(no_target)),
        row("a second name of itself", &[hard_link("x", "x")], Refused(no_target)),
        row(
            "a second name of a file that is there",
            &[file("x", "1"), hard_link("x", "x")],
            Harmless(|layer| {
                has_only(layer, &["x"]);
                assert_eq!(fs::metadata(layer.join("x")).unwrap().nlink(), 1);
            }),
        ),
        row(
            "a second name in the place of the target's folder",
            &[file("d/f", "1"), hard_link("d", "d/f")],
            Harmless(|layer| {
                has_only(layer, &["d"]);
                assert_eq!(read(layer, "d"), "1");
            }),
        ),
        row("the layer as a file", &[file("./", "x")], Refused("the layer's own folder")),
        row("the layer as a link", &[symlink(".", &outside), file("evil", "x")], Refused("the layer's own folder")),
        row("the layer as a removed file", &[file("./.wh..", "")], Refused("hides no file")),
        row("a removal of the folder above", &[file(".wh...", "")], Refused("hides no file")),
        row("a removal of nothing", &[file("a/.wh.", "")], Refused("hides no file")),
        row("a removal further up", &[file("../.wh.outside", "")], Refused("`..`")),
        row(
            "all folders' fields go up",
            &[raw_global("path", "../evil"), file("ok", "x")],
            Harmless(|layer| {
                has_only(layer, &["ok"]);
            }),
        ),
    ]
}

/// Fields for all entries that follow.
fn raw_global(key: &str, value: &str) -> Item {
    Item { data: pax_record(key.as_bytes(), value.as_bytes()), ..item(b'g', "global") }
}

/// Files that would be more than files.
pub fn special_files() -> Vec<Row> {
    let capability = |bytes: &[u8]| file("ping", "x").pax("SCHILY.xattr.security.capability", bytes);
    let (v2, v3) = ([&[1, 0, 0, 2][..], &[0; 16]].concat(), [&[1, 0, 0, 3][..], &[0; 16], &[1, 0, 0, 0]].concat());
    let overlay = |name: &str, value: &str| folder("d").pax(format!("SCHILY.xattr.{name}"), value);
    let no_overlay: fn(&Path) = |layer| {
        for name in
            ["trusted.overlay.redirect", "user.overlay.redirect", "trusted.overlay.opaque", "user.overlay.opaque"]
        {
            assert_eq!(attribute(&layer.join("d"), name), None, "{name}");
        }
    };
    vec![
        row("the mark of a removed file itself", &[device(b'3', "x", 0, 0)], Refused("device 0/0")),
        row(
            "a disk",
            &[device(b'4', "dev/sda", 8, 0), file("ok", "")],
            Harmless(|layer| has_only(layer, &["dev", "ok"])),
        ),
        row(
            "the machine's memory",
            &[device(b'3', "mem", 1, 1), file("ok", "")],
            Harmless(|layer| has_only(layer, &["ok"])),
        ),
        row("a device without numbers", &[device(b'3', "x", 0, 0).patch(329, [b'x'; 8])], Refused("devmajor")),
        row(
            "a program that is root's",
            &[file("su", "x").mode(0o4755)],
            Harmless(|layer| {
                assert_eq!(mode(layer, "su") & 0o7777, 0o4755);
                let above = layer.parent().unwrap().parent().unwrap();
                assert_eq!(fs::metadata(above).unwrap().permissions().mode() & 0o777, 0o700, "nobody else comes to it");
            }),
        ),
        row(
            "more bits than modes have",
            &[file("x", "").mode(0o7_777_777)],
            Harmless(|layer| {
                assert_eq!(mode(layer, "x"), 0o107_777);
            }),
        ),
        row(
            "a pipe, then a file by its name",
            &[item(b'6', "p"), file("p", "x"), hard_link("q", "p")],
            Harmless(|layer| {
                assert_eq!(read(layer, "q"), "x");
            }),
        ),
        row("the owner nobody can be", &[Item { uid: u32::MAX, ..file("x", "") }], Refused("user 4294967295")),
        row("the group nobody can be", &[Item { gid: u32::MAX, ..file("x", "") }], Refused("group 4294967295")),
        row("an owner beyond all numbers", &[file("x", "").pax("uid", "4294967296")], Refused("user 4294967296")),
        row("an owner below zero", &[file("x", "").patch(108, [0xff; 8])], Refused("user -1")),
        row("an overlay's redirection", &[overlay("trusted.overlay.redirect", "/etc")], Harmless(no_overlay)),
        row("an overlay's redirection for users", &[overlay("user.overlay.redirect", "/etc")], Harmless(no_overlay)),
        row("an overlay's mark in the archive", &[overlay("trusted.overlay.opaque", "y")], Harmless(no_overlay)),
        row("an overlay's mark for users in the archive", &[overlay("user.overlay.opaque", "y")], Harmless(no_overlay)),
        row(
            "a file that is another layer's (metacopy)",
            &[file("x", "")
                .pax("SCHILY.xattr.trusted.overlay.metacopy", "")
                .pax("SCHILY.xattr.user.overlay.metacopy", "")],
            Harmless(|layer| {
                for name in ["trusted.overlay.metacopy", "user.overlay.metacopy"] {
                    assert_eq!(attribute(&layer.join("x"), name), None);
                }
            }),
        ),
        row(
            "a label of the machine",
            &[file("x", "").pax("SCHILY.xattr.security.selinux", "init_t")],
            Harmless(|layer| {
                assert_ne!(attribute(&layer.join("x"), "security.selinux").as_deref(), Some(&b"init_t"[..]));
            }),
        ),
        row(
            "an attribute with a long name",
            &[file("x", "").pax(format!("SCHILY.xattr.user.{}", "n".repeat(300)), "v")],
            Harmless(|layer| has_only(layer, &["x"])),
        ),
        row(
            "an attribute with a long value",
            &[file("x", "").pax("SCHILY.xattr.user.v", "v".repeat(70_000))],
            Refused("user.v"),
        ),
        row("rights that are none", &[capability(b"rights")], Refused("security.capability")),
        row(
            "rights of a user namespace",
            &[capability(&v3)],
            Harmless(|layer| {
                if is_root() {
                    assert!(attribute(&layer.join("ping"), "security.capability").is_some());
                }
            }),
        ),
        row(
            "rights of a folder",
            &[folder("d").pax("SCHILY.xattr.security.capability", v2)],
            Harmless(|layer| {
                assert_eq!(attribute(&layer.join("d"), "security.capability"), None);
            }),
        ),
        row(
            "files of the format's own",
            &[file(".wh..wh.plnk/1", "x"), file(".wh..wh.aufs", "x"), file("ok", "")],
            Harmless(|layer| has_only(layer, &["ok"])),
        ),
    ]
}

/// Names and shapes of trees.
pub fn names_and_trees() -> Vec<Row> {
    let deep = vec!["d"; 2000].join("/");
    let again: Vec<Item> = (0..300)
        .map(|at| match at % 3 {
            0 => file("x", at.to_string()),
            1 => file(format!("x/{at}"), ""),
            _ => folder("x"),
        })
        .filter(|item| item.name == b"x")
        .chain([file("x", "last")])
        .collect();
    vec![
        row("no name", &[file("", "x")], Refused("has no name")),
        row("a NUL in a name", &[file("x", "").pax("path", b"a\0b")], Refused("NUL")),
        row("a NUL in a target", &[symlink("x", "y").pax("linkpath", b"a\0b")], Refused("NUL")),
        row("a name that is too long", &[file("n".repeat(256), "")], Refused("256 bytes; 255")),
        row("the longest name", &[file("n".repeat(255), "")], Harmless(|layer| assert_eq!(names(layer)[0].len(), 255))),
        row("a path that is too long", &[file(["n"; 2100].join("/"), "")], Refused("4199 bytes; 4095")),
        row("a target that is too long", &[symlink("x", "y".repeat(5000))], Refused("5000 bytes; 4095")),
        row("a link to nothing", &[symlink("x", "")], Refused("is a second name of \"\"")),
        row(
            "two thousand levels",
            &[folder(&deep), file(format!("{deep}/f"), "x")],
            Harmless(|layer| {
                assert_eq!(names(layer).len(), 2001);
            }),
        ),
        row("a file as a folder", &[file("a", ""), file("a/b", "")], Refused("which is no folder")),
        row(
            "a folder that became a file",
            &[file("a/b", ""), file("a", ""), file("a/c", "")],
            Refused("which is no folder"),
        ),
        row(
            "one name three hundred times",
            &again,
            Harmless(|layer| {
                has_only(layer, &["x"]);
                assert_eq!(read(layer, "x"), "last");
            }),
        ),
        row(
            "a second name outlives the first",
            &[file("a", "1"), hard_link("b", "a"), file("a", "2")],
            Harmless(|layer| {
                assert_eq!((read(layer, "a"), read(layer, "b")), ("2".to_owned(), "1".to_owned()));
            }),
        ),
        row(
            "names that differ in case or form only",
            &[file("A", ""), file("a", ""), file("\u{e9}", ""), file("e\u{301}", "")],
            Harmless(|layer| assert_eq!(names(layer).len(), 4)),
        ),
        row(
            "a name of no text",
            &[file(b"\xff\xfe\n\x1b[31m", "")],
            Harmless(|layer| {
                let name = fs::read_dir(layer).unwrap().next().unwrap().unwrap().file_name();
                assert_eq!(name.as_bytes(), b"\xff\xfe\n\x1b[31m");
            }),
        ),
        row("a name that would colour a terminal", &[file(b"a\n\x1b[31m/..", "")], Refused("\"a\\n\\u{1b}[31m/..\"")),
        row(
            "a folder that nobody may enter",
            &[folder("d").mode(0), file("d/f", "x")],
            Harmless(|layer| {
                has_only(layer, &["d", "d/f"]);
                assert_eq!(mode(layer, "d") & 0o7777, if is_root() { 0 } else { 0o700 });
            }),
        ),
        row(
            "removed and there, in both orders",
            &[
                file("a", "1"),
                file(".wh.a", ""),
                file(".wh.b", ""),
                file("b", "1"),
                file("c/f", ""),
                file(".wh.c", ""),
                file(".wh.d", ""),
                folder("d"),
                file(".wh.e", ""),
                file("e/f", ""),
            ],
            Harmless(|layer| {
                has_only(layer, &["a", "b", "c", "c/f", "d", "e", "e/f"]);
                for (name, opaque) in [("c", true), ("d", true), ("e", true)] {
                    let mark = if is_root() { "trusted.overlay.opaque" } else { "user.overlay.opaque" };
                    assert_eq!(attribute(&layer.join(name), mark).is_some(), opaque, "{name}");
                }
            }),
        ),
        row("too many entries", &vec![folder("d"); 20_001], Refused("more than 20000 entries")),
    ]
}

/// What is wrong with the archive itself.
pub fn formats() -> Vec<Row> {
    let good = tar(&[file("a", vec![b'x'; 3000])]);
    let middle = "in the middle of an entry";
    let announced = |kind: u8, data: &[u8]| [announcement(kind, data), tar(&[file("a", "")])].concat();
    let inner = file("inner", "hidden").bytes();
    let mut wrong_sum = good.clone();
    wrong_sum[0] = b'b';
    vec![
        raw("no archive", b"this is not a tar archive, but a text".repeat(40), Refused("wrong checksum")),
        raw("noise", noise(9000), Refused("wrong checksum")),
        raw("nothing", Vec::new(), Harmless(|layer| has_only(layer, &[]))),
        raw("a wrong checksum", wrong_sum, Refused("wrong checksum")),
        raw("a half header", good[..300].to_vec(), Refused(middle)),
        raw("a half content", good[..1500].to_vec(), Refused(middle)),
        raw("a content without its filling", good[..512 + 3000].to_vec(), Refused(middle)),
        raw("half an end", [&good[..512 + 3072], &[0; 512], &good].concat(), Refused("half of an archive's end")),
        raw("no end", good[..512 + 3072].to_vec(), Harmless(|layer| has_only(layer, &["a"]))),
        raw("more after the end", [good.clone(), noise(5000)].concat(), Harmless(|layer| has_only(layer, &["a"]))),
        raw(
            "another archive after the end",
            [good.clone(), tar(&[file("../evil", "")])].concat(),
            Harmless(|layer| has_only(layer, &["a"])),
        ),
        row("eight exbibytes", &[file("x", "").size(i64::MAX as u64)], Refused("has 9223372036854775807 bytes")),
        row("more than the layer may have", &[file("x", "").size(33 << 20)], Refused("and the layer may have")),
        row("a size below zero", &[file("x", "").patch(124, [0xff; 12])], Refused("field size")),
        row("a size of letters", &[file("x", "").patch(124, "12345678xyz")], Refused("field size")),
        row(
            "a folder with a size",
            &[folder("d").size(1 << 30), file("a", "")],
            Harmless(|layer| has_only(layer, &["a", "d"])),
        ),
        row(
            "two sizes",
            &[Item { data: inner, ..file("x", "").pax("size", "0") }],
            Harmless(|layer| {
                // As Docker reads it: the extended field counts.
                has_only(layer, &["inner", "x"]);
            }),
        ),
        row("a time of letters", &[file("x", "").pax("mtime", "yesterday")], Refused("field mtime")),
        row(
            "a time far away",
            &[file("x", "").pax("mtime", "9223372036854775807.9")],
            Harmless(|layer| has_only(layer, &["x"])),
        ),
        row(
            "a time before all",
            &[file("x", "").pax("mtime", "-9223372036854775807")],
            Harmless(|layer| has_only(layer, &["x"])),
        ),
        row("a sparse file", &[item(b'S', "x")], Refused("sparse")),
        row("a sparse file by PAX", &[file("x", "").pax("GNU.sparse.major", "1")], Refused("sparse")),
        row("a part of several archives", &[item(b'M', "x")], Refused("kind 'M'")),
        row("a kind that nobody knows", &[item(0xee, "x")], Refused("which is not known")),
        raw("fields with a length that lies", announced(b'x', b"900 path=a\n"), Refused("beyond the fields' end")),
        raw("fields of noise", announced(b'x', &noise(600)), Refused("PAX")),
        raw(
            "fields of megabytes",
            announced(b'x', &pax_record(b"comment", &vec![b'x'; 2 << 20])),
            Refused("1048576 are read"),
        ),
        raw("a long name of megabytes", announced(b'L', &vec![b'x'; 2 << 20]), Refused("1048576 are read")),
        raw("a long name that says gigabytes", item(b'L', "x").size(5 << 30).bytes(), Refused("1048576 are read")),
        raw("many long names", [announcement(b'L', b"a"), announced(b'L', b"b")].concat(), Refused("two headers")),
        raw(
            "many fields",
            [announced(b'x', b"")[..512].to_vec(), announced(b'x', b"9 path=a\n")].concat(),
            Refused("two headers"),
        ),
        raw("a name of nothing", announcement(b'L', b"a"), Refused("does not follow")),
        compressed(
            "an archive of another digest",
            tar(&[file("a", "")]),
            tar(&[file("b", "")]),
            Refused("and the image's configuration says"),
        ),
    ]
}

/// What decompresses to more, or to something else.
pub fn compressions() -> Vec<Row> {
    let good = tar(&[file("a", "x")]);
    let zeros = [file("x", "").size(31 << 20).bytes(), vec![0; 64 << 20]].concat();
    let bomb = |bytes: Vec<u8>| compressed("a bomb", bytes, zeros.clone(), Refused("more than 33554432 bytes"));
    let trailing: Vec<u8> = [good.clone(), vec![0; 40 << 20]].concat();
    let mut wrong_sum = gzip(&good);
    let sum = wrong_sum.len() - 6;
    wrong_sum[sum] ^= 1;
    let half = |bytes: Vec<u8>| bytes[..bytes.len() / 2].to_vec();
    let a: fn(&Path) = |layer| has_only(layer, &["a"]);
    let mut far = zstd::stream::Encoder::new(Vec::new(), 1).unwrap();
    far.window_log(27).unwrap();
    std::io::Write::write_all(&mut far, &good).unwrap();
    let skipped = [&b"\x50\x2a\x4d\x18\x04\0\0\0skip"[..], &zstd(&good)].concat();
    let (first, second) = good.split_at(700);
    vec![
        bomb(gzip(&zeros)),
        Row { name: "a bomb of Zstandard", ..bomb(zstd(&zeros)) },
        compressed("a bomb after the end", gzip(&trailing), trailing, Refused("more than 33554432 bytes")),
        compressed("a window of 128 MiB", far.finish().unwrap(), good.clone(), Refused("can't be decompressed")),
        compressed("half a gzip", half(gzip(&good)), good.clone(), Refused("can't be decompressed")),
        compressed("half a Zstandard", half(zstd(&good)), good.clone(), Refused("can't be decompressed")),
        compressed("a wrong sum of gzip", wrong_sum, good.clone(), Refused("can't be decompressed")),
        compressed("gzip in gzip", gzip(&gzip(&good)), good.clone(), Refused("can't be unpacked")),
        compressed("gzip in two members", [gzip(first), gzip(second)].concat(), good.clone(), Harmless(a)),
        compressed("Zstandard in two frames", [zstd(first), zstd(second)].concat(), good.clone(), Harmless(a)),
        compressed("Zstandard after what is skipped", skipped, good.clone(), Harmless(a)),
        compressed(
            "noise after gzip",
            [gzip(&good), noise(100)].concat(),
            good.clone(),
            Refused("can't be decompressed"),
        ),
        compressed("noise after Zstandard", [zstd(&good), noise(100)].concat(), good, Refused("can't be decompressed")),
    ]
}

/// Bytes without a pattern, the same each time.
pub fn noise(count: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    })
    .take(count)
    .collect()
}
