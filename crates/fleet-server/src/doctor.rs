//! What is wrong with a fleet, and what to do about it: judgements over what servers and clusters say.
//!
//! Pure: whoever asks gathers the facts. A check is one line; it says what to do where something is to be done.

use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;

mod probe;

pub use probe::{Answer, AskError, ask};

use crate::health::{ExecutorHealth, FleetHealth, Known};
use crate::sessions::FORMAT;
use crate::sessions::SESSION_TIMEOUT_MS;

/// Clocks may differ so much.
const SKEW_MAX_MS: i64 = 5_000;
/// A write that takes longer holds everybody up.
const WRITE_MAX_MS: u64 = 500;
/// Entries that nobody folds for so long wait for a leader that is none.
const LAG_MAX_MS: i64 = 10_000;
/// A certificate that ends sooner is to be made anew.
const VALID_DAYS_MIN: i64 = 14;
/// Names in one line.
const NAMED_MAX: usize = 5;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    Ok,
    /// It works, and somebody should look.
    Warning,
    /// It does not work.
    Failed,
}

/// One thing that a doctor looked at: a line for people, and an object in JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What was looked at.
    pub name: String,
    pub level: Level,
    pub found: String,
    /// What to do, where something is to be done.
    #[serde(rename = "do", skip_serializing_if = "String::is_empty")]
    pub remedy: String,
}

impl Check {
    /// A check that found all well: it has no remedy.
    pub fn ok(name: &str, found: impl Into<String>) -> Self {
        Self { name: name.to_owned(), level: Level::Ok, found: found.into(), remedy: String::new() }
    }

    /// A check that found something that works and that somebody should look at.
    pub fn warning(name: &str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { level: Level::Warning, remedy: remedy.into(), ..Self::ok(name, found) }
    }

    /// It does not work.
    pub fn failed(name: &str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { level: Level::Failed, remedy: remedy.into(), ..Self::ok(name, found) }
    }
}

/// All checks of one examination, and whether the fleet works.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Diagnosis {
    pub ok: bool,
    /// In order.
    pub checks: Vec<Check>,
}

impl Diagnosis {
    /// Counts as well where no check has failed; warnings leave it so.
    pub fn of(checks: Vec<Check>) -> Self {
        Self { ok: checks.iter().all(|check| check.level < Level::Failed), checks }
    }
}

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Check { name, level, found, remedy } in &self.checks {
            let word = match level {
                Level::Ok => "ok",
                Level::Warning => "look",
                Level::Failed => "FAILED",
            };
            write!(f, "{word:<7} {name:<16} {found}")?;
            if !remedy.is_empty() {
                write!(f, ": {remedy}")?;
            }
            writeln!(f)?;
        }
        let (looks, failed) = self.checks.iter().fold((0, 0), |(looks, failed), check| match check.level {
            Level::Ok => (looks, failed),
            Level::Warning => (looks + 1, failed),
            Level::Failed => (looks, failed + 1),
        });
        match (failed, looks) {
            (0, 0) => writeln!(f, "all is well"),
            (0, looks) => writeln!(f, "it works; {looks} to look at"),
            (failed, looks) => writeln!(f, "{failed} failed, {looks} to look at"),
        }
    }
}

/// Until when a certificate is good, `seconds` from now.
pub fn certificate(name: &str, whose: &str, seconds: i64, remedy: &str) -> Check {
    let days = seconds / 86_400;
    match () {
        () if seconds <= 0 => Check::failed(name, format!("{whose} has ended"), remedy),
        () if days < VALID_DAYS_MIN => Check::warning(name, format!("{whose} ends in {}", time(seconds)), remedy),
        () => Check::ok(name, format!("{whose} is good for {days} days")),
    }
}

/// How far a clock is off.
pub fn clock(name: &str, whose: &str, ahead_ms: i64) -> Check {
    let how = if ahead_ms < 0 { "behind" } else { "ahead" };
    let off = ahead_ms.unsigned_abs();
    let found = format!("{whose} is {}.{:03} s {how}", off / 1_000, off % 1_000);
    if off > SKEW_MAX_MS.unsigned_abs() {
        return Check::warning(name, found, "let NTP set the clocks: times of jobs and certificates depend on them");
    }
    Check::ok(name, found)
}

