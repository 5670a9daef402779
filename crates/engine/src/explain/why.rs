//! The whole answer to why a group waits: the checks that fail now, who holds what is short, its place in the line, and what
//! would let it start. Worked out when asked, so that it costs neither a cycle nor memory. Called by `World::why`.

use std::collections::BTreeSet;
use std::fmt::{self, Display, Formatter};

use serde::{Deserialize, Serialize};

use super::could::Could;
use super::holders;
use super::holders::{Of, ResourceHolders};
use super::position;
use super::position::Line;
use super::spared::{Spared, spared};
use super::unblock_probes::UnblockProbes;
use crate::actions::allocate::tentative_placement::TentativePlacement;
use crate::actions::enqueue;
use crate::config::Action;
use crate::facts::NodeName;
use crate::ids::{ClassId, GroupId};
use crate::reasons::{Branch, Reason, Reasons, Stage, forest};
use crate::search::View;
use crate::search::pending::PendingIndex;
use crate::session::Session;
use crate::world::eviction_records::EvictionRecord;
use crate::world::minimum::missing;

/// Nodes that are named where pods found room.
const ROOM_TOLD_MAX: usize = 5;

/// Why a group waits, as it is now.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Why {
    /// The checks that fail.
    #[serde(flatten)]
    pub reasons: Reasons,
    /// Its place in its queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<Line>,
    /// Who holds what is short.
    #[serde(rename = "held", default, skip_serializing_if = "Vec::is_empty")]
    pub holders: Vec<ResourceHolders>,
    /// Pods that would have to leave for it, and say that they may not be evicted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spared: Option<Spared>,
    /// Where those of its pods would go that found room, node and how many; five at most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub room_on: Vec<(NodeName, u32)>,
    /// Changes each of which would let it start now. All were tried.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub could: Vec<Could>,
    /// Its pods that had to leave for others, and those that left for it, the newest first; five at most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evictions: Vec<EvictionRecord>,
    /// It would start in the next cycle, as it is.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub starts_next: bool,
    /// Whether it would fit if nothing else ran; absent where that was not tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fits_empty: Option<bool>,
    /// Not all that might help was tried: that would have taken too long.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bounded: bool,
}

impl Why {
    /// Only what the last cycle said.
    pub fn of(reasons: Reasons) -> Self {
        Self { reasons, ..Self::default() }
    }
}

/// Completes what the last cycle said of the group.
pub(crate) fn why(session: &mut Session<'_>, pending_index: &PendingIndex, group: GroupId, reasons: Reasons) -> Why {
    let line = position::line(View { pending_index, ..session.view() }, group);
    let evictions = session.tables.eviction_records_of(&session.tables.groups.row(group).key(), session.now);
    let mut why = Why { line, evictions, bounded: !session.tables.can_dry_run(), ..Why::of(reasons) };
    let waits = matches!(why.reasons.stage, Stage::Enqueue | Stage::Allocate);
    if !waits || why.bounded {
        why.bounded &= waits;
        return why;
    }
    if why.reasons.stage == Stage::Enqueue {
        for reason in enqueue::objections(session, group) {
            if !why.reasons.reasons.iter().any(|other| other.is_about_as(&reason)) {
                why.reasons.reasons.push(reason);
            }
        }
    }
    let mut probes = UnblockProbes::begin(session, group);
    let tentative = probes.as_it_is();
    let as_it_is = if why.reasons.stage == Stage::Allocate { tentative } else { None };
    if let Some(tentative) = &as_it_is {
        why.starts_next = tentative.starts;
        renew(&mut why.reasons.reasons, tentative);
    }
    why.fits_empty = probes.fits_empty();
    why.could = probes.changes(as_it_is.as_ref(), &why.reasons.reasons);
    why.bounded = probes.bounded;
    probes.end();
    if let Some(tentative) = &as_it_is {
        why.room_on = room_on(session, tentative);
    }
    why.holders = holders(session, group, as_it_is.as_ref(), &why.reasons.reasons);
    if !why.starts_next && session.config.has(Action::Preempt) {
        why.spared = spared(session.tables, session.policy, group);
    }
    why
}

