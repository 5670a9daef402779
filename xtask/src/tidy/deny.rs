//! The two lists of `deny.toml` that tidy shares with cargo-deny: allowed licences and accepted duplicates.
//!
//! Reads only the form our file has: one entry per line. Anything else in those lists is an error, so nothing is passed over.

use anyhow::{Context as _, bail};

/// Where the lists are, from the workspace's root.
pub const FILE: &str = "deny.toml";

/// What `deny.toml` lets pass.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Deny {
    pub licences: Vec<String>,
    /// `name@version` of packages that may exist beside another version of theirs.
    pub duplicates: Vec<String>,
}

impl Deny {
    /// Reads the text of the file.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let mut deny = Self::default();
        for line in list(text, "[licenses]", "allow = [")? {
            deny.licences.push(quoted(line).with_context(|| format!("{FILE}: no licence in {line}"))?);
        }
        for line in list(text, "[bans]", "skip = [")? {
            let rest = line.strip_prefix("{ crate = ").with_context(|| format!("{FILE}: no crate in {line}"))?;
            deny.duplicates.push(quoted(rest).with_context(|| format!("{FILE}: no crate in {line}"))?);
        }
        Ok(deny)
    }
}

/// Lines of one list of a section, without comments.
fn list<'a>(text: &'a str, section: &str, head: &str) -> anyhow::Result<Vec<&'a str>> {
    let mut lines = text.lines().map(str::trim).skip_while(|line| *line != section).skip(1);
    for line in lines.by_ref() {
        if line == head {
            break;
        }
        if line.starts_with('[') {
            bail!("{FILE}: {section} has no line `{head}`");
        }
    }
    let entries: Vec<&str> = lines.take_while(|line| *line != "]").collect();
    Ok(entries.into_iter().filter(|line| !line.is_empty() && !line.starts_with('#')).collect())
}

fn quoted(text: &str) -> Option<String> {
    let (word, _) = text.strip_prefix('"')?.split_once('"')?;
    Some(word.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_lists_are_read() {
        let text = "[licenses]\nversion = 2\nallow = [\n  # why\n  \"MIT\",\n]\n\n[bans]\nskip = [\n  { crate = \"a@1.0\", reason = \"x\" },\n]\n";
        let deny = Deny::parse(text).expect("parses");
        assert_eq!(deny, Deny { licences: vec!["MIT".into()], duplicates: vec!["a@1.0".into()] });
    }

    #[test]
    fn another_form_is_an_error() {
        assert!(Deny::parse("[licenses]\nallow = [\nMIT,\n]\n").is_err());
        assert!(Deny::parse("[licenses]\n[bans]\n").is_err());
    }
}
