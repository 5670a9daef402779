//! Who gets which nodes, from Volcano's `sharding.yaml` or from flags.
//!
//! Invariant: a configuration is taken whole or refused whole, with the scheduler that is wrong.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use pumice_api::names::WARMUP;
use pumice_objects::names::{check_dns1123_subdomain, check_label_value, check_qualified_name};
use pumice_units::GoDuration;
use serde::Deserialize;
use serde_json::Value;

use super::NodeLoad;
use super::policies::{ONE, Policy, choose};

/// Longest text, in bytes.
const TEXT_MAX: usize = 1 << 20;
const SCHEDULERS_MAX: usize = 64;
/// Most policies of a scheduler.
const POLICIES_MAX: usize = 16;
/// Greatest weight of a policy.
const WEIGHT_MAX: f64 = 1e6;
/// Shortest time between two looks at all nodes.
const PERIOD_MIN: Duration = Duration::from_secs(1);
/// Time between two looks where nothing is said.
const PERIOD: Duration = Duration::from_secs(60);

/// Why a configuration is not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShardingError {
    /// It is too long.
    #[error("the configuration has {0} bytes and may have {TEXT_MAX}")]
    TooLong(usize),
    /// It is no such configuration.
    #[error("the configuration can't be read: {0}")]
    Syntax(String),
    /// It names no scheduler.
    #[error("at least one scheduler is needed; add it to schedulerConfigs")]
    NoScheduler,
    /// It names too many schedulers.
    #[error("there are {0} schedulers, and {SCHEDULERS_MAX} at most may be")]
    TooMany(usize),
    /// The period can't be used.
    #[error("shardSyncPeriod {0:?} is no duration of a second or more; try 60s")]
    Period(String),
    /// One scheduler is wrong.
    #[error("scheduler {name:?}: {reason}")]
    Scheduler {
        name: String,
        /// What is wrong with it.
        reason: String,
    },
}

