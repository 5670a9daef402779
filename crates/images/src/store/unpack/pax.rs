//! The extended fields of an entry (PAX): `LENGTH KEY=VALUE` and a line's end, each.

use super::error::EntryProblem;

/// What attributes of files begin with.
const ATTRIBUTE: &[u8] = b"SCHILY.xattr.";
/// What fields of sparse files begin with.
const SPARSE: &[u8] = b"GNU.sparse.";

/// The fields that count.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Fields {
    pub path: Option<Vec<u8>>,
    pub link: Option<Vec<u8>>,
    pub size: Option<i64>,
    pub uid: Option<i64>,
    pub gid: Option<i64>,
    /// Seconds and nanoseconds.
    pub mtime: Option<(i64, i64)>,
    /// Names and values, those that came later after the others.
    pub attributes: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Reads the fields of one header. Of those that are there twice the later counts, and an empty one counts for nothing.
pub(crate) fn read(mut bytes: &[u8]) -> Result<Fields, EntryProblem> {
    let mut fields = Fields::default();
    while !bytes.is_empty() {
        let Record { key, value, rest } = record(bytes)?;
        bytes = rest;
        if key.starts_with(SPARSE) {
            return Err(EntryProblem::Sparse);
        }
        if let Some(name) = key.strip_prefix(ATTRIBUTE) {
            fields.attributes.push((name.to_vec(), value.to_vec()));
            continue;
        }
        if value.is_empty() {
            continue;
        }
        match key {
            b"path" => fields.path = Some(text(value, "name")?),
            b"linkpath" => fields.link = Some(text(value, "target")?),
            b"size" => fields.size = Some(number(value).ok_or(EntryProblem::Number("size"))?),
            b"uid" => fields.uid = Some(number(value).ok_or(EntryProblem::Number("uid"))?),
            b"gid" => fields.gid = Some(number(value).ok_or(EntryProblem::Number("gid"))?),
            b"mtime" => fields.mtime = Some(time(value).ok_or(EntryProblem::Number("mtime"))?),
            _ => {}
        }
    }
    Ok(fields)
}

/// One field, and the bytes after it.
struct Record<'a> {
    key: &'a [u8],
    value: &'a [u8],
    rest: &'a [u8],
}

fn record(bytes: &[u8]) -> Result<Record<'_>, EntryProblem> {
    let malformed = |what| EntryProblem::Pax(what);
    let space = bytes.iter().take(20).position(|byte| *byte == b' ').ok_or(malformed("a field without a length"))?;
    let digits = bytes.get(..space).unwrap_or_default();
    let length =
        number(digits).and_then(|length| usize::try_from(length).ok()).ok_or(malformed("a length of no digits"))?;
    let line = bytes.get(space + 1..length).ok_or(malformed("a length beyond the fields' end"))?;
    let Some((b'\n', line)) = line.split_last() else { return Err(malformed("a field without a line's end")) };
    let equals = line.iter().position(|byte| *byte == b'=').ok_or(malformed("a field without ="))?;
    let key = line.get(..equals).unwrap_or_default();
    if key.is_empty() || key.contains(&0) {
        return Err(malformed("a field without a name"));
    }
    let value = line.get(equals + 1..).unwrap_or_default();
    Ok(Record { key, value, rest: bytes.get(length..).unwrap_or_default() })
}

fn text(value: &[u8], what: &'static str) -> Result<Vec<u8>, EntryProblem> {
    if value.contains(&0) { Err(EntryProblem::Nul(what)) } else { Ok(value.to_vec()) }
}

fn number(digits: &[u8]) -> Option<i64> {
    let is_plain = digits.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(digits).ok().filter(|_| is_plain)?.parse().ok()
}

/// Seconds since 1970 with a fraction, also before it.
fn time(value: &[u8]) -> Option<(i64, i64)> {
    let (is_before, value) = match value.strip_prefix(b"-") {
        Some(rest) => (true, rest),
        None => (false, value),
    };
    let mut parts = value.splitn(2, |byte| *byte == b'.');
    let seconds = number(parts.next()?)?;
    let fraction = parts.next().unwrap_or_default();
    if !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let digit = |at: usize| i64::from(fraction.get(at).map_or(0, |byte| byte - b'0'));
    let nanoseconds = (0..9).fold(0, |sum, at| sum * 10 + digit(at));
    match (is_before, nanoseconds) {
        (false, _) => Some((seconds, nanoseconds)),
        (true, 0) => Some((-seconds, 0)),
        (true, _) => Some((-seconds - 1, 1_000_000_000 - nanoseconds)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_whatever_their_values_have_in_them() {
        let fields = read(b"30 mtime=1350244992.023960108\n29 SCHILY.xattr.user.x=\n=\0 y\n13 path=a\nb \n").unwrap();
        assert_eq!(fields.mtime, Some((1_350_244_992, 23_960_108)));
        assert_eq!(fields.attributes, [(b"user.x".to_vec(), b"\n=\0 y".to_vec())]);
        assert_eq!(fields.path.as_deref(), Some(&b"a\nb "[..]));
        assert_eq!(read(b"13 size=1234\n12 size=567\n").unwrap().size, Some(567));
        assert_eq!(read(b"9 mtime=\n").unwrap(), Fields::default());
    }

    #[test]
    fn times_before_1970_and_of_a_fraction_are_times() {
        for (text, expected) in [
            ("0", Some((0, 0))),
            ("1.5", Some((1, 500_000_000))),
            ("-1.25", Some((-2, 750_000_000))),
            ("-3", Some((-3, 0))),
            ("1.0000000019", Some((1, 1))),
            ("", None),
            ("-", None),
            ("1.x", None),
            ("1e9", None),
            ("99999999999999999999", None),
        ] {
            assert_eq!(time(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn malformed_fields_are_refused() {
        for text in [
            "path=a\n",
            "x path=a\n",
            " path=a\n",
            "99 path=a\n",
            "11 path=a\n",
            "9 path=ab",
            "0 a=b\n",
            "2 \n",
            "6 =ab\n",
            "-9 path=a\n",
            "99999999999999999999 a=b\n",
            "11 path=a\0b\n",
            "9 size=x\n",
            "9 size=-\n",
            "10 size=-1\n",
            "26 GNU.sparse.realsize=10\n",
        ] {
            assert!(read(text.as_bytes()).is_err(), "{text:?}");
        }
    }
}
