//! A disk that is really full: the error says what to do, nothing is torn, and with more room it goes on.

use std::fs;
use std::process::Command;
use std::sync::Arc;

use bytes::Bytes;
use pumice_jobs::bundle::{Bundle, Folder, Recorder, Status};
use tempfile::TempDir;

use crate::support::{pack, rows, slice, told};

/// A file system in memory, of a given size, which goes with this.
struct Disk(TempDir);

impl Disk {
    /// `None`, and says why, where nothing may be mounted; where CI runs it, that is a failure.
    fn mount() -> Option<Self> {
        let disk = Disk(tempfile::tempdir().unwrap());
        let mounted = disk.mount_with(&["-t", "tmpfs", "-o", "size=1m"]);
        if !mounted {
            eprintln!("not run: needs root to mount a small file system");
            assert!(std::env::var_os("CI").is_none(), "run the tests as root");
        }
        mounted.then_some(disk)
    }

    fn grow(&self) {
        assert!(self.mount_with(&["-o", "remount,size=16m"]));
    }

    fn mount_with(&self, arguments: &[&str]) -> bool {
        Command::new("mount")
            .args(arguments)
            .arg("tmpfs")
            .arg(self.0.path())
            .status()
            .is_ok_and(|status| status.success())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Not mounted if mounting was refused.
        let _ = Command::new("umount").arg("-q").arg(self.0.path()).status();
    }
}

#[tokio::test]
async fn nothing_is_torn_and_it_goes_on_with_more_room() {
    let Some(disk) = Disk::mount() else { return };
    let store = Arc::new(Folder::make(disk.0.path()).unwrap());
    let value = |number: u8| Bytes::from(vec![number; 30_000]);
    let full = format!("no space is left in {}: free some there", disk.0.path().display());

    let text = told(pack(store.clone(), (0..100).map(value), &[]).await.unwrap_err());
    assert!(text.contains(&full) && text.contains("--bundle-dir FOLDER"), "{text}");
    let mut recorder = Recorder::open(store.clone(), slice(1), 1).await.unwrap();
    recorder.record(0, "0", Status::Succeeded, Bytes::from(vec![7; 2_000_000])).await.unwrap();
    let text = told(recorder.flush().await.unwrap_err());
    assert!(text.contains(&full), "{text}");
    assert!(rows(store.clone(), 1).await[0].outcome.is_none());

    disk.grow();
    assert_eq!(recorder.flush().await.unwrap().recorded, [0]);
    assert_eq!(rows(store.clone(), 1).await[0].outcome.as_ref().unwrap().value, vec![7; 2_000_000]);
    let packed = pack(store.clone(), (0..100).map(value), &[]).await.unwrap();
    assert!(packed.reused_bytes > 0, "what found room before is kept");
    let bundle = Bundle::open(store, packed.root).await.unwrap();
    assert_eq!(bundle.record(99).await.unwrap().value, value(99));
    // Work that was begun before an error ends by itself; then nothing is left half done.
    assert_eq!(fs::read_dir(disk.0.path().join("tmp")).unwrap().count(), 0);
}
