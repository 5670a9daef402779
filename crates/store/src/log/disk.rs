//! The log in one redb file.
//!
//! Invariant: one redb transaction per append, durable before it answers. redb refuses all work
//! after an I/O error, so a failed database is dropped and opened again by the next append. redb
//! may panic on a damaged file; every call into it is caught and becomes [`LogError::Corrupt`].

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use redb::{
    Builder, Database, DatabaseError, Durability, ReadableDatabase, ReadableTable, TableDefinition, TableHandle,
};

use crate::log::{Append, FORMAT, Loaded, Log, LogError, StoredObject, record, upgrade};

/// Opens the database over whatever holds its bytes.
pub type OpenBackend = Box<dyn Fn(&Builder) -> Result<Database, DatabaseError> + Send>;

const OBJECTS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("objects");
pub(super) const NUMBERS: TableDefinition<'_, &str, u64> = TableDefinition::new("numbers");
const TEXTS: TableDefinition<'_, &str, &str> = TableDefinition::new("texts");

pub(super) const FORMAT_KEY: &str = "format";
const REVISION_KEY: &str = "revision";
const UID_KEY: &str = "uid";
/// How many objects there are: damage in an inner page can hide some without harming the others.
const COUNT_KEY: &str = "objects";

/// All objects are in memory anyway: this only serves the writer's own pages.
const CACHE_BYTES: usize = 64 << 20;

/// A log on disk. See [`DiskLog::file`].
pub struct DiskLog {
    path: PathBuf,
    open: OpenBackend,
    database: Option<Database>,
}

/// What the bookkeeping tables say.
struct Header {
    uid: String,
    revision: u64,
    objects: u64,
}

impl DiskLog {
    /// The log in the file `path`, made (readable by its owner alone) when there is none.
    ///
    /// A new file appears complete or not at all, so an empty one is always damage.
    pub fn file(path: &Path) -> Result<Self, LogError> {
        if !path.try_exists().map_err(|error| io_error("look for", path, error))? {
            create(path, &new_uid())?;
        }
        let file = path.to_path_buf();
        Ok(Self::over(path, Box::new(move |builder| builder.open(&file))))
    }

    /// The log in a new file `path`, of the cluster `uid`.
    pub(crate) fn new_file(path: &Path, uid: &str) -> Result<Self, LogError> {
        create(path, uid)?;
        Self::file(path)
    }

    /// The log over any storage; `path` is only its name in errors.
    pub fn over(path: &Path, open: OpenBackend) -> Self {
        Self { path: path.to_path_buf(), open, database: None }
    }

    fn database(&mut self) -> Result<&mut Database, LogError> {
        if self.database.is_none() {
            let mut builder = Builder::new();
            builder.set_cache_size(CACHE_BYTES);
            let open = &self.open;
            let opened = guarded("open", &self.path, || Ok(open(&builder)?))?;
            self.database = Some(opened);
        }
        self.database.as_mut().ok_or_else(|| corrupt(&self.path, "it did not open"))
    }

    fn discard(&mut self) {
        let database = self.database.take();
        // Closing writes; after a failure that may fail again, which changes nothing.
        if let Err(error) = guarded("close", &self.path, || {
            drop(database);
            Ok(())
        }) {
            tracing::debug!(%error, "store closed with an error");
        }
    }

    fn try_load(&mut self) -> Result<Loaded, LogError> {
        let path = self.path.clone();
        let database = self.database()?;
        if guarded("read", &path, || is_new(database))? {
            guarded("write", &path, || initialise(database, &new_uid()))?;
        }
        let header = guarded("read", &path, || read_header(database))?;
        let header = match header.check(&path, FORMAT)? {
            Known::Current(header) => header,
            Known::Older(found) => {
                upgrade::run(&path, database, found, FORMAT, upgrade::STEPS)?;
                return self.try_load();
            }
        };
        let objects = guarded("read", &path, || read_objects(database))?;
        let objects = objects.map_err(|detail| corrupt(&path, detail))?;
        if objects.len() as u64 != header.objects {
            let detail = format!("it holds {} objects of {}", objects.len(), header.objects);
            return Err(corrupt(&path, detail));
        }
        if let Some(above) = objects.iter().find(|object| object.revision > header.revision) {
            return Err(corrupt(
                &path,
                format!("{} is at revision {}, above {}", above.key, above.revision, header.revision),
            ));
        }
        Ok(Loaded { uid: header.uid, revision: header.revision, objects })
    }
}

