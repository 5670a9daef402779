//! The leader's end of its conversations with executors.
//!
//! Invariant: what a cluster is told follows from the ledger alone, so it can be told again to whoever asks anew, by any
//! leader. A report is acknowledged only once what follows from it is written. Pure: the server hands messages in, and
//! carries what comes out.

use std::collections::{BTreeMap, BTreeSet};

use pumice_engine::{Delta, NodeFacts};
use pumice_ledger::{Ledger, NodeRef, Report, ReportKind, RunId, RunPhase, TimeMs};
use pumice_wire::executor::{self as wire, from_executor, to_executor};

use crate::metrics::ClusterCounts;

mod lease_expiry;
mod nodes;
mod reports;

use lease_expiry::HEARTBEAT_MS;
pub use lease_expiry::cut_off_ms;
pub(crate) use lease_expiry::{HEARTBEAT_TIMEOUT_MIN_MS, SESSION_TIMEOUT_MS};
pub use nodes::{DEFAULT_POOL, facts as node_facts};
use nodes::{Nodes, Openness};
use reports::cut;

/// The protocol that is spoken here.
pub const FORMAT: u32 = 1;
/// Longest name of an executor.
const NAME_MAX: usize = 253;
/// Runs in one message.
const RUNS_PER_MESSAGE: usize = 500;

/// Why a cluster gets no errand.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unreached {
    /// Nobody speaks for it.
    #[error("its executor has no session with this server, or has only begun one: try again when it is back")]
    Away,
    /// Its executor knows of none.
    #[error("its executor is of release {0}, which knows no such requests: bring it to the server's release")]
    Old(String),
    /// So much waits to be sent to it.
    #[error("its executor is slow to take what it is told: try again")]
    Slow,
}

/// Why a session ends. The executor opens another.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// Its first message is another one.
    #[error("a session begins with hello")]
    NoHello,
    /// It speaks another protocol.
    #[error("the executor speaks format {0} and this server {FORMAT}; bring both to one release")]
    Format(u32),
    /// It may not have that name.
    #[error("{0:?} is no name for an executor: letters, digits, `-`, `_` and `.` are wanted, at most {NAME_MAX}")]
    Name(String),
    /// Whoever it is may not speak for that executor.
    #[error("{who:?} may not speak for executor {executor:?}")]
    Forged {
        who: String,
        /// For whom it spoke.
        executor: String,
    },
    /// A message is missing.
    #[error("message {found} came where {wanted} was due")]
    Gap {
        /// The number that came.
        found: u64,
        /// The number that was due.
        wanted: u64,
    },
    /// Another session of the executor began.
    #[error("another session of executor {0:?} took over")]
    Replaced(String),
    /// The message has nothing in it.
    #[error("message {0} is of no kind that is known here")]
    Unknown(u64),
}

/// What a message brought.
#[derive(Debug, Default)]
pub struct Received {
    /// Said of runs; the ledger is to be asked what follows.
    pub reports: Vec<Report>,
    /// Of nodes, by pool.
    pub nodes: Vec<(String, Delta)>,
}

/// What a cluster is to be told. The server completes leases with what was submitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Order {
    Lease(RunId),
    Stop(RunId, wire::StopKind, String),
}

/// Everything to send in one go to one session.
#[derive(Debug, PartialEq)]
pub struct Outgoing {
    pub cluster: String,
    pub session: u64,
    pub orders: Vec<Order>,
    /// The answer to what it said: reports that are written, and may be forgotten.
    pub answer: Option<wire::Acknowledge>,
}

#[derive(Debug)]
struct Session {
    number: u64,
    /// Its last message.
    seen: u64,
    /// It said something since it was last answered. By the answer it knows that it is heard.
    unanswered: bool,
    /// All of its runs are known; before that it gets no orders.
    told_runs: bool,
    /// It may be sent errands.
    runs_errands: bool,
    sent: u64,
    leased: BTreeSet<RunId>,
    stopped: BTreeSet<RunId>,
    /// Dealt with, and not yet written.
    unwritten: Vec<wire::Acknowledged>,
    written: Vec<wire::Acknowledged>,
    /// Of these the ledger knows nothing.
    strangers: BTreeSet<RunId>,
}

