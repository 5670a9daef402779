//! The fleet's configuration file, with names of Armada's where there are some.

use std::collections::{BTreeMap, BTreeSet};

use pumice_auth::{Issuer, IssuerError, IssuerSettings};
use pumice_fleet_model::submission::Rules;
use pumice_fleet_scheduling::{Constraints, ViewLimits};
use pumice_ledger::{PolicyError, PriorityClass, PriorityClasses, Retries};
use pumice_units::GoDuration;
use serde::Deserialize;

use crate::api::Permission;
use crate::bidding::{Bidding, PricingApi, PricingError};
use crate::gateway::{Access, Origins, PermissionGroups, ReportsFor, User, Users, UsersError, UsersFile};
use crate::leader::Hours;
use crate::sessions::HEARTBEAT_TIMEOUT_MIN_MS;

mod away;
mod scheduling;
mod unknown;

pub use away::{AwayCondition, AwayEntry, AwayNodeType, AwayOperator, AwayPool, TaintConfig, WellKnownNodeType};
pub use scheduling::{Class, FloatingPool, FloatingResource, MarketConfig, PoolConfig, Scheduling};
pub use unknown::unknown_keys;

/// Everything that may be set.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Config {
    /// What a submission must be.
    pub submission: Rules,
    /// How what waits gets its room.
    pub scheduling: Scheduling,
    pub auth: Auth,
    /// How long what is over is kept.
    pub retention: Hours,
    /// Who knows what queues bid in market pools.
    pub pricing_api: PricingApi,
    /// Runs on a cluster of which nothing was heard for so long have failed: at least a minute, never where it is not said.
    pub executor_timeout: Option<GoDuration>,
    /// Origins of pages that may ask from a browser, as in `https://lookout.example.com`.
    pub cors_allowed_origins: Vec<String>,
}

/// The section `auth` of the configuration file: who is known, by what, and what everybody may do.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Auth {
    /// Groups by what they may do everywhere, as in `submit_any_jobs: [research]`.
    pub permission_group_mapping: BTreeMap<String, BTreeSet<String>>,
    /// People who are known by a password or a token.
    pub users: Vec<User>,
    /// An issuer of tokens of OpenID Connect.
    pub oidc: Option<IssuerSettings>,
    /// Who may read specifications and reports of others' jobs.
    pub reports: ReportsFor,
}

/// What is wrong in a configuration that can be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// There is no such permission.
    #[error("auth.permissionGroupMapping: there is no permission {0:?}; try submit_any_jobs")]
    Permission(String),
    /// No page is of such an origin.
    #[error(
        "corsAllowedOrigins: {0:?} is no origin of a page: give each as in https://lookout.example.com, without a path"
    )]
    Origin(String),
    /// A cluster would be given up too soon.
    #[error("executorTimeout: {0} is too short: give at least 1m, such as 1h, or leave it out for never")]
    Timeout(GoDuration),
    /// A class that jobs may have is none.
    #[error(
        "submission.allowedPriorityClassNames: there is no priority class {0:?}: name it in scheduling.priorityClasses"
    )]
    Class(String),
    /// A number that can't be meant.
    #[error("scheduling.{key}: {value} is of no use: {wanted}")]
    Number { key: String, value: String, wanted: &'static str },
    /// Something that only has a meaning with something else.
    #[error("scheduling.{key} has no effect without scheduling.{needs}: set both or neither")]
    Alone { key: &'static str, needs: &'static str },
    /// A retry policy can't be one.
    #[error("scheduling.retryPolicy.policies: {name:?}: {error}")]
    Policy { name: String, error: PolicyError },
    /// Bids decide in a pool, and nobody tells any.
    #[error(
        "scheduling.pools: experimentalMarketScheduling needs bids: say in pricingApi who tells them, with enabled: true"
    )]
    NoBids,
    /// Bids are told, and decide nowhere.
    #[error(
        "pricingApi has no effect: no pool of scheduling.pools has experimentalMarketScheduling with enabled: true"
    )]
    NoMarket,
    /// One thing has two meanings.
    #[error("scheduling.{key}: {name:?} is there twice")]
    Twice { key: &'static str, name: String },
}

