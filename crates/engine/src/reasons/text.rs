//! Reasons for people: one line, then one line per further fact.

use std::fmt::{self, Display, Formatter};

use super::{Check, CheckCount, Expected, NoDomain, NodesUnfit, Reason, Reasons, Stage};
use crate::ids::TimeMs;
use crate::resource_dims::amount_text;

/// Bytes of the line that is written to objects: a million pods carry it.
const SUMMARY_BYTES_MAX: usize = 1_024;
/// What a longer one ends with.
const CUT: &str = "...";
/// Further lines rendered; the structure holds all.
const LINES_MAX: usize = 20;

impl Display for Reasons {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.summary())?;
        let mut lines = self.facts();
        lines.extend(self.start_text());
        lines.truncate(LINES_MAX);
        tree(f, &lines)
    }
}

impl Reasons {
    /// What there is to say after the deciding reason, but for what comes.
    pub(crate) fn facts(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.reasons.iter().skip(1).map(ToString::to_string).collect();
        for reason in &self.reasons {
            if let Reason::NodesUnfit(unfit) | Reason::ExceedsCluster(unfit) = reason {
                lines.extend(unfit.lines());
            }
        }
        let minimum = &self.minimum;
        if self.stage == Stage::Started {
            return lines;
        }
        if minimum.ready >= minimum.min_member.max(1) {
            lines.push(format!("has started with {}; {} more waiting", plural(minimum.ready, "pod"), minimum.pending));
        } else if minimum.min_member > 1 {
            let together = plural(minimum.min_member, "pod");
            lines.push(match (minimum.ready, minimum.pending) {
                (0, 0) => format!("starts with at least {together} together; none is made yet"),
                (ready, pending) => {
                    format!("starts with at least {together} together: {ready} placed, {pending} waiting")
                }
            });
        }
        // A task that is the whole gang has been told of.
        for role in minimum.roles.iter().filter(|role| role.min < minimum.min_member) {
            lines.push(format!("of task {} at least {}: {} placed", role.role, role.min, role.ready));
        }
        lines.truncate(LINES_MAX);
        lines
    }

    /// What is expected, and how sure the whole is.
    pub(crate) fn start_text(&self) -> Vec<String> {
        let estimated = "estimated from minResources: its pods are not known yet";
        let expected = self.expected.iter().map(ToString::to_string);
        expected.chain(self.approximate.then(|| estimated.to_owned())).collect()
    }
}

/// A line, and those that belong to it.
pub(crate) struct Branch {
    pub(crate) text: String,
    pub(crate) below: Vec<String>,
}

impl Branch {
    pub(crate) fn leaf(text: String) -> Self {
        Self { text, below: Vec::new() }
    }
}

/// Writes lines below one that was written.
pub(crate) fn tree(f: &mut Formatter<'_>, lines: &[String]) -> fmt::Result {
    forest(f, &lines.iter().cloned().map(Branch::leaf).collect::<Vec<_>>())
}

/// The same with lines below them.
pub(crate) fn forest(f: &mut Formatter<'_>, branches: &[Branch]) -> fmt::Result {
    for (number, Branch { text, below }) in branches.iter().enumerate() {
        let last = number + 1 == branches.len();
        write!(f, "\n{} {text}", if last { "└─" } else { "├─" })?;
        for (number, text) in below.iter().enumerate() {
            let (stem, branch) = (if last { " " } else { "│" }, if number + 1 == below.len() { "└─" } else { "├─" });
            write!(f, "\n{stem}  {branch} {text}")?;
        }
    }
    Ok(())
}

impl Display for Expected {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let time = |at: TimeMs| time_text(at.0.saturating_sub(self.as_of.0));
        write!(f, "expected to start in {}, between {} and {}", time(self.at), time(self.early), time(self.late))
    }
}

impl Reasons {
    /// The first line: the deciding reason. It is what objects are told, so it has a size.
    pub fn summary(&self) -> String {
        let mut text = self.deciding();
        if text.len() > SUMMARY_BYTES_MAX {
            text.truncate(text.floor_char_boundary(SUMMARY_BYTES_MAX - CUT.len()));
            text.push_str(CUT);
        }
        text
    }

    fn deciding(&self) -> String {
        match (self.reasons.first(), self.stage) {
            (Some(first), _) => first.to_string(),
            (None, Stage::NoGroup) => "waits for its PodGroup".to_owned(),
            (None, Stage::Enqueue) => "waits to be admitted".to_owned(),
            (None, Stage::NoPods) => "waits for its pods to be made".to_owned(),
            (None, Stage::Allocate) => "waits for a node".to_owned(),
            (None, Stage::Binding) => "is being bound".to_owned(),
            (None, Stage::Started) => "does not wait: it has what it needs".to_owned(),
        }
    }
}

