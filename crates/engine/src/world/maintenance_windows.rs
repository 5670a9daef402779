//! Windows: nodes that an administrator keeps for some, or from everybody, from one time to another.
//!
//! Invariant: a pod starts on a node only if no window of that node bars it: those who may use it are named, or the pod is
//! certain to be gone before it begins. Like Slurm's: what has no known end does not start where a window is to come.
//! Worked out at the start of a cycle from the Reservations told, nodes that have joined since included. Asked by
//! `Policy`, the forecast and the reasons; what is still there when a window begins is `eviction::maintenance`'s matter.

use std::sync::Arc;

use fixedbitset::FixedBitSet;
use smallvec::SmallVec;

use crate::cluster::node_matching::selected;
use crate::cluster::nodes::Nodes;
use crate::cluster::objects::Versioned;
use crate::facts::WindowFacts;
use crate::ids::{ClassId, GroupId, NodeId, TaskId, TimeMs};
use crate::world::end_times::Confidence;
use crate::world::groups::GroupRow;
use crate::world::tables::Tables;

/// Windows that are looked at: the others wait until one of them is over.
const WINDOWS_MAX: usize = 1_024;

/// One that is not over.
#[derive(Debug)]
pub(crate) struct Window {
    pub(crate) name: Arc<str>,
    pub(crate) from: TimeMs,
    pub(crate) to: Option<TimeMs>,
    queues: Vec<String>,
    namespaces: Vec<String>,
    pub(crate) nodes: FixedBitSet,
}

/// Places of windows in `MaintenanceWindows::all`.
pub(crate) type Barring = SmallVec<[u16; 4]>;

#[derive(Debug, Default)]
pub(crate) struct MaintenanceWindows {
    /// Those that are not over, the first to begin first.
    pub(crate) all: Vec<Window>,
    /// As of when, of which version of what was told, and up to where of the nodes' log of facts.
    now: TimeMs,
    seen: Option<(u64, u64)>,
}

impl Window {
    /// Whether it has begun.
    pub(crate) fn is_open(&self, now: TimeMs) -> bool {
        self.from <= now
    }

    /// Whether it is for anybody at all.
    pub(crate) fn is_for_some(&self) -> bool {
        !self.queues.is_empty() || !self.namespaces.is_empty()
    }

    /// For whom it is, for people.
    pub(crate) fn for_whom(&self) -> String {
        let named = |kind: &str, names: &[String]| {
            let plural = if names.len() == 1 { "" } else { "s" };
            (!names.is_empty()).then(|| format!("{kind}{plural} {}", names.join(", ")))
        };
        let parts = [named("queue", &self.queues), named("namespace", &self.namespaces)];
        parts.into_iter().flatten().collect::<Vec<_>>().join(" and ")
    }

    fn admits(&self, tables: &Tables, group: &GroupRow) -> bool {
        let of = |names: &[String], name: &str| names.iter().any(|other| other == name);
        of(&self.namespaces, &group.namespace)
            || !self.queues.is_empty() && of(&self.queues, &tables.queues.row(group.queue).name)
    }
}

impl MaintenanceWindows {
    /// Brings them up to date. O(nodes) for each window where one has changed, begun or ended, or a node has.
    pub(crate) fn refresh(&mut self, told: &Versioned<WindowFacts>, nodes: &Nodes, now: TimeMs) {
        self.now = now;
        let at = (told.version, nodes.facts_log.end());
        let ends = self.all.iter().any(|window| window.to.is_some_and(|to| to <= now));
        if told.all.is_empty() && self.all.is_empty() || self.seen == Some(at) && !ends {
            return;
        }
        self.seen = Some(at);
        let stands = |window: &&WindowFacts| window.to.is_none_or(|to| to > now && to > window.from);
        let mut all: Vec<&WindowFacts> = told.all.values().filter(stands).collect();
        all.sort_by_key(|window| (window.from, &window.name));
        all.truncate(WINDOWS_MAX);
        self.all = all.into_iter().map(|window| resolve(window, nodes)).collect();
    }

    /// When the next one begins or ends.
    pub(crate) fn next_edge(&self, now: TimeMs) -> Option<TimeMs> {
        let edges = self.all.iter().flat_map(|window| [Some(window.from), window.to]);
        edges.flatten().filter(|edge| *edge > now).min()
    }

    /// The first of these that keeps the node.
    pub(crate) fn on(&self, node: NodeId, barring: &Barring) -> Option<&Window> {
        let all = barring.iter().map(|place| &self.all[usize::from(*place)]);
        let mut on_node = all.filter(|window| window.nodes.contains(node.index()));
        on_node.next()
    }
}

