//! How serde and clap write a name in another case.

/// A field's name by the rule of a `rename_all`.
pub fn field(name: &str, rule: &str) -> String {
    by(name.split('_').filter(|part| !part.is_empty()).map(str::to_owned).collect(), rule)
        .unwrap_or_else(|| name.to_owned())
}

/// A variant's name by the rule of a `rename_all`.
pub fn variant(name: &str, rule: &str) -> String {
    let mut parts: Vec<String> = Vec::new();
    for letter in name.chars() {
        match parts.last_mut() {
            Some(part) if !letter.is_uppercase() => part.push(letter),
            _ => parts.push(letter.to_lowercase().to_string()),
        }
    }
    by(parts, rule).unwrap_or_else(|| name.to_owned())
}

/// The words of a name, put together; none where the rule says nothing.
fn by(parts: Vec<String>, rule: &str) -> Option<String> {
    let capital = |part: &String| {
        let mut letters = part.chars();
        letters.next().map(|first| first.to_uppercase().collect::<String>() + letters.as_str()).unwrap_or_default()
    };
    Some(match rule {
        "lowercase" => parts.concat(),
        "UPPERCASE" => parts.concat().to_uppercase(),
        "PascalCase" => parts.iter().map(capital).collect(),
        "camelCase" => {
            let (first, rest) = parts.split_first()?;
            first.clone() + &rest.iter().map(capital).collect::<String>()
        }
        "snake_case" => parts.join("_"),
        "SCREAMING_SNAKE_CASE" => parts.join("_").to_uppercase(),
        "kebab-case" => parts.join("-"),
        "SCREAMING-KEBAB-CASE" => parts.join("-").to_uppercase(),
        _ => return None,
    })
}
