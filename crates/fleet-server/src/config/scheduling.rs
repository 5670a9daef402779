//! The section `scheduling` of the configuration file: how what waits gets its room. Names and meanings are Armada's; where
//! nothing is said there is no limit.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pumice_fleet_scheduling::{
    Constraints, MarketRules, Placement, Placements, Protected, Rate, RateLimits, ViewLimits,
};
use pumice_ledger::{ClassLimit, Retries, RetryPolicies};
use pumice_units::{GoDuration, Quantity};
use serde::Deserialize;

use super::ConfigError;
use super::away::{self, AwayNodeType, AwayPool, WellKnownNodeType};

/// Value of Armada's own classes.
const CLASS_VALUE: i32 = 1000;
/// Jobs at once where only a rate is set, as Armada's.
const BURST: u32 = 1_000;
/// Slowest rate, in jobs a second: one in some minutes.
const RATE_LEAST: f64 = 0.001;

/// Parts of what a pool has, by resource.
type Fractions = BTreeMap<String, f64>;

/// How what waits gets its room.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Scheduling {
    /// Priority classes by name.
    pub priority_classes: BTreeMap<String, Class>,
    /// Runs that were tried and given back before a job fails.
    pub max_retries: u32,
    /// Which failures are tried again.
    pub retry_policy: RetryPolicies,
    /// Jobs of a queue that a round looks at.
    pub max_queue_lookback: Option<usize>,
    /// Which part of a pool one round may start.
    pub maximum_resource_fraction_to_schedule: Fractions,
    /// The same for single pools.
    pub maximum_resource_fraction_to_schedule_by_pool: BTreeMap<String, Fractions>,
    /// Jobs a second that start in the long run.
    pub maximum_scheduling_rate: Option<f64>,
    /// Jobs that start at once after a rest.
    pub maximum_scheduling_burst: Option<u32>,
    /// Jobs a second of one queue.
    pub maximum_per_queue_scheduling_rate: Option<f64>,
    /// Jobs of one queue at once.
    pub maximum_per_queue_scheduling_burst: Option<u32>,
    /// Queues that hold no more than this part of their share lose nothing for balance.
    pub protected_fraction_of_fair_share: f64,
    /// What is special of single pools.
    pub pools: Vec<PoolConfig>,
    /// Nodes that are kept for some, by their taints.
    pub well_known_node_types: Vec<WellKnownNodeType>,
    /// Resources of pools that are on no node.
    pub floating_resources: Vec<FloatingResource>,
    /// How nodes are filled.
    pub placement: Placement,
}

/// A priority class of the fleet, as the configuration file has it.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Class {
    /// Higher goes first.
    pub priority: i32,
    /// Whether its runs may have to make room.
    #[serde(default)]
    pub preemptible: bool,
    /// Which part of a pool its jobs may hold in one queue.
    #[serde(default)]
    pub maximum_resource_fraction_per_queue: Fractions,
    /// The same for single pools.
    #[serde(default)]
    pub maximum_resource_fraction_per_queue_by_pool: BTreeMap<String, Fractions>,
    /// Where its jobs may be away from home, in the order in which that is tried.
    #[serde(default)]
    pub away_node_types: Vec<AwayNodeType>,
}

/// What is special of one pool.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PoolConfig {
    pub name: String,
    /// Goes before that of all pools.
    #[serde(default)]
    pub protected_fraction_of_fair_share: Option<f64>,
    /// Pools in which its jobs may be away from home.
    #[serde(default)]
    pub away_pools: Vec<AwayPool>,
    /// Jobs that end sooner than this after their start count in the order of queues until then.
    #[serde(default)]
    pub short_job_penalty_cutoff: Option<GoDuration>,
    /// Nothing starts there at home.
    #[serde(default)]
    pub disable_home_scheduling: bool,
    /// Nothing starts there away from home.
    #[serde(default)]
    pub disable_away_scheduling: bool,
    /// No gang starts there away from home.
    #[serde(default)]
    pub disable_gang_away_scheduling: bool,
    /// Whether bids decide who has its room.
    #[serde(default)]
    pub experimental_market_scheduling: Option<MarketConfig>,
    /// How fast its runs may be made to leave so that queues get their shares.
    #[serde(default)]
    pub fairshare_preemption_rate_limit: Option<RateConfig>,
    /// Goes before that of all pools.
    #[serde(default)]
    pub placement: Option<Placement>,
}