/// Who gets which nodes, in the order in which they choose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sharding {
    schedulers: Vec<Scheduler>,
    /// How often the nodes are shared out anew.
    pub period: Duration,
    /// Whether that also happens when nodes come, go or change their labels.
    pub follows_nodes: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Scheduler {
    name: String,
    policies: Vec<Policy>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct File {
    #[serde(default)]
    scheduler_configs: Option<Vec<Entry>>,
    #[serde(default)]
    shard_sync_period: Option<String>,
    #[serde(default)]
    enable_node_event_trigger: Option<bool>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    #[serde(default)]
    name: String,
    #[serde(default)]
    policies: Option<Vec<PolicyEntry>>,
    #[serde(default)]
    cpu_utilization_min: Option<f64>,
    #[serde(default)]
    cpu_utilization_max: Option<f64>,
    #[serde(default)]
    prefer_warmup_nodes: Option<bool>,
    #[serde(default)]
    min_nodes: Option<i64>,
    #[serde(default)]
    max_nodes: Option<i64>,
}

#[derive(Default, Deserialize)]
struct PolicyEntry {
    #[serde(default)]
    name: String,
    #[serde(default)]
    weight: Option<f64>,
    #[serde(default)]
    arguments: Option<BTreeMap<String, Value>>,
}

impl Default for Sharding {
    /// Volcano's: the batch scheduler gets the emptier nodes, the agents' scheduler the fuller ones.
    fn default() -> Self {
        let scheduler = |name: &str, min: u64, max: u64, warm: bool| {
            let mut policies = vec![Policy::AllocationRate { min, max, weight: ONE }];
            if warm {
                policies.push(Policy::Warmup { label: WARMUP.into(), value: "true".into(), weight: ONE });
            }
            policies.push(Policy::NodeLimit { max: 100 });
            Scheduler { name: name.to_owned(), policies }
        };
        let schedulers =
            vec![scheduler("volcano", 0, ONE * 6 / 10, false), scheduler("agent-scheduler", ONE * 7 / 10, ONE, true)];
        Self { schedulers, period: PERIOD, follows_nodes: true }
    }
}

impl Sharding {
    /// Reads the text of `sharding.yaml`. What it leaves out has its default; what it says wrongly makes all of it void.
    pub fn parse(text: &str) -> Result<Self, ShardingError> {
        if text.len() > TEXT_MAX {
            return Err(ShardingError::TooLong(text.len()));
        }
        let file: File = serde_saphyr::from_str(text).map_err(|error| ShardingError::Syntax(error.to_string()))?;
        let sharding = Self::of(file.scheduler_configs.unwrap_or_default())?;
        let period = match file.shard_sync_period {
            None => PERIOD,
            Some(text) => period(&text).ok_or(ShardingError::Period(text))?,
        };
        Ok(Self { period, follows_nodes: file.enable_node_event_trigger.unwrap_or(true), ..sharding })
    }

    /// Reads the flags' form, `name:type:minUtil:maxUtil:preferWarmup:minNodes:maxNodes` for each scheduler.
    pub fn of_flags(flags: &[String]) -> Result<Self, ShardingError> {
        let entry = |flag: &String| {
            let wrong = || ShardingError::Scheduler {
                name: flag.clone(),
                reason: "write name:type:minUtil:maxUtil:preferWarmup:minNodes:maxNodes".to_owned(),
            };
            let parts: Vec<&str> = flag.split(':').collect();
            let [name, _, min, max, warm, least, most] = parts.as_slice() else { return Err(wrong()) };
            Ok(Entry {
                name: (*name).to_owned(),
                cpu_utilization_min: Some(min.parse().map_err(|_| wrong())?),
                cpu_utilization_max: Some(max.parse().map_err(|_| wrong())?),
                prefer_warmup_nodes: Some(warm.parse().map_err(|_| wrong())?),
                min_nodes: Some(least.parse().map_err(|_| wrong())?),
                max_nodes: Some(most.parse().map_err(|_| wrong())?),
                policies: None,
            })
        };
        Self::of(flags.iter().map(entry).collect::<Result<_, _>>()?)
    }

    fn of(entries: Vec<Entry>) -> Result<Self, ShardingError> {
        match entries.len() {
            0 => return Err(ShardingError::NoScheduler),
            1..=SCHEDULERS_MAX => {}
            count => return Err(ShardingError::TooMany(count)),
        }
        let mut seen = BTreeSet::new();
        let mut schedulers = Vec::new();
        for entry in entries {
            let name = entry.name.clone();
            let wrong = |reason: String| ShardingError::Scheduler { name: name.clone(), reason };
            check_dns1123_subdomain(&name).map_err(|error| wrong(format!("its name: {error}")))?;
            if !seen.insert(name.clone()) {
                return Err(wrong("it is there twice".to_owned()));
            }
            let policies = policies(entry).map_err(wrong)?;
            schedulers.push(Scheduler { name, policies });
        }
        Ok(Self { schedulers, period: PERIOD, follows_nodes: true })
    }

    /// Shares all nodes out: each scheduler in turn gets what its policies want of what is left.
    pub(super) fn assign<'a>(&self, nodes: &'a BTreeMap<String, NodeLoad>) -> Vec<(String, BTreeSet<&'a str>)> {
        let mut free: BTreeMap<&str, &NodeLoad> = nodes.iter().map(|(name, node)| (name.as_str(), node)).collect();
        let mut assigned = Vec::new();
        for scheduler in &self.schedulers {
            let chosen: BTreeSet<&str> = choose(&scheduler.policies, &free).into_iter().collect();
            free.retain(|name, _| !chosen.contains(name));
            assigned.push((scheduler.name.clone(), chosen));
        }
        assigned
    }
}

fn period(text: &str) -> Option<Duration> {
    let duration: GoDuration = text.parse().ok()?;
    u64::try_from(duration.as_millis()).map(Duration::from_millis).ok().filter(|period| *period >= PERIOD_MIN)
}

/// The policies of a scheduler; the old fields count where there are none.
fn policies(entry: Entry) -> Result<Vec<Policy>, String> {
    let listed = entry.policies.unwrap_or_default();
    if listed.len() > POLICIES_MAX {
        return Err(format!("it has more than {POLICIES_MAX} policies"));
    }
    if !listed.is_empty() {
        return listed.into_iter().map(policy).collect();
    }
    let (min, max) = bounds(entry.cpu_utilization_min.unwrap_or(0.0), entry.cpu_utilization_max.unwrap_or(1.0))?;
    let mut policies = vec![Policy::AllocationRate { min, max, weight: ONE }];
    if entry.prefer_warmup_nodes == Some(true) {
        policies.push(Policy::Warmup { label: WARMUP.to_owned(), value: "true".to_owned(), weight: ONE });
    }
    policies.push(limit(entry.min_nodes.unwrap_or(0), entry.max_nodes.unwrap_or(0))?);
    Ok(policies)
}