/// What a server says of the fleet.
pub fn server(health: &FleetHealth) -> Vec<Check> {
    let mut checks = vec![who(health), leader(health)];
    database(health, &mut checks);
    if let Some(known) = &health.leader {
        checks.extend(known.executors.iter().map(|executor| of_executor(executor, known, &health.release)));
        if known.executors.is_empty() {
            let remedy =
                "make an identity with `pumice fleet identity --executor NAME` and start `pumice fleet executor`";
            checks.push(Check::warning("executors", "no executor has come yet: nothing can start", remedy));
        }
        queues(known, &mut checks);
        pools(known, &mut checks);
        stuck(known, &mut checks);
    }
    checks
}

fn who(health: &FleetHealth) -> Check {
    let who = &health.who;
    if who.name.is_empty() {
        let remedy = "give --identity FILE: administrator.pem, or what `pumice fleet identity` printed";
        return Check::failed("identity", "the server does not know who asks", remedy);
    }
    let groups = if who.groups.is_empty() { "no group".to_owned() } else { join(&who.groups) };
    let may = if who.permissions.is_empty() { "only what queues allow".to_owned() } else { join(&who.permissions) };
    Check::ok("identity", format!("{} of {groups}; everywhere: {may}", who.name))
}

fn leader(health: &FleetHealth) -> Check {
    let holder = &health.database.holder;
    match health.leads_since_ms {
        Some(since) => {
            let seconds = (health.now_ms - since) / 1_000;
            Check::ok("leader", format!("this server leads, for {}", time(seconds)))
        }
        None if health.database.leads_for_ms > 0 => {
            let remedy = "ask that server for executors and queues";
            Check::warning("leader", format!("another server leads: {holder}"), remedy)
        }
        None => {
            let remedy = "look at the servers' logs; with the database well one of them leads within seconds";
            let last = if holder.is_empty() { String::new() } else { format!(", last {holder}") };
            Check::failed("leader", format!("no server leads{last}: nothing is decided"), remedy)
        }
    }
}

fn database(health: &FleetHealth, checks: &mut Vec<Check>) {
    if !health.database_error.is_empty() {
        let remedy = "see to the database: the server goes on by itself when it is back";
        checks.push(Check::failed("database", format!("it takes no writes: {}", health.database_error), remedy));
        return;
    }
    let database = &health.database;
    let found = format!("{} took a write in {} ms", database.kind, database.write_ms);
    checks.push(if database.write_ms > WRITE_MAX_MS {
        Check::warning("database", found, "its disk is slow or busy: each decision waits for it")
    } else {
        Check::ok("database", found)
    });
    checks.push(clock("database clock", "the database's clock", database.ahead_ms));
    let (position, unfolded) = (database.position, database.unfolded);
    checks.push(if database.lag_ms > LAG_MAX_MS {
        let found = format!("{unfolded} of {position} entries wait, the oldest for {}", time(database.lag_ms / 1_000));
        Check::failed("log", found, "the leader does not keep up or hangs: look at its log and its processor")
    } else {
        Check::ok("log", format!("{position} entries, {unfolded} of them under way"))
    });
}

fn of_executor(executor: &ExecutorHealth, known: &Known, release: &str) -> Check {
    let name = format!("executor {}", executor.name);
    let nodes = format!("{} of {} nodes take pods", executor.open, executor.nodes);
    if !executor.connected || executor.silent_ms > SESSION_TIMEOUT_MS {
        let runs = of_silence(executor.silent_ms, known.silent_max_ms);
        let found = format!("not heard of for {}; {runs}", time(executor.silent_ms / 1_000));
        return Check::failed(&name, found, "run `pumice fleet doctor --identity` with its identity where it runs");
    }
    if let Some(ahead) = executor.ahead_ms.filter(|ahead| ahead.abs() > SKEW_MAX_MS) {
        return clock(&name, "its clock", ahead);
    }
    if executor.nodes == 0 {
        return Check::warning(&name, "its cluster has no nodes", "add nodes to the cluster, or look at its rights");
    }
    if executor.open == 0 {
        return Check::warning(&name, nodes, "uncordon nodes, or add some");
    }
    if executor.release != release {
        let found = format!("{nodes}; release {}, the server has {release}", executor.release);
        return Check::warning(&name, found, "bring both to one release when it suits");
    }
    Check::ok(&name, format!("{nodes}, heard of {} ago", time(executor.silent_ms / 1_000)))
}