/// How many runs may be preempted for fair shares, as the configuration file has it; both are wanted.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RateConfig {
    /// Jobs a second in the long run.
    pub maximum_rate: f64,
    /// Jobs at once after a rest.
    pub maximum_burst: u32,
}

/// Whether bids decide in a pool, as the configuration file has it.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MarketConfig {
    /// Whether it is one.
    #[serde(default)]
    pub enabled: bool,
    /// Which part of it has to be taken before it has a price.
    #[serde(default)]
    pub spot_price_cutoff: f64,
}

/// A resource that is on no node, such as licences.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FloatingResource {
    /// Its name in requests.
    pub name: String,
    /// In which steps Armada counts it. Here whole units are counted.
    #[serde(default)]
    pub resolution: Option<Quantity>,
    /// Where there is how much of it.
    #[serde(default)]
    pub pools: Vec<FloatingPool>,
}

/// What a pool has of a resource.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FloatingPool {
    pub name: String,
    pub quantity: Quantity,
}

impl Default for Scheduling {
    /// Armada's classes, and no limits.
    fn default() -> Self {
        let class = |preemptible| Class {
            priority: CLASS_VALUE,
            preemptible,
            maximum_resource_fraction_per_queue: Fractions::new(),
            maximum_resource_fraction_per_queue_by_pool: BTreeMap::new(),
            away_node_types: Vec::new(),
        };
        let classes = [("armada-default", false), ("armada-preemptible", true), ("armada-resilient", false)];
        Self {
            priority_classes: classes.map(|(name, preemptible)| (name.to_owned(), class(preemptible))).into(),
            max_retries: Retries::default().returned_max,
            retry_policy: RetryPolicies::default(),
            max_queue_lookback: None,
            maximum_resource_fraction_to_schedule: Fractions::new(),
            maximum_resource_fraction_to_schedule_by_pool: BTreeMap::new(),
            maximum_scheduling_rate: None,
            maximum_scheduling_burst: None,
            maximum_per_queue_scheduling_rate: None,
            maximum_per_queue_scheduling_burst: None,
            protected_fraction_of_fair_share: Protected::default().fraction,
            pools: Vec::new(),
            well_known_node_types: Vec::new(),
            floating_resources: Vec::new(),
            placement: Placement::default(),
        }
    }
}

impl Scheduling {
    /// How much of a queue a round looks at.
    pub(super) fn limits(&self) -> ViewLimits {
        let limits = ViewLimits::default();
        let per_queue = self.max_queue_lookback.unwrap_or(limits.per_queue);
        ViewLimits { per_shape: limits.per_shape.min(per_queue), per_queue }
    }

    /// How often jobs are tried.
    pub(super) fn retries(&self) -> Result<Retries, ConfigError> {
        let policies = &self.retry_policy;
        let mut names = BTreeSet::new();
        for policy in &policies.policies {
            let name = || policy.name.clone();
            policy.check().map_err(|error| ConfigError::Policy { name: name(), error })?;
            if !names.insert(policy.name.as_str()) {
                return Err(ConfigError::Twice { key: "retryPolicy.policies", name: name() });
            }
        }
        Ok(Retries { returned_max: self.max_retries, policies: Arc::new(policies.clone()), ..Retries::default() })
    }

