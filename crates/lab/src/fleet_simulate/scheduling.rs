//! Under which configuration a workload is tried: the server's own, or one of Armada's scheduler.
//!
//! Invariant: of Armada's files every key that exists here counts, and every other is named. A file of ours has no other.

use std::collections::BTreeMap;
use std::sync::Arc;

use pumice_fleet_scheduling::{Constraints, ViewLimits};
use pumice_ledger::{PriorityClasses, Retries};
use pumice_translate::armada;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use thiserror::Error;

use pumice_fleet_server::config::{Class, Config, ConfigError, MarketConfig, PoolConfig};

/// Largest text of a configuration.
pub const CONFIG_BYTES_MAX: usize = 4 << 20;
/// Sections of the server's configuration.
const OURS: [&str; 6] = ["submission", "scheduling", "auth", "retention", "pricingApi", "corsAllowedOrigins"];
/// Where Armada's scheduler has, or once had, what others have at the top.
const SECTIONS: [&str; 2] = ["scheduling", "preemption"];
/// What Armada calls what makes a pool a market.
const MARKET: &str = "experimentalMarketScheduling";
/// What Armada calls the class of jobs that name none, now and formerly.
const DEFAULT_CLASS: [&str; 2] = ["defaultPriorityClassName", "defaultPriorityClass"];
/// How fast jobs may start, which may be said to be endless: a rate, and what starts at once.
const RATES: [(&str, &str); 2] = [
    ("maximumSchedulingRate", "maximumSchedulingBurst"),
    ("maximumPerQueueSchedulingRate", "maximumPerQueueSchedulingBurst"),
];
/// Nothing starts so many jobs a second.
const ENDLESS: f64 = 1e12;

/// How jobs are scheduled.
#[derive(Debug, Clone)]
pub struct Scheduling {
    pub classes: PriorityClasses,
    /// The class of jobs that name none.
    pub default_class: String,
    /// How often jobs are tried.
    pub retries: Retries,
    /// What holds jobs back beside room.
    pub constraints: Arc<Constraints>,
    /// How much of a queue a round looks at.
    pub limits: ViewLimits,
    /// Keys of Armada's that mean nothing here.
    pub ignored: Vec<String>,
}

/// Why a text is no configuration.
#[derive(Debug, Error)]
pub enum SchedulingError {
    /// It is too long.
    #[error("it has {bytes} bytes: have at most {max}", max = CONFIG_BYTES_MAX)]
    TooLong {
        /// How many it has.
        bytes: usize,
    },
    /// It is no YAML, or its fields are others.
    #[error("{0}")]
    Syntax(String),
    /// A key of Armada's that exists here has a value that can't be.
    #[error("{key}: {problem}")]
    Key { key: String, problem: String },
    /// What it says fits nothing.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Jobs that name no class would have none.
    #[error("defaultPriorityClassName: there is no priority class {0:?}")]
    DefaultClass(String),
}

impl Default for Scheduling {
    /// As a server without a configuration schedules.
    fn default() -> Self {
        let config = Config::default();
        Self {
            classes: classes(&config.scheduling.priority_classes),
            default_class: config.submission.default_priority_class_name.clone(),
            retries: Retries::default(),
            constraints: Arc::default(),
            limits: config.limits(),
            ignored: Vec::new(),
        }
    }
}

impl Scheduling {
    /// Reads a configuration.
    ///
    /// # Errors
    /// What can't be used, and where it stands.
    pub fn read(text: &str) -> Result<Self, SchedulingError> {
        if text.len() > CONFIG_BYTES_MAX {
            return Err(SchedulingError::TooLong { bytes: text.len() });
        }
        let fields: Map<String, Value> = yaml(text)?;
        if fields.keys().all(|key| OURS.contains(&key.as_str())) {
            let config: Config = yaml(text)?;
            return Ok(Self {
                classes: config.classes()?,
                default_class: config.submission.default_priority_class_name.clone(),
                retries: config.retries()?,
                constraints: Arc::new(config.constraints()?),
                limits: config.limits(),
                ignored: Vec::new(),
            });
        }
        armadas(fields)
    }

