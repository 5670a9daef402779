//! The part of CEL that selectors of devices are written in most: comparisons of the driver and of attributes, all of
//! which must hold. Anything else is refused by name, never guessed.

use std::collections::BTreeMap;

use crate::facts::Attribute;

/// In bytes; a longer expression is refused.
const LENGTH_MAX: usize = 4096;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Operand {
    Driver,
    Attribute { domain: String, name: String },
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Comparison {
    operand: Operand,
    equal: bool,
    value: Attribute,
}

/// Comparisons that must all hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Selector(Vec<Comparison>);

impl Selector {
    /// # Errors
    /// The expression, where it is beyond this part of CEL.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let refuse = || text.chars().take(200).collect::<String>();
        if text.len() > LENGTH_MAX || text.contains("||") {
            return Err(refuse());
        }
        text.split("&&").map(|part| comparison(part).ok_or_else(refuse)).collect::<Result<_, _>>().map(Self)
    }

    /// A device without the attribute does not match.
    pub(super) fn matches(&self, driver: &str, attributes: &BTreeMap<String, Attribute>) -> bool {
        self.0.iter().all(|comparison| match &comparison.operand {
            Operand::Driver => (comparison.value == Attribute::Text(driver.to_owned())) == comparison.equal,
            Operand::Attribute { domain, name } => {
                let full = attributes.get(&format!("{domain}/{name}"));
                let own = if domain == driver { attributes.get(name) } else { None };
                full.or(own).is_some_and(|value| (*value == comparison.value) == comparison.equal)
            }
        })
    }
}

fn comparison(text: &str) -> Option<Comparison> {
    let mut text = text.trim();
    while let Some(inner) = text.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')) {
        text = inner.trim();
    }
    let split = |sign: &str| text.split_once(sign).map(|(left, right)| (left.trim(), right.trim()));
    if let Some((left, right)) = split("!=") {
        return Some(Comparison { operand: operand(left)?, equal: false, value: literal(right)? });
    }
    if let Some((left, right)) = split("==") {
        return Some(Comparison { operand: operand(left)?, equal: true, value: literal(right)? });
    }
    let (text, equal) = text.strip_prefix('!').map_or((text, true), |rest| (rest.trim(), false));
    Some(Comparison { operand: operand(text)?, equal, value: Attribute::Bool(true) })
        .filter(|comparison| comparison.operand != Operand::Driver)
}

fn operand(text: &str) -> Option<Operand> {
    if text == "device.driver" {
        return Some(Operand::Driver);
    }
    let rest = text.strip_prefix("device.attributes[")?;
    let (domain, rest) = rest.split_once(']')?;
    let name = rest.strip_prefix('.')?;
    let plain = |name: &str| !name.is_empty() && name.chars().all(|sign| sign.is_ascii_alphanumeric() || sign == '_');
    plain(name).then_some(())?;
    Some(Operand::Attribute { domain: quoted(domain.trim())?, name: name.to_owned() })
}

fn literal(text: &str) -> Option<Attribute> {
    match text {
        "true" => Some(Attribute::Bool(true)),
        "false" => Some(Attribute::Bool(false)),
        _ => quoted(text).map(Attribute::Text).or_else(|| text.parse().ok().map(Attribute::Int)),
    }
}

/// A string without escapes.
fn quoted(text: &str) -> Option<String> {
    let inner = ['"', '\''].into_iter().find_map(|quote| text.strip_prefix(quote)?.strip_suffix(quote))?;
    (!inner.contains(['"', '\'', '\\'])).then(|| inner.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comparisons_of_driver_and_attributes_are_read_and_all_else_is_refused() {
        let attributes = BTreeMap::from([
            ("type".to_owned(), Attribute::Text("gpu".to_owned())),
            ("other.com/index".to_owned(), Attribute::Int(3)),
            ("healthy".to_owned(), Attribute::Bool(true)),
        ]);
        for (text, expected) in [
            ("device.driver == 'gpu.example.com'", Some(true)),
            ("device.driver != \"gpu.example.com\"", Some(false)),
            ("device.driver == 'gpu.example.com' && device.attributes['gpu.example.com'].type == 'gpu'", Some(true)),
            ("(device.attributes[\"other.com\"].index == 3)", Some(true)),
            ("device.attributes['other.com'].type == 'gpu'", Some(false)),
            ("device.attributes['gpu.example.com'].healthy", Some(true)),
            ("!device.attributes['gpu.example.com'].healthy", Some(false)),
            ("device.attributes['gpu.example.com'].absent != 'x'", Some(false)),
            ("device.driver == 'a' || device.driver == 'b'", None),
            ("device.capacity['gpu.example.com'].memory.compareTo(quantity('40Gi')) >= 0", None),
            ("device.attributes['gpu.example.com'].type.startsWith('g')", None),
            ("", None),
            ("device.driver", None),
        ] {
            let matches = Selector::parse(text).ok().map(|selector| selector.matches("gpu.example.com", &attributes));
            assert_eq!(matches, expected, "{text}");
        }
    }
}