    /// What holds jobs back beside room.
    pub(super) fn constraints(&self) -> Result<Constraints, ConfigError> {
        let mut per_queue = BTreeMap::new();
        for (name, class) in &self.priority_classes {
            let (all, by_pool) =
                (&class.maximum_resource_fraction_per_queue, &class.maximum_resource_fraction_per_queue_by_pool);
            let limit = limit(&format!("priorityClasses.{name}.maximumResourceFractionPerQueue"), all, by_pool)?;
            if limit != ClassLimit::default() {
                per_queue.insert(name.clone(), limit);
            }
        }
        let per_round = limit(
            "maximumResourceFractionToSchedule",
            &self.maximum_resource_fraction_to_schedule,
            &self.maximum_resource_fraction_to_schedule_by_pool,
        )?;
        let rates = RateLimits {
            all: rate(
                "maximumSchedulingRate",
                self.maximum_scheduling_rate,
                "maximumSchedulingBurst",
                self.maximum_scheduling_burst,
            )?,
            per_queue: rate(
                "maximumPerQueueSchedulingRate",
                self.maximum_per_queue_scheduling_rate,
                "maximumPerQueueSchedulingBurst",
                self.maximum_per_queue_scheduling_burst,
            )?,
        };
        let away = away::rules(&self.priority_classes, &self.well_known_node_types, &self.pools)?;
        let (floating, protected) = (self.floating()?, self.protected()?);
        let cutoff = |pool: &PoolConfig| Some((pool.name.clone(), pool.short_job_penalty_cutoff?.as_millis()));
        let short_jobs = self.pools.iter().filter_map(cutoff).filter(|(_, ms)| *ms > 0).collect();
        let (markets, placements) = (self.markets()?, self.placements()?);
        let preemption_rates = self.preemption_rates()?;
        Ok(Constraints {
            per_queue,
            per_round,
            rates,
            floating,
            protected,
            away,
            short_jobs,
            markets,
            preemption_rates,
            placements,
        })
    }

    fn preemption_rates(&self) -> Result<BTreeMap<String, Rate>, ConfigError> {
        let mut rates = BTreeMap::new();
        for PoolConfig { name, fairshare_preemption_rate_limit: limit, .. } in &self.pools {
            let Some(RateConfig { maximum_rate, maximum_burst }) = *limit else { continue };
            let limit = rate(
                "pools.fairsharePreemptionRateLimit.maximumRate",
                Some(maximum_rate),
                "pools.fairsharePreemptionRateLimit.maximumBurst",
                Some(maximum_burst),
            )?;
            rates.extend(limit.map(|limit| (name.clone(), limit)));
        }
        Ok(rates)
    }

    fn placements(&self) -> Result<Placements, ConfigError> {
        let mut by_pool = BTreeMap::new();
        for PoolConfig { name, placement, .. } in &self.pools {
            let Some(placement) = placement else { continue };
            if by_pool.insert(name.clone(), placement.clone()).is_some() {
                return Err(ConfigError::Twice { key: "pools", name: name.clone() });
            }
        }
        Ok(Placements { all: self.placement.clone(), by_pool })
    }

    /// The rules of the pools in which bids decide, by pool; an error where a pool is named twice.
    pub(super) fn markets(&self) -> Result<BTreeMap<String, MarketRules>, ConfigError> {
        let mut markets = BTreeMap::new();
        for PoolConfig { name, experimental_market_scheduling: market, .. } in &self.pools {
            let Some(market) = market.as_ref().filter(|market| market.enabled) else { continue };
            let key = format!("pools.{name}.experimentalMarketScheduling.spotPriceCutoff");
            let rules = MarketRules { spot_price_cutoff: checked(&key, market.spot_price_cutoff)? };
            if markets.insert(name.clone(), rules).is_some() {
                return Err(ConfigError::Twice { key: "pools", name: name.clone() });
            }
        }
        Ok(markets)
    }

    fn floating(&self) -> Result<BTreeMap<String, BTreeMap<String, i64>>, ConfigError> {
        let mut all = BTreeMap::new();
        for FloatingResource { name, pools, .. } in &self.floating_resources {
            let twice = |key, name: &String| ConfigError::Twice { key, name: name.clone() };
            let mut amounts = BTreeMap::new();
            for FloatingPool { name: pool, quantity } in pools {
                if quantity.is_negative() {
                    let (key, value) = (format!("floatingResources.{name}.pools.{pool}"), quantity.to_string());
                    return Err(ConfigError::Number { key, value, wanted: "an amount of 0 or more is wanted" });
                }
                if amounts.insert(pool.clone(), quantity.value()).is_some() {
                    return Err(twice("floatingResources.pools", pool));
                }
            }
            if all.insert(name.clone(), amounts).is_some() {
                return Err(twice("floatingResources", name));
            }
        }
        Ok(all)
    }

