//! `configurations: - name: fairness`: how the namespaces of a queue share it, and whether queues keep strict order.

use std::collections::BTreeMap;

use pumice_units::GoDuration;

use super::{Action, Argument, Config};

/// Annotation of a queue: `strict`, or `fair` where the configuration says strict.
const QUEUE_ORDER: &str = "pumice.sh/queue-order";

pub(crate) const NAME: &str = "fairness";
const NAMESPACES: &str = "namespaces";
const HALF_LIFE: &str = "halfLife";
const STRICT: &str = "strict";
const LENDING: &str = "lending";

/// How a queue is shared by those who use it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Fairness {
    /// Namespaces have their turn by what they hold, per weight.
    pub(crate) namespaces: bool,
    /// Past use counts half as much after this time; without it only what is held counts.
    pub(crate) half_life_ms: Option<i64>,
    /// Nothing behind the first that does not fit is placed.
    pub(crate) strict: bool,
    /// Queues may hold more than their share of what nobody else can use. Only with reclaim, which takes it back.
    pub(crate) lending: bool,
}

impl Fairness {
    /// Whether the queue keeps strict order: as its annotation says, else as the configuration does.
    pub(crate) fn is_strict(&self, queue_annotations: &BTreeMap<String, String>) -> bool {
        match queue_annotations.get(QUEUE_ORDER).map(String::as_str) {
            Some("strict") => true,
            Some("fair") => false,
            _ => self.strict,
        }
    }
}

/// What is shipped: namespaces share, by what they hold now, and shares are soft.
pub(super) fn shipped() -> (String, BTreeMap<String, Argument>) {
    (NAME.to_owned(), [NAMESPACES, LENDING].map(|name| (name.to_owned(), Argument::Bool(true))).into())
}

/// Whether the value of an argument means something, and what it must be.
pub(crate) fn judge(name: &str, value: &Argument) -> Option<(bool, &'static str)> {
    match (name, value) {
        (NAMESPACES | STRICT | LENDING, value) => Some((matches!(value, Argument::Bool(_)), "true or false")),
        (HALF_LIFE, Argument::Text(text)) => Some((half_life_ms(text).is_some(), "a duration above zero such as 168h")),
        (HALF_LIFE, value) => Some((*value == Argument::Null, "a duration such as 168h")),
        _ => None,
    }
}

/// A half-life above zero.
fn half_life_ms(text: &str) -> Option<i64> {
    text.parse::<GoDuration>().ok().map(GoDuration::as_millis).filter(|half_life| *half_life > 0)
}

impl Config {
    /// How queues are shared. Off where a Volcano file says nothing of it: there all is as in Volcano.
    pub(crate) fn fairness(&self) -> Fairness {
        let Some(arguments) = self.configurations.get(NAME) else { return Fairness::default() };
        let is_on = |name: &str| matches!(arguments.get(name), Some(Argument::Bool(true)));
        let half_life_ms = match arguments.get(HALF_LIFE) {
            Some(Argument::Text(text)) => half_life_ms(text),
            _ => None,
        };
        Fairness {
            namespaces: is_on(NAMESPACES),
            half_life_ms,
            strict: is_on(STRICT),
            lending: is_on(LENDING) && self.has(Action::Reclaim),
        }
    }
}