/// What the last cycle found to be short gives way to what is so now, with all that fails.
fn renew(reasons: &mut Vec<Reason>, tentative: &TentativePlacement) {
    if tentative.starts || tentative.reasons.is_empty() {
        return;
    }
    let of_room = |reason: &Reason| {
        matches!(
            reason,
            Reason::NodesUnfit(_) | Reason::QueueLimit { .. } | Reason::QueueShare { .. } | Reason::NoDomain(_)
        )
    };
    let place = reasons.iter().position(of_room).unwrap_or(reasons.len());
    reasons.retain(|reason| !of_room(reason));
    let fresh = tentative.reasons.iter().filter(|reason| !reasons.contains(reason)).cloned().collect::<Vec<_>>();
    reasons.splice(place..place, fresh);
}

fn room_on(session: &Session<'_>, tentative: &TentativePlacement) -> Vec<(NodeName, u32)> {
    let mut nodes: Vec<(NodeName, u32)> = Vec::new();
    for (_, node) in &tentative.placed {
        let name = &**session.tables.node_name(*node);
        let full = nodes.len() >= ROOM_TOLD_MAX;
        match nodes.iter_mut().find(|(other, _)| other == name) {
            Some((_, pods)) => *pods += 1,
            None if !full => nodes.push((name.into(), 1)),
            None => {}
        }
    }
    nodes
}

fn holders(
    session: &Session<'_>,
    group: GroupId,
    as_it_is: Option<&TentativePlacement>,
    reasons: &[Reason],
) -> Vec<ResourceHolders> {
    let tables = &*session.tables;
    let mut of: BTreeSet<Of> = BTreeSet::new();
    for (class, unfit) in as_it_is.into_iter().flat_map(|tentative| &tentative.unfit) {
        let dims = unfit.short.iter().filter_map(|short| tables.dims.lookup(&short.resource));
        of.extend(dims.map(|dim| Of::Nodes(*class, dim)));
    }
    for reason in reasons {
        if let Reason::QueueLimit { queue, resource, limit, never: false, .. } = reason
            && let Some((queue, dim)) = tables.queues.table.find(queue).zip(tables.dims.lookup(resource))
        {
            of.insert(Of::Queue(queue, dim, *limit));
        }
        if let Reason::Overcommitted { resource, .. } = reason
            && let Some(dim) = tables.dims.lookup(resource)
        {
            let asks = |class: &ClassId| tables.classes.row(*class).demand.get(dim) > 0;
            let classes = missing(tables, group).parts.into_iter().map(|part| part.class);
            of.extend(classes.filter(asks).map(|class| Of::Nodes(class, dim)));
        }
    }
    let told = of.into_iter().filter(|of| {
        let (Of::Nodes(_, dim) | Of::Queue(_, dim, _)) = of;
        holders::is_told(*dim)
    });
    let holders = told.filter_map(|of| holders::holders_of(session.view(), of));
    let mut told: Vec<ResourceHolders> = Vec::new();
    for holders in holders.filter(ResourceHolders::is_of_use) {
        if !told.contains(&holders) {
            told.push(holders);
        }
    }
    told
}

impl Display for Why {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reasons.summary())?;
        let mut branches: Vec<Branch> = self.reasons.facts().into_iter().map(Branch::leaf).collect();
        branches.extend(self.holders.iter().map(|holders| Branch::leaf(holders.to_string())));
        branches.extend(self.spared.iter().map(|spared| Branch::leaf(spared.to_string())));
        branches.extend(self.evictions.iter().map(|record| Branch::leaf(record.to_string())));
        branches.extend(self.line.iter().filter(|line| line.waiting > 1).map(|line| Branch::leaf(line.to_string())));
        match &self.could[..] {
            [] if self.starts_next => branches.push(Branch::leaf("fits now: it starts in the next cycle".to_owned())),
            [] if self.fits_empty == Some(true) => {
                branches.push(Branch::leaf("would fit if nothing else ran".to_owned()));
            }
            [] => {}
            [could] => branches.push(Branch::leaf(format!("could start now {could}"))),
            all => branches.push(Branch {
                text: "could start now".to_owned(),
                below: all.iter().map(ToString::to_string).collect(),
            }),
        }
        if self.bounded {
            branches.push(Branch::leaf("not all that might help was tried".to_owned()));
        }
        branches.extend(self.reasons.start_text().into_iter().map(Branch::leaf));
        forest(f, &branches)
    }
}
