//! Label selectors: the query string's grammar and the object form, one matcher for both.
//!
//! Grammar as in upstream's `labels.Parse`: terms joined by commas, each `key`, `!key`,
//! `key = v`, `key == v`, `key != v`, `key in (v,w)`, `key notin (v,w)`, `key > n`, `key < n`.

use std::fmt;

use serde_json::Value;

use super::{SelectorError, check_len};
use crate::names;

/// How a requirement compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LabelOperator {
    /// The label is there and its value is listed.
    In,
    /// The label is absent or its value is not listed.
    NotIn,
    /// The label is there.
    Exists,
    /// The label is absent.
    DoesNotExist,
    /// The label is an integer above the value.
    GreaterThan,
    /// The label is an integer below the value.
    LessThan,
}

/// One term of a label selector.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LabelRequirement {
    pub key: String,
    pub operator: LabelOperator,
    /// The values compared with, sorted; empty for the existence tests.
    pub values: Vec<String>,
}

/// A conjunction of requirements on labels; without any it matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct LabelSelector {
    requirements: Vec<LabelRequirement>,
    matches_nothing: bool,
}

impl LabelSelector {
    /// The selector that matches every object.
    pub const fn everything() -> Self {
        Self { requirements: Vec::new(), matches_nothing: false }
    }

    /// The selector that matches no object.
    pub const fn nothing() -> Self {
        Self { requirements: Vec::new(), matches_nothing: true }
    }

    /// Reads the query string's form; an empty text matches everything.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        check_len(text)?;
        let mut lexer = Lexer { rest: text };
        let mut requirements = Vec::new();
        loop {
            match lexer.next() {
                Token::End if requirements.is_empty() => break,
                Token::Bang => {
                    let key = lexer.word("identifier after '!'")?;
                    requirements.push(requirement(key, LabelOperator::DoesNotExist, Vec::new())?);
                }
                Token::Word(key) => requirements.push(lexer.requirement(key)?),
                other => return Err(other.unexpected("!, identifier, or 'end of string'")),
            }
            match lexer.next() {
                Token::End => break,
                Token::Comma => {}
                other => return Err(other.unexpected("',' or 'end of string'")),
            }
        }
        Ok(Self::from_requirements(requirements))
    }

    /// Reads a `metav1.LabelSelector`; null matches nothing, an empty object everything.
    pub fn from_json(selector: &Value) -> Result<Self, SelectorError> {
        let object = match selector {
            Value::Null => return Ok(Self::nothing()),
            Value::Object(object) => object,
            _ => return Err(malformed("selector", "an object")),
        };
        let mut requirements = Vec::new();
        match object.get("matchLabels") {
            None | Some(Value::Null) => {}
            Some(Value::Object(labels)) => {
                for (key, value) in labels {
                    let value = value.as_str().ok_or_else(|| malformed("matchLabels", "a map of strings"))?;
                    let values = vec![value.to_owned()];
                    requirements.push(requirement(key, LabelOperator::In, values)?);
                }
            }
            Some(_) => return Err(malformed("matchLabels", "a map of strings")),
        }
        match object.get("matchExpressions") {
            None | Some(Value::Null) => {}
            Some(Value::Array(expressions)) => {
                for expression in expressions {
                    requirements.push(LabelRequirement::from_json(expression)?);
                }
            }
            Some(_) => return Err(malformed("matchExpressions", "a list of requirements")),
        }
        Ok(Self::from_requirements(requirements))
    }

    /// The conjunction of `requirements`.
    pub fn from_requirements(requirements: Vec<LabelRequirement>) -> Self {
        Self { requirements, matches_nothing: false }
    }

    /// The terms; empty also for the selector that matches nothing.
    pub fn requirements(&self) -> &[LabelRequirement] {
        &self.requirements
    }

    /// Whether every object matches.
    pub fn is_everything(&self) -> bool {
        self.requirements.is_empty() && !self.matches_nothing
    }

    /// Whether an object matches whose labels `get` looks up.
    pub fn matches<'a>(&self, get: impl Fn(&str) -> Option<&'a str>) -> bool {
        !self.matches_nothing && self.requirements.iter().all(|requirement| requirement.matches(get(&requirement.key)))
    }
}

/// The query string's form, with keys in order.
impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut sorted: Vec<&LabelRequirement> = self.requirements.iter().collect();
        sorted.sort_by(|one, other| one.key.cmp(&other.key));
        for (index, requirement) in sorted.into_iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            write!(f, "{comma}{requirement}")?;
        }
        Ok(())
    }
}

