//! Reports as JUnit writes them, for those who show the results of tests.

use std::fmt::Write as _;
use std::time::Duration;

use super::Report;

/// The text of a file with the results. `took` is how long all of them took.
pub fn junit(reports: &[Report], took: Duration) -> String {
    let failed = reports.iter().filter(|report| report.failure.is_some()).count();
    let counts = format!(r#"tests="{}" failures="{failed}" time="{}""#, reports.len(), seconds(took));
    let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    // A string takes everything.
    let _ = writeln!(text, "<testsuites {counts}>\n  <testsuite name=\"pumice fleet testsuite\" {counts}>");
    for report in reports {
        let name = escaped(&report.name);
        let _ = write!(text, r#"    <testcase classname="{name}" name="{name}" time="{}""#, seconds(report.took));
        let failure = report.failure.as_ref().map(|failure| escaped(&failure.to_string()));
        let failure = failure.map(|why| format!("      <failure message=\"{why}\"/>\n"));
        let notes = report.notes.iter().map(|note| escaped(note)).collect::<Vec<_>>().join("\n");
        let notes = (!notes.is_empty()).then(|| format!("      <system-out>{notes}</system-out>\n"));
        let inside: String = failure.into_iter().chain(notes).collect();
        text += &if inside.is_empty() { "/>\n".to_owned() } else { format!(">\n{inside}    </testcase>\n") };
    }
    text + "  </testsuite>\n</testsuites>\n"
}

fn seconds(time: Duration) -> String {
    format!("{:.3}", time.as_secs_f64())
}

/// The text inside an attribute or an element. What XML can't have at all is replaced.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' => escaped.push_str("&#10;"),
            '\t' | ' '..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'.. => escaped.push(letter),
            _ => escaped.push('\u{fffd}'),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet_testsuite::Failure;

    #[test]
    fn results_are_written_with_what_went_wrong() {
        let report = |name: &str, failure, notes: &[&str]| Report {
            name: name.to_owned(),
            took: Duration::from_millis(1_500),
            failure,
            notes: notes.iter().map(|note| (*note).to_owned()).collect(),
        };
        let failure = Failure::Queue { queue: "q".to_owned(), problem: "it is <a> & \"b\"\n\u{1}".to_owned() };
        let reports = [report("basic/good", None, &[]), report("bad", Some(failure), &["later"])];
        insta::assert_snapshot!(junit(&reports, Duration::from_secs(3)), @r#"
        <?xml version="1.0" encoding="UTF-8"?>
        <testsuites tests="2" failures="1" time="3.000">
          <testsuite name="pumice fleet testsuite" tests="2" failures="1" time="3.000">
            <testcase classname="basic/good" name="basic/good" time="1.500"/>
            <testcase classname="bad" name="bad" time="1.500">
              <failure message="queue q: it is &lt;a&gt; &amp; &quot;b&quot;&#10;�"/>
              <system-out>later</system-out>
            </testcase>
          </testsuite>
        </testsuites>
        "#);
    }
}
