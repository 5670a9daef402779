//! What kind of failure it was: Armada's error categories, as an administrator writes them.
//!
//! The first rule that fits counts, over all categories in their order. What the fleet itself ended has a category of its own,
//! `internal`, whatever the rules say. Invariant: patterns are compiled once, by [`Categories::new`], so that a wrong one is
//! found at the start. Pure.

use pumice_wire::executor::{RunContainer, RunReport};
use regex::Regex;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::facts::PodEvent;
use super::pending_checks::PatternError;

/// Longest name of a category or subcategory, as in Armada's tables.
const NAME_BYTES_MAX: usize = 63;
/// The category of what the fleet itself ended.
const INTERNAL: &str = "internal";
/// The reasons of reports that are ours, and their subcategories.
const INTERNAL_REASONS: [(&str, &str); 3] = [
    ("InvalidLease", "job-creation-failed"),
    ("StartedLate", "issue-handler-error"),
    ("StuckTerminating", "stuck-terminating"),
];

/// How failures are told apart.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ErrorCategories {
    /// Without it no rule is looked at.
    pub enabled: bool,
    /// The category of what no rule fits.
    pub default_category: String,
    pub default_subcategory: String,
    /// The categories, in order.
    pub categories: Vec<Category>,
}

/// A kind of failure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Category {
    /// What it is called.
    pub name: String,
    /// It is this kind if one of these fits.
    pub rules: Vec<Rule>,
    /// What becomes of the pod.
    #[serde(default)]
    pub action: PodAction,
}

/// What becomes of a pod that failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum PodAction {
    /// It stays as long as others that failed.
    #[default]
    Retain,
    /// It goes as soon as the server knows of the failure.
    Delete,
}

/// What a failure looks like: one of the `on` fields, and no more.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Rule {
    /// The container that exit codes, conditions and termination messages are of; any where it is empty.
    pub container_name: String,
    /// By the exit code of a container that failed.
    pub on_exit_codes: Option<ExitCodes>,
    /// By what a container that failed left behind.
    pub on_termination_message: Option<Pattern>,
    /// By the message of the pod as a whole.
    pub on_pod_error: Option<Pattern>,
    /// By a warning about the pod.
    pub on_pod_events: Option<EventPattern>,
    /// By Kubernetes' words: `OOMKilled`, `Evicted`, `DeadlineExceeded`.
    pub on_conditions: Vec<Condition>,
    pub subcategory: String,
    /// What people are told besides of the failure.
    pub hint: String,
}

/// A set of exit codes. Zero is in none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExitCodes {
    /// Whether those named are meant, or all others.
    pub operator: Operator,
    pub values: Vec<i32>,
}

/// Whether those named are meant, or all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Operator {
    In,
    NotIn,
}

/// A pattern, found anywhere.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Pattern {
    pub pattern: String,
}

/// A pattern for events of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EventPattern {
    /// A regular expression, found anywhere in the message.
    pub regexp: String,
    /// The whole reason; any where it is empty.
    #[serde(default)]
    pub reason: String,
    /// The event's type. Executors only hear of warnings.
    #[serde(rename = "type")]
    pub kind: EventKind,
}

/// The type of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EventKind {
    Warning,
}

/// A word of Kubernetes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Condition {
    #[serde(rename = "OOMKilled")]
    OomKilled,
    Evicted,
    DeadlineExceeded,
}

impl Condition {
    fn word(self) -> &'static str {
        match self {
            Self::OomKilled => "OOMKilled",
            Self::Evicted => "Evicted",
            Self::DeadlineExceeded => "DeadlineExceeded",
        }
    }
}

/// What can't be used of the settings.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum CategoryError {
    /// A name is missing, too long or there twice.
    #[error("errorCategories: the name {0:?} is empty, given twice, or longer than {NAME_BYTES_MAX} bytes")]
    Name(String),
    /// A category has no rule.
    #[error("errorCategories: the category {0} has no rules: give it one")]
    NoRules(String),
    /// A rule does not say what it is for.
    #[error(
        "errorCategories: rule {rule} of the category {category} has {found} matchers: give it one of onConditions, onExitCodes, \
         onTerminationMessage, onPodError and onPodEvents"
    )]
    Matchers {
        category: String,
        /// Which of its rules, from 0.
        rule: usize,
        /// How many it has.
        found: usize,
    },
    /// A set of exit codes is empty.
    #[error(
        "errorCategories: rule {rule} of the category {category} has no exit codes: name them in onExitCodes.values"
    )]
    NoValues {
        category: String,
        /// Which of its rules, from 0.
        rule: usize,
    },
    /// A pattern is none.
    #[error("errorCategories: a pattern of the category {category} is none")]
    Pattern {
        category: String,
        #[source]
        source: PatternError,
    },
}

/// What is said of a failure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Named {
    /// The category; empty for none.
    pub category: String,
    /// The subcategory; empty for none.
    pub subcategory: String,
    /// What people are told besides; empty for nothing.
    pub hint: String,
    /// What becomes of the pod.
    pub action: PodAction,
}

#[derive(Debug)]
enum Matcher {
    Conditions(Vec<Condition>),
    ExitCodes(ExitCodes),
    TerminationMessage(Regex),
    PodError(Regex),
    PodEvents { message: Regex, reason: String },
}

#[derive(Debug)]
struct Compiled {
    category: String,
    action: PodAction,
    subcategory: String,
    hint: String,
    container: String,
    matcher: Matcher,
}

/// The rules, ready for use.
#[derive(Debug, Default)]
pub struct Categories {
    rules: Vec<Compiled>,
    fallback: Named,
}

