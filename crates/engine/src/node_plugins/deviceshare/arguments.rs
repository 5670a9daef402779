//! The arguments of `deviceshare`, and which of them exclude each other.

use std::collections::BTreeMap;

use crate::config::{Fault, PluginConfig};

const SHARING: &str = "deviceshare.GPUSharingEnable";
const NUMBER: &str = "deviceshare.GPUNumberEnable";
const VIRTUAL: &str = "deviceshare.VGPUEnable";
const POLICY: &str = "deviceshare.SchedulePolicy";
const WEIGHT: &str = "deviceshare.ScheduleWeight";
const EXCLUSIVE: &str = "deviceshare.GPUExclusiveRules";

pub(super) const NAMES: &[&str] = &[
    SHARING,
    NUMBER,
    VIRTUAL,
    POLICY,
    WEIGHT,
    EXCLUSIVE,
    // One writer decides: there is nothing to lock.
    "deviceshare.NodeLockEnable",
    "deviceshare.AscendMindClusterVNPUEnable",
    "deviceshare.AscendHAMiVNPUEnable",
    "deviceshare.KnownGeometriesCMName",
    "deviceshare.KnownGeometriesCMNamespace",
];

/// Rules are bits of a word.
const RULES_MAX: usize = 64;

/// What kind of sharing is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Device {
    None,
    /// `volcano.sh/gpu-memory`.
    Memory,
    /// `volcano.sh/gpu-number`.
    Number,
    /// `volcano.sh/vgpu-number`, `-memory`, `-cores`.
    Virtual,
}

/// Which card is tried first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SchedulePolicy {
    /// The one with the highest index.
    Index,
    /// The one with the most memory in use.
    BinPack,
    /// The one with the fewest pods.
    Spread,
}

#[derive(Debug)]
pub(super) struct Settings {
    pub(super) device: Device,
    pub(super) policy: SchedulePolicy,
    pub(super) weight: i64,
    /// Labels; two pods that match the same rule share no card.
    pub(super) exclusive: Vec<BTreeMap<String, String>>,
}

impl Settings {
    pub(super) fn new(config: &PluginConfig) -> Result<Self, Fault> {
        let on = |name: &str| config.bool(name, false);
        let device = match (on(SHARING), on(NUMBER), on(VIRTUAL)) {
            (true, true, _) => return Err(Fault::of(NUMBER, format!("false where {SHARING} is true"))),
            (true, _, true) => return Err(Fault::of(VIRTUAL, format!("false where {SHARING} is true"))),
            (_, true, true) => return Err(Fault::of(VIRTUAL, format!("false where {NUMBER} is true"))),
            (true, ..) => Device::Memory,
            (_, true, _) => Device::Number,
            (_, _, true) => Device::Virtual,
            _ => Device::None,
        };
        let policy = match config.field(POLICY).map_or(Ok(""), |field| field.text())? {
            "binpack" => SchedulePolicy::BinPack,
            "spread" => SchedulePolicy::Spread,
            _ => SchedulePolicy::Index,
        };
        Ok(Self { device, policy, weight: config.int(WEIGHT, 0), exclusive: rules(config)? })
    }
}

fn rules(config: &PluginConfig) -> Result<Vec<BTreeMap<String, String>>, Fault> {
    let mut rules = Vec::new();
    for item in config.field(EXCLUSIVE).map_or(Ok(Vec::new()), |field| field.items())? {
        let entries = item.entries()?.into_iter();
        let labels = entries.map(|(key, value)| Ok((key.to_owned(), value.word()?)));
        let rule: BTreeMap<String, String> = labels.collect::<Result<_, Fault>>()?;
        // A rule without labels would match every pod; it says nothing.
        if !rule.is_empty() {
            rules.push(rule);
        }
    }
    if rules.len() > RULES_MAX {
        return Err(Fault::of(EXCLUSIVE, format!("at most {RULES_MAX} rules")));
    }
    Ok(rules)
}
