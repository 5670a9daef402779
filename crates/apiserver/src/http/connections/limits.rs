//! Limits of connections: who may have how many, and who goes when there are too many.
//!
//! Invariant: a new connection always gets in, at the cost of one of whoever has the most: an address that has not shown who
//! it is, or a user. So no peer keeps another one out, and there are never more than
//! [`ConnectionLimits::new`] allows, and some that still shake hands. Connections without a certificate leave a quarter to
//! those that show one.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pumice_metrics::{Counts, Page};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::activity::Activity;
use crate::http::log_pause::LogPause;

/// Most connections, where there are descriptors for them.
const CONNECTIONS_MAX: usize = 4096;
/// Fewest that are allowed, however few descriptors there are.
const CONNECTIONS_MIN: usize = 64;
/// Of a process's descriptors, one in so many is a connection's. The rest is for files, pods and connections to others.
const DESCRIPTORS_EACH: u64 = 4;

/// Why a connection was ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Ended {
    HandshakeTimeout,
    FirstRequest,
    Idle,
    AnswerNotTaken,
    HandshakesFull,
    AddressFull,
    AnonymousFull,
    UserFull,
    UncertifiedFull,
    Full,
    Descriptors,
    Untrusted,
}

impl Ended {
    /// The value of the metric's label.
    fn label(self) -> &'static str {
        match self {
            Self::HandshakeTimeout => "handshake-timeout",
            Self::FirstRequest => "no-request",
            Self::Idle => "idle",
            Self::AnswerNotTaken => "answer-not-taken",
            Self::HandshakesFull => "too-many-handshakes",
            Self::AddressFull => "too-many-of-address",
            Self::AnonymousFull => "too-many-anonymous",
            Self::UserFull => "too-many-of-user",
            Self::UncertifiedFull => "too-many-without-certificate",
            Self::Full => "too-many",
            Self::Descriptors => "no-descriptors",
            Self::Untrusted => "certificate-not-trusted",
        }
    }
}

/// How far a connection has shown who is at its other end.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Stage {
    Handshake,
    Anonymous,
    /// A token, in a request.
    Token(Arc<str>),
    Certificate(Arc<str>),
}

/// Whose a connection is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Owner {
    Address(IpAddr),
    User(Arc<str>),
}

#[derive(Debug)]
struct Entry {
    address: IpAddr,
    stage: Stage,
    /// What its peer showed.
    certificate: Option<Box<[u8]>>,
    activity: Arc<Activity>,
    end: CancellationToken,
}

impl Entry {
    fn owner(&self) -> Owner {
        match &self.stage {
            Stage::Handshake | Stage::Anonymous => Owner::Address(self.address),
            Stage::Token(user) | Stage::Certificate(user) => Owner::User(Arc::clone(user)),
        }
    }
}

/// Limits of the connections of all listeners that share them.
#[derive(Debug)]
pub struct ConnectionLimits {
    max: usize,
    entries: Mutex<Entries>,
    ended: Counts<1>,
    log: LogPause,
}

#[derive(Debug, Default)]
struct Entries {
    /// By number: older ones first. Those that were told to end are in none of the counts, and leave by themselves.
    by_id: BTreeMap<u64, Entry>,
    next: u64,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self::new(CONNECTIONS_MAX)
    }
}

impl ConnectionLimits {
    /// So many connections at most.
    pub fn new(max: usize) -> Self {
        Self { max, entries: Mutex::default(), ended: Counts::new(["reason"]), log: LogPause::default() }
    }

    /// As many as a process may have that may open so many files.
    pub fn for_descriptors(limit: u64) -> Self {
        let max = usize::try_from(limit / DESCRIPTORS_EACH).unwrap_or(CONNECTIONS_MAX);
        Self::new(max.clamp(CONNECTIONS_MIN, CONNECTIONS_MAX))
    }

