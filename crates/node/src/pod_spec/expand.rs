//! `$(VAR)` in commands, arguments and values, as Kubernetes expands it.

/// Replaces each `$(NAME)` that `lookup` knows; `$$` stands for `$` and keeps what follows as it is.
pub(crate) fn expand<'a>(text: &str, lookup: impl Fn(&str) -> Option<&'a str>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        if let Some(escaped) = after.strip_prefix('$') {
            out.push('$');
            rest = escaped;
        } else if let Some((name, behind)) = after.strip_prefix('(').and_then(|inner| inner.split_once(')')) {
            match lookup(name) {
                Some(value) => out.push_str(value),
                None => out.push_str(&rest[at..rest.len() - behind.len()]),
            }
            rest = behind;
        } else {
            out.push('$');
            rest = after;
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expansion_follows_kubernetes() {
        let lookup = |name: &str| match name {
            "A" => Some("a"),
            "B" => Some("$(A)"),
            "" => Some("empty"),
            _ => None,
        };
        let cases = [
            ("x$(A)y", "xay"),
            ("$(A)$(A)", "aa"),
            ("$(B)", "$(A)"),
            ("$$(A)", "$(A)"),
            ("$$$(A)", "$a"),
            ("$(MISSING)", "$(MISSING)"),
            ("$(A", "$(A"),
            ("$A ${A} $", "$A ${A} $"),
            ("$()", "empty"),
            ("é$(A)é", "éaé"),
            ("", ""),
        ];
        for (text, expected) in cases {
            assert_eq!(expand(text, lookup), expected, "{text}");
        }
    }
}
