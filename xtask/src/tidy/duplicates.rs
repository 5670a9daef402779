//! Packages that come in several versions, against the accepted ones of `deny.toml`.

use std::collections::{BTreeMap, BTreeSet};

use super::Violation;
use super::deny::{Deny, FILE};
use super::packages::Packages;

/// Finds duplicates that nobody accepted. At most one version of a package is not listed.
pub fn check(packages: &Packages, deny: &Deny) -> Vec<Violation> {
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for package in &packages.foreign {
        versions.entry(&package.name).or_default().insert(&package.version);
    }
    let mut violations = Vec::new();
    for (name, versions) in versions.into_iter().filter(|(_, versions)| versions.len() > 1) {
        let listed = |version: &&str| deny.duplicates.contains(&format!("{name}@{version}"));
        if versions.iter().filter(|version| !listed(version)).count() > 1 {
            let all: Vec<&str> = versions.into_iter().collect();
            let advice = format!(
                "{name} comes in versions {}; settle on one, or accept the others under [bans] skip with the reason",
                all.join(", ")
            );
            violations.push(Violation::new(FILE, 0, advice));
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::packages::Foreign;

    #[test]
    fn only_accepted_duplicates_pass() {
        let foreign = [("a", "1"), ("a", "2"), ("b", "1"), ("b", "2"), ("c", "1")];
        let foreign =
            foreign.map(|(name, version)| Foreign { name: name.into(), version: version.into(), licence: None });
        let packages = Packages { ours: Vec::new(), foreign: foreign.into() };
        let deny = Deny { licences: Vec::new(), duplicates: vec!["a@1".into()] };
        let found = check(&packages, &deny);
        assert_eq!(found.len(), 1);
        assert!(found[0].advice.starts_with("b comes in versions 1, 2;"), "{}", found[0]);
    }
}