fn resolve(facts: &WindowFacts, nodes: &Nodes) -> Window {
    let mut of = FixedBitSet::with_capacity(nodes.table.span());
    of.extend(facts.nodes.iter().filter_map(|name| nodes.table.find(name)).map(NodeId::index));
    if !facts.selector.is_empty() {
        let has = |node: &NodeId| {
            let value = |key: &str| nodes.row(*node).labels.get(key).map(String::as_str);
            facts.selector.iter().all(|requirement| selected(requirement, value(&requirement.key)))
        };
        of.extend(nodes.ids().filter(has).map(NodeId::index));
    }
    Window {
        name: facts.name.as_str().into(),
        from: facts.from,
        to: facts.to,
        queues: facts.queues.clone(),
        namespaces: facts.namespaces.clone(),
        nodes: of,
    }
}

impl Tables {
    /// The windows that bar a pod: those it may not use, and before which it is not certain to have gone.
    pub(crate) fn barring(&self, task: TaskId) -> Barring {
        let row = self.task(task);
        match row.group {
            Some(group) if !self.maintenance_windows.all.is_empty() => {
                self.barring_of(group, self.run_before_windows(group, row.class, row.preemptable))
            }
            _ => Barring::new(),
        }
    }

    /// The same for pods of a group that run so long.
    pub(crate) fn barring_of(&self, group: GroupId, run_ms: Option<i64>) -> Barring {
        let now = self.maintenance_windows.now;
        let end = run_ms.map(|run| now.plus_ms(run));
        let row = self.groups.row(group);
        let bars = |window: &Window| end.is_none_or(|end| end > window.from) && !window.admits(self, row);
        let barring = self.maintenance_windows.all.iter().enumerate().filter(|(_, window)| bars(window));
        barring.filter_map(|(place, _)| u16::try_from(place).ok()).collect()
    }

    /// Whether any window bars the pod from some node.
    pub(crate) fn is_barred(&self, task: TaskId) -> bool {
        !self.maintenance_windows.all.is_empty() && !self.barring(task).is_empty()
    }

    /// The window that keeps the pod from the node.
    pub(crate) fn barred_on(&self, task: TaskId, node: NodeId) -> Option<&Window> {
        if self.maintenance_windows.all.is_empty() {
            None
        } else {
            self.maintenance_windows.on(node, &self.barring(task))
        }
    }

    /// How long a pod runs at most, as windows count it: by its limit, else, where it may be evicted, as runs of its kind
    /// did.
    pub(crate) fn run_before_windows(&self, group: GroupId, class: ClassId, preemptable: bool) -> Option<i64> {
        match preemptable {
            true => self.reliable_run(group, class),
            false => self.backfills_for(group, class, Confidence::Certain),
        }
    }

    /// The same for the pods that a group waits with: the longest; nothing where one of them is endless.
    pub(crate) fn run_of_group(&self, group: GroupId, classes: impl Iterator<Item = ClassId>) -> Option<i64> {
        if self.maintenance_windows.all.is_empty() {
            return None;
        }
        let tasks = &self.groups.row(group).tasks;
        let preemptable = tasks.iter().all(|task| self.task(*task).preemptable);
        let runs = classes.map(|class| self.run_before_windows(group, class, preemptable));
        runs.collect::<Option<Vec<i64>>>()?.into_iter().max()
    }

    /// The times at which pods of the group that run so long can't start on a node: from just after the first until the
    /// second, or for good.
    pub(crate) fn closed_times(&self, group: GroupId, node: NodeId, run_ms: Option<i64>) -> ClosedTimes {
        let row = self.groups.row(group);
        let on_node = self.maintenance_windows.all.iter().filter(|window| window.nodes.contains(node.index()));
        let closes = on_node.filter(|window| !window.admits(self, row));
        let last = |window: &Window| run_ms.map_or(TimeMs(i64::MIN), |run| window.from.plus_ms(run.saturating_neg()));
        closes.map(|window| (last(window), window.to)).collect()
    }

    /// Whether the node is somebody else's for now.
    pub(crate) fn is_of_others(&self, group: GroupId, node: NodeId) -> bool {
        let open = self
            .maintenance_windows
            .all
            .iter()
            .filter(|window| window.is_for_some() && window.is_open(self.maintenance_windows.now));
        let mut on_node = open.filter(|window| window.nodes.contains(node.index()));
        on_node.any(|window| !window.admits(self, self.groups.row(group)))
    }

    /// What has to leave when a window begins: pods of ours that it is not for. Of those that somebody else's window ends
    /// only such as may be evicted.
    pub(crate) fn leaves_for(&self, task: TaskId, window: &Window) -> bool {
        let row = self.task(task);
        let Some(group) = row.group.map(|group| self.groups.row(group)) else { return false };
        !row.of_daemon_set && !window.admits(self, group) && (row.preemptable || !window.is_for_some())
    }
}

/// Starts that are closed, each from just after a time until another.
pub(crate) type ClosedTimes = SmallVec<[(TimeMs, Option<TimeMs>); 1]>;

/// Whether a start at that time is closed.
pub(crate) fn is_closed(times: &ClosedTimes, at: TimeMs) -> bool {
    times.iter().any(|(last, to)| at > *last && to.is_none_or(|to| at < to))
}

crate::save::saved! {
    Window { name, from, to, queues, namespaces, nodes };
    MaintenanceWindows as "Windows" { all, now, seen };
}
