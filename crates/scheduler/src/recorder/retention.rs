//! Drops what is too old or too much of a recording, and keeps the rest playable.
//!
//! Invariant: before segments go on which the next one builds, the World is saved as it is at their end. It is worked out
//! by playing them from the last World that was saved, which also checks each plan once more. At a quarter of one core's
//! time, beside the scheduler: started by `writer` when a segment is closed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use pumice_clock as clock;
use pumice_engine::plugin::Registry;
use pumice_recording::Entry;
use pumice_recording::Player;
use pumice_recording::digest;
use pumice_recording::segment::{self, Header, SegmentReader};
use pumice_recording::{Item, Recording};
use pumice_units::with_causes;
use tokio::time::Instant;

use super::RecordOptions;
use crate::metrics::Metrics;

/// How many days of a recording are kept,
pub(super) const DAYS: u32 = 7;
/// and how many bytes, where `--record-days` and `--record-bytes` say nothing else.
pub(super) const BYTES: u64 = 10_000_000_000;

/// After so much work it rests three times as long.
const WORK: Duration = Duration::from_millis(10);

/// What a sweep of the folder needs to know.
#[derive(Debug, Clone)]
pub(super) struct Retention {
    pub(super) options: RecordOptions,
    /// What plans are made with.
    pub(super) registry: Registry,
    pub(super) metrics: Metrics,
    /// It is to end: the scheduler does.
    pub(super) stop: Arc<AtomicBool>,
}

/// A file of the recording.
struct Part {
    number: u64,
    path: PathBuf,
    bytes: u64,
    modified: SystemTime,
}

impl Retention {
    /// Drops what has to go before the segment `current`, which is being written.
    pub(super) fn run(&self, current: u64) {
        if let Err(error) = self.sweep(current) {
            let folder = self.options.folder.display();
            tracing::warn!(%folder, %error, "what is old of the recording could not be dropped");
        }
    }

    fn sweep(&self, current: u64) -> io::Result<()> {
        let parts = parts(&self.options.folder)?;
        let first = self.first_kept(&parts, current);
        let old: Vec<&Part> = parts.iter().filter(|part| part.number < first).collect();
        if old.is_empty() {
            return Ok(());
        }
        if self.is_needed_by(first) && !self.save_world(first)? {
            return Ok(());
        }
        for part in old {
            fs::remove_file(&part.path)?;
        }
        Ok(())
    }

    /// The oldest segment that stays.
    fn first_kept(&self, parts: &[Part], current: u64) -> u64 {
        let now = SystemTime::from(clock::now());
        let mut left: u64 = parts.iter().map(|part| part.bytes).sum();
        let mut first = parts.first().map_or(current, |part| part.number);
        for part in parts {
            let is_old = now.duration_since(part.modified).is_ok_and(|age| age > self.options.age_max);
            if part.number >= current || (left <= self.options.bytes_max && !is_old) {
                break;
            }
            left -= part.bytes;
            first = part.number + 1;
        }
        first
    }

    /// Whether a segment can't be played without what is before it.
    fn is_needed_by(&self, number: u64) -> bool {
        let folder = &self.options.folder;
        let header = SegmentReader::open(&segment::path(folder, number)).map(|(_, header)| header);
        header.is_ok_and(|header| header.continues) && !segment::start_path(folder, number).exists()
    }

    /// Saves the World as it is when a segment begins. False if it was told to stop. Where that can't be worked out,
    /// what comes up to the next World is lost.
    fn save_world(&self, number: u64) -> io::Result<bool> {
        let folder = &self.options.folder;
        let recording = Recording::open(folder).map_err(io::Error::other)?.only(0..number);
        let mut player = Player::new(&self.registry);
        let (mut since, mut cycles) = (Instant::now(), 0_u64);
        for item in recording.entries() {
            if self.stop.load(Ordering::Relaxed) {
                return Ok(false);
            }
            let failed = |error: &dyn std::error::Error| {
                tracing::warn!(
                    error = with_causes(error),
                    "a recording can't be played to save its World: a part of it is lost"
                );
            };
            let played = match item {
                Ok(Item::Start(path)) => player.load(&path).map(|()| true),
                Ok(Item::Break(_)) => {
                    player.lose();
                    Ok(true)
                }
                Ok(Item::Entry(entry)) => player.play(&entry).map(|plan| match (&entry, plan) {
                    (Entry::Cycle(cycle), Some(plan)) => digest(&plan) == cycle.digest,
                    _ => true,
                }),
                Err(error) => {
                    failed(&error);
                    return Ok(true);
                }
            };
            cycles += 1;
            match played {
                Ok(true) => {}
                Ok(false) => {
                    self.metrics.record_deviation();
                    tracing::error!(entry = cycles, "a recorded plan came out otherwise when it was played again");
                    return Ok(true);
                }
                Err(error) => {
                    failed(&error);
                    return Ok(true);
                }
            }
            if since.elapsed() >= WORK {
                std::thread::sleep(3 * WORK);
                since = Instant::now();
            }
        }
        if let Some((beginning, world)) = player.world() {
            let header = Header {
                number,
                continues: true,
                created: pumice_engine::TimeMs(clock::now().as_millisecond()),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                case: None,
            };
            segment::write_start(&segment::start_path(folder, number), &header, beginning, &world.save())?;
        }
        Ok(true)
    }
}

/// The files of a recording, by number; a saved World goes with the segment that begins with it.
fn parts(folder: &Path) -> io::Result<Vec<Part>> {
    let mut parts = Vec::new();
    for file in fs::read_dir(folder)? {
        let path = file?.path();
        let Some(number) = segment::number_of(&path).or_else(|| segment::number_of(&path.with_extension("record")))
        else {
            continue;
        };
        let is_ours = path.extension().is_some_and(|kind| kind == "record" || kind == "start");
        if let (true, Ok(about)) = (is_ours, fs::metadata(&path)) {
            parts.push(Part { number, bytes: about.len(), modified: about.modified()?, path });
        }
    }
    parts.sort_by_key(|part| part.number);
    Ok(parts)
}
