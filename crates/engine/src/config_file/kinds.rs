//! Which arguments of Volcano's plugins are read by its strict getters: a value of another type has no effect there,
//! and none here. Called by `parse`, to warn.

use crate::config::Argument;

/// What a getter takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Int,
    Number,
    /// The words true and false, too.
    Bool,
    Text,
}

/// Plugin, argument (one that ends in `*` stands for all that begin so, one that begins with it for all that end so).
const KINDS: &[(&str, &str, Kind)] = &[
    ("nodeorder", "*.weight", Kind::Int),
    ("binpack", "binpack.resources", Kind::Text),
    ("binpack", "binpack.spared", Kind::Text),
    ("binpack", "binpack.*", Kind::Int),
    ("overcommit", "overcommit-factor", Kind::Number),
    ("predicates", "*Enable", Kind::Bool),
    ("predicates", "volumebinding.weight", Kind::Int),
    ("nodegroup", "*", Kind::Bool),
    ("usage", "*.weight", Kind::Int),
    ("numa-aware", "weight", Kind::Int),
    ("deviceshare", "*Enable", Kind::Bool),
    ("deviceshare", "deviceshare.ScheduleWeight", Kind::Int),
    ("network-topology-aware", "weight", Kind::Int),
    ("network-topology-aware", "hypernode.binpack.cpu", Kind::Int),
    ("network-topology-aware", "hypernode.binpack.memory", Kind::Int),
    ("network-topology-aware", "hypernode.binpack.normal-pod.enable", Kind::Bool),
    ("capacity", "ancestorReclaimLevel", Kind::Int),
    ("task-topology", "task-topology.weight", Kind::Int),
];

/// What the argument must be to have an effect, where `value` is something else.
pub(super) fn ignored(plugin: &str, argument: &str, value: &Argument) -> Option<&'static str> {
    let is = |pattern: &str| match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
        (Some(end), _) => argument.ends_with(end),
        (None, Some(start)) => argument.starts_with(start),
        (None, None) => argument == pattern,
    };
    let (.., kind) = KINDS.iter().find(|(name, pattern, _)| *name == plugin && is(pattern))?;
    match (kind, value) {
        (_, Argument::Null)
        | (Kind::Int | Kind::Number, Argument::Int(_))
        | (Kind::Number, Argument::Float(_))
        | (Kind::Bool, Argument::Bool(_))
        | (Kind::Text, Argument::Text(_)) => None,
        (Kind::Bool, Argument::Text(text)) if text.parse::<bool>().is_ok() => None,
        (Kind::Int, _) => Some("an integer"),
        (Kind::Number, _) => Some("a number"),
        (Kind::Bool, _) => Some("true or false"),
        (Kind::Text, _) => Some("text"),
    }
}
