//! What is tried, what must come of it, and the proof that nothing else did.

use std::fs;
use std::path::Path;

use nix::sys::statvfs::statvfs;
use pumice_images::digest::Digest;
use pumice_images::store::{Extent, Store};

use crate::archives::*;

/// A layer that means harm.
pub struct Row {
    pub name: &'static str,
    pub blob: Vec<u8>,
    /// What the blob is said to unpack to, if not to itself.
    pub archive: Option<Vec<u8>>,
    pub outcome: Outcome,
}

pub enum Outcome {
    /// With these words.
    Refused(&'static str),
    /// With this to be seen in the layer's folder.
    Harmless(fn(&Path)),
}

/// Runs all rows against one store; whatever one of them leaves, the next ones and the proofs see.
pub fn run(host: &Path, rows: Vec<Row>) {
    let outside = host.join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("file"), "stays").unwrap();
    fs::create_dir(host.join("etc")).unwrap();
    let dir = host.join("store");
    let store = Store::open(&dir, small_limits()).unwrap();
    let around = listing(host, &dir);
    let inside = sizes(&dir);
    let free = statvfs(host).unwrap().blocks_free();
    for (at, Row { name, blob, archive, outcome }) in rows.into_iter().enumerate() {
        let diff_id = Digest::of(archive.as_deref().unwrap_or(&blob));
        let unpacked = unpack(&store, &blob, &diff_id);
        match (&outcome, &unpacked) {
            (Outcome::Refused(words), Err(error)) => {
                let text = text(error);
                assert!(text.contains(words), "{name}: {text}");
                assert!(!text.contains('\n') && !text.contains('\x1b'), "{name}: {text}");
            }
            (Outcome::Harmless(look), Ok(layer)) => look(layer),
            (Outcome::Refused(_), Ok(layer)) => panic!("{name}: not refused; {:?}", names(layer)),
            (Outcome::Harmless(_), Err(error)) => panic!("{name}: {}", text(error)),
        }
        // Its good twin, under whose name the bad one comes first.
        let twin = tar(&[folder("etc"), file("etc/name", name)]);
        let twin_id = Digest::of(&twin);
        unpack(&store, &blob, &twin_id).expect_err(name);
        assert!(!store.has_layer(&twin_id) && !store.layer_dir(&twin_id).exists(), "{name}");
        let layer = unpack(&store, &gzip(&twin), &twin_id).unwrap_or_else(|error| panic!("{name}: {}", text(&error)));
        assert_eq!(fs::read_to_string(layer.join("etc/name")).unwrap(), name);
        assert_eq!(names(&layer), ["etc", "etc/name"], "{name}");
        store.prune(Extent::Unnamed, &|_| false, jiff::Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(listing(host, &dir), around, "{name}: something changed outside");
        assert_eq!(sizes(&dir), inside, "{name} left something");
        assert_eq!(fs::read_to_string(outside.join("file")).unwrap(), "stays", "{name}");
        if is_root() {
            assert_eq!(statvfs(host).unwrap().blocks_free(), free, "row {at}, {name}: the disk is fuller");
        }
    }
}

/// What is in the store, without times.
fn sizes(dir: &Path) -> Vec<String> {
    names(dir)
        .into_iter()
        .map(|name| format!("{name} {}", fs::symlink_metadata(dir.join(&name)).unwrap().len()))
        .collect()
}
