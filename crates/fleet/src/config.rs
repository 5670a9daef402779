//! The fleet's configuration file, with names of Armada's where there are some.

use std::collections::{BTreeMap, BTreeSet};

use pumice_ledger::{PriorityClass, PriorityClasses, Retries};
use serde::Deserialize;

use crate::api::Permission;
use crate::front::{PermissionGroups, User, UsersFile};
use crate::submit::Rules;

/// Everything that may be set.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Config {
    /// What a submission must be.
    pub submission: Rules,
    /// How what waits gets its room.
    pub scheduling: Scheduling,
    /// Who may what.
    pub auth: Auth,
}

/// How what waits gets its room.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Scheduling {
    /// Priority classes by name.
    pub priority_classes: BTreeMap<String, Class>,
    /// Runs that were tried and given back before a job fails.
    pub max_returned: u32,
}

/// A priority class.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Class {
    /// Higher goes first.
    pub priority: i32,
    /// Whether its runs may have to make room.
    #[serde(default)]
    pub preemptible: bool,
}

/// Who may what.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Auth {
    /// Groups by what they may do everywhere, as in `submit_any_jobs: [research]`.
    pub permission_group_mapping: BTreeMap<String, BTreeSet<String>>,
    /// People who are known by a password or a token.
    pub users: Vec<User>,
}

/// Value of Armada's own classes.
const CLASS_VALUE: i32 = 1000;

impl Default for Scheduling {
    /// As Armada's.
    fn default() -> Self {
        let class = |preemptible| Class { priority: CLASS_VALUE, preemptible };
        let classes = [("armada-default", false), ("armada-preemptible", true), ("armada-resilient", false)];
        Self {
            priority_classes: classes.map(|(name, preemptible)| (name.to_owned(), class(preemptible))).into(),
            max_returned: Retries::default().returned_max,
        }
    }
}

/// What is wrong in a configuration that can be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// There is no such permission.
    #[error("auth.permissionGroupMapping: there is no permission {0:?}; try submit_any_jobs")]
    Permission(String),
    /// A class that jobs may have is none.
    #[error(
        "submission.allowedPriorityClassNames: there is no priority class {0:?}: name it in scheduling.priorityClasses"
    )]
    Class(String),
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

    /// How often jobs are tried.
    pub fn retries(&self) -> Retries {
        Retries { returned_max: self.scheduling.max_returned }
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

    /// Those who are known by a secret.
    pub fn users(&self) -> UsersFile {
        UsersFile { users: self.auth.users.clone() }
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
        assert_eq!(config.retries(), Retries::default());
        assert!(config.permissions().unwrap().is_empty());
    }

    #[test]
    fn what_fits_nothing_is_named() {
        let config = read(json!({"auth": {"permissionGroupMapping": {"fly": ["a"]}}}));
        assert_eq!(config.permissions(), Err(ConfigError::Permission("fly".into())));
        let config = read(json!({"scheduling": {"priorityClasses": {"armada-default": {"priority": 1}}}}));
        assert_eq!(config.classes(), Err(ConfigError::Class("armada-preemptible".into())));
    }

    #[test]
    fn what_is_said_counts() {
        let config = read(json!({
            "submission": {"allowedPriorityClassNames": ["low"], "defaultPriorityClassName": "low"},
            "scheduling": {"priorityClasses": {"low": {"priority": -1, "preemptible": true}}, "maxReturned": 9},
            "auth": {"permissionGroupMapping": {"create_queue": ["ops"]}},
        }));
        assert_eq!(config.classes().unwrap()["low"], PriorityClass { value: -1, preemptible: true });
        assert_eq!(config.retries().returned_max, 9);
        assert!(config.permissions().unwrap()[&Permission::CreateQueue].contains("ops"));
    }
}
