//! Names with `*` and `?`, as shells write them: `sweep-*`.
//!
//! Invariant: matching takes time proportional to pattern × name, whatever the pattern. Called by `job` (`Selector`).

use crate::names::NameError;

/// The most characters of a pattern.
const CHARACTERS_MAX: usize = 253;

/// A pattern that names are compared with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Glob(String);

impl Glob {
    /// Whether a text means a pattern rather than a name.
    pub fn is_one(text: &str) -> bool {
        text.contains(['*', '?'])
    }

    /// A pattern; beside `*` and `?` it holds only what names may hold.
    pub fn new(what: &'static str, text: &str) -> Result<Self, NameError> {
        let fits = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-.*?".contains(&b);
        if text.is_empty() || text.len() > CHARACTERS_MAX || !text.bytes().all(fits) {
            return Err(NameError { what, name: text.chars().take(80).collect(), max: CHARACTERS_MAX });
        }
        Ok(Glob(text.to_owned()))
    }

    /// Whether the whole name matches.
    pub fn matches(&self, name: &str) -> bool {
        let (pattern, name) = (self.0.as_bytes(), name.as_bytes());
        let (mut p, mut n) = (0, 0);
        // Where the last star stands, and how much of the name it has taken.
        let mut star: Option<(usize, usize)> = None;
        while n < name.len() {
            match pattern.get(p) {
                Some(b'*') => {
                    star = Some((p, n));
                    p += 1;
                }
                Some(b) if *b == b'?' || *b == name[n] => (p, n) = (p + 1, n + 1),
                _ => {
                    let Some((at, taken)) = star else { return false };
                    star = Some((at, taken + 1));
                    (p, n) = (at + 1, taken + 1);
                }
            }
        }
        pattern[p..].iter().all(|b| *b == b'*')
    }
}

impl std::fmt::Display for Glob {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::Glob;

    #[test]
    fn patterns_match_as_in_a_shell() {
        for (pattern, name, matches) in [
            ("*", "", true),
            ("*", "a", true),
            ("sweep-*", "sweep-", true),
            ("sweep-*", "sweep-17", true),
            ("sweep-*", "a-sweep-17", false),
            ("*-17", "sweep-17", true),
            ("s*p*7", "sweep-17", true),
            ("s*p*8", "sweep-17", false),
            ("sweep-?", "sweep-1", true),
            ("sweep-?", "sweep-17", false),
            ("a", "a", true),
            ("a", "ab", false),
            ("?", "", false),
        ] {
            assert_eq!(Glob::new("job name", pattern).unwrap().matches(name), matches, "{pattern} {name}");
        }
        let long = Glob::new("job name", &"*a".repeat(100)).unwrap();
        assert!(!long.matches(&"a".repeat(99)), "and soon");
        for bad in ["", "A*", "a/*", "é*", &"*".repeat(254)] {
            assert!(Glob::new("job name", bad).is_err(), "{bad}");
        }
    }
}
