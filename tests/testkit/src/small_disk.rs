//! A disk of some megabytes that a test may fill.
//!
//! Invariant: the machine's own disk loses no more than the disk's size, and when the [`SmallDisk`] is dropped, also by a
//! panic, nothing of it is mounted any more. Needs root, as pods do.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use tempfile::TempDir;

/// Pause of who keeps a disk full between two looks whether there is room again.
const PAUSE: Duration = Duration::from_millis(2);
/// Written at a time at first; less when that doesn't fit.
const PIECE_BYTES: usize = 256 << 10;

/// A file with an ext4 in it, mounted.
pub struct SmallDisk {
    directory: TempDir,
}

/// Keeps a disk full until it is dropped; then all that it wrote is gone.
pub struct Full {
    stop: Arc<AtomicBool>,
    writer: Option<JoinHandle<()>>,
    filler: PathBuf,
}

impl SmallDisk {
    /// Makes and mounts a disk.
    ///
    /// # Panics
    /// When that is not possible.
    pub fn new(megabytes: u64) -> SmallDisk {
        let directory = tempfile::Builder::new().prefix("pumice-disk-").tempdir().expect("a temporary directory");
        let disk = SmallDisk { directory };
        let image = disk.directory.path().join("image");
        File::create(&image).and_then(|file| file.set_len(megabytes << 20)).expect("a file for the disk");
        run(Command::new("mkfs.ext4").args(["-q", "-m", "0"]).arg(&image));
        std::fs::create_dir(disk.path()).expect("a mount point");
        run(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(disk.path()));
        disk
    }

    /// Where it is mounted.
    pub fn path(&self) -> PathBuf {
        self.directory.path().join("disk")
    }

    /// A directory beside it that never fills.
    pub fn beside(&self) -> &Path {
        self.directory.path()
    }

    /// Takes all room that there is, and all that becomes free.
    ///
    /// # Panics
    /// When nothing can be written at all.
    pub fn fill(&self) -> Full {
        let filler = self.path().join("filler");
        let mut file = File::create(&filler).expect("a file that fills the disk");
        write_until_full(&mut file);
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let writer = std::thread::spawn(move || {
            while !told.load(Ordering::Relaxed) {
                write_until_full(&mut file);
                std::thread::sleep(PAUSE);
            }
        });
        Full { stop, writer: Some(writer), filler }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: what still uses it doesn't keep its name.
        let _ = Command::new("umount").arg("--lazy").arg(self.path()).output();
    }
}

impl Drop for Full {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.writer.take().map(JoinHandle::join);
        let _ = std::fs::remove_file(&self.filler);
    }
}

fn write_until_full(file: &mut File) {
    let mut bytes = PIECE_BYTES;
    let zeros = vec![0; PIECE_BYTES];
    while bytes > 0 {
        if file.write_all(&zeros[..bytes]).is_err() {
            bytes /= 2;
        }
    }
    // Room is promised when a file is written, and taken when it goes to the disk.
    let _ = file.sync_data();
}

fn run(command: &mut Command) {
    let output = command.output().expect("run a program");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}
