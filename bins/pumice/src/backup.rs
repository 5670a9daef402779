//! `pumice backup`: everything of a platform that can't be made again, in one file.
//!
//! Invariant: the file appears under its name complete, checked and synced, mode 0600, or not at all. A platform that runs
//! is asked, and goes on; one that does not is read by the same rules, and none starts meanwhile.

pub mod history;

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use http_body_util::BodyExt as _;
use pumice_cluster::Client;
use pumice_cluster::connect::client_from;
use pumice_jobs::platform::target::read_run_file;
use pumice_store::{
    BackupDecoder, BackupEncoder, BackupFrame, BackupHeader, DirectoryLock, LockError, Options, Store, holds_store,
};

use crate::args::BackupArgs;
use crate::data_dir::DataDir;
use crate::output;

/// Where the API server streams what is in its store.
const PATH: &str = "/pumice/backup";
/// Most of an error's text that is shown.
const SAID_BYTES_MAX: usize = 1 << 10;

/// Makes a backup of a platform of this machine.
pub fn backup(args: &BackupArgs) -> Result<()> {
    let data = DataDir::choose(args.data_dir.data_dir.as_deref())?;
    if !holds_store(data.path()) {
        bail!("there is no platform in {} to make a backup of; choose another with --data-dir", data.path().display());
    }
    let mut file = Fresh::create(&args.file)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("start the runtime")?;
    let history = runtime.block_on(history::Copy::make(&data, &args.file));
    let of = Platform { data: &data, history: history.as_ref() };
    let header = match DirectoryLock::acquire(data.path()) {
        Ok(lock) => {
            drop(lock);
            at_rest(&of, &mut file)?
        }
        Err(LockError::InUse { pid, .. }) => runtime.block_on(while_running(&of, &pid, &mut file))?,
        Err(error) => return Err(error).context("look whether a platform runs"),
    };
    let (objects, bytes) = file.finish()?;
    let BackupHeader { revision, .. } = header;
    let file = args.file.display();
    output::line(format_args!("{file} holds {objects} objects at revision {revision}, {bytes} bytes"))
}

/// The parts of a data directory that a backup has.
struct Platform<'p> {
    data: &'p DataDir,
    history: Option<&'p history::Copy>,
}

/// Asks the platform that runs, as its administrator.
async fn while_running(of: &Platform<'_>, pid: &str, file: &mut Fresh) -> Result<BackupHeader> {
    let data = of.data;
    let note = read_run_file(data.path())?.filter(|note| note.pid.to_string() == pid);
    let Some(note) = note else {
        bail!("process {pid} uses {} and is not ready; try again when it is", data.path().display());
    };
    let client = client_from(Some(&data.path().join(note.kubeconfig)), None).await?;
    stream(&client, of, file).await.with_context(|| format!("read the platform at {}", note.url))
}

async fn stream(client: &Client, of: &Platform<'_>, file: &mut Fresh) -> Result<BackupHeader> {
    let request = http::Request::get(PATH).body(Vec::<u8>::new().into()).context("ask for a backup")?;
    let response = client.send(request).await.context("ask for a backup")?;
    let code = response.status();
    let mut body = response.into_body();
    if code != http::StatusCode::OK {
        let mut said = Vec::new();
        while let Some(Ok(piece)) = body.frame().await {
            said.extend(piece.into_data().unwrap_or_default().into_iter().take(SAID_BYTES_MAX - said.len()));
            if said.len() >= SAID_BYTES_MAX {
                break;
            }
        }
        bail!("it answers {code}: {}", String::from_utf8_lossy(&said));
    }
    let mut decoder = BackupDecoder::default();
    let mut keeper = Keeper::new(of, file);
    while let Some(piece) = body.frame().await {
        let piece = piece.context("the platform ended before the backup was whole")?;
        decoder.push(&piece.into_data().unwrap_or_default());
        while let Some(frame) = decoder.next_frame().context("what the platform sent can't be used")? {
            keeper.keep(frame)?;
        }
    }
    decoder.finish().context("the platform ended before the backup was whole")?;
    keeper.header.context("the platform sent nothing")
}