impl Display for Reason {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::GroupNotFound { group, made: true } => {
                write!(
                    f,
                    "PodGroup {group} does not exist: the controllers make it for the pod's owner; see that they run"
                )
            }
            Self::GroupNotFound { group, made: false } => {
                write!(f, "PodGroup {group} does not exist: create it, or name another; ")?;
                f.write_str("for a group of scheduling.k8s.io the controllers make it, once that is there")
            }
            Self::QueueNotFound { queue } => write!(f, "queue {queue} does not exist: create it, or choose another"),
            Self::QueueClosed { queue, state } => write!(f, "queue {queue} is {state} and takes no new work"),
            Self::QueueLimit { queue, resource, limit, used, requested, short, never, of_cluster } => {
                let text = |amount: &i64| amount_text(resource, *amount);
                let (limit, requested, used, short) = (text(limit), text(requested), text(used), text(short));
                if *never {
                    return write!(
                        f,
                        "asks for {requested} {resource}, more than queue {queue} may ever hold ({limit})"
                    );
                }
                if *of_cluster {
                    write!(f, "insufficient {resource} (short by {short}): ")?;
                    return write!(f, "queue {queue} holds or awaits {used} of the {limit} of the cluster");
                }
                write!(f, "queue {queue} is at its {resource} limit: {used} of {limit} in use, ")?;
                write!(f, "{requested} asked for (short by {short})")
            }
            Self::QueueShare { queue, resource, deserved, used, requested } => {
                let text = |amount: &i64| amount_text(resource, *amount);
                let (deserved, used) = (text(deserved), text(used));
                write!(f, "queue {queue} holds its share of {resource}: {used} of {deserved} in use")?;
                if *requested > 0 { write!(f, ", {} asked for", text(requested)) } else { Ok(()) }
            }
            Self::QueueUnusable { queue, fault } => write!(f, "queue {queue} can't be used: {fault}"),
            Self::Overcommitted { resource, budget, promised, requested } => {
                let text = |amount: &i64| amount_text(resource, *amount);
                let (budget, promised, requested) = (text(budget), text(promised), text(requested));
                write!(f, "enough was admitted already: {promised} of {budget} {resource} are promised, ")?;
                write!(f, "{requested} asked for")
            }
            Self::Quota { quota, resource, hard, used, requested } => {
                let plain = resource.strip_prefix("requests.").unwrap_or(resource);
                let text = |amount: &i64| amount_text(plain, *amount);
                let (hard, used, requested) = (text(hard), text(used), text(requested));
                write!(f, "quota {quota} leaves too little {resource}: {used} of {hard} used, {requested} asked for")
            }
            Self::AwaitsNodes => f.write_str(
                "no present node fits it: its pods are there for an autoscaler to see; nothing is kept for it until nodes have come",
            ),
            Self::QueueJobs { queue, limit, running } => {
                write!(f, "queue {queue} runs as many jobs as it may at a time: {running} of {limit} (maxRunningJobs)")
            }
            Self::NodesUnfit(unfit) => write!(f, "{unfit}"),
            Self::ExceedsCluster(unfit) => write!(f, "does not fit the cluster even when it is empty: {unfit}"),
            Self::NotEnoughTasks { min, valid: 0 } => write!(f, "waits for its pods to be made: 0 of {min}"),
            Self::NotEnoughTasks { min, valid } => write!(f, "only {valid} of at least {min} pods exist"),
            Self::ResourcesPromised { amounts, left_ms } => {
                let (amounts, left) = (amounts.join(", "), time_text(*left_ms));
                write!(f, "{amounts} are kept for pods of it that are not there yet, for another {left} if none is made")
            }
            Self::WaitsForTasks { role, tasks, any } => {
                let which = match (tasks.as_slice(), any) {
                    ([one], _) => format!("task {one} to run"),
                    (all, true) => format!("one of the tasks {} to run", all.join(", ")),
                    (all, false) => format!("the tasks {} to run", all.join(", ")),
                };
                write!(f, "task {role} has no pods yet: it waits for {which} (dependsOn)")
            }
            Self::NotEnoughTasksOfRole { role, min, valid } => {
                write!(f, "only {valid} of at least {min} pods of task {role} exist")
            }
            Self::NotEnoughParts { policy, min, found } => {
                write!(f, "only {found} of at least {min} sub-groups of {policy} exist")
            }
            Self::NoDomain(domain) => write!(f, "{domain}"),
            Self::UnknownTier { name } => {
                write!(f, "no HyperNode has tier name {name}: correct highestTierName, or make such HyperNodes")
            }
            Self::Gated { pods } => write!(f, "{} held by scheduling gates", plural(*pods, "pod")),
            Self::BindFailed { pods, error, .. } => {
                write!(f, "{} could not be bound, to be tried again: {error}", plural(*pods, "pod"))
            }
            Self::RoomIsFreed { pods, nodes, .. } => {
                write!(f, "room for {} is being freed on {}", plural(*pods, "pod"), nodes.join(", "))
            }
            Self::NominationExpired { pods } => {
                write!(f, "room kept for {} did not become free in time", plural(*pods, "pod"))
            }
            Self::NotConfigured { action } => write!(f, "the scheduler's configuration has no action {action}"),
            Self::Refused { plugin, message } => write!(f, "{plugin}: {message}"),
            Self::StrictOrder { queue, next } => {
                write!(f, "queue {queue} keeps strict order: {next} is next and does not fit yet")
            }
            Self::Reserved { in_ms: None, .. } => {
                f.write_str(
                    "is next; it can't be told when it will start: what it waits for has no limit, and none of ",
                )?;
                f.write_str("its kind has ended yet")
            }
            Self::Reserved { in_ms: Some(in_ms), hard, promised, nodes, count } => {
                let (time, more) = (time_text(*in_ms), if nodes.len() < *count as usize { ", ..." } else { "" });
                match (hard, promised) {
                    (_, true) => write!(f, "is next and starts within {time}")?,
                    (true, false) => write!(f, "is next, its nodes are kept; expected to start in {time}")?,
                    (false, false) => write!(f, "is next; expected to start in {time}")?,
                }
                write!(f, ": room is reserved on {} ({}{more})", plural(*count, "node"), nodes.join(", "))
            }
            Self::KeptForOthers { groups, nodes, in_ms } => {
                let (time, nodes) = (time_text(*in_ms), plural(*nodes, "node"));
                let groups = groups.join(", ");
                write!(f, "{nodes} could take it, but room there is kept for {groups}, expected to start in {time}")
            }
            Self::Closed { window, nodes, begins_ms, ends_ms, for_whom } => {
                write!(f, "{} could take it, but reservation {window} ", plural(*nodes, "node"))?;
                let them = if *nodes == 1 { "it" } else { "them" };
                match for_whom.as_str() {
                    "" => write!(f, "closes {them}")?,
                    for_whom => write!(f, "keeps {them} for {for_whom}")?,
                }
                match (begins_ms, ends_ms) {
                    (1.., _) => {
                        let time = time_text(*begins_ms);
                        write!(f, " in {time}: with a time limit below {time} it could start there now")
                    }
                    (_, Some(ends_ms)) => write!(f, " for another {}", time_text(*ends_ms)),
                    (_, None) => f.write_str(" until that is deleted"),
                }
            }
            Self::DeadlineMiss { late_ms } => {
                write!(f, "is expected to miss its deadline by {}", time_text(*late_ms))
            }
            Self::WaitsBehind { groups, count } => {
                write!(f, "behind {} admitted earlier: {}", plural(*count, "group"), groups.join(", "))?;
                if groups.len() < *count as usize { f.write_str(", ...") } else { Ok(()) }
            }
        }
    }
}

