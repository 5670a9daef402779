//! Virtual cards: a part of a card's memory and cores for each container. Cards are registered in the annotation
//! `volcano.sh/node-vgpu-register` of the node (`uuid,sharers,memory,type,health,mode`, separated by `:`); what a pod
//! holds stands in `volcano.sh/vgpu-ids-new` (`uuid,type,memory,cores:` for each container, separated by `;`).

use std::collections::BTreeMap;

use crate::cluster::nodes::NodeRow;
use crate::facts::{ContainerFacts, PodTemplate, VGPU_MEMORY as MEMORY, VGPU_NUMBER as NUMBER};
use crate::ids::TimeMs;
use crate::plugin::score::FULL;

use super::Asker;
use super::arguments::SchedulePolicy;
use super::cards::{Card, Grant, Holder, Mode, Part, Pool};

pub(super) const REGISTER: &str = "volcano.sh/node-vgpu-register";
pub(super) const IDS: &str = "volcano.sh/vgpu-ids-new";
const TO_ALLOCATE: &str = "volcano.sh/devices-to-allocate";
const NODE: &str = "volcano.sh/vgpu-node";
const TIME: &str = "volcano.sh/vgpu-time";
const BIND_PHASE: &str = "volcano.sh/bind-phase";
const BIND_TIME: &str = "volcano.sh/bind-time";

const USE_TYPE: &str = "nvidia.com/use-gputype";
const NO_USE_TYPE: &str = "nvidia.com/nouse-gputype";
const USE_ID: &str = "volcano.sh/vgpu-use-gpuuuid";
const NO_USE_ID: &str = "volcano.sh/vgpu-nouse-gpuuuid";
const MODE: &str = "volcano.sh/vgpu-mode";
const GROUP_POLICY: &str = "volcano.sh/vgpu-podgroup-policy";
/// What a pod may say about the cards it wants.
pub(super) const WISHES: &[&str] = &[USE_TYPE, NO_USE_TYPE, USE_ID, NO_USE_ID, MODE, GROUP_POLICY];

const PERCENTAGE: &str = "volcano.sh/vgpu-memory-percentage";
const CORES: &str = "volcano.sh/vgpu-cores";
/// The kind of card that is asked for.
const KIND: &str = "NVIDIA";
const CORES_FULL: i64 = 100;

/// Cards read of one node.
const CARDS_MAX: usize = 256;

/// What one container asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Request {
    count: i64,
    memory: Memory,
    cores: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Memory {
    Mebibytes(i64),
    /// Of each card's own.
    Percent(i64),
}

impl Memory {
    fn on(self, card: &Card) -> i64 {
        match self {
            Self::Mebibytes(amount) => amount,
            Self::Percent(percent) => card.memory.saturating_mul(percent) / 100,
        }
    }
}

/// What the containers ask for, those that do.
pub(super) fn requested(template: &PodTemplate) -> Vec<Request> {
    template.containers.iter().filter(|container| !container.init).filter_map(request).collect()
}

/// Memory without a number is one card; neither memory nor percentage is a whole card's memory.
fn request(container: &ContainerFacts) -> Option<Request> {
    let limit = |name: &str| container.limits.get(name).copied();
    let either = |name: &str| limit(name).or_else(|| container.requests.get(name).copied());
    let count = limit(NUMBER).or_else(|| limit(MEMORY).map(|_| 1))?;
    let memory = match (either(MEMORY).filter(|amount| *amount > 0), either(PERCENTAGE)) {
        (Some(amount), _) => Memory::Mebibytes(amount),
        (None, Some(percent)) if (0..=100).contains(&percent) => Memory::Percent(percent),
        _ => Memory::Percent(100),
    };
    Some(Request { count: count.max(0), memory, cores: either(CORES).unwrap_or(0).max(0) })
}

/// Whether the pods of this pod's group keep to different cards.
pub(super) fn spreads(template: &PodTemplate) -> bool {
    template.annotations.get(GROUP_POLICY).is_some_and(|policy| policy == "spread")
}

/// The registered cards, where the node offers all three resources.
pub(super) fn pool(node: &NodeRow, offers: impl Fn(&str) -> i64) -> Option<Pool> {
    if [NUMBER, CORES, MEMORY].iter().any(|name| offers(name) <= 0) {
        return None;
    }
    let mut pool = Pool::default();
    for entry in node.annotations.get(REGISTER)?.split(':').filter(|entry| entry.contains(',')).take(CARDS_MAX) {
        let fields: Vec<&str> = entry.split(',').collect();
        let [id, sharers, memory, kind, health, rest @ ..] = fields.as_slice() else { return None };
        // Cards that were registered before modes existed have none.
        pool.mode = mode(rest.first().copied().unwrap_or_default());
        pool.cards.push(Card {
            id: (*id).to_owned(),
            kind: (*kind).to_owned(),
            sharers_max: sharers.parse().unwrap_or(0),
            memory: memory.parse().unwrap_or(0),
            healthy: health.parse().unwrap_or(false),
            ..Card::default()
        });
    }
    (!pool.cards.is_empty()).then_some(pool)
}

fn mode(name: &str) -> Mode {
    if name == "mig" { Mode::Hardware } else { Mode::Software }
}