    fn protected(&self) -> Result<Protected, ConfigError> {
        let key = "protectedFractionOfFairShare";
        let mut by_pool = BTreeMap::new();
        for PoolConfig { name, protected_fraction_of_fair_share, .. } in &self.pools {
            let Some(fraction) = *protected_fraction_of_fair_share else { continue };
            if by_pool.insert(name.clone(), checked(&format!("pools.{name}.{key}"), fraction)?).is_some() {
                return Err(ConfigError::Twice { key: "pools", name: name.clone() });
            }
        }
        Ok(Protected { fraction: checked(key, self.protected_fraction_of_fair_share)?, by_pool })
    }
}

fn limit(key: &str, all: &Fractions, by_pool: &BTreeMap<String, Fractions>) -> Result<ClassLimit, ConfigError> {
    for (resource, fraction) in all {
        checked(&format!("{key}.{resource}"), *fraction)?;
    }
    for (pool, fractions) in by_pool {
        for (resource, fraction) in fractions {
            checked(&format!("{key}ByPool.{pool}.{resource}"), *fraction)?;
        }
    }
    Ok(ClassLimit { fraction: all.clone(), by_pool: by_pool.clone() })
}

fn checked(key: &str, fraction: f64) -> Result<f64, ConfigError> {
    let (key, wanted) = (key.to_owned(), "a fraction of 0 or more is wanted");
    let number = ConfigError::Number { key, value: fraction.to_string(), wanted };
    if fraction.is_finite() && fraction >= 0.0 { Ok(fraction) } else { Err(number) }
}