impl fmt::Display for LabelRequirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, operator, values } = self;
        let first = values.first().map_or("", String::as_str);
        match operator {
            LabelOperator::In if values.len() == 1 => write!(f, "{key}={first}"),
            LabelOperator::In => write!(f, "{key} in ({})", values.join(",")),
            LabelOperator::NotIn if values.len() == 1 => write!(f, "{key}!={first}"),
            LabelOperator::NotIn => write!(f, "{key} notin ({})", values.join(",")),
            LabelOperator::Exists => f.write_str(key),
            LabelOperator::DoesNotExist => write!(f, "!{key}"),
            LabelOperator::GreaterThan => write!(f, "{key}>{first}"),
            LabelOperator::LessThan => write!(f, "{key}<{first}"),
        }
    }
}

impl LabelRequirement {
    /// Reads one entry of `matchExpressions`, of a node or pod selector term.
    pub fn from_json(expression: &Value) -> Result<Self, SelectorError> {
        let key = expression["key"].as_str().ok_or_else(|| malformed("matchExpressions[].key", "a string"))?;
        let operator = match expression["operator"].as_str().unwrap_or_default() {
            "In" => LabelOperator::In,
            "NotIn" => LabelOperator::NotIn,
            "Exists" => LabelOperator::Exists,
            "DoesNotExist" => LabelOperator::DoesNotExist,
            "Gt" => LabelOperator::GreaterThan,
            "Lt" => LabelOperator::LessThan,
            other => {
                return Err(SelectorError::Operator { operator: other.to_owned() });
            }
        };
        let values = match &expression["values"] {
            Value::Null => Vec::new(),
            Value::Array(values) => values
                .iter()
                .map(|value| value.as_str().map(str::to_owned))
                .collect::<Option<Vec<_>>>()
                .ok_or_else(|| malformed("matchExpressions[].values", "a list of strings"))?,
            _ => return Err(malformed("matchExpressions[].values", "a list of strings")),
        };
        requirement(key, operator, values)
    }

    /// Whether the label, absent as `None`, meets the requirement.
    pub fn matches(&self, label: Option<&str>) -> bool {
        let is_listed = |label: &str| self.values.iter().any(|value| value == label);
        let compare = |holds: fn(i64, i64) -> bool| {
            let bound = self.values.first().and_then(|value| value.parse().ok());
            let label = label.and_then(|label| label.parse().ok());
            matches!((label, bound), (Some(label), Some(bound)) if holds(label, bound))
        };
        match self.operator {
            LabelOperator::In => label.is_some_and(is_listed),
            LabelOperator::NotIn => !label.is_some_and(is_listed),
            LabelOperator::Exists => label.is_some(),
            LabelOperator::DoesNotExist => label.is_none(),
            LabelOperator::GreaterThan => compare(|label, bound| label > bound),
            LabelOperator::LessThan => compare(|label, bound| label < bound),
        }
    }
}

fn requirement(key: &str, operator: LabelOperator, mut values: Vec<String>) -> Result<LabelRequirement, SelectorError> {
    names::check_qualified_name(key).map_err(|source| SelectorError::Key { key: key.to_owned(), source })?;
    let count = values.len();
    let count_rule = match operator {
        LabelOperator::In | LabelOperator::NotIn if count == 0 => {
            Some("for 'in', 'notin' operators, values set can't be empty")
        }
        LabelOperator::Exists | LabelOperator::DoesNotExist if count > 0 => {
            Some("values set must be empty for exists and does not exist")
        }
        LabelOperator::GreaterThan | LabelOperator::LessThan if count != 1 => {
            Some("for 'Gt', 'Lt' operators, exactly one value is required")
        }
        _ => None,
    };
    if let Some(rule) = count_rule {
        return Err(SelectorError::ValueCount { count, rule });
    }
    let is_ordered = matches!(operator, LabelOperator::GreaterThan | LabelOperator::LessThan);
    for value in &values {
        if is_ordered && value.parse::<i64>().is_err() {
            return Err(SelectorError::NotInteger { value: value.clone() });
        }
        names::check_label_value(value).map_err(|source| SelectorError::Value {
            key: key.to_owned(),
            value: value.clone(),
            source,
        })?;
    }
    values.sort_unstable();
    values.dedup();
    Ok(LabelRequirement { key: key.to_owned(), operator, values })
}

fn malformed(member: &'static str, expected: &'static str) -> SelectorError {
    SelectorError::Malformed { member, expected }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Token<'a> {
    Word(&'a str),
    Bang,
    Comma,
    Open,
    Close,
    Equals,
    NotEquals,
    Greater,
    Less,
    End,
}

impl Token<'_> {
    fn unexpected(self, expected: &'static str) -> SelectorError {
        let found = match self {
            Self::Word(word) => word,
            Self::Bang => "!",
            Self::Comma => ",",
            Self::Open => "(",
            Self::Close => ")",
            Self::Equals => "=",
            Self::NotEquals => "!=",
            Self::Greater => ">",
            Self::Less => "<",
            Self::End => "",
        };
        SelectorError::Unexpected { found: found.to_owned(), expected }
    }
}

