//! A row of CSV into its fields, by RFC 4180 and nothing beyond it.
//!
//! Our own because what is lenient loses rows silently: other readers take a quote inside a field as text and a quote that is
//! never closed as the rest of the file. Called by `table`.

use super::error::Fault;

/// Whether a row's quotes are in pairs, so that it ends here.
pub(super) fn is_whole(row: &[u8]) -> bool {
    row.iter().filter(|byte| **byte == b'"').count().is_multiple_of(2)
}

/// The fields of a row without its line end.
pub(super) fn fields(row: &str) -> Result<Vec<String>, Fault> {
    let mut fields = Vec::new();
    let mut rest = Some(row);
    while let Some(text) = rest {
        let field = fields.len() + 1;
        let (value, after) = match text.strip_prefix('"') {
            Some(quoted) => quoted_field(quoted, field)?,
            None => plain_field(text, field)?,
        };
        fields.push(value);
        rest = after;
    }
    Ok(fields)
}

/// The field, and what follows its comma.
type Split<'a> = (String, Option<&'a str>);

fn plain_field(text: &str, field: usize) -> Result<Split<'_>, Fault> {
    let (value, after) = match text.split_once(',') {
        Some((value, after)) => (value, Some(after)),
        None => (text, None),
    };
    match value.find(['"', '\r', '\n']).and_then(|at| value[at..].chars().next()) {
        Some('"') => Err(Fault::Quote { field }),
        Some(_) => Err(Fault::CarriageReturn { field }),
        None => Ok((value.to_owned(), after)),
    }
}

fn quoted_field(text: &str, field: usize) -> Result<Split<'_>, Fault> {
    let mut value = String::new();
    let mut rest = text;
    loop {
        let (part, after) = rest.split_once('"').ok_or(Fault::OpenQuote { field })?;
        value.push_str(part);
        if let Some(after) = after.strip_prefix('"') {
            value.push('"');
            rest = after;
        } else if after.is_empty() {
            return Ok((value, None));
        } else {
            let after = after.strip_prefix(',').ok_or(Fault::AfterQuote { field })?;
            return Ok((value, Some(after)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_by_the_book() {
        for (row, expected) in [
            ("a,b", vec!["a", "b"]),
            ("", vec![""]),
            (",", vec!["", ""]),
            ("\"a,b\",c", vec!["a,b", "c"]),
            ("\"a\"\"b\"", vec!["a\"b"]),
            ("\"\",\"\"", vec!["", ""]),
            ("\"two\nlines\",x", vec!["two\nlines", "x"]),
            (" a , b ", vec![" a ", " b "]),
        ] {
            assert_eq!(fields(row).unwrap(), expected, "{row}");
        }
    }

    #[test]
    fn what_the_book_does_not_have_is_refused() {
        for (row, fault) in [
            ("a,b\"c", Fault::Quote { field: 2 }),
            ("a,\"b\"c", Fault::AfterQuote { field: 2 }),
            ("a,\"b", Fault::OpenQuote { field: 2 }),
            ("a, \"b\"", Fault::Quote { field: 2 }),
            ("a\rb", Fault::CarriageReturn { field: 1 }),
        ] {
            assert_eq!(fields(row), Err(fault), "{row}");
        }
    }

    proptest::proptest! {
        #[test]
        fn quoted_fields_come_back(values in proptest::collection::vec("[a-c\",\n é]{0,8}", 1..6)) {
            let row = values.iter().map(|v| format!("\"{}\"", v.replace('"', "\"\""))).collect::<Vec<_>>().join(",");
            proptest::prop_assert!(is_whole(row.as_bytes()));
            proptest::prop_assert_eq!(fields(&row).unwrap(), values);
        }
    }
}
