//! The evaluator of role-based rights.
//!
//! Invariant: what no rule allows is denied; rules only ever add. Semantics are those of
//! `rbac.authorization.k8s.io`, see each `matches`. Pure: asked by the API server per request.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, LazyLock};

use serde::{Deserialize, Serialize};

use crate::identity::{Identity, MASTERS, service_account_user};

/// What a request wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes<'a> {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`; the lower
    /// case method for a path.
    pub verb: &'a str,
    pub target: Target<'a>,
}

/// What a request is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target<'a> {
    Resource {
        /// API group; empty for the core group.
        group: &'a str,
        resource: &'a str,
        /// Subresource, as in `status`.
        subresource: Option<&'a str>,
        /// Namespace; `None` for resources of the cluster and for all namespaces.
        namespace: Option<&'a str>,
        /// Name in the URL, or in a `metadata.name` field selector of a list, watch or
        /// deletecollection; `None` for the create of a new object.
        name: Option<&'a str>,
    },
    /// A path that is no resource, as in `/healthz`.
    Path(&'a str),
}

/// A part of a [`Target`] as requests write it, where an empty text says that there is none.
pub fn named(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
}

/// What a role allows: all verbs on all resources named, or all verbs on all paths named.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Rule {
    /// Verbs; `*` means all.
    pub verbs: Vec<String>,
    /// API groups; `*` means all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub api_groups: Vec<String>,
    /// `pods`, `pods/log`, `*/status`; `*` means all with all subresources.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<String>,
    /// Names; empty means all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resource_names: Vec<String>,
    /// Paths; a `*` at the end matches any rest.
    #[serde(rename = "nonResourceURLs", skip_serializing_if = "Vec::is_empty")]
    pub non_resource_urls: Vec<String>,
}

/// A named set of rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Role {
    /// Name, given as the reason of a decision.
    pub name: String,
    pub rules: Vec<Rule>,
}

/// Who gets a role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    User(String),
    /// All members of a group.
    Group(String),
}

/// Where a role holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Everywhere, paths and cluster resources included.
    Cluster,
    /// In one namespace; never for paths, cluster resources or all namespaces at once.
    Namespace(String),
}

/// A role given to a subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    pub subject: Subject,
    pub role: Arc<Role>,
    pub scope: Scope,
}

/// All rights, by whom they are given to. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    grants: Arc<Vec<Grant>>,
    of_user: Arc<HashMap<String, Vec<usize>>>,
    of_group: Arc<HashMap<String, Vec<usize>>>,
}

/// What allows everything: on all resources, and on all paths.
static EVERYTHING: LazyLock<[Rule; 2]> = LazyLock::new(|| {
    let all = || vec!["*".to_owned()];
    let resources = Rule { verbs: all(), api_groups: all(), resources: all(), ..Rule::default() };
    [resources, Rule { verbs: all(), non_resource_urls: all(), ..Rule::default() }]
});

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    Allow {
        /// The role or group that allows it.
        by: String,
    },
    Deny {
        /// The text after `is forbidden: ` in the answer.
        reason: String,
    },
}

impl Subject {
    /// The user that stands for a service account.
    pub fn service_account(namespace: &str, name: &str) -> Self {
        Self::User(service_account_user(namespace, name))
    }
}

impl Scope {
    fn covers(&self, target: &Target<'_>) -> bool {
        match (self, target) {
            (Self::Cluster, _) => true,
            (Self::Namespace(mine), Target::Resource { namespace: Some(theirs), .. }) => mine == theirs,
            (Self::Namespace(_), _) => false,
        }
    }
}

impl Policy {
    /// A policy of exactly these grants, and of [`MASTERS`], who may do everything.
    pub fn new(grants: Vec<Grant>) -> Self {
        let (mut of_user, mut of_group) = (HashMap::<String, Vec<usize>>::new(), HashMap::<String, Vec<usize>>::new());
        for (index, grant) in grants.iter().enumerate() {
            let (map, name) = match &grant.subject {
                Subject::User(user) => (&mut of_user, user),
                Subject::Group(group) => (&mut of_group, group),
            };
            map.entry(name.clone()).or_default().push(index);
        }
        Self { grants: Arc::new(grants), of_user: Arc::new(of_user), of_group: Arc::new(of_group) }
    }

    /// This policy and more grants.
    #[must_use]
    pub fn with(&self, more: impl IntoIterator<Item = Grant>) -> Self {
        Self::new(self.grants.iter().cloned().chain(more).collect())
    }

