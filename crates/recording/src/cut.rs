//! Cuts a stretch out of a recording: a case that holds the World as it was when the stretch began, and what happened.
//!
//! Invariant: what is cut was replayed bit for bit up to its end, and the case, played by itself, binds and evicts the same
//! pods on the same nodes, cycle for cycle, also where their names are pseudonyms. Anything else is an error, and no file.
//! Called by `pumice scheduler record cut`.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::{io, ops};

use pumice_engine::plugin::Registry;
use pumice_engine::{Delta, Plan, PodUid, TimeMs};

use crate::case::{Case, ENTRIES_MAX};
use crate::digest;
use crate::entry::{Beginning, Cycle, Entry};
use crate::player::{PlayError, Player};
use crate::read::{Item, ReadError, Recording};
use crate::redact::{Names, Redaction};
use crate::replay::{Difference, Range};
use crate::segment::About;

/// What is to be cut.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stretch {
    pub range: Range,
    /// Only from the submission of this job, `namespace/name` of its PodGroup or of what owns it, to its last start.
    pub job: Option<(String, String)>,
    pub redact: bool,
}

/// Why nothing was cut.
#[derive(Debug, thiserror::Error)]
pub enum CutError {
    /// The recording can't be read.
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
    /// There is no cycle in it.
    #[error("the recording has no cycle in that time")]
    Nothing,
    /// There is no such job.
    #[error("the recording has no job {namespace}/{name} in that time")]
    NoJob { namespace: String, name: String },
    /// It is too long for a case.
    #[error("the stretch has more than {ENTRIES_MAX} entries: cut a shorter one with --from and --to")]
    TooLong,
    /// The recording does not replay.
    #[error("the recording can't be cut there, as cycle {cycle} of it comes out otherwise:\n{difference}")]
    Deviates { cycle: u64, difference: Box<Difference> },
    /// The case decides otherwise than the recording.
    #[error("cycle {cycle} of what was cut comes out otherwise by itself; {hint}:\n{difference}")]
    Unlike { cycle: u64, hint: &'static str, difference: Box<Difference> },
    /// An entry can't be put into other words.
    #[error("the recording can't be redacted: cut it without --redact")]
    Redact(#[source] serde_json::Error),
    /// The file can't be written.
    #[error("{path} could not be written")]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// Cuts a stretch and writes it.
///
/// # Errors
/// When there is nothing to cut, it can't be played, or decides otherwise by itself. No file is written then.
pub fn cut(recording: &Recording, registry: &Registry, stretch: &Stretch, to: &Path) -> Result<About, CutError> {
    let places = find(recording, stretch)?;
    let cut_out = keep(recording, registry, places)?;
    let case = make(registry, stretch, cut_out)?;
    let version = env!("CARGO_PKG_VERSION").to_owned();
    case.write(to, version).map_err(|source| CutError::Write { path: to.to_owned(), source })?;
    Ok(case.about)
}

/// Where the stretch begins and ends, in items of the recording: behind the last cycle before it, and behind its last.
fn find(recording: &Recording, stretch: &Stretch) -> Result<ops::Range<usize>, CutError> {
    let Range { from, to } = stretch.range;
    let (groups, pods) = (HashSet::new(), HashSet::new());
    let mut search = Search { job: stretch.job.as_ref(), begin: 0, begun: false, end: None, groups, pods };
    for (index, item) in recording.entries().enumerate() {
        let next = index + 1;
        match item? {
            Item::Break(_) if search.end.is_some() => break,
            Item::Break(_) => search.restart(next),
            Item::Start(_) => search.restart(index),
            Item::Entry(Entry::Begin(_)) if search.end.is_none() => search.restart(index),
            Item::Entry(Entry::Cycle(cycle)) => {
                if to.is_some_and(|to| cycle.at >= to) {
                    break;
                }
                search.cycle(from.is_none_or(|from| cycle.at >= from), &cycle, next);
            }
            Item::Entry(Entry::Delta(delta)) => search.delta(&delta),
            Item::Entry(_) => {}
        }
    }
    let nothing = || match &stretch.job {
        Some((namespace, name)) => CutError::NoJob { namespace: namespace.clone(), name: name.clone() },
        None => CutError::Nothing,
    };
    Ok(search.begin..search.end.ok_or_else(nothing)?)
}

struct Search<'s> {
    job: Option<&'s (String, String)>,
    begin: usize,
    /// The stretch has begun: `begin` stays.
    begun: bool,
    end: Option<usize>,
    /// The job's PodGroups in its namespace, and the uids of its pods.
    groups: HashSet<String>,
    pods: HashSet<PodUid>,
}

impl Search<'_> {
    /// A World begins, or what was before is lost.
    fn restart(&mut self, begin: usize) {
        (self.begin, self.begun) = (begin, false);
        self.groups.clear();
        self.pods.clear();
    }

    /// A cycle, and the item behind it.
    fn cycle(&mut self, counts: bool, cycle: &Cycle, next: usize) {
        match self.job {
            None if counts => (self.begun, self.end) = (true, Some(next)),
            None => {}
            Some(_) if self.begun && counts => {
                let of_job = cycle.binds.iter().any(|bind| self.pods.contains(&bind.uid));
                if self.end.is_none() || of_job {
                    self.end = Some(next);
                }
            }
            Some(_) => {}
        }
        if !self.begun {
            self.begin = next;
        }
    }

    fn delta(&mut self, delta: &Delta) {
        let Some((namespace, name)) = self.job else { return };
        match delta {
            Delta::GroupUpsert(group) if group.namespace == *namespace => {
                let owner = group.owner.as_ref().map(|owner| &owner.name);
                if group.name == *name || owner == Some(name) {
                    self.begun = true;
                    self.groups.insert(group.name.clone());
                }
            }
            Delta::TaskUpsert(pod)
                if pod.namespace == *namespace
                    && pod.group.as_ref().is_some_and(|group| self.groups.contains(group)) =>
            {
                self.pods.insert(pod.uid.clone());
            }
            _ => {}
        }
    }
}

/// A stretch as it was recorded.
struct Recorded {
    beginning: Beginning,
    world: Vec<u8>,
    entries: Vec<Entry>,
    /// By cycle of the entries.
    plans: Vec<Plan>,
}

/// Plays the recording up to the end of the stretch, and keeps what is in it.
fn keep(recording: &Recording, registry: &Registry, places: ops::Range<usize>) -> Result<Recorded, CutError> {
    let mut player = Player::new(registry);
    let mut cycles = 0;
    let mut cut_out: Option<Recorded> = None;
    for (index, item) in recording.entries().enumerate().take(places.end) {
        if index >= places.start && cut_out.is_none() {
            cut_out = Some(Recorded::from(&player));
        }
        let failed = |source| CutError::Play { cycles, source };
        let entry = match item? {
            Item::Entry(entry) => entry,
            Item::Start(path) => {
                player.load(&path).map_err(failed)?;
                // It begins where the stretch does: with this World.
                cut_out = cut_out.take().map(|_| Recorded::from(&player));
                continue;
            }
            Item::Break(_) => {
                player.lose();
                continue;
            }
        };
        let plan = player.play(&entry).map_err(failed)?;
        if let (Entry::Cycle(recorded), Some(plan)) = (&entry, &plan) {
            cycles += 1;
            if digest(plan) != recorded.digest {
                return Err(CutError::Deviates { cycle: cycles, difference: difference(cycles, recorded, plan) });
            }
        }
        if let (Entry::Begin(_), Some(cut_out)) = (&entry, &mut cut_out)
            && cut_out.entries.is_empty()
        {
            // It brings its own World.
            (cut_out.beginning, cut_out.world) = (Beginning::default(), Vec::new());
        }
        if let Some(cut_out) = &mut cut_out {
            cut_out.plans.extend(plan);
            cut_out.entries.push(entry);
            if cut_out.entries.len() > ENTRIES_MAX {
                return Err(CutError::TooLong);
            }
        }
    }
    cut_out.ok_or(CutError::Nothing)
}

fn difference(cycle: u64, recorded: &Cycle, plan: &Plan) -> Box<Difference> {
    Box::new(Difference { cycle, recorded: recorded.clone(), replayed: Cycle::of(recorded.at, plan) })
}

impl Recorded {
    /// As it is now.
    fn from(player: &Player<'_>) -> Self {
        let (beginning, world) = match player.world() {
            Some((beginning, world)) => (beginning.clone(), world.save()),
            None => (Beginning::default(), Vec::new()),
        };
        Self { beginning, world, entries: Vec::new(), plans: Vec::new() }
    }
}

/// Makes the case, and plays it beside what was recorded.
fn make(registry: &Registry, stretch: &Stretch, cut_out: Recorded) -> Result<Case, CutError> {
    let carried = |source| CutError::Play { cycles: 0, source };
    let mut redaction = if stretch.redact { Some(redaction(registry, &cut_out)?) } else { None };
    let mut player = Player::new(registry);
    let mut case =
        Case { about: About::default(), beginning: cut_out.beginning, world: cut_out.world, entries: Vec::new() };
    if let Some(redaction) = &mut redaction {
        case.beginning = redaction.beginning(&case.beginning).map_err(CutError::Redact)?;
    }
    if !case.world.is_empty() {
        let texts = redaction.as_mut().map(|redaction| redaction as _);
        player.carry(case.beginning.clone(), &case.world, texts).map_err(carried)?;
        case.world = player.world().map(|(_, world)| world.save()).unwrap_or_default();
    }
    let mut plans = cut_out.plans.iter();
    for entry in cut_out.entries {
        let mut entry = match &mut redaction {
            Some(redaction) => redaction.entry(&entry).map_err(CutError::Redact)?,
            None => entry,
        };
        let cycles = case.about.cycles;
        let plan = player.play(&entry).map_err(|source| CutError::Play { cycles, source })?;
        if let (Entry::Cycle(recorded), Some(plan)) = (&mut entry, &plan) {
            case.about.count(recorded);
            let played = Cycle::of(recorded.at, plan);
            if (&played.binds, &played.evictions) != (&recorded.binds, &recorded.evictions) {
                let hint = if stretch.redact { "cut it without --redact" } else { "cut it from an earlier time" };
                let cycle = case.about.cycles;
                return Err(CutError::Unlike { cycle, hint, difference: difference(cycle, recorded, plan) });
            }
            if let (Some(redaction), Some(said)) = (&mut redaction, plans.next()) {
                redaction.learn(said, plan);
            }
            // What is told again may be worded anew: the World that was saved has looked at nothing yet.
            *recorded = played;
        }
        case.entries.push(entry);
    }
    case.about.redacted = stretch.redact;
    case.about.world_bytes = case.world.len() as u64;
    case.about.job = stretch.job.as_ref().map(|(namespace, name)| {
        let job = format!("{namespace}/{name}");
        redaction.as_mut().map_or(job.clone(), |redaction| pumice_engine::Texts::text(redaction, &job))
    });
    Ok(case)
}

/// Collects all names of a stretch.
fn redaction(registry: &Registry, cut_out: &Recorded) -> Result<Redaction, CutError> {
    let mut names = Names::default();
    names.beginning(&cut_out.beginning);
    if !cut_out.world.is_empty() {
        let carried = |source| CutError::Play { cycles: 0, source };
        Player::new(registry).carry(cut_out.beginning.clone(), &cut_out.world, Some(&mut names)).map_err(carried)?;
    }
    cut_out.entries.iter().try_for_each(|entry| names.entry(entry)).map_err(CutError::Redact)?;
    Ok(names.number())
}

impl About {
    fn count(&mut self, cycle: &Cycle) {
        if self.cycles == 0 {
            self.from = cycle.at;
        }
        self.to = cycle.at;
        self.cycles += 1;
    }
}

/// A job as a command line names it.
///
/// # Errors
/// What to write instead.
pub fn job(text: &str) -> Result<(String, String), String> {
    match text.split_once('/') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains('/') => {
            Ok((namespace.to_owned(), name.to_owned()))
        }
        _ => Err(format!("{text:?} is no job; try NAMESPACE/NAME")),
    }
}

/// A time of the engine as text.
pub fn time(at: TimeMs) -> String {
    jiff::Timestamp::from_millisecond(at.0).map_or_else(|_| format!("{} ms", at.0), |at| at.to_string())
}