#[derive(Debug, Default)]
struct Cluster {
    session: Option<Session>,
    heard: TimeMs,
    nodes: Nodes,
    release: String,
    ahead_ms: Option<i64>,
    used: BTreeMap<(String, String), Used>,
}

/// cpu in milli-cores, everything else in whole units.
type Used = BTreeMap<String, i128>;

/// The sessions with executors, and what is known of each cluster since this server leads.
#[derive(Debug, Default)]
pub struct Sessions {
    clusters: BTreeMap<String, Cluster>,
}

/// Whether an executor may have this name.
pub fn is_executor_name(name: &str) -> bool {
    let good = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.');
    !name.is_empty() && name.len() <= NAME_MAX && name.chars().all(good)
}

impl Sessions {
    /// Clusters of which `ledger` has runs were heard of at `now`, as far as a new leader can know.
    pub fn expect(&mut self, ledger: &Ledger, now: TimeMs) {
        for cluster in ledger.clusters() {
            self.clusters.entry(cluster.to_owned()).or_default().heard = now;
        }
    }

    /// Begins a session, which takes the place of any earlier one. `who` was authenticated; without one anybody may
    /// speak for anyone. `number` is never used again.
    ///
    /// # Errors
    /// When the first message is no hello that is good here.
    pub fn open(
        &mut self,
        first: &wire::FromExecutor,
        who: Option<&str>,
        number: u64,
        now: TimeMs,
    ) -> Result<(String, wire::ToExecutor), Broken> {
        let Some(from_executor::Message::Hello(hello)) = &first.message else { return Err(Broken::NoHello) };
        if hello.format_version != FORMAT {
            return Err(Broken::Format(hello.format_version));
        }
        let name = &hello.executor;
        if !is_executor_name(name) {
            return Err(Broken::Name(name.chars().take(NAME_MAX).collect()));
        }
        if let Some(who) = who.filter(|who| who != name) {
            return Err(Broken::Forged { who: who.to_owned(), executor: name.clone() });
        }
        let cluster = self.clusters.entry(name.clone()).or_default();
        cluster.heard = now;
        cluster.release = cut(hello.release.clone());
        cluster.ahead_ms = ahead(hello.time_ms, now);
        cluster.session = Some(Session {
            number,
            seen: first.sequence,
            unanswered: false,
            told_runs: false,
            runs_errands: hello.runs_errands,
            sent: 1,
            leased: BTreeSet::new(),
            stopped: BTreeSet::new(),
            unwritten: Vec::new(),
            written: Vec::new(),
            strangers: BTreeSet::new(),
        });
        let welcome = wire::Welcome { heartbeat_ms: HEARTBEAT_MS };
        Ok((name.clone(), wire::ToExecutor { sequence: 1, message: Some(to_executor::Message::Welcome(welcome)) }))
    }

    /// Takes in a message of a session.
    ///
    /// # Errors
    /// When the session has to end.
    pub fn receive(
        &mut self,
        name: &str,
        number: u64,
        message: wire::FromExecutor,
        ledger: &Ledger,
        now: TimeMs,
    ) -> Result<Received, Broken> {
        let replaced = || Broken::Replaced(name.to_owned());
        let cluster = self.clusters.get_mut(name).ok_or_else(replaced)?;
        let session = cluster.session.as_mut().filter(|session| session.number == number).ok_or_else(replaced)?;
        cluster.heard = now;
        if message.sequence <= session.seen {
            return Ok(Received::default());
        }
        if message.sequence != session.seen + 1 {
            return Err(Broken::Gap { found: message.sequence, wanted: session.seen + 1 });
        }
        session.seen = message.sequence;
        session.unanswered = true;
        let mut received = Received::default();
        match message.message.ok_or(Broken::Unknown(message.sequence))? {
            from_executor::Message::Hello(_) => return Err(Broken::NoHello),
            from_executor::Message::Heartbeat(heartbeat) => {
                cluster.ahead_ms = ahead(heartbeat.time_ms, now).or(cluster.ahead_ms);
            }
            from_executor::Message::Usage(usage) => cluster.used = nodes::used(usage),
            from_executor::Message::Nodes(nodes) => {
                let openness = if ledger.is_cordoned(name) { Openness::Cordoned } else { Openness::Open };
                received.nodes = cluster.nodes.take(name, nodes, openness);
            }
            from_executor::Message::Runs(runs) => received.reports = session.take(name, runs, ledger),
        }
        Ok(received)
    }