impl Display for NoDomain {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let part = if self.part.is_empty() { String::new() } else { format!(" of sub-group {}", self.part) };
        let more = if self.inside.is_empty() { "" } else { "more " };
        let pods = if self.needed == 1 { format!("1 {more}pod") } else { format!("{} {more}pods", self.needed) };
        write!(f, "no HyperNode of tier ≤ {} has room for {pods}{part}", self.tier_max)?;
        if !self.inside.is_empty() {
            write!(f, " where its other pods are, in {}", self.inside)?;
        }
        if self.nearest.is_empty() {
            return f.write_str(": there is no such HyperNode");
        }
        write!(f, ": of {} {} comes nearest, with room for {}", self.hyper_nodes, self.nearest, self.room_for)
    }
}

impl Display for NodesUnfit {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let role = if self.role.is_empty() { String::new() } else { format!(" of task {}", self.role) };
        let needed = plural(self.needed, "pod");
        if self.found_room > 0 {
            write!(f, "room for {} of {needed}{role}; 0/{} nodes fit the next one", self.found_room, self.nodes)?;
        } else {
            write!(f, "0/{} nodes fit {needed}{role}", self.nodes)?;
        }
        let checks: Vec<String> = self.checks.iter().map(|count| self.check(count)).collect();
        if !checks.is_empty() {
            write!(f, ": {}", checks.join(", "))?;
        }
        Ok(())
    }
}

