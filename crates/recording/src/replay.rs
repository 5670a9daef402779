//! Runs a recording again and compares each plan with the one that was recorded. Called by `pumice scheduler replay`.

use std::collections::BTreeSet;
use std::fmt::{self, Display};

use pumice_engine::plugin::Registry;
use pumice_engine::{Plan, TimeMs};

use crate::entry::{Cycle, Entry};
use crate::player::{PlayError, Player};
use crate::read::{Break, Item, ReadError, Recording};

/// Pods that a difference names.
const NAMED_MAX: usize = 5;

/// Why a recording can't be replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// It can't be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// It can't be played.
    #[error("after {cycles} cycles")]
    Play {
        /// Cycles that were played before.
        cycles: u64,
        #[source]
        source: PlayError,
    },
}

/// The cycles that are compared and counted; those before are run all the same.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Range {
    /// From this time on.
    pub from: Option<TimeMs>,
    /// Before this time; what comes later is not read.
    pub to: Option<TimeMs>,
}

/// The first plan that came out otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The cycle, from 1.
    pub cycle: u64,
    pub recorded: Cycle,
    pub replayed: Cycle,
}

/// How a replay went.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Replay {
    /// Worlds that were begun.
    pub worlds: u64,
    /// Changes of the cluster and answers.
    pub changes: u64,
    pub cycles: u64,
    /// Pods bound in them.
    pub binds: u64,
    /// Pods told to leave.
    pub evictions: u64,
    /// Panics of the engine that were recorded; what follows one begins with another World.
    pub panics: u64,
    /// Times of the first and the last of the cycles.
    pub times: Option<(TimeMs, TimeMs)>,
    /// Where the recording does not go on.
    pub breaks: Vec<Break>,
    /// The first plan that came out otherwise: the replay ended with it.
    pub difference: Option<Difference>,
}

/// Runs a recording again.
///
/// # Errors
/// When it can't be read, or what it needs is not here. A difference is no error.
pub fn replay(recording: &Recording, registry: &Registry, range: Range) -> Result<Replay, ReplayError> {
    let mut player = Player::new(registry);
    let mut told = Replay::default();
    for item in recording.entries() {
        let failed = |cycles| move |source| ReplayError::Play { cycles, source };
        let entry = match item? {
            Item::Entry(entry) => entry,
            Item::Start(path) => {
                player.load(&path).map_err(failed(told.cycles))?;
                told.worlds += 1;
                continue;
            }
            Item::Break(what) => {
                player.lose();
                told.breaks.push(what);
                continue;
            }
        };
        if let (Entry::Cycle(cycle), Some(to)) = (&entry, range.to)
            && cycle.at >= to
        {
            break;
        }
        let plan = player.play(&entry).map_err(failed(told.cycles))?;
        match (&entry, plan) {
            (Entry::Cycle(recorded), Some(plan)) => {
                if range.from.is_none_or(|from| recorded.at >= from) && !told.compare(recorded, &plan) {
                    break;
                }
            }
            (Entry::Begin(_), _) => told.worlds += 1,
            (Entry::Panic { .. }, _) => told.panics += 1,
            _ => told.changes += 1,
        }
    }
    Ok(told)
}

impl Replay {
    /// Counts a cycle; false if it came out otherwise.
    fn compare(&mut self, recorded: &Cycle, plan: &Plan) -> bool {
        self.cycles += 1;
        let first = self.times.map_or(recorded.at, |(first, _)| first);
        self.times = Some((first, recorded.at));
        self.binds += plan.binds.len() as u64;
        self.evictions += plan.evictions.len() as u64;
        if super::digest(plan) == recorded.digest {
            return true;
        }
        let (recorded, replayed) = (recorded.clone(), Cycle::of(recorded.at, plan));
        self.difference = Some(Difference { cycle: self.cycles, recorded, replayed });
        false
    }

    /// How long the recording is, in milliseconds.
    pub fn length_ms(&self) -> i64 {
        self.times.map_or(0, |(first, last)| last.0.saturating_sub(first.0))
    }
}

impl Display for Difference {
    /// For people: what differs first.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (recorded, replayed) = (&self.recorded, &self.replayed);
        let binds = |cycle: &Cycle| -> Vec<String> {
            cycle.binds.iter().map(|bind| format!("{} to {}", bind.pod, bind.node)).collect()
        };
        let evictions = |cycle: &Cycle| -> Vec<String> {
            cycle.evictions.iter().map(|gone| format!("{} on {}, {}", gone.pod, gone.node, gone.action)).collect()
        };
        let mut any = false;
        for (what, old, new) in
            [("binds", binds(recorded), binds(replayed)), ("evictions", evictions(recorded), evictions(replayed))]
        {
            any |= !part(f, &format!("{what} only in the recording"), &old, &new)?;
            any |= !part(f, &format!("{what} only in the replay"), &new, &old)?;
        }
        if any {
            return Ok(());
        }
        if recorded.binds != replayed.binds || recorded.evictions != replayed.evictions {
            return writeln!(f, "  the same binds and evictions in another order");
        }
        writeln!(f, "  the same binds and evictions; statuses, messages or the next wake-up differ")
    }
}

/// Names what only `these` have; true if there is nothing.
fn part(f: &mut fmt::Formatter<'_>, what: &str, these: &[String], those: &[String]) -> Result<bool, fmt::Error> {
    let those: BTreeSet<&String> = those.iter().collect();
    let only: Vec<&str> = these.iter().filter(|one| !those.contains(one)).map(String::as_str).collect();
    if only.is_empty() {
        return Ok(true);
    }
    write!(f, "  {what}: {}", only[..only.len().min(NAMED_MAX)].join("; "))?;
    match only.len().saturating_sub(NAMED_MAX) {
        0 => writeln!(f)?,
        more => writeln!(f, "; and {more} more")?,
    }
    Ok(false)
}