    /// All nodes of all clusters, with the names of these; nothing while some may be unknown, since a cluster is away, or
    /// this server leads for less than `began` tells that all had the time to come back.
    pub fn all_nodes<'s>(
        &'s self,
        ledger: &Ledger,
        began: TimeMs,
        now: TimeMs,
    ) -> Option<impl Iterator<Item = (&'s str, &'s NodeFacts)> + Clone + use<'s>> {
        let is_here = |name: &str| self.clusters.get(name).is_some_and(|cluster| cluster.session.is_some());
        let away = |(name, cluster): (&String, &Cluster)| !is_here(name) && cluster.nodes.facts().next().is_some();
        if now.since(began) <= SESSION_TIMEOUT_MS || self.clusters.iter().any(away) || !ledger.clusters().all(is_here) {
            return None;
        }
        let nodes =
            |(name, cluster): (&'s String, &'s Cluster)| cluster.nodes.facts().map(move |node| (name.as_str(), node));
        Some(self.clusters.iter().flat_map(nodes))
    }

    /// The session is over. What pools are to be told, by pool: nothing new starts on nodes that nobody speaks for.
    pub fn close(&mut self, name: &str, number: u64) -> Vec<(String, Delta)> {
        let Some(cluster) = self.clusters.get_mut(name) else { return Vec::new() };
        let counted = cluster.session.take_if(|session| session.number == number).is_some();
        if counted { cluster.nodes.all(name, Openness::Away) } else { Vec::new() }
    }

    /// The nodes of a cluster as pools are to know them, by pool, after something was set of it. O(its nodes).
    pub fn nodes(&self, name: &str, ledger: &Ledger) -> Vec<(String, Delta)> {
        let Some(cluster) = self.clusters.get(name) else { return Vec::new() };
        let openness = match cluster.session {
            None => Openness::Away,
            Some(_) if ledger.is_cordoned(name) => Openness::Cordoned,
            Some(_) => Openness::Open,
        };
        cluster.nodes.all(name, openness)
    }

    /// Clusters that nobody speaks for, and for how many milliseconds nothing was heard of each.
    pub fn away(&self, now: TimeMs) -> BTreeMap<String, i64> {
        let away = self.clusters.iter().filter(|(_, cluster)| cluster.session.is_none());
        away.map(|(name, cluster)| (name.clone(), now.since(cluster.heard))).collect()
    }

    /// People say that a cluster is gone for good. One of which something was heard lately is not; of another what was told to
    /// stop there has stopped, as nobody will say so.
    pub fn gone(&self, name: &str, ledger: &Ledger, now: TimeMs) -> Vec<Report> {
        if !self.is_gone(name, now) {
            return Vec::new();
        }
        let stopping = ledger.runs_of(name).filter(|(_, row)| row.phase == RunPhase::Stopping);
        let report = |run| Report { cluster: name.to_owned(), run, kind: ReportKind::Gone };
        stopping.map(|(run, _)| report(run)).collect()
    }

    /// Forgets the nodes of such a cluster. What pools are to be told, by pool.
    pub fn forget(&mut self, name: &str, now: TimeMs) -> Vec<(String, Delta)> {
        let is_gone = self.is_gone(name, now);
        let cluster = if is_gone { self.clusters.get_mut(name) } else { None };
        cluster.map(|cluster| cluster.nodes.forget(name)).unwrap_or_default()
    }

    /// Executors of which something was heard, or whose clusters have runs, and whether each is gone: nothing was heard of it
    /// lately.
    pub fn executors(&self, now: TimeMs) -> BTreeMap<String, bool> {
        self.clusters.keys().map(|name| (name.clone(), self.is_gone(name, now))).collect()
    }

    fn is_gone(&self, name: &str, now: TimeMs) -> bool {
        let known = self.clusters.get(name);
        known.is_some_and(|cluster| cluster.session.is_none() && now.since(cluster.heard) > SESSION_TIMEOUT_MS)
    }

    /// What was decided of all that was received is written.
    pub fn written(&mut self) {
        for session in self.clusters.values_mut().filter_map(|cluster| cluster.session.as_mut()) {
            let acknowledged = std::mem::take(&mut session.unwritten);
            session.written.extend(acknowledged);
        }
    }

    /// What clusters are to be told, of what the ledger has now. Each thing is said once in a session, and whatever was said
    /// is answered. A cluster that has no room for more keeps what it is due for another time. O(runs).
    pub fn outgoing(&mut self, ledger: &Ledger, has_room: impl Fn(&str) -> bool) -> Vec<Outgoing> {
        let clusters = self.clusters.iter_mut().filter(|(name, _)| has_room(name));
        let all = clusters.filter_map(|(name, cluster)| {
            let session = cluster.session.as_mut()?;
            let orders = if session.told_runs { session.orders(name, ledger) } else { Vec::new() };
            let answer = session.answer();
            let (cluster, session) = (name.clone(), session.number);
            let any = !orders.is_empty() || answer.is_some();
            any.then_some(Outgoing { cluster, session, orders, answer })
        });
        all.collect()
    }

    /// The value of a node's label, as its cluster said it last.
    pub fn node_label(&self, at: &NodeRef, label: &str) -> Option<&str> {
        self.clusters.get(&at.cluster)?.nodes.label(&at.node, label)
    }

    /// The number of a session's next message.
    pub fn next_sequence(&mut self, name: &str, number: u64) -> Option<u64> {
        let session = self.clusters.get_mut(name)?.session.as_mut().filter(|session| session.number == number)?;
        session.sent += 1;
        Some(session.sent)
    }

    /// Sessions in which nothing is said any more, though their streams are open: an executor that hangs is given nothing.
    pub fn stale(&self, now: TimeMs) -> Vec<(String, u64)> {
        let open = self.clusters.iter().filter_map(|(name, cluster)| Some((name, cluster, cluster.session.as_ref()?)));
        let stale = open.filter(|(_, cluster, _)| now.since(cluster.heard) > SESSION_TIMEOUT_MS);
        stale.map(|(name, _, session)| (name.clone(), session.number)).collect()
    }

    /// Clusters and what they have, for whoever watches. O(nodes).
    pub fn counts(&self, ledger: &Ledger) -> Vec<ClusterCounts> {
        let counts = self.clusters.iter().map(|(name, cluster)| ClusterCounts {
            name: name.clone(),
            heard: cluster.heard,
            connected: cluster.session.is_some(),
            release: cluster.release.clone(),
            ahead_ms: cluster.ahead_ms,
            pools: cluster.nodes.counts(cluster.session.is_some() && !ledger.is_cordoned(name)),
            used: if cluster.session.is_some() { cluster.used.clone() } else { BTreeMap::new() },
        });
        counts.collect()
    }

    /// The session in which a cluster can be sent an errand.
    ///
    /// # Errors
    /// Where there is none.
    pub fn errand_session(&self, name: &str) -> Result<u64, Unreached> {
        let cluster = self.clusters.get(name).ok_or(Unreached::Away)?;
        let session = cluster.session.as_ref().filter(|session| session.told_runs).ok_or(Unreached::Away)?;
        if session.runs_errands { Ok(session.number) } else { Err(Unreached::Old(cluster.release.clone())) }
    }

    /// Clusters that have a node of this name, as they said last. O(clusters).
    pub fn homes(&self, node: &str) -> Vec<String> {
        let homes = self.clusters.iter().filter(|(_, cluster)| cluster.nodes.has(node));
        homes.map(|(name, _)| name.clone()).collect()
    }

    /// Clusters and for how long nothing was heard of them.
    pub fn silent(&self, now: TimeMs) -> Vec<(String, i64)> {
        self.clusters.iter().map(|(name, cluster)| (name.clone(), now.since(cluster.heard))).collect()
    }
}