    /// Writes what is counted of connections.
    pub fn show(&self, page: &mut Page) {
        let mut stages = [("handshake", 0), ("anonymous", 0), ("token", 0), ("certificate", 0)];
        for entry in self.entries().by_id.values() {
            let at = match entry.stage {
                Stage::Handshake => 0,
                Stage::Anonymous => 1,
                Stage::Token(_) => 2,
                Stage::Certificate(_) => 3,
            };
            stages[at].1 += 1;
        }
        let name = "pumice_connections";
        page.head(name, "gauge", "Connections, by what their peers have shown of who they are");
        for (stage, count) in stages {
            page.line(name, &[("shown", stage)], count);
        }
        page.gauge("pumice_connections_max", "Most connections that are open at a time", self.max as u64);
        let name = "pumice_connections_ended_total";
        page.counts(
            name,
            "Connections that were ended as their peers let the server wait, or as there were too many",
            &self.ended,
        );
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection of that address is about to shake hands.
    pub(super) fn enter(self: &Arc<Self>, address: IpAddr) -> Seat {
        let address = network(address);
        let (activity, end) = (Arc::new(Activity::default()), CancellationToken::new());
        let (stage, activity_of) = (Stage::Handshake, Arc::clone(&activity));
        let entry = Entry { address, stage, certificate: None, activity: activity_of, end: end.clone() };
        let mut entries = self.entries();
        let id = entries.next;
        entries.next += 1;
        entries.by_id.insert(id, entry);
        let is_handshake = |entry: &Entry| entry.stage == Stage::Handshake;
        self.bound(&entries, (self.max / 8).max(1), Ended::HandshakesFull, is_handshake);
        Seat { limits: Arc::clone(self), id, activity, end }
    }

    /// Ends connections whose certificate is not taken any more, with what they carry.
    pub(crate) fn end_untrusted(&self, takes: &dyn Fn(&[u8]) -> bool) {
        for entry in self.entries().by_id.values().filter(|entry| !entry.end.is_cancelled()) {
            if entry.certificate.as_ref().is_some_and(|certificate| !takes(certificate)) {
                entry.end.cancel();
                self.count(Ended::Untrusted, None);
            }
        }
    }

    /// There are no descriptors left: whoever has the most connections loses one.
    pub(super) fn shrink(&self) {
        let entries = self.entries();
        let count = entries.by_id.values().filter(|entry| !entry.end.is_cancelled()).count();
        self.bound(&entries, count.saturating_sub(1), Ended::Descriptors, |_| true);
    }

    /// Ends as many of those connections as are above `max`.
    fn bound(&self, entries: &Entries, max: usize, reason: Ended, counts: impl Fn(&Entry) -> bool) {
        let counted = || entries.by_id.values().filter(|entry| !entry.end.is_cancelled() && counts(entry));
        for _ in max..counted().count() {
            let mut sizes = HashMap::new();
            for entry in counted() {
                *sizes.entry(entry.owner()).or_insert(0_usize) += 1;
            }
            // Whoever has the most, and of those the one that was quiet for longest; one that is answered goes last.
            let order = |entry: &&Entry| {
                let quiet_since = entry.activity.quiet_since();
                (Reverse(sizes.get(&entry.owner()).copied()), quiet_since.is_none(), quiet_since)
            };
            // Connections that were taken over are ended by whoever did that.
            let Some(victim) = counted().filter(|entry| !entry.activity.is_upgraded()).min_by_key(order) else {
                return;
            };
            victim.end.cancel();
            self.count(reason, Some(victim.address));
        }
    }

    /// Counts a connection that is ended; the log tells of it where an address is given.
    pub(super) fn count(&self, reason: Ended, address: Option<IpAddr>) {
        self.ended.add([reason.label()]);
        let Some(address) = address else { return };
        if let Some(ended) = self.log.due(Instant::now()) {
            tracing::warn!(%address, reason = reason.label(), ended, "connections are ended to make room for others");
        }
    }
}

/// A connection's place among the others; it is free again when this is dropped.
#[derive(Debug)]
pub(super) struct Seat {
    limits: Arc<ConnectionLimits>,
    id: u64,
    /// What the connection does.
    pub(super) activity: Arc<Activity>,
    /// Fires when the connection has to go.
    pub(super) end: CancellationToken,
}

impl Seat {
    /// The handshake is over; `user` is who the certificate names, if one was shown.
    pub(super) fn shook_hands(&self, user: Option<&str>) {
        self.activity.open();
        match user {
            Some(user) => self.move_to(Stage::Certificate(user.into())),
            None => self.move_to(Stage::Anonymous),
        }
    }