/// Reads a platform that does not run.
fn at_rest(of: &Platform<'_>, file: &mut Fresh) -> Result<BackupHeader> {
    let store = Store::open(of.data.path(), Options::default()).context("open the store")?;
    let snapshot = store.snapshot();
    let header = BackupHeader {
        uid: snapshot.uid.to_string(),
        revision: snapshot.revision,
        created_seconds: pumice_clock::now().as_second(),
        made_by: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let mut keeper = Keeper::new(of, file);
    keeper.keep(BackupFrame::Header(header.clone()))?;
    for object in snapshot.objects {
        keeper.object(&object)?;
    }
    keeper.end()?;
    let runtime = tokio::runtime::Builder::new_current_thread().build().context("start the runtime")?;
    runtime.block_on(store.close()).context("close the store")?;
    Ok(header)
}

/// Writes what comes in anew, with the platform's own files before the end.
struct Keeper<'f> {
    of: &'f Platform<'f>,
    file: &'f mut Fresh,
    encoder: Option<BackupEncoder>,
    header: Option<BackupHeader>,
    buffer: Vec<u8>,
}

impl<'f> Keeper<'f> {
    fn new(of: &'f Platform<'f>, file: &'f mut Fresh) -> Self {
        Self { of, file, encoder: None, header: None, buffer: Vec::new() }
    }

    fn keep(&mut self, frame: BackupFrame) -> Result<()> {
        match frame {
            BackupFrame::Header(header) => {
                self.encoder = Some(BackupEncoder::begin(&header, &mut self.buffer));
                self.header = Some(header);
                self.file.write(&mut self.buffer)
            }
            BackupFrame::Object(object) => self.object(&object),
            BackupFrame::End { .. } => self.end(),
            BackupFrame::File { name, .. } => bail!("the platform sent a file, {name:?}"),
        }
    }

    fn object(&mut self, object: &pumice_store::Object) -> Result<()> {
        // The decoder lets nothing come before the header.
        if let Some(encoder) = &mut self.encoder {
            encoder.object(object, &mut self.buffer);
            self.file.objects += 1;
        }
        self.file.write(&mut self.buffer)
    }

    fn end(&mut self) -> Result<()> {
        let kept = pumice_auth::identity_files(&self.of.data.pki()).context("read the platform's keys")?;
        if let Some(mut encoder) = self.encoder.take() {
            kept.iter().for_each(|(name, contents)| encoder.file(name, contents.as_bytes(), &mut self.buffer));
            if let Some(history) = self.of.history {
                history.pieces(|name, piece| {
                    encoder.file(name, piece, &mut self.buffer);
                    self.file.write(&mut self.buffer)
                })?;
            }
            encoder.end(&mut self.buffer);
        }
        self.file.write(&mut self.buffer)
    }
}

/// A file that gets its name when it is whole.
struct Fresh {
    path: PathBuf,
    partial: PathBuf,
    file: std::io::BufWriter<File>,
    bytes: u64,
    objects: u64,
}

impl Fresh {
    fn create(path: &Path) -> Result<Self> {
        if path.try_exists().with_context(|| format!("look for {}", path.display()))? {
            bail!("{} is there already: choose another name, or remove it", path.display());
        }
        let mut name = path.file_name().with_context(|| format!("{} names no file", path.display()))?.to_owned();
        name.push(format!(".{}.partial", std::process::id()));
        let partial = path.with_file_name(name);
        let file = File::options().write(true).create_new(true).mode(0o600).open(&partial);
        let file = file.with_context(|| format!("write {}", partial.display()))?;
        let file = std::io::BufWriter::with_capacity(1 << 20, file);
        Ok(Self { path: path.to_owned(), partial, file, bytes: 0, objects: 0 })
    }

    /// Writes and empties `buffer`.
    fn write(&mut self, buffer: &mut Vec<u8>) -> Result<()> {
        self.file.write_all(buffer).with_context(|| format!("write {}", self.partial.display()))?;
        self.bytes += buffer.len() as u64;
        buffer.clear();
        Ok(())
    }

    /// Gives the file its name; answers objects and bytes in it.
    fn finish(mut self) -> Result<(u64, u64)> {
        let mut write = || -> std::io::Result<()> {
            self.file.flush()?;
            self.file.get_ref().sync_all()?;
            fs::rename(&self.partial, &self.path)?;
            let parent = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
            File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
        };
        write().with_context(|| format!("write {}", self.path.display()))?;
        Ok((self.objects, self.bytes))
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.partial);
    }
}