impl NodesUnfit {
    fn check(&self, count: &CheckCount) -> String {
        let (nodes, detail) = (count.nodes, &count.detail);
        match count.check {
            Check::NodeGone => format!("{nodes} not known"),
            Check::OutsideShard => format!("{nodes} outside of this scheduler's shard"),
            Check::Unschedulable if detail.is_empty() => format!("{nodes} cordoned"),
            Check::Unschedulable => format!("{nodes} {detail}"),
            Check::NodeAffinity => format!("{nodes} not matching its node selector or affinity"),
            Check::Taint => format!("{nodes} with taint {detail} that it does not tolerate"),
            Check::Unsupported => format!("{nodes} where {detail} can't be honoured by this version"),
            Check::Binding => format!("{nodes} with as many pods on their way as may be at a time"),
            Check::RevocableZone => format!("{nodes} in a zone that is closed now or not for it"),
            Check::Reserved => format!("{nodes} with room that is kept for others"),
            Check::Closed => format!("{nodes} closed by reservation {detail}"),
            Check::PodCount => format!("{nodes} with too many pods"),
            Check::NodeGroup => format!("{nodes} in node groups that its queue may not use"),
            Check::NodeGroupLimit => format!("{nodes} in node groups of which its queue has all that it may"),
            Check::Usage => format!("{nodes} busier than the threshold"),
            Check::Device => format!("{nodes} without a shared device that can take it"),
            Check::Numa => format!("{nodes} that can't meet its NUMA policy"),
            Check::Proportional => format!("{nodes} whose cpu or memory is kept for their scarce resources"),
            Check::HostPort => format!("{nodes} with host port {detail} taken"),
            Check::VolumeClaim | Check::DeviceClaim => format!("{nodes} because {detail}"),
            Check::VolumeNode => format!("{nodes} that can't reach volume {detail}"),
            Check::VolumeZone => format!("{nodes} in another zone than volume {detail}"),
            Check::VolumeLimit => format!("{nodes} that take no more volumes of {detail}"),
            Check::NoVolume => format!("{nodes} without a volume for claim {detail}"),
            Check::Devices => format!("{nodes} with too few free devices of class {detail}"),
            Check::DevicesElsewhere => format!("{nodes} without the devices of resource claim {detail}"),
            Check::PodAffinity => format!("{nodes} without a pod that its affinity asks for in the same {detail}"),
            Check::PodAntiAffinity => format!("{nodes} with a pod that its anti-affinity shuns in the same {detail}"),
            Check::OtherAntiAffinity => format!("{nodes} with a pod that shuns it in the same {detail}"),
            Check::SpreadLabel => format!("{nodes} without the label {detail} that its pods are spread over"),
            Check::Spread => format!("{nodes} in a {detail} that has its share of pods"),
            Check::OutsideDomain => format!("{nodes} outside the part of the cluster it may use"),
            Check::Refused => format!("{nodes} {detail}"),
            Check::Resource => {
                let short =
                    self.short.iter().find(|short| short.resource == *detail).map_or_else(String::new, |short| {
                        format!(" (short by {})", amount_text(detail, short.short_on_best))
                    });
                format!("{nodes} insufficient {detail}{short}")
            }
        }
    }

    fn lines(&self) -> Vec<String> {
        self.short
            .iter()
            .map(|short| {
                let text = |amount| amount_text(&short.resource, amount);
                let (resource, node) = (&short.resource, &short.best_node);
                let (requested, lacks) = (text(short.requested), text(short.short_on_best));
                let mut line =
                    format!("{resource}: each pod asks for {requested}; node {node} comes nearest and lacks {lacks}");
                if short.short_total > 0 {
                    line.push_str(&format!("; in all {} more {resource} would be needed", text(short.short_total)));
                }
                line
            })
            .collect()
    }
}

