//! Distinguished names, as far as two of them have to be told apart.

/// The same text for names that are written with other spaces or capitals.
pub(super) fn normalized(dn: &str) -> String {
    let parts = split(dn).into_iter().map(|part| match part.split_once('=') {
        Some((kind, value)) => format!("{}={}", kind.trim(), value.trim()),
        None => part.trim().to_owned(),
    });
    parts.collect::<Vec<_>>().join(",").to_lowercase()
}

/// The value of the first part: `alice` of `uid=alice,ou=people`.
pub(super) fn first_value(dn: &str) -> &str {
    split(dn).first().and_then(|part| part.split_once('=')).map(|(_, value)| value.trim()).unwrap_or_default()
}

/// Whether `dn` is `base` or lies below it.
pub(super) fn is_below(dn: &str, base: &str) -> bool {
    let (dn, base) = (normalized(dn), normalized(base));
    base.is_empty() || dn == base || dn.strip_suffix(&base).is_some_and(|rest| rest.ends_with(','))
}

/// The parts between commas that are not escaped.
fn split(dn: &str) -> Vec<&str> {
    let (mut parts, mut start, mut is_escaped) = (Vec::new(), 0, false);
    for (index, byte) in dn.bytes().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b',' => {
                parts.push(&dn[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    parts.push(&dn[start..]);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_compared_without_spaces_and_capitals() {
        assert_eq!(normalized("CN = Alice B , OU=People,DC=x"), "cn=alice b,ou=people,dc=x");
        assert_eq!(normalized(r"cn=Smith\, Al,dc=x"), r"cn=smith\, al,dc=x");
        assert_eq!(first_value("uid=Alice, ou=x"), "Alice");
        assert!(is_below("ou=p,DC=x, dc=y", "dc=x,dc=y") && is_below("dc=x", "DC=X") && is_below("dc=x", ""));
        assert!(!is_below("odc=x", "dc=x") && !is_below("dc=y", "dc=x"));
    }
}