/// How far a clock is ahead of this one, where it was told.
fn ahead(time_ms: i64, now: TimeMs) -> Option<i64> {
    (time_ms > 0).then(|| time_ms.saturating_sub(now.0))
}

impl Session {
    fn take(&mut self, name: &str, runs: wire::Runs, ledger: &Ledger) -> Vec<Report> {
        let mut reports = Vec::new();
        let mut named = BTreeSet::new();
        for report in runs.reports {
            let Ok(run) = report.run_id.parse::<RunId>() else { continue };
            named.insert(run);
            let ours = ledger.run(run).is_some_and(|row| row.at.cluster == name);
            if !ours && !reports::is_over(report.phase) {
                self.strangers.insert(run);
            }
            if report.phase != i32::from(wire::RunPhase::Leased) {
                self.unwritten.push(wire::Acknowledged { run_id: report.run_id.clone(), phase: report.phase });
            }
            reports.extend(reports::read(name, run, report));
        }
        if runs.complete {
            self.told_runs = true;
            for (run, row) in ledger.runs_of(name) {
                if named.contains(&run) {
                    self.leased.insert(run);
                } else if row.phase != RunPhase::Leased {
                    // It was there, and is no more. One that is only leased was never heard of: it is sent.
                    reports.push(Report { cluster: name.to_owned(), run, kind: ReportKind::Gone });
                }
            }
        }
        reports
    }