    /// Whether `identity` may do what `attributes` say. O(grants of the user and its groups).
    pub fn decide(&self, identity: &Identity, attributes: &Attributes<'_>) -> Decision {
        if identity.is_in(MASTERS) {
            return Decision::Allow { by: format!("group {MASTERS}") };
        }
        let allowing = self.grants_of(identity).find(|grant| {
            grant.scope.covers(&attributes.target) && grant.role.rules.iter().any(|rule| rule.allows(attributes))
        });
        match allowing {
            Some(grant) => Decision::Allow { by: format!("role {}", grant.role.name) },
            None => Decision::Deny { reason: Forbidden { user: &identity.user, attributes }.to_string() },
        }
    }

    /// Every rule that holds for `identity` in a namespace, or of the cluster where there is none.
    pub fn rules_of<'a>(&'a self, identity: &Identity, namespace: Option<&str>) -> Vec<&'a Rule> {
        let everything = if identity.is_in(MASTERS) { Rule::everything() } else { &[] };
        let holds = |scope: &Scope| match scope {
            Scope::Cluster => true,
            Scope::Namespace(mine) => namespace == Some(mine),
        };
        let given = self.grants_of(identity).filter(|grant| holds(&grant.scope)).flat_map(|grant| &grant.role.rules);
        everything.iter().chain(given).collect()
    }

    fn grants_of(&self, identity: &Identity) -> impl Iterator<Item = &Grant> {
        let groups = identity.groups.iter().filter_map(|group| self.of_group.get(group));
        let lists = self.of_user.get(&identity.user).into_iter().chain(groups);
        lists.flatten().filter_map(|index| self.grants.get(*index))
    }
}

impl Rule {
    /// The rules that allow everything: on all resources, and on all paths.
    pub fn everything() -> &'static [Rule] {
        &*EVERYTHING
    }
}

impl Decision {
    /// Whether the answer is yes.
    pub fn is_allowed(&self) -> bool {
        matches!(self, Self::Allow { .. })
    }
}

impl Rule {
    /// Whether this rule allows it, wherever it holds.
    pub fn allows(&self, attributes: &Attributes<'_>) -> bool {
        if !contains_or_all(&self.verbs, attributes.verb) {
            return false;
        }
        match attributes.target {
            Target::Path(path) => self.non_resource_urls.iter().any(|url| path_matches(url, path)),
            Target::Resource { group, resource, subresource, name, .. } => {
                contains_or_all(&self.api_groups, group)
                    && self.resources.iter().any(|rule| resource_matches(rule, resource, subresource))
                    && self.name_matches(name)
            }
        }
    }

    /// A rule with names never matches a request without one: creates and unnamed lists.
    fn name_matches(&self, name: Option<&str>) -> bool {
        self.resource_names.is_empty() || name.is_some_and(|name| self.resource_names.iter().any(|mine| mine == name))
    }
}

pub(crate) fn contains_or_all(list: &[String], wanted: &str) -> bool {
    list.iter().any(|item| item == "*" || item == wanted)
}

/// `pods` does not include `pods/log`, nor `pods/*` anything: only `*` and `*/log` are patterns.
fn resource_matches(rule: &str, resource: &str, subresource: Option<&str>) -> bool {
    if rule == "*" {
        return true;
    }
    match (rule.split_once('/'), subresource) {
        (None, None) => rule == resource,
        (Some((parent, child)), Some(subresource)) => child == subresource && (parent == "*" || parent == resource),
        _ => false,
    }
}

fn path_matches(rule: &str, path: &str) -> bool {
    match rule.strip_suffix('*') {
        Some(prefix) => path.starts_with(prefix),
        None => rule == path,
    }
}

/// The upstream text of a refusal.
struct Forbidden<'a> {
    user: &'a str,
    attributes: &'a Attributes<'a>,
}

impl fmt::Display for Forbidden<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (user, verb) = (self.user, self.attributes.verb);
        match self.attributes.target {
            Target::Path(path) => write!(f, "User {user:?} cannot {verb} path {path:?}"),
            Target::Resource { group, resource, subresource, namespace, .. } => {
                write!(f, "User {user:?} cannot {verb} resource \"{resource}")?;
                if let Some(subresource) = subresource {
                    write!(f, "/{subresource}")?;
                }
                write!(f, "\" in API group {group:?} ")?;
                match namespace {
                    Some(namespace) => write!(f, "in the namespace {namespace:?}"),
                    None => f.write_str("at the cluster scope"),
                }
            }
        }
    }
}