/// Cards for each container in turn; `None` where one finds too few.
pub(super) fn choose(
    pool: &Pool,
    template: &PodTemplate,
    requested: &[Request],
    asker: &Asker,
    policy: SchedulePolicy,
) -> Option<Grant> {
    let wished = template.annotations.get(MODE);
    if wished.is_some_and(|name| (mode(name) != pool.mode) || (name != "mig" && name != "hami-core")) {
        return None;
    }
    let mut pool = pool.clone();
    let mut grant = Grant::default();
    for request in requested {
        let mut parts = Vec::new();
        for index in order(&pool.cards, policy) {
            if parts.len() as i64 >= request.count {
                break;
            }
            let mode = pool.mode;
            let card = &mut pool.cards[index];
            if !fits(card, mode, request, template, *asker) {
                continue;
            }
            let memory = request.memory.on(card);
            let part = Part { id: card.id.clone(), kind: KIND.to_owned(), memory, cores: request.cores };
            let unused = card.holders.is_empty();
            card.charge(&part, Holder { group: asker.group, rules: asker.rules });
            grant.score = grant.score.saturating_add(match policy {
                SchedulePolicy::BinPack => card.fullness(),
                SchedulePolicy::Spread if unused => FULL,
                SchedulePolicy::Spread | SchedulePolicy::Index => 0,
            });
            parts.push(part);
        }
        if (parts.len() as i64) < request.count {
            return None;
        }
        grant.containers.push(parts);
    }
    Some(grant)
}

/// Which card is tried first; among equals the one with the highest index.
fn order(cards: &[Card], policy: SchedulePolicy) -> Vec<usize> {
    let mut order: Vec<usize> = (0..cards.len()).rev().collect();
    match policy {
        SchedulePolicy::Index => {}
        SchedulePolicy::BinPack => order.sort_by_key(|index| std::cmp::Reverse(cards[*index].used_memory)),
        SchedulePolicy::Spread => order.sort_by_key(|index| cards[*index].sharers()),
    }
    order
}

fn fits(card: &Card, mode: Mode, request: &Request, template: &PodTemplate, Asker { group, rules }: Asker) -> bool {
    let cores = card.used_cores.saturating_add(request.cores);
    let apart = spreads(template) && group.is_some() && card.holders.iter().any(|holder| holder.group == group);
    let excluded = mode == Mode::Software && card.holders.iter().any(|holder| holder.rules & rules != 0);
    card.healthy
        && card.sharers() < card.sharers_max
        && !apart
        && !excluded
        && card.free_memory() >= request.memory.on(card)
        && cores <= CORES_FULL
        && (request.cores != CORES_FULL || card.holders.is_empty())
        && (card.used_cores != CORES_FULL || request.cores > 0)
        && card.kind.contains(KIND)
        && wanted(card, &template.annotations)
}

/// Whether the pod's lists of types and uuids allow the card. A list of wanted types makes the other one void.
fn wanted(card: &Card, annotations: &BTreeMap<String, String>) -> bool {
    let kind = card.kind.to_uppercase();
    let of_kind = |list: &str| list.split(',').any(|part| kind.contains(&part.to_uppercase()));
    let listed = |list: &str| list.split(',').any(|id| id.trim() == card.id);
    let kind_ok = match (annotations.get(USE_TYPE), annotations.get(NO_USE_TYPE)) {
        (Some(wanted), _) => of_kind(wanted),
        (None, Some(unwanted)) => !of_kind(unwanted),
        (None, None) => true,
    };
    kind_ok
        && annotations.get(USE_ID).is_none_or(|wanted| listed(wanted))
        && !annotations.get(NO_USE_ID).is_some_and(|unwanted| listed(unwanted))
}

/// What a pod's annotation says it holds; entries that don't read count for nothing.
pub(super) fn grant_of(annotations: &BTreeMap<String, String>) -> Grant {
    let Some(text) = annotations.get(IDS) else { return Grant::default() };
    let part = |entry: &str| match entry.split(',').collect::<Vec<_>>()[..] {
        [id, kind, memory, cores, ..] => Some(Part {
            id: id.to_owned(),
            kind: kind.to_owned(),
            memory: memory.parse().unwrap_or(0),
            cores: cores.parse().unwrap_or(0),
        }),
        _ => None,
    };
    let container = |entries: &str| entries.split(':').take(CARDS_MAX).filter_map(part).collect();
    Grant { containers: text.split(';').take(CARDS_MAX).map(container).collect(), score: 0 }
}

/// What tells the device plugin on the node which cards the pod got.
pub(super) fn annotations(grant: &Grant, node: &str, now: TimeMs) -> Vec<(String, String)> {
    let entry = |part: &Part| format!("{},{},{},{}:", part.id, part.kind, part.memory, part.cores);
    let container = |parts: &Vec<Part>| parts.iter().map(entry).collect::<String>();
    let devices = grant.containers.iter().map(container).collect::<Vec<_>>().join(";");
    let seconds = now.0.div_euclid(1_000).to_string();
    let pairs = [
        (NODE, node.to_owned()),
        (TIME, seconds.clone()),
        (IDS, devices.clone()),
        (TO_ALLOCATE, devices),
        (BIND_PHASE, "allocating".to_owned()),
        (BIND_TIME, seconds),
    ];
    pairs.map(|(key, value)| (key.to_owned(), value)).into()
}