/// Cuts a selector into words and operators; each call consumes what it returns.
struct Lexer<'a> {
    rest: &'a str,
}

impl<'a> Lexer<'a> {
    fn next(&mut self) -> Token<'a> {
        let (token, len) = Self::token(self.skip_space());
        self.rest = &self.rest[len..];
        token
    }

    fn peek(&mut self) -> Token<'a> {
        Self::token(self.skip_space()).0
    }

    fn skip_space(&mut self) -> &'a str {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\r', '\n']);
        self.rest
    }

    fn token(rest: &'a str) -> (Token<'a>, usize) {
        let second_is_equals = rest.as_bytes().get(1) == Some(&b'=');
        match rest.as_bytes().first() {
            None => (Token::End, 0),
            Some(b',') => (Token::Comma, 1),
            Some(b'(') => (Token::Open, 1),
            Some(b')') => (Token::Close, 1),
            Some(b'>') => (Token::Greater, 1),
            Some(b'<') => (Token::Less, 1),
            Some(b'=') => (Token::Equals, 1 + usize::from(second_is_equals)),
            Some(b'!') if second_is_equals => (Token::NotEquals, 2),
            Some(b'!') => (Token::Bang, 1),
            Some(_) => {
                let len = rest.find([',', '(', ')', '>', '<', '=', '!', ' ', '\t', '\r', '\n']).unwrap_or(rest.len());
                (Token::Word(&rest[..len]), len)
            }
        }
    }

    fn word(&mut self, expected: &'static str) -> Result<&'a str, SelectorError> {
        match self.next() {
            Token::Word(word) => Ok(word),
            other => Err(other.unexpected(expected)),
        }
    }

    /// What follows the key of a term that does not start with `!`.
    fn requirement(&mut self, key: &str) -> Result<LabelRequirement, SelectorError> {
        let operator = match self.peek() {
            Token::Comma | Token::End => {
                return requirement(key, LabelOperator::Exists, Vec::new());
            }
            Token::Equals => LabelOperator::In,
            Token::NotEquals => LabelOperator::NotIn,
            Token::Greater => LabelOperator::GreaterThan,
            Token::Less => LabelOperator::LessThan,
            Token::Word(word @ ("in" | "notin")) => {
                self.next();
                let operator = match word {
                    "in" => LabelOperator::In,
                    _ => LabelOperator::NotIn,
                };
                return requirement(key, operator, self.list()?);
            }
            other => return Err(other.unexpected("in, notin, =, ==, !=, gt, lt")),
        };
        self.next();
        let value = match self.peek() {
            Token::Comma | Token::End => "",
            _ => self.word("identifier")?,
        };
        requirement(key, operator, vec![value.to_owned()])
    }

    /// `(a,b)`; an empty place between commas is the empty value.
    fn list(&mut self) -> Result<Vec<String>, SelectorError> {
        match self.next() {
            Token::Open => {}
            other => return Err(other.unexpected("'('")),
        }
        let mut values = Vec::new();
        if self.peek() == Token::Close {
            self.next();
            return Ok(values);
        }
        loop {
            values.push(match self.peek() {
                Token::Word(word) => {
                    self.next();
                    word.to_owned()
                }
                _ => String::new(),
            });
            match self.next() {
                Token::Comma => {}
                Token::Close => return Ok(values),
                other => return Err(other.unexpected("',' or ')'")),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const LABELS: [(&str, &str); 4] = [("app", "web"), ("tier", ""), ("n", "5"), ("a.b/c", "x")];

    fn get(key: &str) -> Option<&'static str> {
        LABELS.iter().find(|(k, _)| *k == key).map(|(_, v)| *v)
    }

    #[test]
    fn a_selector_is_printed_so_that_it_can_be_read_again() {
        let text = "!d,a=1,b in (x,y),c!=z,e,f notin (p,q),g>5,h<7";
        let selector = LabelSelector::parse("h<7,c!=z,b in (y,x),!d,e,f notin (p,q),a==1,g>5").unwrap();
        assert_eq!(selector.to_string(), "a=1,b in (x,y),c!=z,!d,e,f notin (p,q),g>5,h<7");
        assert_eq!(
            LabelSelector::parse(&selector.to_string()).unwrap(),
            LabelSelector::parse("a=1,b in (x,y),c!=z,!d,e,f notin (p,q),g>5,h<7").unwrap()
        );
        assert_ne!(selector.to_string(), text, "keys are in order, whatever stands before them");
    }

    #[test]
    fn texts_match_as_upstream() {
        for (text, matches) in [
            ("", true),
            ("app=web", true),
            ("app==web", true),
            ("app = db", false),
            ("app!=db", true),
            ("missing!=db", true),
            ("app", true),
            ("!app", false),
            ("!missing", true),
            ("! missing , app", true),
            ("app in (web, db)", true),
            ("app in (db)", false),
            ("app notin (db)", true),
            ("missing notin (db)", true),
            ("missing in (db)", false),
            ("tier=", true),
            ("tier=,app=web", true),
            ("tier in (,x)", true),
            ("n>4", true),
            ("n > 5", false),
            ("n<6,n>4", true),
            ("app>1", false),
            ("missing>1", false),
            ("a.b/c=x", true),
            ("in=x", false),
            ("app in(web)", true),
        ] {
            let selector = LabelSelector::parse(text).unwrap();
            assert_eq!(selector.matches(get), matches, "{text}");
        }
    }

    #[test]
    fn malformed_texts_are_refused() {
        for (text, message) in [
            (",app", "unable to parse requirement: found ',', expected: !, identifier, or 'end of string'"),
            ("app=web=db", "unable to parse requirement: found '=', expected: ',' or 'end of string'"),
            ("app web", "unable to parse requirement: found 'web', expected: in, notin, =, ==, !=, gt, lt"),
            ("app in web", "unable to parse requirement: found 'web', expected: '('"),
            ("app in (web", "unable to parse requirement: found '', expected: ',' or ')'"),
            (
                "app in ()",
                "unable to parse requirement: values: Invalid value: 0: for 'in', 'notin' operators, values set can't be empty",
            ),
            ("!", "unable to parse requirement: found '', expected: identifier after '!'"),
            (
                "n>x",
                "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be an integer",
            ),
            ("app,", "unable to parse requirement: found '', expected: !, identifier, or 'end of string'"),
        ] {
            assert_eq!(LabelSelector::parse(text).unwrap_err().to_string(), message, "{text}");
        }
        for text in ["-a", "a=b c", "a/b/c=d", "a=/", "é"] {
            assert!(LabelSelector::parse(text).is_err(), "{text}");
        }
        assert!(LabelSelector::parse(&"a,".repeat(40_000)).is_err());
    }

    #[test]
    fn objects_match_as_upstream() {
        for (selector, matches) in [
            (json!(null), false),
            (json!({}), true),
            (json!({"matchLabels": {"app": "web"}}), true),
            (json!({"matchLabels": {"app": "db"}}), false),
            (json!({"matchExpressions": [{"key": "app", "operator": "In", "values": ["web"]}]}), true),
            (json!({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]}), false),
            (
                json!({"matchExpressions": [{"key": "app", "operator": "Exists"}, {"key": "x", "operator": "DoesNotExist"}]}),
                true,
            ),
            (json!({"matchExpressions": [{"key": "n", "operator": "Gt", "values": ["4"]}]}), true),
        ] {
            let parsed = LabelSelector::from_json(&selector).unwrap();
            assert_eq!(parsed.matches(get), matches, "{selector}");
        }
        for selector in [
            json!(5),
            json!({"matchLabels": []}),
            json!({"matchLabels": {"a": 1}}),
            json!({"matchExpressions": {}}),
            json!({"matchExpressions": [{"key": "a", "operator": "Like", "values": ["b"]}]}),
            json!({"matchExpressions": [{"key": "a", "operator": "In"}]}),
            json!({"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]}),
            json!({"matchExpressions": [{"operator": "Exists"}]}),
        ] {
            assert!(LabelSelector::from_json(&selector).is_err(), "{selector}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[a-z!=,()<> in./-]{0,30}|\\PC{0,20}") {
            if let Ok(selector) = LabelSelector::parse(&text) {
                selector.matches(get);
            }
        }

        #[test]
        fn a_term_and_its_negation_exclude_each_other(key in "[a-z]{1,3}|app|n|tier", value in "[a-z0-9]{0,3}|web") {
            let pairs = [
                (format!("{key}={value}"), format!("{key}!={value}")),
                (format!("{key} in ({value})"), format!("{key} notin ({value})")),
                (key.clone(), format!("!{key}")),
            ];
            for (term, negation) in pairs {
                if let (Ok(term), Ok(negation)) = (LabelSelector::parse(&term), LabelSelector::parse(&negation)) {
                    prop_assert_ne!(term.matches(get), negation.matches(get));
                }
            }
        }
    }
}
