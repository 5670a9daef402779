//! Which requests are told: rules in upstream's words, the first that matches decides.
//!
//! Invariant: a decision takes no memory and costs O(rules). A policy that asks for what is not done here (bodies) is
//! refused, not taken for less.

use http::Method;
use pumice_auth::Identity;
use serde::Deserialize;

use crate::http::request::Target;

/// Most rules of a policy, and largest file, in bytes.
const RULES_MAX: usize = 1000;
const FILE_BYTES_MAX: usize = 1 << 20;

/// Why a policy can't be used.
#[derive(Debug, thiserror::Error)]
pub enum AuditPolicyError {
    /// It is no policy.
    #[error("it is no audit policy: {0}")]
    Parse(String),
    /// It is of another version.
    #[error("it is {found}; write apiVersion: audit.k8s.io/v1 and kind: Policy")]
    Kind { found: String },
    /// It asks for bodies, which are never written.
    #[error("rule {rule} has level {level}: bodies are never written; use None or Metadata")]
    Level {
        /// Which rule, from 1.
        rule: usize,
        level: String,
    },
    /// It has no rules, or too many.
    #[error("it has {rules} rules; write 1 to {RULES_MAX}")]
    Rules { rules: usize },
}

/// Decides what is told.
#[derive(Debug)]
pub struct AuditPolicy {
    rules: Vec<Rule>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct Rule {
    level: String,
    users: Vec<String>,
    user_groups: Vec<String>,
    verbs: Vec<String>,
    resources: Vec<GroupResources>,
    namespaces: Vec<String>,
    #[serde(rename = "nonResourceURLs")]
    non_resource_urls: Vec<String>,
    /// Stages are what they are: RequestReceived and Panic are never told.
    #[serde(rename = "omitStages")]
    _omit_stages: Vec<String>,
    #[serde(rename = "omitManagedFields")]
    _omit_managed_fields: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct GroupResources {
    group: String,
    resources: Vec<String>,
    resource_names: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct File {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    rules: Vec<Rule>,
}

/// A request, as rules see it.
pub(super) struct Attributes<'r> {
    identity: &'r Identity,
    pub(super) verb: &'r str,
    target: &'r Target,
}

impl<'r> Attributes<'r> {
    pub(super) fn new(identity: &'r Identity, target: &'r Target, method: &Method) -> Self {
        let verb = match target {
            Target::Resource(wanted) => wanted.verb.as_str(),
            Target::Other(_) => match method.as_str() {
                "GET" => "get",
                "HEAD" => "head",
                "POST" => "post",
                "PUT" => "put",
                "PATCH" => "patch",
                "DELETE" => "delete",
                _ => "other",
            },
        };
        Self { identity, verb, target }
    }
}

impl Default for AuditPolicy {
    /// What changes something, but for the heartbeats of nodes and leaders, and events; and who reads Secrets.
    fn default() -> Self {
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        let of = |group: &str, resources: &[&str]| GroupResources {
            group: group.to_owned(),
            resources: texts(resources),
            resource_names: Vec::new(),
        };
        let none = || Rule { level: "None".to_owned(), ..Rule::default() };
        let noise = vec![of("", &["events"]), of("events.k8s.io", &["events"]), of("coordination.k8s.io", &["leases"])];
        Self {
            rules: vec![
                // What a pod's programs are told, and what is done in it, is read by a get.
                Rule {
                    level: "Metadata".to_owned(),
                    resources: vec![of("", &["pods/exec", "pods/attach", "pods/portforward", "pods/proxy"])],
                    ..Rule::default()
                },
                Rule { non_resource_urls: texts(&["/pumice/backup"]), level: "Metadata".to_owned(), ..Rule::default() },
                Rule { level: "Metadata".to_owned(), resources: vec![of("", &["secrets"])], ..Rule::default() },
                Rule { verbs: texts(&["get", "list", "watch", "head"]), ..none() },
                Rule { resources: noise, ..none() },
                Rule { level: "Metadata".to_owned(), ..Rule::default() },
            ],
        }
    }
}

impl AuditPolicy {
    /// The policy in a file of upstream's format, as far as levels None and Metadata go.
    pub fn parse(text: &str) -> Result<Self, AuditPolicyError> {
        if text.len() > FILE_BYTES_MAX {
            return Err(AuditPolicyError::Parse(format!("it is larger than {FILE_BYTES_MAX} bytes")));
        }
        let file: File = serde_saphyr::from_str(text).map_err(|error| AuditPolicyError::Parse(error.to_string()))?;
        if (file.api_version.as_str(), file.kind.as_str()) != ("audit.k8s.io/v1", "Policy") {
            return Err(AuditPolicyError::Kind { found: format!("{} {}", file.api_version, file.kind) });
        }
        let rules = file.rules;
        if rules.is_empty() || rules.len() > RULES_MAX {
            return Err(AuditPolicyError::Rules { rules: rules.len() });
        }
        let wrong = rules.iter().position(|rule| !matches!(rule.level.as_str(), "None" | "Metadata"));
        if let Some(at) = wrong {
            return Err(AuditPolicyError::Level { rule: at + 1, level: rules[at].level.clone() });
        }
        Ok(Self { rules })
    }

    /// Whether this is told.
    pub(super) fn wants(&self, asked: &Attributes<'_>) -> bool {
        self.rules.iter().find(|rule| rule.matches(asked)).is_some_and(|rule| rule.level == "Metadata")
    }
}

impl Rule {
    fn matches(&self, asked: &Attributes<'_>) -> bool {
        let of_caller = |list: &[String], is: &dyn Fn(&String) -> bool| list.is_empty() || list.iter().any(is);
        of_caller(&self.users, &|user| *user == asked.identity.user)
            && of_caller(&self.user_groups, &|group| asked.identity.is_in(group))
            && of_caller(&self.verbs, &|verb| verb == asked.verb || verb == "*")
            && self.is_about(asked.target)
    }

    fn is_about(&self, target: &Target) -> bool {
        let any = self.resources.is_empty() && self.namespaces.is_empty() && self.non_resource_urls.is_empty();
        match target {
            _ if any => true,
            Target::Other(segments) => {
                // As upstream: only a star at the end stands for anything.
                let is = |pattern: &String| match pattern.strip_suffix('*') {
                    Some(start) => begins_with(segments, start),
                    None => same_path(segments, pattern),
                };
                self.non_resource_urls.iter().any(is)
            }
            Target::Resource(_) if !self.non_resource_urls.is_empty() => false,
            Target::Resource(wanted) => {
                let namespace = self.namespaces.is_empty() || self.namespaces.contains(&wanted.namespace);
                namespace
                    && (self.resources.is_empty()
                        || self.resources.iter().any(|one| {
                            one.group == wanted.group
                                && one.has(&wanted.resource, &wanted.subresource)
                                && (one.resource_names.is_empty() || one.resource_names.contains(&wanted.name))
                        }))
            }
        }
    }
}

impl GroupResources {
    fn has(&self, resource: &str, subresource: &str) -> bool {
        let is = |pattern: &String| match pattern.split_once('/') {
            None => pattern == "*" || (subresource.is_empty() && pattern == resource),
            Some((of, below)) => {
                (of == "*" || of == resource) && !subresource.is_empty() && (below == "*" || below == subresource)
            }
        };
        self.resources.is_empty() || self.resources.iter().any(is)
    }
}

/// Whether `path` is `/a/b` for the segments `a`, `b`.
fn same_path(segments: &[String], path: &str) -> bool {
    path.split('/').filter(|part| !part.is_empty()).eq(segments)
}

/// Whether the path of the segments begins with `start`.
fn begins_with(segments: &[String], start: &str) -> bool {
    let mut rest = start;
    for segment in segments {
        let Some(after) = rest.strip_prefix('/') else { return rest.is_empty() };
        match after.strip_prefix(segment.as_str()) {
            Some(after) => rest = after,
            None => return segment.starts_with(after),
        }
        if rest.is_empty() {
            return true;
        }
    }
    rest.is_empty() || rest == "/"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::request;

    fn told(policy: &AuditPolicy, user: &str, method: &Method, path: &str) -> bool {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let target = request::parse(method, path, query.contains("watch")).expect("path");
        let identity = Identity::new(user, ["team"]);
        policy.wants(&Attributes::new(&identity, &target, method))
    }

    #[test]
    fn by_itself_it_tells_what_changes_something() {
        let policy = AuditPolicy::default();
        for (method, path, wanted) in [
            (Method::POST, "/api/v1/namespaces/a/pods", true),
            (Method::GET, "/api/v1/namespaces/a/pods", false),
            (Method::GET, "/api/v1/namespaces/a/pods?watch=1", false),
            (Method::GET, "/api/v1/namespaces/a/pods/p/exec", true),
            (Method::GET, "/api/v1/namespaces/a/pods/p/log", false),
            (Method::GET, "/api/v1/namespaces/a/secrets/s", true),
            (Method::GET, "/api/v1/secrets", true),
            (Method::GET, "/api/v1/namespaces/a/secrets?watch=1", true),
            (Method::GET, "/api/v1/namespaces/a/configmaps/s", false),
            (Method::GET, "/pumice/backup", true),
            (Method::GET, "/readyz", false),
            (Method::DELETE, "/apis/batch.volcano.sh/v1alpha1/namespaces/a/jobs", true),
            (Method::PATCH, "/apis/coordination.k8s.io/v1/namespaces/a/leases/n", false),
            (Method::POST, "/api/v1/namespaces/a/events", false),
        ] {
            assert_eq!(told(&policy, "ann", &method, path), wanted, "{method} {path}");
        }
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        let policy = AuditPolicy::parse(
            "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules:\n\
             - {level: None, users: [robot], verbs: [get]}\n\
             - {level: None, nonResourceURLs: ['/healthz*', /version]}\n\
             - {level: Metadata, resources: [{group: '', resources: [secrets, pods/*], resourceNames: []}], namespaces: [a]}\n\
             - {level: None, userGroups: [team]}\n\
             - {level: Metadata}\n",
        )
        .expect("policy");
        for (user, method, path, wanted) in [
            ("robot", Method::GET, "/api/v1/namespaces/a/secrets/s", false),
            ("ann", Method::GET, "/api/v1/namespaces/a/secrets/s", true),
            ("ann", Method::GET, "/api/v1/namespaces/b/secrets/s", false),
            ("ann", Method::GET, "/api/v1/namespaces/a/pods/p", false),
            ("ann", Method::GET, "/api/v1/namespaces/a/pods/p/log", true),
            ("ann", Method::GET, "/healthz", false),
            ("ann", Method::GET, "/healthz/ping", false),
            ("ann", Method::GET, "/version", false),
        ] {
            assert_eq!(told(&policy, user, &method, path), wanted, "{user} {method} {path}");
        }
    }

    #[test]
    fn stars_stand_for_the_rest_of_a_path() {
        let segments = |path: &str| path.split('/').filter(|p| !p.is_empty()).map(str::to_owned).collect::<Vec<_>>();
        for (path, start, wanted) in [
            ("/healthz", "/health", true),
            ("/healthz/ping", "/healthz/", true),
            ("/healthz/ping", "/healthz", true),
            ("/other", "/health", false),
            ("/a/bc", "/a/b", true),
            ("/a", "/a/b", false),
            ("/a", "/", true),
            ("/a", "", true),
        ] {
            assert_eq!(begins_with(&segments(path), start), wanted, "{path} {start}");
        }
    }

    #[test]
    fn what_is_not_done_is_refused() {
        let refused = |rules: &str| {
            let text = format!("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: {rules}\n");
            AuditPolicy::parse(&text).expect_err("refused").to_string()
        };
        assert!(refused("[{level: None}, {level: RequestResponse}]").contains("rule 2 has level RequestResponse"));
        assert!(refused("[]").contains("it has 0 rules"));
        assert!(refused("[{level: None, usres: [a]}]").contains("usres"));
        assert!(AuditPolicy::parse("kind: Pod").expect_err("refused").to_string().contains("audit.k8s.io/v1"));
    }
}
