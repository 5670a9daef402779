//! Cuts a YAML stream into its documents.
//!
//! Invariant: a line that starts with `---` ends a document even inside a block scalar (YAML 1.2,
//! 9.1.2), so cutting by lines is exact; each piece knows its line in the file. Called by `manifest`.

/// One document of a YAML stream, and where it stands in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Document<'a> {
    /// The text, with its own `---` line, so that line numbers count from it.
    pub text: &'a str,
    /// The line it starts at, from 1.
    pub line: u64,
}

/// The documents that hold anything but comments and directives.
pub fn documents(text: &str) -> Vec<Document<'_>> {
    let mut documents = Vec::new();
    let (mut start, mut start_line) = (0, 1);
    let (mut offset, mut line) = (0, 1);
    for piece in text.split_inclusive('\n') {
        if is_marker(piece) && offset > start {
            push(&text[start..offset], start_line, &mut documents);
            (start, start_line) = (offset, line);
        }
        offset += piece.len();
        line += 1;
    }
    push(&text[start..], start_line, &mut documents);
    documents
}

fn is_marker(line: &str) -> bool {
    line.strip_prefix("---").is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']))
}

fn push<'a>(text: &'a str, line: u64, documents: &mut Vec<Document<'a>>) {
    let holds_something = text.lines().any(|l| {
        let l = if is_marker(l) { l[3..].trim() } else { l.trim() };
        !(l.is_empty() || l.starts_with(['#', '%']) || l == "...")
    });
    if holds_something {
        documents.push(Document { text, line });
    }
}

#[cfg(test)]
mod tests {
    use super::documents;

    #[test]
    fn documents_know_their_lines() {
        for (text, wanted) in [
            ("", vec![]),
            ("# only\n---\n---\n# comments\n", vec![]),
            ("a: 1\n", vec![(1, "a: 1\n")]),
            ("%YAML 1.2\n---\na: 1\n", vec![(2, "---\na: 1\n")]),
            ("a: 1\n---\nb: 2\n---\n", vec![(1, "a: 1\n"), (2, "---\nb: 2\n")]),
            ("--- {a: 1}\n--- # c\nb: 2", vec![(1, "--- {a: 1}\n"), (2, "--- # c\nb: 2")]),
            ("a: |\n  ---\n  x\n----\n", vec![(1, "a: |\n  ---\n  x\n----\n")]),
            ("a: 1\r\n---\r\nb: 2\r\n", vec![(1, "a: 1\r\n"), (2, "---\r\nb: 2\r\n")]),
        ] {
            let found: Vec<_> = documents(text).iter().map(|d| (d.line, d.text)).collect();
            assert_eq!(found, wanted, "{text:?}");
        }
    }
}