fn policy(entry: PolicyEntry) -> Result<Policy, String> {
    let weight = entry.weight.unwrap_or(1.0);
    if !(0.0..=WEIGHT_MAX).contains(&weight) {
        return Err(format!("weight {weight} of policy {} is not between 0 and {WEIGHT_MAX}", entry.name));
    }
    let weight = millionths(weight);
    let arguments = Arguments(entry.arguments.unwrap_or_default());
    if entry.name != "node-limit" && (arguments.0.contains_key("minNodes") || arguments.0.contains_key("maxNodes")) {
        return Err(format!("policy {:?} has no minNodes and maxNodes; use node-limit", entry.name));
    }
    match entry.name.as_str() {
        "allocation-rate" => {
            let (min, max) = bounds(arguments.number("minCPUUtil", 0.0)?, arguments.number("maxCPUUtil", 1.0)?)?;
            Ok(Policy::AllocationRate { min, max, weight })
        }
        "warmup" => {
            let label = arguments.text("warmupLabel", WARMUP)?;
            let value = arguments.text("warmupLabelValue", "true")?;
            let checked = check_qualified_name(&label).and_then(|()| check_label_value(&value));
            checked.map_err(|error| format!("warmupLabel {label}={value}: {error}"))?;
            Ok(Policy::Warmup { label, value, weight })
        }
        "node-limit" => limit(arguments.whole("minNodes")?, arguments.whole("maxNodes")?),
        "" => Err("a policy has no name".to_owned()),
        name => Err(format!("policy {name:?} is unknown; use allocation-rate, warmup or node-limit")),
    }
}

fn bounds(min: f64, max: f64) -> Result<(u64, u64), String> {
    let is_share = |share: f64| (0.0..=1.0).contains(&share);
    if !is_share(min) || !is_share(max) || min > max {
        return Err(format!(
            "bounds {min} and {max} of the CPUs asked for are no shares between 0 and 1 in their order"
        ));
    }
    Ok((millionths(min), millionths(max)))
}

/// The least number is a wish that nobody can grant; it must make sense all the same.
fn limit(min: i64, max: i64) -> Result<Policy, String> {
    let bad = || format!("bounds {min} and {max} of the number of nodes are not 0 or more in their order");
    let (Ok(least), Ok(most)) = (usize::try_from(min), usize::try_from(max)) else { return Err(bad()) };
    if most > 0 && most < least {
        return Err(bad());
    }
    Ok(Policy::NodeLimit { max: most })
}

/// The caller has checked that the number is neither negative nor great.
fn millionths(number: f64) -> u64 {
    (number * ONE as f64).round() as u64
}

struct Arguments(BTreeMap<String, Value>);

impl Arguments {
    fn number(&self, key: &str, absent: f64) -> Result<f64, String> {
        let read = |value: &Value| value.as_f64().or_else(|| value.as_str()?.trim().parse().ok());
        match self.0.get(key) {
            None | Some(Value::Null) => Ok(absent),
            Some(value) => read(value).ok_or_else(|| format!("argument {key} is {value}, and not a number")),
        }
    }

    fn whole(&self, key: &str) -> Result<i64, String> {
        let number = self.number(key, 0.0)?;
        if number.fract() == 0.0 && number.abs() <= 1e9 {
            Ok(number as i64)
        } else {
            Err(format!("argument {key} is {number}, and not a whole number"))
        }
    }

    fn text(&self, key: &str, absent: &str) -> Result<String, String> {
        match self.0.get(key) {
            None | Some(Value::Null) => Ok(absent.to_owned()),
            Some(Value::String(text)) => Ok(text.clone()),
            Some(Value::Bool(word)) => Ok(word.to_string()),
            Some(value) => Err(format!("argument {key} is {value}, and not a text")),
        }
    }
}
