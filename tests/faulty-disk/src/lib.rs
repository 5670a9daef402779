//! A disk in memory that can lose power, run out of room and fail to sync.
//!
//! Invariant: what was synced survives; of what was not, each piece survives, is lost, or is torn. Under the tests of the
//! store and of the API server.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use pumice_store::DiskLog;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use redb::{Builder, StorageBackend};

/// Small, so that pages are read from the disk, too.
const CACHE_BYTES: usize = 1 << 20;

/// A handle to the disk; clones share it.
#[derive(Clone, Debug, Default)]
pub struct FaultyDisk {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    /// What reads see: the page cache.
    current: Vec<u8>,
    /// What is sure to survive.
    durable: Vec<u8>,
    /// What was done since the last sync.
    unsynced: Vec<Unsynced>,
    /// Power goes at the operation that brings this to zero.
    operations_left: Option<u64>,
    lost_power: bool,
    full: bool,
    syncs_to_fail: u32,
    syncs: u64,
}

#[derive(Clone, Debug)]
enum Unsynced {
    Write { offset: u64, data: Vec<u8> },
    SetLen(u64),
}

impl FaultyDisk {
    /// The log of a store on this disk.
    pub fn log(&self) -> DiskLog {
        let disk = self.clone();
        let open = move |_: &Builder| Builder::new().set_cache_size(CACHE_BYTES).create_with_backend(disk.clone());
        DiskLog::over(Path::new("faulty.redb"), Box::new(open))
    }

    /// Power goes at the `operations`-th write, resize or sync from now.
    pub fn lose_power_after(&self, operations: u64) {
        self.state.lock().unwrap().operations_left = Some(operations);
    }

    /// Whether it still works.
    pub fn has_power(&self) -> bool {
        !self.state.lock().unwrap().lost_power
    }

    /// Whether writes find no room.
    pub fn set_full(&self, full: bool) {
        self.state.lock().unwrap().full = full;
    }

    /// The next `count` syncs report an error; what was written stays in the page cache.
    pub fn fail_syncs(&self, count: u32) {
        self.state.lock().unwrap().syncs_to_fail = count;
    }

    /// How often it was asked to sync.
    pub fn syncs(&self) -> u64 {
        self.state.lock().unwrap().syncs
    }

    /// The disk as the next start finds it: of what was not synced each piece is there, is not, or
    /// is there in part, as the seed says.
    pub fn after_power_loss(&self, seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let state = self.state.lock().unwrap();
        let mut image = state.durable.clone();
        // Some disks lose everything in their cache, some nothing, most something.
        let kept_in_16: u32 = [0, 4, 8, 12, 16][rng.gen_range(0..5)];
        for piece in &state.unsynced {
            if !rng.gen_ratio(kept_in_16, 16) {
                continue;
            }
            match piece {
                Unsynced::Write { offset, data } => {
                    let torn = kept_in_16 < 16 && rng.gen_ratio(1, 4);
                    let kept = if torn { rng.gen_range(0..=data.len()) } else { data.len() };
                    write_at(&mut image, *offset, &data[..kept]);
                }
                Unsynced::SetLen(len) => image.resize(*len as usize, 0),
            }
        }
        let state = State { current: image.clone(), durable: image, ..State::default() };
        Self { state: Arc::new(Mutex::new(state)) }
    }
}

fn write_at(image: &mut Vec<u8>, offset: u64, data: &[u8]) {
    let (start, end) = (offset as usize, offset as usize + data.len());
    if image.len() < end {
        image.resize(end, 0);
    }
    image[start..end].copy_from_slice(data);
}

impl State {
    /// Counts an operation; false means that power goes now, in the middle of it.
    fn step(&mut self) -> io::Result<bool> {
        if self.lost_power {
            return Err(io::Error::other("no power"));
        }
        if let Some(left) = &mut self.operations_left {
            *left = left.saturating_sub(1);
            self.lost_power = *left == 0;
        }
        Ok(!self.lost_power)
    }

    fn check_room(&self) -> io::Result<()> {
        if self.full { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
}

impl StorageBackend for FaultyDisk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.state.lock().unwrap().current.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.state.lock().unwrap();
        let start = offset as usize;
        let bytes = state.current.get(start..start + out.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(bytes);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.state.lock().unwrap();
        state.check_room()?;
        let powered = state.step()?;
        state.current.resize(len as usize, 0);
        state.unsynced.push(Unsynced::SetLen(len));
        if powered { Ok(()) } else { Err(io::Error::other("power lost")) }
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.state.lock().unwrap();
        state.syncs += 1;
        if !state.step()? {
            return Err(io::Error::other("power lost"));
        }
        if state.syncs_to_fail > 0 {
            state.syncs_to_fail -= 1;
            return Err(io::Error::other("sync failed"));
        }
        let unsynced = std::mem::take(&mut state.unsynced);
        for piece in unsynced {
            match piece {
                Unsynced::Write { offset, data } => write_at(&mut state.durable, offset, &data),
                Unsynced::SetLen(len) => state.durable.resize(len as usize, 0),
            }
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut state = self.state.lock().unwrap();
        state.check_room()?;
        let powered = state.step()?;
        write_at(&mut state.current, offset, data);
        state.unsynced.push(Unsynced::Write { offset, data: data.to_vec() });
        if powered { Ok(()) } else { Err(io::Error::other("power lost")) }
    }
}