    /// The class of a job that names this one, which may be none.
    pub(super) fn class<'c>(&'c self, named: &'c str) -> Option<&'c str> {
        let class = if named.is_empty() { &self.default_class } else { named };
        self.classes.contains_key(class).then_some(class)
    }
}

fn yaml<T: DeserializeOwned>(text: &str) -> Result<T, SchedulingError> {
    armada::yaml(text).map_err(SchedulingError::Syntax)
}

fn classes(read: &BTreeMap<String, Class>) -> PriorityClasses {
    let class = |class: &Class| pumice_ledger::PriorityClass { value: class.priority, preemptible: class.preemptible };
    read.iter().map(|(name, of)| (name.clone(), class(of))).collect()
}

/// What Armada's scheduler is configured with.
fn armadas(mut fields: Map<String, Value>) -> Result<Scheduling, SchedulingError> {
    for section in SECTIONS {
        if let Some(Value::Object(inner)) = fields.remove(section) {
            fields.extend(inner);
        }
    }
    for (rate, burst) in RATES {
        if fields.get(rate).is_some_and(is_endless) {
            fields.remove(rate);
            fields.remove(burst);
        }
    }
    let mut default_class = None;
    for key in DEFAULT_CLASS {
        if let Some(Value::String(name)) = fields.remove(key) {
            default_class.get_or_insert(name);
        }
    }
    let alone = |key: &str, value: &Value| Map::from_iter([(key.to_owned(), value.clone())]);
    let mut ignored = Vec::new();
    if let Some(Value::Object(classes)) = fields.get_mut("priorityClasses") {
        for (name, class) in classes.iter_mut().filter_map(|(name, class)| Some((name, class.as_object_mut()?))) {
            // A class has to have its priority; whether another key exists shows with one.
            let whole = |key: &str, value: &Value| {
                let mut alone = Map::from_iter([("priority".to_owned(), Value::from(0))]);
                alone.insert(key.to_owned(), value.clone());
                alone
            };
            ignored.extend(
                leave_out::<Class>(class, whole).into_iter().map(|key| format!("priorityClasses.{name}.{key}")),
            );
        }
    }
    for pool in fields.get_mut("pools").and_then(Value::as_array_mut).into_iter().flatten() {
        let name = pool.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
        let whole = |key: &str, value: &Value| {
            Map::from_iter([("name".to_owned(), Value::from("")), (key.to_owned(), value.clone())])
        };
        let left_out = pool.as_object_mut().map(|pool| {
            let market = pool.get_mut(MARKET).and_then(Value::as_object_mut);
            let of_market = market.map(|market| leave_out::<MarketConfig>(market, alone)).into_iter().flatten();
            let of_market: Vec<String> = of_market.map(|key| format!("{MARKET}.{key}")).collect();
            [of_market, leave_out::<PoolConfig>(pool, whole)].concat()
        });
        ignored.extend(left_out.into_iter().flatten().map(|key| format!("pools.{name}.{key}")));
    }
    ignored.extend(leave_out::<pumice_fleet_server::config::Scheduling>(&mut fields, alone));
    for (key, value) in &fields {
        if let Err(error) =
            serde_json::from_value::<pumice_fleet_server::config::Scheduling>(Value::Object(alone(key, value)))
        {
            return Err(SchedulingError::Key { key: key.clone(), problem: error.to_string() });
        }
    }
    let read: pumice_fleet_server::config::Scheduling =
        serde_json::from_value(Value::Object(fields)).map_err(|error| SchedulingError::Syntax(error.to_string()))?;
    let config = Config { scheduling: read, ..Config::default() };
    let default_class = default_class.unwrap_or_else(|| config.submission.default_priority_class_name.clone());
    let classes = classes(&config.scheduling.priority_classes);
    if !classes.contains_key(&default_class) {
        return Err(SchedulingError::DefaultClass(default_class));
    }
    ignored.sort();
    Ok(Scheduling {
        classes,
        default_class,
        retries: config.retries()?,
        constraints: Arc::new(config.constraints()?),
        limits: config.limits(),
        ignored,
    })
}

