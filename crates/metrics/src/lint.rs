//! Whether a page is one, by the rules of Prometheus's text format: for tests of whoever writes one.

use std::collections::{BTreeMap, BTreeSet};

/// What is wrong with a page; each line says one thing. O(its lines).
#[must_use]
pub fn lint(page: &str) -> Vec<String> {
    let mut lint = Lint::default();
    for line in page.lines() {
        lint.line(line);
    }
    if !page.is_empty() && !page.ends_with('\n') {
        lint.wrong.push("the last line does not end".to_owned());
    }
    lint.finish()
}

#[derive(Default)]
struct Lint {
    wrong: Vec<String>,
    helped: BTreeSet<String>,
    /// The name that was headed last, and its kind.
    family: Option<(String, String)>,
    families: BTreeSet<String>,
    series: BTreeSet<String>,
    /// Classes and counts of histograms by their other labels.
    classes: BTreeMap<String, Vec<(f64, f64)>>,
    counts: BTreeMap<String, f64>,
}

impl Lint {
    fn line(&mut self, line: &str) {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap_or((rest, ""));
            if help.trim().is_empty() {
                self.wrong.push(format!("{name} has no help"));
            }
            if !self.helped.insert(name.to_owned()) {
                self.wrong.push(format!("{name} has its help twice"));
            }
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap_or((rest, ""));
            if !["counter", "gauge", "histogram"].contains(&kind) {
                self.wrong.push(format!("{name} is of no kind: {kind:?}"));
            }
            if !self.helped.contains(name) || !self.families.insert(name.to_owned()) || !is_name(name) {
                self.wrong.push(format!("{name} is headed wrongly"));
            }
            self.family = Some((name.to_owned(), kind.to_owned()));
        } else {
            self.sample(line);
        }
    }

    fn sample(&mut self, line: &str) {
        let Some((series, value)) = line.rsplit_once(' ') else {
            return self.wrong.push(format!("{line:?} has no value"));
        };
        let Ok(value) = value.replace("+Inf", "inf").parse::<f64>() else {
            return self.wrong.push(format!("{line:?} has no number"));
        };
        if !self.series.insert(series.to_owned()) {
            self.wrong.push(format!("{series} is there twice"));
        }
        let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
        let Some(mut labels) = read(labels) else {
            return self.wrong.push(format!("{series} has labels that are none"));
        };
        let Some((family, kind)) = self.family.clone() else {
            return self.wrong.push(format!("{series} has no head"));
        };
        let suffix = name.strip_prefix(family.as_str());
        let fits = match kind.as_str() {
            "histogram" => matches!(suffix, Some("_bucket" | "_sum" | "_count")),
            _ => suffix == Some(""),
        };
        if !fits {
            return self.wrong.push(format!("{name} stands under the head of {family}"));
        }
        let bound = labels.remove("le");
        let key = format!("{family}{labels:?}");
        match (suffix, bound) {
            (Some("_bucket"), Some(bound)) => match bound.replace("+Inf", "inf").parse() {
                Ok(bound) => self.classes.entry(key).or_default().push((bound, value)),
                Err(_) => self.wrong.push(format!("{series} has a bound that is no number")),
            },
            (Some("_bucket"), None) => self.wrong.push(format!("{series} has no bound")),
            (Some("_count"), _) => drop(self.counts.insert(key, value)),
            _ => {}
        }
    }

    fn finish(mut self) -> Vec<String> {
        for (key, classes) in &self.classes {
            let ascends = classes.windows(2).all(|two| two[0].0 < two[1].0 && two[0].1 <= two[1].1);
            let whole = classes.last().is_some_and(|(bound, count)| {
                bound.is_infinite() && self.counts.get(key).is_some_and(|all| (all - count).abs() < f64::EPSILON)
            });
            if !ascends || !whole {
                self.wrong.push(format!("the classes of {key} do not add up"));
            }
        }
        self.wrong
    }
}

fn is_name(name: &str) -> bool {
    let letter = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == ':';
    !name.is_empty() && name.chars().all(letter) && !name.starts_with(|first: char| first.is_ascii_digit())
}

/// Labels up to their brace, each once.
fn read(text: &str) -> Option<BTreeMap<String, String>> {
    let mut rest = text.strip_suffix('}')?;
    let mut labels = BTreeMap::new();
    while !rest.is_empty() {
        let (name, after) = rest.split_once("=\"")?;
        let mut value = String::new();
        let mut letters = after.char_indices();
        let end = loop {
            match letters.next()? {
                (end, '"') => break end,
                (_, '\\') => value.push(letters.next()?.1),
                (_, letter) => value.push(letter),
            }
        };
        if !is_name(name) || labels.insert(name.to_owned(), value).is_some() {
            return None;
        }
        rest = &after[end + 1..];
        rest = if rest.is_empty() { rest } else { rest.strip_prefix(',')? };
    }
    Some(labels)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_right_or_what_is_wrong_is_named() {
        let right = "# HELP a Help\n# TYPE a gauge\na{q=\"x\\\"}, y\"} 1\na 2.5\n# HELP h T\n# TYPE h histogram\n\
            h_bucket{le=\"1\"} 1\nh_bucket{le=\"+Inf\"} 2\nh_sum 3\nh_count 2\n";
        assert_eq!(lint(right), Vec::<String>::new());
        for (page, says) in [
            ("a 1\n", "no head"),
            ("# HELP a Help\n# TYPE a odd\n", "no kind"),
            ("# TYPE a gauge\na 1\n", "headed wrongly"),
            ("# HELP a Help\n# TYPE a gauge\na 1\na 1\n", "twice"),
            ("# HELP a Help\n# TYPE a gauge\nb 1\n", "under the head of a"),
            ("# HELP a Help\n# TYPE a gauge\na{x=\"1\",x=\"2\"} 1\n", "labels"),
            ("# HELP a Help\n# TYPE a gauge\na one\n", "no number"),
            ("# HELP a Help\n# TYPE a gauge\na 1", "does not end"),
            ("# HELP h T\n# TYPE h histogram\nh_bucket{le=\"+Inf\"} 2\nh_sum 3\nh_count 3\n", "add up"),
            ("# HELP h T\n# TYPE h histogram\nh_bucket{le=\"1\"} 3\nh_bucket{le=\"+Inf\"} 2\nh_count 2\n", "add up"),
        ] {
            let wrong = lint(page);
            assert!(wrong.iter().any(|wrong| wrong.contains(says)), "{page:?}: {wrong:?}");
        }
    }
}
