//! Names of users, and the namespaces that follow from them.

/// Longest name of a namespace.
const NAMESPACE_LEN_MAX: usize = 63;
/// What names of the platform and of Kubernetes begin with: none of them comes from outside.
const RESERVED_PREFIXES: [&str; 2] = ["system:", "pumice:"];

/// The namespace of a user: his name in lower case, with `-` for `.` and `_`, after the prefix. An error says what is wrong with
/// the name.
pub fn namespace_of(prefix: &str, user: &str) -> Result<String, String> {
    check_user(user)?;
    let namespace: String = prefix.chars().chain(user.chars()).map(letter).collect();
    if namespace.len() > NAMESPACE_LEN_MAX {
        return Err(format!(
            "its namespace would have {} letters, and {NAMESPACE_LEN_MAX} are allowed",
            namespace.len()
        ));
    }
    if namespace.starts_with('-') || namespace.ends_with('-') {
        return Err(format!("{namespace:?} is no name of a namespace, which begins and ends with a letter or digit"));
    }
    Ok(namespace)
}

/// What is wrong with the name of a user, if something is.
pub(super) fn check_user(user: &str) -> Result<(), String> {
    if let Some(prefix) = RESERVED_PREFIXES.iter().find(|prefix| user.starts_with(**prefix)) {
        return Err(format!("names that begin with {prefix} are the platform's own"));
    }
    if user.is_empty() {
        return Err("it has no name".to_owned());
    }
    match user.chars().find(|c| !c.is_ascii_alphanumeric() && !matches!(c, '.' | '_' | '-')) {
        Some(other) => Err(format!("{other:?} can't be in the name of a namespace")),
        None => Ok(()),
    }
}

fn letter(c: char) -> char {
    match c {
        '.' | '_' => '-',
        other => other.to_ascii_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_follow_from_names() {
        assert_eq!(namespace_of("", "Alice.B_C").as_deref(), Ok("alice-b-c"));
        assert_eq!(namespace_of("u-", "4ever").as_deref(), Ok("u-4ever"));
        for user in ["", "_x", "x.", "müller", "a@b", "a/b", "..", "system:x", "pumice:x", "a b"] {
            assert!(namespace_of("", user).is_err(), "{user}");
        }
        assert!(namespace_of("", &"a".repeat(63)).is_ok());
        assert!(namespace_of("u-", &"a".repeat(63)).is_err());
    }
}
