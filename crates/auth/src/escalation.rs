//! Privilege escalation: whether somebody has all of the rights that he is about to give away.
//!
//! Invariant: what no single rule of the owner covers counts as missing, so a right can be called missing that several
//! rules cover together, never the opposite. Pure; asked when roles and bindings are written.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::rbac::{Rule, contains_or_all};

/// The parts of `wanted` that no rule of `owned` covers, each with one verb and one resource or path.
pub fn uncovered(owned: &[&Rule], wanted: &[Rule]) -> Vec<Rule> {
    let parts = wanted.iter().flat_map(broken_down);
    parts.filter(|part| !owned.iter().any(|rule| covers(rule, part))).collect()
}

/// How many rights of one verb and one resource, name or path a rule is made of.
pub fn parts(rule: &Rule) -> usize {
    let on_resources = [rule.api_groups.len(), rule.resources.len(), rule.resource_names.len().max(1)];
    let on_resources = on_resources.into_iter().fold(1, usize::saturating_mul);
    rule.verbs.len().saturating_mul(on_resources.saturating_add(rule.non_resource_urls.len()))
}

/// Missing rights as upstream tells them: one line a resource, sorted.
pub fn describe(missing: &[Rule]) -> String {
    let mut of_resource: BTreeMap<_, Rule> = BTreeMap::new();
    let mut lines = BTreeSet::new();
    for rule in missing {
        if !rule.non_resource_urls.is_empty() {
            lines.insert(Compact(rule).to_string());
            continue;
        }
        let key = (&rule.api_groups[..], &rule.resources[..], &rule.resource_names[..]);
        let merged = of_resource.entry(key).or_insert_with(|| Rule { verbs: Vec::new(), ..rule.clone() });
        merged.verbs.extend(rule.verbs.iter().cloned());
    }
    lines.extend(of_resource.values().map(|rule| Compact(rule).to_string()));
    lines.into_iter().collect::<Vec<String>>().join("\n")
}

/// The same rights as rules of one verb and one resource, name or path each.
fn broken_down(rule: &Rule) -> Vec<Rule> {
    let one = |text: &String| vec![text.clone()];
    let mut parts = Vec::new();
    for verb in &rule.verbs {
        for group in &rule.api_groups {
            for resource in &rule.resources {
                let part =
                    Rule { verbs: one(verb), api_groups: one(group), resources: one(resource), ..Rule::default() };
                if rule.resource_names.is_empty() {
                    parts.push(part);
                } else {
                    let named = rule.resource_names.iter();
                    parts.extend(named.map(|name| Rule { resource_names: one(name), ..part.clone() }));
                }
            }
        }
        let paths = rule.non_resource_urls.iter();
        parts.extend(paths.map(|path| Rule { verbs: one(verb), non_resource_urls: one(path), ..Rule::default() }));
    }
    parts
}

/// `part` has one value a list at most.
fn covers(rule: &Rule, part: &Rule) -> bool {
    part.verbs.iter().all(|verb| contains_or_all(&rule.verbs, verb))
        && part.api_groups.iter().all(|group| contains_or_all(&rule.api_groups, group))
        && part.resources.iter().all(|resource| resource_covered(&rule.resources, resource))
        && part.non_resource_urls.iter().all(|path| path_covered(&rule.non_resource_urls, path))
        && (rule.resource_names.is_empty()
            || !part.resource_names.is_empty()
                && part.resource_names.iter().all(|name| rule.resource_names.contains(name)))
}

fn resource_covered(owned: &[String], resource: &str) -> bool {
    let of_all = resource.split_once('/').map(|(_, below)| format!("*/{below}"));
    contains_or_all(owned, resource) || of_all.is_some_and(|of_all| owned.contains(&of_all))
}

fn path_covered(owned: &[String], path: &str) -> bool {
    owned.iter().any(|mine| mine == path || mine.strip_suffix('*').is_some_and(|prefix| path.starts_with(prefix)))
}

struct Compact<'a>(&'a Rule);

impl fmt::Display for Compact<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rule = self.0;
        let lists = [
            ("APIGroups", &rule.api_groups),
            ("Resources", &rule.resources),
            ("NonResourceURLs", &rule.non_resource_urls),
            ("ResourceNames", &rule.resource_names),
            ("Verbs", &rule.verbs),
        ];
        let filled = lists.into_iter().filter(|(_, list)| !list.is_empty());
        let parts: Vec<String> = filled.map(|(name, list)| format!("{name}:{}", quoted(list))).collect();
        write!(f, "{{{}}}", parts.join(", "))
    }
}