/// What becomes of runs of a cluster that is silent, those of queues with a label of their own aside.
fn of_silence(silent_ms: i64, most_ms: i64) -> String {
    let most = time(most_ms / 1_000);
    match most_ms {
        ..=0 => "its runs go on and are counted when it is back, however late: no executorTimeout is set".to_owned(),
        _ if silent_ms < most_ms => {
            format!("its runs go on and are counted when it is back within {most} (executorTimeout)")
        }
        _ => format!("its runs have failed after {most} (executorTimeout)"),
    }
}

fn queues(known: &Known, checks: &mut Vec<Check>) {
    let waiting = known.waiting;
    let counted = |queues: &std::collections::BTreeMap<String, usize>| {
        join(&queues.iter().map(|(name, jobs)| format!("{name} ({jobs})")).collect())
    };
    if !known.undefined.is_empty() {
        let found = format!("jobs wait in queues that are gone: {}", counted(&known.undefined));
        checks.push(Check::warning("queues", found, "make the queues anew, or cancel the jobs"));
    }
    if !known.cordoned.is_empty() {
        let found = format!("jobs wait in cordoned queues: {}", counted(&known.cordoned));
        checks.push(Check::warning("queues", found, "uncordon them when they may start"));
    }
    if !known.ownerless.is_empty() {
        let found = format!("without an owner: {}", join(&known.ownerless));
        checks.push(Check::warning(
            "owners",
            found,
            "only administrators can change them: set userOwners or groupOwners",
        ));
    }
    if known.undefined.is_empty() && known.cordoned.is_empty() {
        checks.push(Check::ok("queues", format!("{waiting} jobs wait")));
    }
}

fn pools(known: &Known, checks: &mut Vec<Check>) {
    let empty: BTreeSet<String> =
        known.pools.iter().filter(|(_, nodes)| **nodes == 0).map(|(pool, _)| pool.clone()).collect();
    if !empty.is_empty() {
        let remedy = "label nodes with armadaproject.io/pool, uncordon them, or bring their executor back";
        checks.push(Check::warning("pools", format!("no node takes pods in {}", join(&empty)), remedy));
    } else if !known.pools.is_empty() {
        let told = known.pools.iter().map(|(pool, nodes)| format!("{pool} ({nodes} nodes)")).collect();
        checks.push(Check::ok("pools", join(&told)));
    }
}

fn stuck(known: &Known, checks: &mut Vec<Check>) {
    for stuck in known.stuck.iter().take(NAMED_MAX) {
        let (runs, cluster, queue) = (stuck.runs, &stuck.cluster, &stuck.queue);
        let found = format!("cluster {cluster} makes no pods of {runs} runs of queue {queue}");
        let remedy = "look at its executor's log: its API server may refuse or delay them";
        checks.push(Check::warning("stuck", found, remedy));
    }
    if known.stuck.is_empty() {
        checks.push(Check::ok("stuck", "no run hangs"));
    }
}

/// What a server says to an executor that asks by its identity.
pub fn executor(health: &FleetHealth) -> Vec<Check> {
    let name = &health.who.name;
    let mut checks = Vec::new();
    let permission = "execute_jobs";
    checks.push(if health.who.permissions.contains(permission) {
        Check::ok("identity", format!("the server takes it for executor {name}"))
    } else {
        let remedy = "make another with `pumice fleet identity --executor NAME` on the server";
        Check::failed("identity", format!("{name:?} is no executor to this server"), remedy)
    });
    checks.push(if health.format == FORMAT {
        Check::ok("protocol", format!("both speak format {FORMAT}"))
    } else {
        let found = format!("the server speaks format {}, this program {FORMAT}", health.format);
        Check::failed("protocol", found, "bring both to one release")
    });
    checks.push(leader(health));
    if let Some(known) = &health.leader {
        match known.executors.iter().find(|executor| executor.name == *name) {
            Some(mine) => checks.push(of_executor(mine, known, &health.release)),
            None => {
                let remedy = "start `pumice fleet executor` with this identity";
                checks.push(Check::warning(&format!("executor {name}"), "it has not come yet", remedy));
            }
        }
    }
    checks
}

/// A span of time, for people.
pub(crate) fn time(seconds: i64) -> String {
    match seconds {
        ..120 => format!("{} s", seconds.max(0)),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// The first few, in words.
fn join(names: &BTreeSet<String>) -> String {
    let first: Vec<&str> = names.iter().take(NAMED_MAX).map(String::as_str).collect();
    match names.len().saturating_sub(NAMED_MAX) {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

#[cfg(test)]
mod tests;