    /// The certificate that the peer showed, and that was taken.
    pub(super) fn showed(&self, certificate: &[u8]) {
        if let Some(entry) = self.limits.entries().by_id.get_mut(&self.id) {
            entry.certificate = Some(certificate.into());
        }
    }

    /// A request has shown by a token of whom it is.
    pub(super) fn authenticated(&self, user: &str) {
        let is_anonymous =
            self.limits.entries().by_id.get(&self.id).is_some_and(|entry| entry.stage == Stage::Anonymous);
        if is_anonymous {
            self.move_to(Stage::Token(user.into()));
        }
    }

    fn move_to(&self, stage: Stage) {
        let limits = &self.limits;
        if stage != Stage::Anonymous {
            self.activity.identify();
        }
        let mut entries = limits.entries();
        let Some(entry) = entries.by_id.get_mut(&self.id) else { return };
        entry.stage = stage;
        let (owner, is_certified) = (entry.owner(), matches!(entry.stage, Stage::Certificate(_)));
        let seated = |entry: &Entry| entry.stage != Stage::Handshake;
        match owner {
            Owner::Address(address) => {
                let anonymous = |entry: &Entry| entry.stage == Stage::Anonymous;
                let of_address = |entry: &Entry| anonymous(entry) && entry.address == address;
                limits.bound(&entries, (limits.max / 16).max(1), Ended::AddressFull, of_address);
                limits.bound(&entries, (limits.max / 2).max(1), Ended::AnonymousFull, anonymous);
            }
            Owner::User(_) => {
                let of_user = |entry: &Entry| seated(entry) && entry.owner() == owner;
                limits.bound(&entries, (limits.max / 4).max(1), Ended::UserFull, of_user);
            }
        }
        if !is_certified {
            let uncertified = |entry: &Entry| matches!(entry.stage, Stage::Anonymous | Stage::Token(_));
            limits.bound(&entries, (limits.max / 4 * 3).max(1), Ended::UncertifiedFull, uncertified);
        }
        limits.bound(&entries, limits.max, Ended::Full, seated);
    }