impl Log for DiskLog {
    fn load(&mut self) -> Result<Loaded, LogError> {
        let loaded = self.try_load();
        if loaded.is_err() {
            self.discard();
        }
        loaded
    }

    fn append(&mut self, batch: &Append) -> Result<(), LogError> {
        let path = self.path.clone();
        let done = self.database().and_then(|database| guarded("write", &path, || write(database, batch)));
        if done.is_err() {
            self.discard();
        }
        done
    }
}

impl std::fmt::Debug for DiskLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DiskLog").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Drop for DiskLog {
    fn drop(&mut self) {
        self.discard();
    }
}

/// The bookkeeping as read, before it is believed.
struct RawHeader {
    format: Option<u64>,
    revision: Option<u64>,
    objects: Option<u64>,
    uid: Option<String>,
}

/// The bookkeeping of a format that this version can read.
enum Known {
    Current(Header),
    Older(u64),
}

impl RawHeader {
    fn check(self, path: &Path, supported: u64) -> Result<Known, LogError> {
        match self.format {
            None | Some(0) => return Err(corrupt(path, "it names no format")),
            Some(found) if found > supported => {
                return Err(LogError::NewerFormat { path: path.to_path_buf(), found, supported });
            }
            Some(found) if found < supported => return Ok(Known::Older(found)),
            Some(_) => {}
        }
        match (self.revision, self.objects, self.uid) {
            (Some(revision), Some(objects), Some(uid)) => Ok(Known::Current(Header { uid, revision, objects })),
            _ => Err(corrupt(path, "it lacks its revision, count or uid")),
        }
    }
}

/// Makes a complete new file beside `path`, then moves it there.
fn create(path: &Path, uid: &str) -> Result<(), LogError> {
    let fresh = path.with_extension("new");
    match fs::remove_file(&fresh) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(io_error("remove", &fresh, error));
        }
        _ => {}
    }
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&fresh)
        .map_err(|error| io_error("create", &fresh, error))?;
    guarded("create", &fresh, || {
        let database = Builder::new().set_cache_size(CACHE_BYTES).create_file(file)?;
        initialise(&database, uid)
    })?;
    fs::rename(&fresh, path).map_err(|error| io_error("create", path, error))?;
    sync_parent(path)
}

/// Makes it durable that `path` has its name.
pub(crate) fn sync_parent(path: &Path) -> Result<(), LogError> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    File::open(parent).and_then(|directory| directory.sync_all()).map_err(|error| io_error("sync", parent, error))
}

fn is_new(database: &Database) -> Result<bool, redb::Error> {
    Ok(database.begin_read()?.list_tables()?.next().is_none())
}

fn new_uid() -> String {
    uuid::Uuid::now_v7().to_string()
}

fn initialise(database: &Database, uid: &str) -> Result<(), redb::Error> {
    let transaction = begin(database)?;
    {
        let mut numbers = transaction.open_table(NUMBERS)?;
        numbers.insert(FORMAT_KEY, FORMAT)?;
        numbers.insert(REVISION_KEY, 1)?;
        numbers.insert(COUNT_KEY, 0)?;
        transaction.open_table(TEXTS)?.insert(UID_KEY, uid)?;
        transaction.open_table(OBJECTS)?;
    }
    Ok(transaction.commit()?)
}

pub(super) fn begin(database: &Database) -> Result<redb::WriteTransaction, redb::Error> {
    let mut transaction = database.begin_write()?;
    transaction.set_durability(Durability::Immediate)?;
    Ok(transaction)
}