/// A time as people say it, in two units at most: `1h 5m`.
pub(crate) fn time_text(milliseconds: i64) -> String {
    let seconds = milliseconds.max(0).saturating_add(999) / 1_000;
    let parts = [("d", 86_400, i64::MAX), ("h", 3_600, 24), ("m", 60, 60), ("s", 1, 60)];
    let amounts = parts.map(|(unit, length, most)| (seconds / length % most, unit));
    let first = amounts.iter().position(|(amount, _)| *amount > 0).unwrap_or(parts.len() - 1);
    let said = amounts[first..].iter().take(2).enumerate().filter(|(place, (amount, _))| *place == 0 || *amount > 0);
    said.map(|(_, (amount, unit))| format!("{amount}{unit}")).collect::<Vec<_>>().join(" ")
}

pub(crate) fn plural(count: u32, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(reason: Reason) -> Reasons {
        Reasons { stage: Stage::Allocate, reasons: vec![reason], ..Reasons::default() }
    }

    #[test]
    fn what_objects_are_told_is_cut_between_characters() {
        for word in ["a", "é", "漢", "🦀"] {
            for beginning in ["", "x", "xy", "xyz"] {
                let message = format!("{beginning}{}", word.repeat(2_000));
                let told = of(Reason::Refused { plugin: "p".to_owned(), message: message.clone() }).summary();
                assert!(told.len() <= SUMMARY_BYTES_MAX && told.len() > SUMMARY_BYTES_MAX - 2 * CUT.len() - 4);
                assert!(format!("p: {message}").starts_with(told.strip_suffix(CUT).unwrap()), "{told}");
            }
        }
        let short = Reason::Refused { plugin: "p".to_owned(), message: "é".repeat(500) };
        assert!(!of(short).summary().ends_with(CUT));
    }

    /// The texts of Volcano's conditions and of pods' events.
    #[test]
    fn conditions_read_like_this() {
        let unfit = NodesUnfit {
            role: "worker".to_owned(),
            needed: 4,
            found_room: 1,
            nodes: 9,
            checks: vec![
                CheckCount { check: Check::Unschedulable, detail: String::new(), nodes: 2 },
                CheckCount { check: Check::Taint, detail: "a=b".to_owned(), nodes: 1 },
                CheckCount { check: Check::Resource, detail: "memory".to_owned(), nodes: 6 },
            ],
            short: vec![crate::reasons::Shortage {
                resource: "memory".to_owned(),
                requested: 4 << 30,
                best_node: "n1".into(),
                short_on_best: 1 << 30,
                short_total: 9 << 30,
            }],
        };
        let limit = |never, of_cluster| Reason::QueueLimit {
            queue: "q".to_owned(),
            resource: "cpu".to_owned(),
            limit: 8_000,
            used: 6_000,
            requested: 4_000,
            short: 2_000,
            never,
            of_cluster,
        };
        let all = [
            Reason::NodesUnfit(unfit.clone()),
            Reason::ExceedsCluster(NodesUnfit { found_room: 0, ..unfit }),
            limit(false, false),
            limit(true, false),
            limit(false, true),
            Reason::QueueClosed { queue: "q".to_owned(), state: "Closed".to_owned() },
            Reason::NotEnoughTasks { min: 4, valid: 2 },
            Reason::StrictOrder { queue: "q".to_owned(), next: "ns/first".into() },
        ];
        let texts: Vec<String> = all.into_iter().map(|reason| of(reason).summary()).collect();
        insta::assert_snapshot!(texts.join("\n"), @r"
        room for 1 of 4 pods of task worker; 0/9 nodes fit the next one: 2 cordoned, 1 with taint a=b that it does not tolerate, 6 insufficient memory (short by 1Gi)
        does not fit the cluster even when it is empty: 0/9 nodes fit 4 pods of task worker: 2 cordoned, 1 with taint a=b that it does not tolerate, 6 insufficient memory (short by 1Gi)
        queue q is at its cpu limit: 6 of 8 in use, 4 asked for (short by 2)
        asks for 4 cpu, more than queue q may ever hold (8)
        insufficient cpu (short by 2): queue q holds or awaits 6 of the 8 of the cluster
        queue q is Closed and takes no new work
        only 2 of at least 4 pods exist
        queue q keeps strict order: ns/first is next and does not fit yet
        ");
    }

    #[test]
    fn times_are_said_in_two_units() {
        for (milliseconds, text) in [
            (0, "0s"),
            (-5, "0s"),
            (1, "1s"),
            (59_000, "59s"),
            (60_000, "1m"),
            (3_900_000, "1h 5m"),
            (3_605_000, "1h"),
            (90_061_000, "1d 1h"),
            (i64::MAX, "106751991167d 7h"),
        ] {
            assert_eq!(time_text(milliseconds), text, "{milliseconds}");
        }
    }
}