    /// What it is answered, once all that it said is written.
    fn answer(&mut self) -> Option<wire::Acknowledge> {
        if !self.unanswered || !self.told_runs || !self.unwritten.is_empty() {
            return None;
        }
        self.unanswered = false;
        Some(wire::Acknowledge { runs: std::mem::take(&mut self.written), seen: self.seen })
    }

    fn orders(&mut self, name: &str, ledger: &Ledger) -> Vec<Order> {
        let mut orders = Vec::new();
        for run in std::mem::take(&mut self.strangers) {
            if ledger.run(run).is_none() && self.stopped.insert(run) {
                orders.push(Order::Stop(run, wire::StopKind::Unknown, "the fleet has no such run".to_owned()));
            }
        }
        let mut kept = BTreeSet::new();
        for (run, row) in ledger.runs_of(name) {
            if orders.len() >= RUNS_PER_MESSAGE {
                // The rest the next time: nothing is forgotten.
                kept.extend(self.leased.iter().chain(&self.stopped).copied());
                break;
            }
            kept.insert(run);
            match row.phase {
                RunPhase::Leased if self.leased.insert(run) => orders.push(Order::Lease(run)),
                RunPhase::Stopping if self.stopped.insert(run) => {
                    let (kind, reason) = match &row.preempted {
                        Some(preemption) => (wire::StopKind::Preempted, preemption.reason.clone()),
                        None => (wire::StopKind::Cancelled, "its job has ended".to_owned()),
                    };
                    orders.push(Order::Stop(run, kind, reason));
                }
                _ => {}
            }
        }
        let gone = |run: &RunId| kept.contains(run) || ledger.run(*run).is_some();
        self.leased.retain(gone);
        self.stopped.retain(gone);
        orders
    }
}

#[cfg(test)]
mod tests;