/// Whether a rate is none.
fn is_endless(rate: &Value) -> bool {
    match rate {
        Value::String(text) => text.trim_start_matches(['+', '.']).eq_ignore_ascii_case("inf"),
        rate => rate.as_f64().is_some_and(|rate| rate >= ENDLESS),
    }
}

/// Takes out the keys that `T` does not have, and names them.
fn leave_out<T: DeserializeOwned>(
    fields: &mut Map<String, Value>,
    whole: impl Fn(&str, &Value) -> Map<String, Value>,
) -> Vec<String> {
    let unknown = |key: &String, value: &Value| {
        let read = serde_json::from_value::<T>(Value::Object(whole(key, value)));
        read.is_err_and(|error| error.to_string().starts_with(&format!("unknown field `{key}`")))
    };
    let keys: Vec<String> =
        fields.iter().filter(|(key, value)| unknown(key, value)).map(|(key, _)| key.clone()).collect();
    keys.iter().for_each(|key| drop(fields.remove(key)));
    keys
}

#[cfg(test)]
mod tests {
    use pumice_ledger::PriorityClass;

    use super::*;

    #[test]
    fn the_servers_configuration_counts() {
        let text = "scheduling:\n  maxRetries: 7\n  priorityClasses:\n    low: {priority: 1, preemptible: true}\n\
                    submission: {defaultPriorityClassName: low, allowedPriorityClassNames: [low]}\n";
        let read = Scheduling::read(text).unwrap();
        assert_eq!(read.classes, [("low".to_owned(), PriorityClass { value: 1, preemptible: true })].into());
        assert_eq!((read.retries.returned_max, read.class(""), read.class("high")), (7, Some("low"), None));
        assert_eq!(Scheduling::read("{}").unwrap().classes, Scheduling::default().classes);
    }

    #[test]
    fn of_armadas_what_is_known_counts_and_the_rest_is_named() {
        for text in [
            "maxRetries: 5\nfairnessModel: x\npools: [{name: a, awayPools: [b], experimentalOptimiser: {}, \
             experimentalMarketScheduling: {enabled: true, gangsToPrice: {}}}]\ndefaultPriorityClassName: a\npriorityClasses:\n  a: {priority: 3, \
             preemptible: true, awayNodeTypes: [], colour: red}\n",
            "cyclePeriod: 1s\nscheduling:\n  maxRetries: 5\n  preemption:\n    defaultPriorityClass: a\n    \
             priorityClasses:\n      a: {priority: 3, preemptible: true}\n",
        ] {
            let read = Scheduling::read(text).unwrap();
            assert_eq!(read.classes, [("a".to_owned(), PriorityClass { value: 3, preemptible: true })].into());
            assert_eq!((read.default_class.as_str(), read.retries.returned_max), ("a", 5));
            let ignored = if text.starts_with("max") {
                vec![
                    "fairnessModel",
                    "pools.a.experimentalMarketScheduling.gangsToPrice",
                    "pools.a.experimentalOptimiser",
                    "priorityClasses.a.colour",
                ]
            } else {
                vec!["cyclePeriod"]
            };
            assert_eq!(read.ignored, ignored);
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, message) in [
            ("scheduling:\n  fast: true\n", "line 2, column 3"),
            ("- a", "line 1"),
            ("maxRetries: many\nx: 1\n", "maxRetries: invalid type"),
            ("priorityClasses: {a: {priority: x}}\ny: 1", "priorityClasses: invalid type"),
            ("defaultPriorityClassName: a\n", "defaultPriorityClassName: there is no priority class \"a\""),
            ("scheduling: {priorityClasses: {a: {priority: 1}}}\n", "there is no priority class \"armada-default\""),
        ] {
            let error = Scheduling::read(text).unwrap_err().to_string();
            assert!(error.contains(message), "{text}: {error}");
        }
        let long = " ".repeat(CONFIG_BYTES_MAX + 1);
        assert!(matches!(Scheduling::read(&long), Err(SchedulingError::TooLong { .. })));
    }
}
