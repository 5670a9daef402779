//! Licences of everything we ship with, against the allowed list of `deny.toml`.

use super::Violation;
use super::deny::{Deny, FILE};
use super::packages::Packages;

/// Finds packages no allowed licence covers.
pub fn check(packages: &Packages, deny: &Deny) -> Vec<Violation> {
    let mut violations = Vec::new();
    for package in &packages.foreign {
        let Some(licence) = &package.licence else {
            let advice = format!("{} {} states no licence; replace it", package.name, package.version);
            violations.push(Violation::new(FILE, 0, advice));
            continue;
        };
        if !is_allowed(licence, &deny.licences) {
            let advice =
                format!("{} {} is under {licence}, which is not allowed; replace it", package.name, package.version);
            violations.push(Violation::new(FILE, 0, advice));
        }
    }
    violations
}

/// Whether an SPDX expression can be met with `allowed`. `/` is the old spelling of OR; AND binds stronger. What can't be
/// read is not allowed.
fn is_allowed(expression: &str, allowed: &[String]) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    let met = any(&mut rest, allowed, 0);
    met == Some(true) && rest.is_empty()
}

/// Deepest nesting of parentheses that is read.
const DEPTH_MAX: usize = 16;

fn any(rest: &mut &[&str], allowed: &[String], depth: usize) -> Option<bool> {
    let mut met = all(rest, allowed, depth)?;
    while let ["OR", tail @ ..] = *rest {
        *rest = tail;
        met |= all(rest, allowed, depth)?;
    }
    Some(met)
}

fn all(rest: &mut &[&str], allowed: &[String], depth: usize) -> Option<bool> {
    let mut met = one(rest, allowed, depth)?;
    while let ["AND", tail @ ..] = *rest {
        *rest = tail;
        met &= one(rest, allowed, depth)?;
    }
    Some(met)
}

fn one(rest: &mut &[&str], allowed: &[String], depth: usize) -> Option<bool> {
    if depth > DEPTH_MAX {
        return None;
    }
    match *rest {
        ["(", tail @ ..] => {
            *rest = tail;
            let met = any(rest, allowed, depth + 1)?;
            let [")", tail @ ..] = *rest else { return None };
            *rest = tail;
            Some(met)
        }
        [licence, "WITH", exception, tail @ ..] => {
            *rest = tail;
            Some(allowed.iter().any(|name| *name == format!("{licence} WITH {exception}")))
        }
        [licence, tail @ ..] if !matches!(*licence, ")" | "OR" | "AND" | "WITH") => {
            *rest = tail;
            Some(allowed.iter().any(|name| name == licence))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::packages::Foreign;

    #[test]
    fn expressions_are_met_or_not() {
        let allowed = ["MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception"].map(str::to_owned);
        let cases = [
            ("MIT", true),
            ("GPL-3.0", false),
            ("GPL-3.0 OR MIT", true),
            ("GPL-3.0/MIT", true),
            ("GPL-3.0 AND MIT", false),
            ("(MIT OR GPL-3.0) AND Apache-2.0", true),
            ("(MIT OR Apache-2.0) AND Unicode-3.0", false),
            ("GPL-3.0 OR MIT AND GPL-2.0", false),
            ("Apache-2.0 WITH LLVM-exception", true),
            ("MIT WITH LLVM-exception", false),
            ("(MIT", false),
            ("", false),
            ("MIT MIT", false),
        ];
        for (expression, wanted) in cases {
            assert_eq!(is_allowed(expression, &allowed), wanted, "{expression}");
        }
        assert!(!is_allowed(&"(".repeat(100_000), &allowed));
    }

    #[test]
    fn a_package_without_licence_is_named() {
        let foreign = vec![Foreign { name: "x".into(), version: "1".into(), licence: None }];
        let found = check(&Packages { ours: Vec::new(), foreign }, &Deny::default());
        assert_eq!(found[0].to_string(), "deny.toml: x 1 states no licence; replace it");
    }
}
