//! Quoting of text in messages the way Go's `%q` does, since clients compare upstream's messages.
//!
//! Called by the error types of this crate.

use std::fmt::{self, Write};

/// Prints its text between double quotes with Go's escapes.
pub struct Quoted<'a>(pub &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_char('"')?;
        for c in self.0.chars() {
            match c {
                '"' => formatter.write_str("\\\"")?,
                '\\' => formatter.write_str("\\\\")?,
                '\n' => formatter.write_str("\\n")?,
                '\t' => formatter.write_str("\\t")?,
                '\r' => formatter.write_str("\\r")?,
                '\u{7}' => formatter.write_str("\\a")?,
                '\u{8}' => formatter.write_str("\\b")?,
                '\u{c}' => formatter.write_str("\\f")?,
                '\u{b}' => formatter.write_str("\\v")?,
                c if (c as u32) < 0x20 || c as u32 == 0x7f => {
                    write!(formatter, "\\x{:02x}", c as u32)?;
                }
                c if c.is_control() => write!(formatter, "\\u{:04x}", c as u32)?,
                c => formatter.write_char(c)?,
            }
        }
        formatter.write_char('"')
    }
}

#[cfg(test)]
mod tests {
    use super::Quoted;

    #[test]
    fn escapes_are_those_of_go() {
        assert_eq!(Quoted("a\"b\\c\n\u{1}é\u{85}").to_string(), r#""a\"b\\c\n\x01é\u0085""#);
    }
}
