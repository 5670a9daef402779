//! What a registry asks for when it refuses (`WWW-Authenticate`).

use http::HeaderMap;
use http::header::WWW_AUTHENTICATE;

/// A way in which a registry lets somebody in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Challenge {
    Basic,
    /// A token from somewhere.
    Bearer {
        realm: String,
        service: Option<String>,
        scope: Option<String>,
    },
}

/// All that are offered, in their order. What can't be read is left out.
pub(crate) fn challenges(headers: &HeaderMap) -> Vec<Challenge> {
    headers.get_all(WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok()).filter_map(challenge).collect()
}

fn challenge(text: &str) -> Option<Challenge> {
    let (scheme, rest) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
    if scheme.eq_ignore_ascii_case("basic") {
        return Some(Challenge::Basic);
    }
    if !scheme.eq_ignore_ascii_case("bearer") {
        return None;
    }
    let (mut realm, mut service, mut scope) = (None, None, None);
    for (name, value) in (Parameters { rest }) {
        match name.to_ascii_lowercase().as_str() {
            "realm" => realm = Some(value),
            "service" => service = Some(value),
            "scope" => scope = Some(value),
            _ => {}
        }
    }
    Some(Challenge::Bearer { realm: realm?, service, scope })
}

/// `name=value` or `name="value"`, with commas between them.
struct Parameters<'t> {
    rest: &'t str,
}

impl<'t> Iterator for Parameters<'t> {
    type Item = (&'t str, String);

    fn next(&mut self) -> Option<Self::Item> {
        let (name, rest) = self.rest.trim_start_matches([' ', ',']).split_once('=')?;
        let (value, rest) = match rest.strip_prefix('"') {
            Some(quoted) => quoted_value(quoted)?,
            None => {
                let end = rest.find([',', ' ']).unwrap_or(rest.len());
                (rest.get(..end)?.to_owned(), rest.get(end..)?)
            }
        };
        self.rest = rest;
        Some((name.trim(), value))
    }
}

/// What is before the closing quote, and what is after it.
fn quoted_value(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, text.get(at + 1..)?)),
            '\\' => value.push(chars.next()?.1),
            c => value.push(c),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_are_read_as_registries_write_them() {
        let bearer = |realm: &str, service: Option<&str>, scope: Option<&str>| Challenge::Bearer {
            realm: realm.into(),
            service: service.map(str::to_owned),
            scope: scope.map(str::to_owned),
        };
        let cases = [
            (
                r#"Bearer realm="https://auth.docker.io/token",service="registry.docker.io",scope="repository:library/a:pull,push""#,
                Some(bearer(
                    "https://auth.docker.io/token",
                    Some("registry.docker.io"),
                    Some("repository:library/a:pull,push"),
                )),
            ),
            (r#"bearer service="s", realm=https://h/t"#, Some(bearer("https://h/t", Some("s"), None))),
            (r#"Bearer realm="a\"b""#, Some(bearer("a\"b", None, None))),
            (r#"Basic realm="x""#, Some(Challenge::Basic)),
            ("Basic", Some(Challenge::Basic)),
            ("Bearer", None),
            (r#"Bearer realm="unended"#, None),
            ("Negotiate abc", None),
            ("", None),
        ];
        for (text, expected) in cases {
            assert_eq!(challenge(text), expected, "{text}");
        }
    }
}
