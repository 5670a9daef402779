//! The revisioned object store under the API server.
//!
//! Every object is kept as its JSON bytes with one global `u64` revision that never goes back,
//! also across a crash. Reads, lists and watches come from memory; one writer thread makes groups
//! of changes durable before anybody can see them. The API server is the only caller that writes.

// These panic where a disk is full or a pipe is closed.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod backup;
mod disk_space;
mod error;
mod index;
mod key;
mod lock;
mod log;
mod object;
mod options;
mod page;
mod restore;
mod shared;
mod store;
mod watch;
mod writer;

pub use backup::{BACKUP_FORMAT, BackupDecoder, BackupEncoder, BackupError, BackupFrame, BackupHeader};
pub use disk_space::DiskSpace;
pub use error::ApplyError;
pub use index::{EventKind, Listing, WatchEvent};
pub use key::{Key, KeyError};
pub use lock::{DirectoryLock, LockError};
pub use log::disk::{DiskLog, OpenBackend};
pub use log::{Append, FORMAT, Loaded, Log, LogError, MemoryLog, StoredObject};
pub use object::{Change, Draft, Expect, Object};
pub use options::Options;
pub use page::{Page, Range};
pub use restore::{RESTORE_SKIPS, Restore, holds_store};
pub use shared::Stats;
pub use store::{OpenError, Snapshot, Store};
pub use watch::{Watch, WatchError};
