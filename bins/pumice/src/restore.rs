//! `pumice restore`: a platform's directory made anew from a backup.
//!
//! Invariant: nothing is touched before the whole backup was read and found good; the store gets its name last, so a restore
//! that was cut short is no platform. Pods and the folders of claims are left as they are.

use std::fs::{self, DirBuilder, File};
use std::io::Read;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use jiff::Timestamp;
use pumice_store::{BackupDecoder, BackupFrame, BackupHeader, DirectoryLock, Restore, holds_store};

use crate::args::RestoreArgs;
use crate::backup::history;
use crate::data_dir::DataDir;
use crate::output;

/// Read at a time, in bytes.
const PIECE_BYTES: usize = 1 << 20;

/// Restores a platform into its directory.
pub fn restore(args: &RestoreArgs) -> Result<()> {
    let named = || format!("{} can't be restored", args.file.display());
    let header = check(&args.file).with_context(named)?;
    let data = DataDir::choose(args.data_dir.data_dir.as_deref())?;
    data.create()?;
    let lock = DirectoryLock::acquire(data.path()).context("restore into a platform's directory")?;
    data.withdraw()?;
    if let Some(aside) = make_room(&data, args.force)? {
        output::line(format_args!("what was in {} is in {}", data.path().display(), aside.display()))?;
    }
    let (revision, objects) = write(&args.file, &data, lock, &header).with_context(named)?;
    let made = Timestamp::from_second(header.created_seconds).unwrap_or(Timestamp::UNIX_EPOCH);
    output::line(format_args!(
        "{objects} objects of {made}, revision {}, are in {}; its revisions go on at {revision}",
        header.revision,
        data.path().display()
    ))
}

/// Reads the whole backup, and answers what it says of itself.
fn check(path: &Path) -> Result<BackupHeader> {
    let mut header = None;
    each_frame(path, |frame| {
        if let BackupFrame::Header(found) = frame {
            header = Some(found);
        }
        Ok(())
    })?;
    header.context("it is empty")
}

/// Moves aside what a restored platform would replace, if that is wanted; answers where it is.
fn make_room(data: &DataDir, force: bool) -> Result<Option<PathBuf>> {
    let mut replaced: Vec<PathBuf> = [data.store(), data.pki(), data.kubeconfig(), data.kubeconfigs()].into();
    replaced.extend(history::files(data));
    let there = holds_store(data.path()) || data.pki().exists() || data.history().exists();
    if !there {
        return Ok(None);
    }
    if !force {
        bail!(
            "{} has a platform's data: choose an empty directory with --data-dir, or --force to move it aside",
            data.path().display()
        );
    }
    let now = pumice_clock::now().strftime("%Y%m%dT%H%M%SZ");
    let aside = data.path().join(format!("before-restore-{now}"));
    DirBuilder::new().mode(0o700).create(&aside).with_context(|| format!("make {}", aside.display()))?;
    for path in replaced.iter().filter(|path| path.exists()) {
        let target = aside.join(path.file_name().unwrap_or_default());
        fs::rename(path, &target).with_context(|| format!("move {} aside", path.display()))?;
    }
    Ok(Some(aside))
}

fn write(path: &Path, data: &DataDir, lock: DirectoryLock, header: &BackupHeader) -> Result<(u64, u64)> {
    let pki = data.pki();
    DirBuilder::new().recursive(true).mode(0o700).create(&pki).with_context(|| format!("make {}", pki.display()))?;
    let mut restore = Restore::begin(data.path(), lock, &header.uid, header.revision)?;
    let mut objects = 0;
    each_frame(path, |frame| {
        match frame {
            BackupFrame::Object(object) => {
                objects += 1;
                restore.put(object)?;
            }
            BackupFrame::File { name, contents } if history::is_piece(&name) => history::put_back(data, &contents)?,
            BackupFrame::File { name, contents } => pumice_auth::write_identity_file(&pki, &name, &contents)?,
            // The file was replaced since it was checked.
            BackupFrame::Header(found) if found != *header => bail!("it has changed meanwhile"),
            BackupFrame::Header(_) | BackupFrame::End { .. } => {}
        }
        Ok(())
    })?;
    Ok((restore.finish()?, objects))
}

/// Does `work` with each frame of a backup, which must be whole.
fn each_frame(path: &Path, mut work: impl FnMut(BackupFrame) -> Result<()>) -> Result<()> {
    let mut file = File::open(path).with_context(|| format!("open {}", path.display()))?;
    let mut piece = vec![0; PIECE_BYTES];
    let mut decoder = BackupDecoder::default();
    loop {
        let read = file.read(&mut piece).with_context(|| format!("read {}", path.display()))?;
        if read == 0 {
            return Ok(decoder.finish()?);
        }
        decoder.push(&piece[..read]);
        while let Some(frame) = decoder.next_frame()? {
            work(frame)?;
        }
    }
}