    /// Counts the connection's end.
    pub(super) fn ends(&self, reason: Ended) {
        self.limits.count(reason, None);
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.limits.entries().by_id.remove(&self.id);
    }
}

/// What counts as one address: of IPv6 a network, as a host has all addresses of one.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    fn anonymous(limits: &Arc<ConnectionLimits>, address: IpAddr) -> Seat {
        let seat = limits.enter(address);
        seat.shook_hands(None);
        seat
    }

    fn certified(limits: &Arc<ConnectionLimits>, user: &str) -> Seat {
        let seat = limits.enter(address(1));
        seat.shook_hands(Some(user));
        seat
    }

    fn left(seats: &[Seat]) -> usize {
        seats.iter().filter(|seat| !seat.end.is_cancelled()).count()
    }

    fn counted(limits: &ConnectionLimits, reason: &str) -> bool {
        let mut page = Page::default();
        limits.show(&mut page);
        page.into_text().contains(&format!("pumice_connections_ended_total{{reason=\"{reason}\"}}"))
    }

    #[test]
    fn a_certificate_that_is_not_taken_any_more_ends_its_connections() {
        let limits = Arc::new(ConnectionLimits::new(64));
        let seats = [certified(&limits, "ann"), certified(&limits, "bob"), anonymous(&limits, address(2))];
        seats[0].showed(b"old");
        seats[1].showed(b"new");
        limits.end_untrusted(&|certificate| certificate == b"new");
        assert_eq!(seats.each_ref().map(|seat| seat.end.is_cancelled()), [true, false, false]);
        assert!(counted(&limits, "certificate-not-trusted"));
    }

    #[test]
    fn an_address_keeps_its_newest_and_no_other_out() {
        let limits = Arc::new(ConnectionLimits::new(64));
        let other = anonymous(&limits, address(2));
        let mut seats = Vec::new();
        for _ in 0..100 {
            seats.push(anonymous(&limits, address(1)));
        }
        assert_eq!(left(&seats), 4);
        assert_eq!(left(&seats[96..]), 4, "the newest stay");
        assert!(!other.end.is_cancelled() && counted(&limits, "too-many-of-address"));
        seats.clear();
        assert_eq!(limits.entries().by_id.len(), 1);
    }

    #[test]
    fn handshakes_are_bounded_and_the_busiest_address_pays() {
        let limits = Arc::new(ConnectionLimits::new(64));
        let other = limits.enter(address(2));
        let seats: Vec<_> = (0..100).map(|_| limits.enter(address(1))).collect();
        assert_eq!(left(&seats), 7);
        assert!(!other.end.is_cancelled() && counted(&limits, "too-many-handshakes"));
    }

    #[test]
    fn a_request_under_way_goes_last() {
        let limits = Arc::new(ConnectionLimits::new(32));
        let busy = anonymous(&limits, address(1));
        let request = busy.activity.request();
        let seats: Vec<_> = (0..10).map(|_| anonymous(&limits, address(1))).collect();
        assert!(!busy.end.is_cancelled() && left(&seats) == 1);
        drop(request);
    }

    #[test]
    fn room_is_left_to_those_with_a_certificate() {
        let limits = Arc::new(ConnectionLimits::new(64));
        let mut seats = Vec::new();
        for number in 0..100 {
            let seat = anonymous(&limits, address(number));
            seat.authenticated(&format!("robot-{number}"));
            seats.push(seat);
        }
        assert_eq!(left(&seats), 48);
        let person = certified(&limits, "ann");
        assert!(left(&seats) == 48 && !person.end.is_cancelled() && counted(&limits, "too-many-without-certificate"));
    }

    #[test]
    fn one_user_keeps_no_other_out() {
        let limits = Arc::new(ConnectionLimits::new(64));
        let ann = certified(&limits, "ann");
        let user = |number: usize| if number < 30 { "eve" } else { ["eve", "mal", "joe", "sue"][number % 4] };
        let many: Vec<_> = (0..200).map(|number| certified(&limits, user(number))).collect();
        assert!(!ann.end.is_cancelled() && left(&many) == 63);
        assert!(counted(&limits, "too-many-of-user") && counted(&limits, "too-many"));
    }

    #[test]
    fn connections_that_were_taken_over_stay() {
        let limits = Arc::new(ConnectionLimits::new(64));
        let max = 64 / 4;
        let taken: Vec<_> = (0..max).map(|_| certified(&limits, "pod")).collect();
        taken.iter().for_each(|seat| seat.activity.upgrade());
        let more = certified(&limits, "pod");
        assert!(more.end.is_cancelled() && left(&taken) == max);
    }

    #[test]
    fn a_network_of_ipv6_is_one_address() {
        let parse = |text: &str| network(text.parse().expect("an address"));
        assert_eq!(parse("2001:db8::1:2:3:4"), parse("2001:db8::4:3:2:1"));
        assert_ne!(parse("2001:db8:0:1::1"), parse("2001:db8::1"));
        assert_eq!(parse("::ffff:10.0.0.1"), address(1));
    }

    #[test]
    fn room_follows_the_descriptors() {
        assert_eq!(ConnectionLimits::for_descriptors(1024).max, 256);
        assert_eq!(ConnectionLimits::for_descriptors(u64::MAX).max, CONNECTIONS_MAX);
        assert_eq!(ConnectionLimits::for_descriptors(16).max, CONNECTIONS_MIN);
    }
}