impl Categories {
    /// The rules of the settings. They are checked even where they are not enabled.
    ///
    /// # Errors
    /// The first of them that can't be used.
    pub fn new(settings: &ErrorCategories) -> Result<Self, CategoryError> {
        let name = |name: &String, may_be_empty: bool| {
            let is_good = name.len() <= NAME_BYTES_MAX && (may_be_empty || !name.is_empty());
            if is_good { Ok(()) } else { Err(CategoryError::Name(name.chars().take(NAME_BYTES_MAX).collect())) }
        };
        name(&settings.default_category, true)?;
        name(&settings.default_subcategory, true)?;
        let mut rules = Vec::new();
        for (index, category) in settings.categories.iter().enumerate() {
            name(&category.name, false)?;
            if settings.categories[..index].iter().any(|before| before.name == category.name) {
                return Err(CategoryError::Name(category.name.clone()));
            }
            if category.rules.is_empty() {
                return Err(CategoryError::NoRules(category.name.clone()));
            }
            for (place, rule) in category.rules.iter().enumerate() {
                name(&rule.subcategory, true)?;
                rules.push(compiled(category, place, rule)?);
            }
        }
        if !settings.enabled {
            return Ok(Self::default());
        }
        let fallback = Named {
            category: settings.default_category.clone(),
            subcategory: settings.default_subcategory.clone(),
            ..Named::default()
        };
        Ok(Self { rules, fallback })
    }

    /// What kind of failure a report tells of, with the warnings about its pod. O(rules).
    #[must_use]
    pub fn of(&self, report: &RunReport, events: &[PodEvent]) -> Named {
        if let Some((_, subcategory)) = INTERNAL_REASONS.iter().find(|(reason, _)| *reason == report.reason) {
            let (category, subcategory) = (INTERNAL.to_owned(), (*subcategory).to_owned());
            return Named { category, subcategory, ..Named::default() };
        }
        let fits = |rule: &&Compiled| rule.fits(report, events);
        self.rules.iter().find(fits).map_or_else(|| self.fallback.clone(), Compiled::named)
    }
}

impl Compiled {
    fn named(&self) -> Named {
        Named {
            category: self.category.clone(),
            subcategory: self.subcategory.clone(),
            hint: self.hint.clone(),
            action: self.action,
        }
    }

    fn fits(&self, report: &RunReport, events: &[PodEvent]) -> bool {
        let is_meant = |container: &&RunContainer| self.container.is_empty() || container.name == self.container;
        let mut failed = report.containers.iter().filter(|container| container.exit_code != 0).filter(is_meant);
        match &self.matcher {
            Matcher::Conditions(conditions) => {
                let is_oom = |container: &RunContainer| container.reason == Condition::OomKilled.word();
                let has_oom = failed.any(is_oom);
                conditions.iter().any(|condition| match condition {
                    Condition::OomKilled => has_oom,
                    Condition::Evicted | Condition::DeadlineExceeded => report.reason == condition.word(),
                })
            }
            Matcher::ExitCodes(codes) => failed.any(|container| codes.has(container.exit_code)),
            Matcher::TerminationMessage(pattern) => failed.any(|container| is_in(pattern, &container.message)),
            Matcher::PodError(pattern) => is_in(pattern, &report.message),
            Matcher::PodEvents { message, reason } => {
                let of_reason = |event: &&PodEvent| reason.is_empty() || event.reason == *reason;
                events.iter().filter(of_reason).any(|event| is_in(message, &event.message))
            }
        }
    }
}

impl ExitCodes {
    fn has(&self, code: i32) -> bool {
        self.values.contains(&code) == (self.operator == Operator::In)
    }
}

/// Nothing is in an empty text.
fn is_in(pattern: &Regex, text: &str) -> bool {
    !text.is_empty() && pattern.is_match(text)
}

fn compiled(category: &Category, place: usize, rule: &Rule) -> Result<Compiled, CategoryError> {
    let pattern = |pattern: &str| {
        Regex::new(pattern).map_err(|source| CategoryError::Pattern {
            category: category.name.clone(),
            source: PatternError { pattern: pattern.to_owned(), source },
        })
    };
    let mut matchers = Vec::new();
    if !rule.on_conditions.is_empty() {
        matchers.push(Matcher::Conditions(rule.on_conditions.clone()));
    }
    if let Some(codes) = &rule.on_exit_codes {
        if codes.values.is_empty() {
            return Err(CategoryError::NoValues { category: category.name.clone(), rule: place });
        }
        matchers.push(Matcher::ExitCodes(codes.clone()));
    }
    if let Some(message) = &rule.on_termination_message {
        matchers.push(Matcher::TerminationMessage(pattern(&message.pattern)?));
    }
    if let Some(message) = &rule.on_pod_error {
        matchers.push(Matcher::PodError(pattern(&message.pattern)?));
    }
    if let Some(EventPattern { regexp, reason, kind: EventKind::Warning }) = &rule.on_pod_events {
        matchers.push(Matcher::PodEvents { message: pattern(regexp)?, reason: reason.clone() });
    }
    let found = matchers.len();
    let (1, Some(matcher)) = (found, matchers.pop()) else {
        return Err(CategoryError::Matchers { category: category.name.clone(), rule: place, found });
    };
    Ok(Compiled {
        category: category.name.clone(),
        action: category.action,
        subcategory: rule.subcategory.clone(),
        hint: rule.hint.clone(),
        container: rule.container_name.clone(),
        matcher,
    })
}

#[cfg(test)]
mod tests;
