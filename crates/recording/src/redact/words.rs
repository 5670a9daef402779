//! The words that are no names: of Kubernetes, of Volcano, of ours; numbers and amounts. Pure; used by `redact`.

/// Fields of facts that hold maps by name.
pub(super) const HOLDS_NAMES: &[&str] = &[
    "allocatable",
    "allocated",
    "annotations",
    "attributes",
    "capability",
    "capacity",
    "deserved",
    "guarantee",
    "hard",
    "images",
    "labels",
    "limits",
    "minResources",
    "minTaskMember",
    "nodeSelector",
    "requests",
    "used",
];

/// Fields of facts that hold variants, or reasons in one word.
pub(super) const HOLDS_VARIANTS: &[&str] =
    &["action", "check", "code", "effect", "operator", "phase", "protocol", "stage", "state"];

/// Fields of a recording that hold what is ours alone.
pub(super) const HOLDS_OURS: &[&str] = &["digest"];

/// Texts that decisions read as they are.
const WORDS: &[&str] = &[
    "*",
    "0.0.0.0",
    "Block",
    "Job",
    "Pod",
    "PodGroup",
    "PodGroupScheduled",
    "ReadOnlyMany",
    "ReadWriteMany",
    "ReadWriteOnce",
    "ReadWriteOncePod",
    "Scheduled",
    "SchedulerError",
    "Unschedulable",
    "best-effort",
    "cpu",
    "ephemeral-storage",
    "false",
    "hard",
    "kube-public",
    "kube-system",
    "memory",
    "metadata.name",
    "none",
    "pods",
    "prefer-same",
    "restricted",
    "root",
    "single-numa-node",
    "soft",
    "static",
    "system-cluster-critical",
    "system-node-critical",
    "tasks",
    "true",
];

/// Whose qualified names are known to everybody.
const DOMAINS: &[&str] =
    &["amd.com", "intel.com", "k8s.io", "kubernetes.io", "nvidia.com", "pumice.sh", "volcano.sh", "x-k8s.io"];

/// What a configuration is made of; what is named so in the cluster besides stays in it.
const CONFIGURED: &[&str] = &[
    "actions",
    "allocate",
    "arguments",
    "backfill",
    "binpack",
    "capacity",
    "cdp",
    "configurations",
    "conformance",
    "deviceshare",
    "drf",
    "enqueue",
    "gang",
    "gangpreempt",
    "gangreclaim",
    "name",
    "nodegroup",
    "nodeorder",
    "numa-aware",
    "overcommit",
    "pdb",
    "plugins",
    "predicates",
    "preempt",
    "priority",
    "proportion",
    "reclaim",
    "rescheduling",
    "reservation",
    "resourcequota",
    "shuffle",
    "sla",
    "task-topology",
    "tdm",
    "tiers",
    "usage",
];

/// Whether a text is no name.
pub(super) fn is_word(text: &str) -> bool {
    text.is_empty() || WORDS.binary_search(&text).is_ok() || is_amount(text) || is_known_to_all(text)
}

/// Whether a text is a word of configurations.
pub(super) fn is_configured(text: &str) -> bool {
    CONFIGURED.binary_search(&text).is_ok()
}

/// Digits with what stands between them and a unit of two letters.
fn is_amount(text: &str) -> bool {
    let unit = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic() || letter == '%');
    let is_digit = |byte: u8| byte.is_ascii_digit() || byte == b'.' || byte == b'-';
    text.len() - unit.len() <= 2 && unit.bytes().any(|byte| byte.is_ascii_digit()) && unit.bytes().all(is_digit)
}

/// A qualified name of one of the domains.
fn is_known_to_all(text: &str) -> bool {
    let Some((domain, name)) = text.split_once('/') else { return false };
    let is_of = |known: &&str| domain.strip_suffix(*known).is_some_and(|sub| sub.is_empty() || sub.ends_with('.'));
    DOMAINS.iter().any(is_of) && !name.contains([':', '@', '/'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_told_from_names() {
        assert!(WORDS.is_sorted() && CONFIGURED.is_sorted(), "they are searched by halves");
        for word in
            ["", "12", "10Gi", "1.5", "50%", "2026-11-24", "topology.kubernetes.io/zone", "nvidia.com/gpu", "pods"]
        {
            assert!(is_word(word), "{word}");
        }
        for name in [
            "alice",
            "12abc",
            "3a9f",
            "-",
            "kubernetes.io",
            "evilkubernetes.io/x",
            "registry.k8s.io/secret:1",
            "acme.example/gpu",
            "a-1",
        ] {
            assert!(!is_word(name), "{name}");
        }
    }
}