fn rate(
    key: &'static str,
    rate: Option<f64>,
    burst_key: &'static str,
    burst: Option<u32>,
) -> Result<Option<Rate>, ConfigError> {
    let Some(per_second) = rate else {
        return burst.map_or(Ok(None), |_| Err(ConfigError::Alone { key: burst_key, needs: key }));
    };
    let number = |key: &str, value, wanted| Err(ConfigError::Number { key: key.to_owned(), value, wanted });
    if !per_second.is_finite() || per_second < RATE_LEAST {
        return number(key, per_second.to_string(), "jobs a second are wanted, at least 0.001");
    }
    match burst.unwrap_or(BURST) {
        0 => number(burst_key, "0".to_owned(), "at least one job is wanted"),
        burst => Ok(Some(Rate { per_second, burst })),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(value: serde_json::Value) -> Result<Constraints, ConfigError> {
        serde_json::from_value::<Scheduling>(value).unwrap().constraints()
    }

    #[test]
    fn nothing_said_is_no_limit() {
        assert_eq!(read(json!({})), Ok(Constraints::default()));
        assert_eq!(Scheduling::default().limits().per_queue, ViewLimits::default().per_queue);
    }

    #[test]
    fn what_is_said_counts() {
        let constraints = read(json!({
            "priorityClasses": {
                "small": {
                    "priority": 1,
                    "maximumResourceFractionPerQueue": {"cpu": 0.5},
                    "maximumResourceFractionPerQueueByPool": {"gpu": {"cpu": 0.1}},
                },
                "free": {"priority": 2},
            },
            "maximumResourceFractionToSchedule": {"memory": 0.25},
            "maximumSchedulingRate": 10,
            "maximumPerQueueSchedulingRate": 5,
            "maximumPerQueueSchedulingBurst": 7,
            "protectedFractionOfFairShare": 0.9,
            "placement": {"weights": {"nvidia.com/gpu": 3}},
            "pools": [
                {"name": "slow", "fairsharePreemptionRateLimit": {"maximumRate": 0.1, "maximumBurst": 2}},
                {"name": "wide", "placement": {"strategy": "spread"}},
                {"name": "gpu", "protectedFractionOfFairShare": 1.5, "shortJobPenaltyCutoff": "2m"},
                {"name": "cpu", "shortJobPenaltyCutoff": "0s"},
            ],
            "floatingResources": [
                {"name": "matlab", "resolution": "1", "pools": [{"name": "gpu", "quantity": "12"}]},
            ],
        }))
        .unwrap();
        assert_eq!(constraints.per_queue.keys().collect::<Vec<_>>(), ["small"]);
        assert_eq!(constraints.fractions("gpu", "small", &BTreeMap::new())["cpu"], 0.1);
        assert_eq!(constraints.round_fractions("gpu")["memory"], 0.25);
        assert_eq!(constraints.rates.all, Some(Rate { per_second: 10.0, burst: 1_000 }));
        assert_eq!(constraints.rates.per_queue, Some(Rate { per_second: 5.0, burst: 7 }));
        assert_eq!((constraints.protected.of("gpu"), constraints.protected.of("cpu")), (1.5, 0.9));
        assert_eq!(constraints.floating["matlab"]["gpu"], 12);
        assert_eq!(constraints.short_jobs, [("gpu".to_owned(), 120_000)].into());
        assert_eq!(constraints.preemption_rates, [("slow".to_owned(), Rate { per_second: 0.1, burst: 2 })].into());
        assert_eq!(constraints.placements.of("gpu").weights["nvidia.com/gpu"], 3);
        assert_ne!(constraints.placements.of("wide").strategy, constraints.placements.of("gpu").strategy);
    }

    #[test]
    fn what_cant_be_meant_is_named() {
        for (value, wanted) in [
            (
                json!({"maximumResourceFractionToScheduleByPool": {"gpu": {"cpu": -1}}}),
                "scheduling.maximumResourceFractionToScheduleByPool.gpu.cpu: -1 is of no use: a fraction of 0 or more is \
                 wanted",
            ),
            (
                json!({"maximumSchedulingRate": 0}),
                "scheduling.maximumSchedulingRate: 0 is of no use: jobs a second are wanted, at least 0.001",
            ),
            (
                json!({"maximumSchedulingBurst": 5}),
                "scheduling.maximumSchedulingBurst has no effect without scheduling.maximumSchedulingRate: set both or \
                 neither",
            ),
            (
                json!({"maximumPerQueueSchedulingRate": 1, "maximumPerQueueSchedulingBurst": 0}),
                "scheduling.maximumPerQueueSchedulingBurst: 0 is of no use: at least one job is wanted",
            ),
            (
                json!({"floatingResources": [{"name": "a", "pools": [{"name": "p", "quantity": "-1"}]}]}),
                "scheduling.floatingResources.a.pools.p: -1 is of no use: an amount of 0 or more is wanted",
            ),
            (
                json!({"floatingResources": [{"name": "a"}, {"name": "a"}]}),
                "scheduling.floatingResources: \"a\" is there twice",
            ),
        ] {
            assert_eq!(read(value).unwrap_err().to_string(), wanted);
        }
    }

    #[test]
    fn policies_are_ones_with_names_of_their_own() {
        let read =
            |value| serde_json::from_value::<Scheduling>(json!({ "maxRetries": 7, "retryPolicy": value })).unwrap();
        let policy = json!({"name": "a", "retryLimit": 1, "defaultAction": "Retry"});
        for (value, wanted) in [
            (
                json!({"policies": [{"name": "A", "retryLimit": 1, "defaultAction": "Retry"}]}),
                "scheduling.retryPolicy.policies: \"A\": name: \"A\" is none: use a-z, 0-9 and `-`, at most 63, with a \
                 letter or digit at both ends",
            ),
            (json!({"policies": [policy, policy]}), "scheduling.retryPolicy.policies: \"a\" is there twice"),
        ] {
            assert_eq!(read(value).retries().unwrap_err().to_string(), wanted);
        }
        let retries = read(json!({"enabled": true, "defaultPolicyName": "a", "policies": [policy]})).retries().unwrap();
        assert_eq!((retries.returned_max, retries.policies.policies[0].retry_limit), (7, 1));
    }

    #[test]
    fn the_lookback_bounds_what_a_round_looks_at() {
        let limits = serde_json::from_value::<Scheduling>(json!({"maxQueueLookback": 50})).unwrap().limits();
        assert_eq!((limits.per_queue, limits.per_shape), (50, 50));
    }
}