/// Why bids of a configuration can't be had.
#[derive(Debug, thiserror::Error)]
pub enum BidsError {
    /// Bids would decide where nobody tells any, or nowhere.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Nobody can be asked.
    #[error("pricingApi")]
    Pricing(#[from] PricingError),
}

/// Why nobody can be let in by a configuration.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// A permission is none.
    #[error(transparent)]
    Permission(#[from] ConfigError),
    /// Users can't be taken.
    #[error("auth.users")]
    Users(#[from] UsersError),
    /// The issuer can't be.
    #[error("auth.oidc")]
    Issuer(#[from] IssuerError),
}

impl Config {
    /// The classes that the scheduler knows.
    ///
    /// # Errors
    /// Where jobs may have one that is not among them.
    pub fn classes(&self) -> Result<PriorityClasses, ConfigError> {
        let classes = &self.scheduling.priority_classes;
        let allowed = self.submission.allowed_priority_class_names.iter();
        let allowed = allowed.chain([&self.submission.default_priority_class_name]);
        if let Some(unknown) = allowed.filter(|name| !name.is_empty()).find(|name| !classes.contains_key(*name)) {
            return Err(ConfigError::Class(unknown.clone()));
        }
        let class = |class: &Class| PriorityClass { value: class.priority, preemptible: class.preemptible };
        Ok(classes.iter().map(|(name, of)| (name.clone(), class(of))).collect())
    }

    /// How often jobs are tried, and when those of a silent cluster have failed.
    ///
    /// # Errors
    /// Where a policy can't be one, or is there twice, or the time is too short.
    pub fn retries(&self) -> Result<Retries, ConfigError> {
        let silent_max_ms = self.executor_timeout.map_or(0, GoDuration::as_millis);
        if let Some(timeout) = self.executor_timeout
            && silent_max_ms < HEARTBEAT_TIMEOUT_MIN_MS
        {
            return Err(ConfigError::Timeout(timeout));
        }
        Ok(Retries { heartbeat_timeout_ms: silent_max_ms, ..self.scheduling.retries()? })
    }

    /// What holds jobs back beside room.
    ///
    /// # Errors
    /// Where a limit can't be meant.
    pub fn constraints(&self) -> Result<Constraints, ConfigError> {
        self.scheduling.constraints()
    }

    /// Who is asked for bids; nobody where there is no market pool.
    ///
    /// # Errors
    /// Where somebody has to be asked and can't.
    pub fn bidding(&self) -> Result<Option<Bidding>, BidsError> {
        match (self.scheduling.markets()?.is_empty(), self.pricing_api.enabled) {
            (false, true) => Ok(Some(Bidding::new(&self.pricing_api)?)),
            (true, false) => Ok(None),
            (false, false) => Err(ConfigError::NoBids.into()),
            (true, true) => Err(ConfigError::NoMarket.into()),
        }
    }

    /// Whose pages may ask from a browser.
    ///
    /// # Errors
    /// Where an origin is none.
    pub fn origins(&self) -> Result<Origins, ConfigError> {
        Origins::new(&self.cors_allowed_origins).map_err(ConfigError::Origin)
    }

    /// How much of a queue a round looks at.
    pub fn limits(&self) -> ViewLimits {
        self.scheduling.limits()
    }

    /// Who may what everywhere.
    ///
    /// # Errors
    /// Where a permission is none.
    pub fn permissions(&self) -> Result<PermissionGroups, ConfigError> {
        let mapping = self.auth.permission_group_mapping.iter();
        let read = |(word, groups): (&String, &BTreeSet<String>)| {
            let permission = Permission::parse(word).ok_or_else(|| ConfigError::Permission(word.clone()))?;
            Ok((permission, groups.clone()))
        };
        mapping.map(read).collect()
    }

    /// Who gets in, and who may what.
    ///
    /// # Errors
    /// The first thing that can't be as it is.
    pub fn access(&self) -> Result<Access, AccessError> {
        let users = Users::new(UsersFile { users: self.auth.users.clone() })?;
        let issuer = self.auth.oidc.as_ref().map(Issuer::new).transpose()?;
        Ok(Access { users, permissions: self.permissions()?, issuer, reports: self.auth.reports })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(value: serde_json::Value) -> Config {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn what_is_not_said_is_as_armadas() {
        let config = Config::default();
        assert_eq!(config.classes().unwrap().len(), 3);
        assert_eq!(config.retries().unwrap().returned_max, Retries::default().returned_max);
        assert!(config.permissions().unwrap().is_empty());
    }

    #[test]
    fn a_silent_cluster_has_its_time() {
        let retries = |value| {
            read(value).retries().map(|retries| retries.heartbeat_timeout_ms).map_err(|error| error.to_string())
        };
        let short = "executorTimeout: 59s is too short: give at least 1m, such as 1h, or leave it out for never";
        for (value, wanted) in [
            (json!({}), Ok(0)),
            (json!({"executorTimeout": "1h"}), Ok(3_600_000)),
            (json!({"executorTimeout": "59s"}), Err(short.to_owned())),
        ] {
            assert_eq!(retries(value), wanted);
        }
    }

    #[test]
    fn what_fits_nothing_is_named() {
        let config = read(json!({"auth": {"permissionGroupMapping": {"fly": ["a"]}}}));
        assert_eq!(config.permissions(), Err(ConfigError::Permission("fly".into())));
        let config = read(json!({"corsAllowedOrigins": ["https://a", "https://a/b"]}));
        assert_eq!(config.origins(), Err(ConfigError::Origin("https://a/b".into())));
        let config = read(json!({"scheduling": {"priorityClasses": {"armada-default": {"priority": 1}}}}));
        assert_eq!(config.classes(), Err(ConfigError::Class("armada-preemptible".into())));
    }

    #[test]
    fn bids_and_markets_need_each_other() {
        let api = |enabled: bool| json!({"enabled": enabled, "serviceUrl": "bids:50051", "forceNoTls": true});
        let pools = |enabled: bool| json!([{"name": "p", "experimentalMarketScheduling": {"enabled": enabled, "spotPriceCutoff": 0.9}}]);
        for (market, asked, wanted) in [
            (false, false, Ok(false)),
            (true, true, Ok(true)),
            (true, false, Err("say in pricingApi who tells them")),
            (false, true, Err("pricingApi has no effect")),
        ] {
            let config = read(json!({"scheduling": {"pools": pools(market)}, "pricingApi": api(asked)}));
            let found = config.bidding().map(|bidding| bidding.is_some()).map_err(|error| error.to_string());
            assert_eq!(found.as_ref().map_or(Err(()), |found| Ok(*found)), wanted.map_err(drop), "{found:?}");
            if let (Err(found), Err(wanted)) = (&found, wanted) {
                assert!(found.contains(wanted), "{found}");
            }
        }
        let cutoff = json!({"name": "p", "experimentalMarketScheduling": {"enabled": true, "spotPriceCutoff": -1}});
        let error = read(json!({"scheduling": {"pools": [cutoff]}})).constraints().unwrap_err().to_string();
        assert!(error.starts_with("scheduling.pools.p.experimentalMarketScheduling.spotPriceCutoff: -1"), "{error}");
    }

    #[test]
    fn armadas_rules_of_submissions_are_read_as_they_are() {
        let gpu =
            json!([{"key": "armadaproject.io/gpu", "operator": "Equal", "value": "true", "effect": "NoSchedule"}]);
        let config = read(json!({"submission": {
            "allowedPriorityClassNames": {"armada-default": true, "armada-preemptible": true, "armada-resilient": false},
            "defaultJobTolerationsByResourceRequest": [{"nvidia.com/gpu": gpu}, {"amd.com/gpu": gpu}],
            "minTerminationGracePeriod": "1s",
        }}));
        let names: Vec<&String> = config.submission.allowed_priority_class_names.iter().collect();
        assert_eq!(names, ["armada-default", "armada-preemptible"]);
        let by_resource = config.submission.default_job_tolerations_by_resource_request;
        assert_eq!(by_resource.keys().collect::<Vec<_>>(), ["amd.com/gpu", "nvidia.com/gpu"]);
        let ours = json!({"submission": {"defaultJobTolerationsByResourceRequest": {"nvidia.com/gpu": gpu}}});
        assert_eq!(read(ours).submission.default_job_tolerations_by_resource_request["nvidia.com/gpu"].len(), 1);
    }

    #[test]
    fn what_is_said_counts() {
        let config = read(json!({
            "submission": {"allowedPriorityClassNames": ["low"], "defaultPriorityClassName": "low"},
            "scheduling": {"priorityClasses": {"low": {"priority": -1, "preemptible": true}}, "maxRetries": 9},
            "auth": {"permissionGroupMapping": {"create_queue": ["ops"]}},
        }));
        assert_eq!(config.classes().unwrap()["low"], PriorityClass { value: -1, preemptible: true });
        assert_eq!(config.retries().unwrap().returned_max, 9);
        assert!(config.permissions().unwrap()[&Permission::CreateQueue].contains("ops"));
    }
}
