//! Reading a path, in one pass over its bytes; nesting of filters is bounded.

use serde_json::Value;

use super::{Comparison, Filter, JsonPath, Operand, Step};

/// Longest path; upstream's columns are far shorter.
const TEXT_LEN_MAX: usize = 4096;
/// Most filters within one another.
const FILTER_DEPTH_MAX: usize = 8;

/// Why a text is not a path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// The text is too long.
    #[error("path has {len} bytes, at most 4096 are allowed")]
    TooLong {
        /// Its bytes.
        len: usize,
    },
    /// Something stands where it may not.
    #[error("path {text:?} is malformed at byte {at}: expected {expected}")]
    Unexpected {
        /// The whole path.
        text: String,
        at: usize,
        /// What could have stood there.
        expected: &'static str,
    },
    /// A part of the language that printer columns do not have.
    #[error("path {text:?} uses {feature} at byte {at}, which is not supported; name the fields")]
    Unsupported {
        /// The whole path.
        text: String,
        at: usize,
        feature: &'static str,
    },
}

pub(super) fn parse(text: &str) -> Result<JsonPath, PathError> {
    if text.len() > TEXT_LEN_MAX {
        return Err(PathError::TooLong { len: text.len() });
    }
    let inner = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    let body = inner.unwrap_or(text);
    let mut parser = Parser { text: body, at: 0, filter_depth: 0 };
    parser.eat("$");
    let path = parser.steps()?;
    if parser.at < body.len() {
        return Err(parser.unexpected("'.', '[' or the end"));
    }
    if path.steps.is_empty() && body != "." && body != "$" {
        return Err(parser.unexpected("'.' and a field"));
    }
    Ok(path)
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    filter_depth: usize,
}

impl Parser<'_> {
    fn unexpected(&self, expected: &'static str) -> PathError {
        PathError::Unexpected { text: self.text.to_owned(), at: self.at, expected }
    }

    fn unsupported(&self, feature: &'static str) -> PathError {
        PathError::Unsupported { text: self.text.to_owned(), at: self.at, feature }
    }

    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn eat(&mut self, token: &str) -> bool {
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    fn skip_space(&mut self) {
        while self.eat(" ") {}
    }

    fn expect(&mut self, token: &str, expected: &'static str) -> Result<(), PathError> {
        if self.eat(token) { Ok(()) } else { Err(self.unexpected(expected)) }
    }

    fn steps(&mut self) -> Result<JsonPath, PathError> {
        let mut steps = Vec::new();
        loop {
            if self.rest().starts_with("..") {
                return Err(self.unsupported("recursive descent"));
            }
            if self.eat("[") {
                steps.push(self.bracket()?);
            } else if self.eat(".") {
                match self.rest().chars().next() {
                    None if steps.is_empty() => {}
                    Some('[') => {}
                    Some('*') => {
                        self.at += 1;
                        steps.push(Step::Wildcard);
                    }
                    _ => steps.push(Step::Field(self.field()?)),
                }
            } else {
                return Ok(JsonPath { steps });
            }
        }
    }

    /// A field name up to the next step; a backslash takes the next character as it is.
    fn field(&mut self) -> Result<String, PathError> {
        let mut name = String::new();
        let mut chars = self.text[self.at..].char_indices();
        let mut len = 0;
        while let Some((index, c)) = chars.next() {
            let taken = match c {
                '\\' => chars.next(),
                '.' | '[' | ']' | ' ' | '=' | '!' | '<' | '>' | ')' | '(' | '@' | '$' | '{' | '}' => break,
                _ => Some((index, c)),
            };
            let Some((index, c)) = taken else { break };
            name.push(c);
            len = index + c.len_utf8();
        }
        if name.is_empty() {
            return Err(self.unexpected("a field name"));
        }
        self.at += len;
        Ok(name)
    }

    /// What stands between brackets, the closing one included.
    fn bracket(&mut self) -> Result<Step, PathError> {
        let step = match self.rest().chars().next() {
            Some('*') => {
                self.at += 1;
                Step::Wildcard
            }
            Some('\'' | '"') => Step::Field(self.quoted()?),
            Some('?') => Step::Filter(self.filter()?),
            _ => {
                let start = self.integer()?;
                if self.eat(":") {
                    let end = self.integer()?;
                    if self.rest().starts_with(':') {
                        return Err(self.unsupported("a step width"));
                    }
                    Step::Slice(start, end)
                } else {
                    Step::Index(start.ok_or_else(|| self.unexpected("an index, a name in quotes, '*' or a filter"))?)
                }
            }
        };
        if self.rest().starts_with(',') {
            return Err(self.unsupported("a union"));
        }
        self.expect("]", "']'")?;
        Ok(step)
    }

    fn integer(&mut self) -> Result<Option<i64>, PathError> {
        let rest = self.rest();
        let digits = rest.strip_prefix('-').unwrap_or(rest);
        let len = digits.bytes().take_while(u8::is_ascii_digit).count() + (rest.len() - digits.len());
        if len == 0 {
            return Ok(None);
        }
        let number = rest[..len].parse().map_err(|_| self.unexpected("an index that fits 64 bits"))?;
        self.at += len;
        Ok(Some(number))
    }

    /// A text in single or double quotes; a backslash takes the next character as it is.
    fn quoted(&mut self) -> Result<String, PathError> {
        let mut text = String::new();
        let mut chars = self.text[self.at..].char_indices();
        let quote = chars.next().map(|(_, c)| c);
        while let Some((index, c)) = chars.next() {
            if Some(c) == quote {
                self.at += index + 1;
                return Ok(text);
            }
            let c = if c == '\\' { chars.next().map(|(_, c)| c) } else { Some(c) };
            text.extend(c);
        }
        Err(self.unexpected("a closing quote"))
    }

    fn filter(&mut self) -> Result<Filter, PathError> {
        self.expect("?(", "'?('")?;
        self.filter_depth += 1;
        if self.filter_depth > FILTER_DEPTH_MAX {
            return Err(self.unsupported("filters nested that deep"));
        }
        let left = self.operand()?;
        let compare = match self.comparison() {
            Some(comparison) => Some((comparison, self.operand()?)),
            None => None,
        };
        self.filter_depth -= 1;
        self.expect(")", "a comparison or ')'")?;
        Ok(Filter { left, compare })
    }

    fn comparison(&mut self) -> Option<Comparison> {
        let (token, comparison) = [
            ("==", Comparison::Equal),
            ("!=", Comparison::NotEqual),
            ("<=", Comparison::LessOrEqual),
            (">=", Comparison::GreaterOrEqual),
            ("<", Comparison::Less),
            (">", Comparison::Greater),
            ("=", Comparison::Equal),
        ]
        .into_iter()
        .find(|(token, _)| self.rest().starts_with(token))?;
        self.at += token.len();
        Some(comparison)
    }

    fn operand(&mut self) -> Result<Operand, PathError> {
        self.skip_space();
        let operand = if self.eat("@") {
            Operand::Path(self.steps()?)
        } else if self.rest().starts_with(['"', '\'']) {
            Operand::Literal(self.quoted()?.into())
        } else {
            let len = self.rest().find([' ', ')', '=', '!', '<', '>']).unwrap_or(self.rest().len());
            let literal = serde_json::from_str(&self.rest()[..len]).ok();
            let literal: Value = literal
                .filter(|literal: &Value| literal.is_number() || literal.is_boolean())
                .ok_or_else(|| self.unexpected("'@', a text in quotes, a number or a boolean"))?;
            self.at += len;
            Operand::Literal(literal)
        };
        self.skip_space();
        Ok(operand)
    }
}
