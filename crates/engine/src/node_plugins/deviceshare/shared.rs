//! Cards shared by memory, or taken whole: resources `volcano.sh/gpu-memory` and `volcano.sh/gpu-number`, the cards'
//! indexes in annotation `volcano.sh/gpu-index`.

use std::collections::BTreeMap;

use crate::cluster::nodes::NodeRow;
use crate::facts::PodTemplate;
use crate::ids::TimeMs;

use super::cards::{Card, Grant, Mode, Part, Pool};

const MEMORY: &str = "volcano.sh/gpu-memory";
const NUMBER: &str = "volcano.sh/gpu-number";
/// Of pods: the cards they hold, by index, separated by commas.
pub(super) const INDEX: &str = "volcano.sh/gpu-index";
/// Of nodes: the cards that don't work, alike.
pub(super) const UNHEALTHY: &str = "volcano.sh/gpu-unhealthy-ids";
const TIME: &str = "volcano.sh/predicate-time";

/// Cards looked at on one node.
const CARDS_MAX: i64 = 1_024;

/// The larger of what one init container and what all containers ask for.
fn requested(template: &PodTemplate, resource: &str) -> i64 {
    let amount = |container: &&crate::facts::ContainerFacts| container.limits.get(resource).copied().unwrap_or(0);
    let (first, main): (Vec<_>, Vec<_>) = template.containers.iter().partition(|container| container.init);
    let one = first.iter().map(amount).max().unwrap_or(0);
    main.iter().map(amount).fold(0, i64::saturating_add).max(one)
}

pub(super) fn memory_asked(template: &PodTemplate) -> i64 {
    requested(template, MEMORY)
}

pub(super) fn cards_asked(template: &PodTemplate) -> i64 {
    requested(template, NUMBER)
}

/// Equal cards that share the node's memory; those that are not healthy are left out.
pub(super) fn pool(node: &NodeRow, offers: impl Fn(&str) -> i64) -> Option<Pool> {
    let capacity = |name: &str| node.capacity.get(name).copied().unwrap_or_else(|| offers(name));
    let (memory, number) = (capacity(MEMORY), capacity(NUMBER));
    if memory <= 0 || number <= 0 {
        return None;
    }
    let unhealthy: Vec<i64> = node.annotations.get(UNHEALTHY).map_or(Vec::new(), |text| indexes(text));
    let card = |index: i64| Card {
        id: index.to_string(),
        sharers_max: i64::MAX,
        memory: memory / number,
        healthy: true,
        ..Card::default()
    };
    let healthy = (0..number.min(CARDS_MAX)).filter(|index| !unhealthy.contains(index));
    Some(Pool { mode: Mode::Software, cards: healthy.map(card).collect() })
}

fn indexes(text: &str) -> Vec<i64> {
    text.split(',').filter_map(|index| index.trim().parse().ok()).collect()
}

/// The first card with so much memory free.
pub(super) fn by_memory(pool: &Pool, requested: i64) -> Option<Grant> {
    let card = pool.cards.iter().find(|card| card.free_memory() >= requested)?;
    Some(grant([(card, requested)]))
}

/// The first so many cards that nobody uses.
pub(super) fn by_number(pool: &Pool, requested: i64) -> Option<Grant> {
    let free = pool.cards.iter().filter(|card| card.holders.is_empty());
    let chosen: Vec<_> = free.take(usize::try_from(requested).ok()?).map(|card| (card, 0)).collect();
    (chosen.len() as i64 == requested).then(|| grant(chosen))
}

fn grant<'a>(cards: impl IntoIterator<Item = (&'a Card, i64)>) -> Grant {
    let part = |(card, memory): (&Card, i64)| Part { id: card.id.clone(), kind: String::new(), memory, cores: 0 };
    Grant { containers: vec![cards.into_iter().map(part).collect()], score: 0 }
}

/// What a pod's annotation says it holds.
pub(super) fn grant_of(annotations: &BTreeMap<String, String>, template: &PodTemplate) -> Grant {
    let Some(text) = annotations.get(INDEX) else { return Grant::default() };
    let memory = memory_asked(template);
    let part = |index: i64| Part { id: index.to_string(), kind: String::new(), memory, cores: 0 };
    Grant { containers: vec![indexes(text).into_iter().map(part).collect()], score: 0 }
}

pub(super) fn annotations(grant: &Grant, now: TimeMs) -> Vec<(String, String)> {
    let ids: Vec<&str> = grant.parts().map(|part| part.id.as_str()).collect();
    let nanoseconds = i128::from(now.0) * 1_000_000;
    vec![(TIME.to_owned(), nanoseconds.to_string()), (INDEX.to_owned(), ids.join(","))]
}