fn write(database: &Database, batch: &Append) -> Result<(), redb::Error> {
    let transaction = begin(database)?;
    {
        let mut objects = transaction.open_table(OBJECTS)?;
        let (mut added, mut removed) = (0, 0);
        for (key, state) in &batch.writes {
            let key = key.encode();
            match state {
                Some(object) => {
                    let value = record::encode(&key, object);
                    added += u64::from(objects.insert(key.as_slice(), value.as_slice())?.is_none());
                }
                None => {
                    removed += u64::from(objects.remove(key.as_slice())?.is_some());
                }
            }
        }
        let mut numbers = transaction.open_table(NUMBERS)?;
        numbers.insert(REVISION_KEY, batch.revision)?;
        let count = numbers.get(COUNT_KEY)?.map_or(0, |value| value.value());
        numbers.insert(COUNT_KEY, (count + added).saturating_sub(removed))?;
    }
    Ok(transaction.commit()?)
}

fn read_header(database: &Database) -> Result<RawHeader, redb::Error> {
    let transaction = database.begin_read()?;
    let names: Vec<String> = transaction.list_tables()?.map(|table| table.name().to_owned()).collect();
    if [NUMBERS.name(), TEXTS.name(), OBJECTS.name()].iter().any(|name| !names.iter().any(|n| n == name)) {
        return Ok(RawHeader { format: None, revision: None, objects: None, uid: None });
    }
    let numbers = transaction.open_table(NUMBERS)?;
    let texts = transaction.open_table(TEXTS)?;
    Ok(RawHeader {
        format: numbers.get(FORMAT_KEY)?.map(|value| value.value()),
        revision: numbers.get(REVISION_KEY)?.map(|value| value.value()),
        objects: numbers.get(COUNT_KEY)?.map(|value| value.value()),
        uid: texts.get(UID_KEY)?.map(|value| value.value().to_owned()),
    })
}

/// Every object, or what is wrong with the first damaged one.
fn read_objects(database: &Database) -> Result<Result<Vec<StoredObject>, String>, redb::Error> {
    let table = database.begin_read()?.open_table(OBJECTS)?;
    let mut objects = Vec::new();
    for entry in table.iter()? {
        let (key, value) = entry?;
        match record::decode(key.value(), value.value()) {
            Ok(object) => objects.push(object),
            Err(detail) => return Ok(Err(detail)),
        }
    }
    Ok(Ok(objects))
}

/// Runs `work`, turning the library's errors and panics into ours.
pub(super) fn guarded<T>(
    operation: &'static str,
    path: &Path,
    work: impl FnOnce() -> Result<T, redb::Error>,
) -> Result<T, LogError> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(classify(operation, path, error)),
        Err(panic) => {
            let text =
                panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
            Err(corrupt(path, text.unwrap_or("the storage library gave up")))
        }
    }
}

fn classify(operation: &'static str, path: &Path, error: redb::Error) -> LogError {
    match error {
        redb::Error::Io(source) => io_error(operation, path, source),
        redb::Error::Corrupted(detail) => corrupt(path, detail),
        redb::Error::TableTypeMismatch { table, .. } => corrupt(path, format!("table {table} is not ours")),
        other => LogError::Engine { operation, path: path.to_path_buf(), source: Box::new(other) },
    }
}

pub(crate) fn io_error(operation: &'static str, path: &Path, source: io::Error) -> LogError {
    use io::ErrorKind::{FileTooLarge, InvalidData, QuotaExceeded, StorageFull, UnexpectedEof};
    let path = path.to_path_buf();
    match source.kind() {
        StorageFull | QuotaExceeded | FileTooLarge => LogError::Full { path, source },
        InvalidData | UnexpectedEof => corrupt(&path, source.to_string()),
        _ => LogError::Io { operation, path, source },
    }
}

pub(super) fn corrupt(path: &Path, detail: impl Into<String>) -> LogError {
    LogError::Corrupt { path: path.to_path_buf(), detail: detail.into() }
}
