//! Which of the nodes on which victims make room a pod takes: the first by score, or of several the one whose victims matter
//! least. Used by preempt and reclaim.

use super::candidates::{PreemptionCandidates, Room};
use super::preempt::NAME as PREEMPT;
use super::victim_search::VictimSearch;
use crate::config::Config;
use crate::session::Session;
use crate::world::tables::Tables;

/// Nodes that are compared where gangs leave whole: on one of them a single pod may be enough, on another a gang is lost.
const WHERE_GANGS_LEAVE_WHOLE: SampleSize = SampleSize { percent: 0, min: 16, max: 16 };

/// How a node is chosen among those where victims make room.
#[derive(Debug, Clone, Copy)]
pub(super) enum Choice {
    /// The first by score.
    Score,
    /// Of so many the one whose victims matter least.
    Cheapest(SampleSize),
}

/// How many nodes are compared: a part of all, within bounds.
#[derive(Debug, Clone, Copy)]
pub(super) struct SampleSize {
    percent: i64,
    min: i64,
    max: i64,
}

impl Choice {
    /// That of preempt, for which Volcano has arguments.
    pub(super) fn for_preempt(config: &Config) -> Self {
        let int = |name: &str, default: i64| config.action_int(PREEMPT, name, default);
        match Self::for_reclaim(config) {
            Self::Score if config.action_bool(PREEMPT, "enableTopologyAwarePreemption", false) => {
                Self::Cheapest(SampleSize {
                    percent: int("minCandidateNodesPercentage", 10),
                    min: int("minCandidateNodesAbsolute", 1),
                    max: int("maxCandidateNodesAbsolute", 100),
                })
            }
            choice => choice,
        }
    }

    /// How reclaim chooses: Volcano has no arguments for it.
    pub(super) fn for_reclaim(config: &Config) -> Self {
        if config.gangs_leave_whole { Self::Cheapest(WHERE_GANGS_LEAVE_WHOLE) } else { Self::Score }
    }

    pub(super) fn find(
        self,
        session: &mut Session<'_>,
        candidates: &mut PreemptionCandidates,
        search: &VictimSearch,
    ) -> Option<Room> {
        match self {
            Self::Score => candidates.find(session, search),
            Self::Cheapest(sample) => {
                let share = i64::from(session.tables.nodes.known).saturating_mul(sample.percent) / 100;
                let wanted = share.min(sample.max).max(sample.min).max(1);
                let rooms = candidates.find_some(session, search, usize::try_from(wanted).unwrap_or(1));
                rooms.into_iter().min_by_key(|room| cost(session.tables, room))
            }
        }
    }
}

/// What losing the victims costs, compared field by field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Cost {
    /// The highest priority among them.
    highest: i32,
    /// The sum of all priorities.
    sum: i64,
    victims: usize,
    /// When the earliest of the highest priority has started, negative: the later the better.
    started: i64,
}

fn cost(tables: &Tables, room: &Room) -> Cost {
    let rows = || room.victims.iter().map(|victim| tables.task(*victim));
    let highest = rows().map(|row| row.priority).max().unwrap_or(i32::MIN);
    // Shifted, so that more victims never cost less.
    let sum = rows().map(|row| i64::from(row.priority) + (1 << 31)).fold(0, i64::saturating_add);
    let earliest = rows().filter(|row| row.priority == highest).filter_map(|row| row.started).min();
    let started = earliest.map_or(0, |time| time.0.saturating_neg());
    Cost { highest, sum, victims: room.victims.len(), started }
}