/// As Go's `%q` writes a list.
fn quoted(list: &[String]) -> String {
    format!("[{}]", list.iter().map(|text| format!("{text:?}")).collect::<Vec<String>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_counted_before_they_are_made() {
        let names: Vec<String> = (0..10_000).map(|number| number.to_string()).collect();
        let all = || names.iter().map(String::as_str).collect::<Vec<_>>();
        for (wanted, expected) in [
            (rule(&[], &[""], &["pods"], &[]), 0),
            (rule(&["get", "list"], &["", "apps"], &["pods", "pods/log", "nodes"], &[]), 12),
            (rule(&["get"], &[""], &["pods"], &["a", "b"]), 2),
            (Rule { non_resource_urls: vec!["/a".into(), "/b".into()], ..rule(&["get"], &[], &[], &[]) }, 2),
            (rule(&all(), &all(), &all(), &all()), 10_000_000_000_000_000),
        ] {
            assert_eq!(parts(&wanted), expected);
            if expected < 100 {
                assert_eq!(broken_down(&wanted).len(), expected);
            }
        }
    }

    fn rule(verbs: &[&str], groups: &[&str], resources: &[&str], names: &[&str]) -> Rule {
        let owned = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
        Rule {
            verbs: owned(verbs),
            api_groups: owned(groups),
            resources: owned(resources),
            resource_names: owned(names),
            ..Rule::default()
        }
    }

    fn paths(verbs: &[&str], urls: &[&str]) -> Rule {
        let urls = urls.iter().map(|text| (*text).to_owned()).collect();
        Rule { non_resource_urls: urls, ..rule(verbs, &[], &[], &[]) }
    }

    fn missing(owned: &[Rule], wanted: Rule) -> String {
        describe(&uncovered(&owned.iter().collect::<Vec<_>>(), &[wanted]))
    }

    #[test]
    fn what_is_missing_is_named() {
        let pods = || rule(&["get", "list"], &[""], &["pods"], &[]);
        let named = |names: &[&str]| rule(&["get"], &[""], &["secrets"], names);
        let cases: &[(&[Rule], Rule, &str)] = &[
            (&[pods()], pods(), ""),
            (&[], pods(), r#"{APIGroups:[""], Resources:["pods"], Verbs:["get" "list"]}"#),
            (
                &[pods()],
                rule(&["get", "delete"], &[""], &["pods"], &[]),
                r#"{APIGroups:[""], Resources:["pods"], Verbs:["delete"]}"#,
            ),
            (&[pods()], rule(&["*"], &[""], &["pods"], &[]), r#"{APIGroups:[""], Resources:["pods"], Verbs:["*"]}"#),
            (
                &[pods()],
                rule(&["get"], &[""], &["pods/log"], &[]),
                r#"{APIGroups:[""], Resources:["pods/log"], Verbs:["get"]}"#,
            ),
            (&[rule(&["get"], &[""], &["*/log"], &[])], rule(&["get"], &[""], &["pods/log"], &[]), ""),
            (&[rule(&["*"], &["*"], &["*"], &[])], rule(&["a"], &["b"], &["c/d"], &["e"]), ""),
            (&[named(&[])], named(&["a"]), ""),
            (
                &[named(&["a"])],
                named(&["a", "b"]),
                r#"{APIGroups:[""], Resources:["secrets"], ResourceNames:["b"], Verbs:["get"]}"#,
            ),
            (&[named(&["a"])], named(&[]), r#"{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}"#),
            (
                &[paths(&["get"], &["/a*"])],
                paths(&["get"], &["/a/b", "/b"]),
                r#"{NonResourceURLs:["/b"], Verbs:["get"]}"#,
            ),
            (&[pods()], paths(&["get"], &["/"]), r#"{NonResourceURLs:["/"], Verbs:["get"]}"#),
            (&[paths(&["*"], &["*"])], pods(), r#"{APIGroups:[""], Resources:["pods"], Verbs:["get" "list"]}"#),
        ];
        for (owned, wanted, expected) in cases {
            assert_eq!(missing(owned, wanted.clone()), *expected, "{wanted:?} of {owned:?}");
        }
        assert_eq!(missing(Rule::everything(), rule(&["*"], &["*"], &["*"], &[])), "");
    }

    #[test]
    fn several_rules_cover_a_wide_one_together() {
        let owned = [rule(&["get"], &[""], &["pods"], &[]), rule(&["list"], &[""], &["pods"], &[])];
        assert_eq!(missing(&owned, rule(&["get", "list"], &[""], &["pods"], &[])), "");
    }
}
