//! The words of a line: as a shell splits it for `#PUMICE`, and as `sbatch` does for `#SBATCH`.
//!
//! *Invariant*: a quote that is never closed is an error and no word. Pure. *Called by*: `script`.

/// Whose rules a line is split by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Splitting {
    /// A shell's: a backslash is itself within single quotes and needs a character after it, and empty quotes are a word.
    Shell,
    /// sbatch's: a backslash counts within all quotes, empty quotes are no word, and a `#` outside of them begins a comment.
    Sbatch,
}

/// Splits a line into words. What is wrong with it is the rest of a sentence.
pub(super) fn words(line: &str, splitting: Splitting) -> Result<Vec<String>, String> {
    let shell = splitting == Splitting::Shell;
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote: Option<char> = None;
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        match (quote, character) {
            (_, '\\') if !(shell && quote == Some('\'')) => {
                let escaped = characters.next();
                if shell && escaped.is_none() {
                    return Err("a backslash at the end of the line".to_owned());
                }
                word.get_or_insert_default().extend(escaped);
            }
            (Some(open), close) if open == close => quote = None,
            (None, '\'' | '"') => {
                quote = Some(character);
                if shell {
                    word.get_or_insert_default();
                }
            }
            (None, '#') if !shell => break,
            (None, space) if space.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(character),
        }
    }
    if let Some(quote) = quote {
        return Err(format!("a {quote} that is never closed"));
    }
    words.extend(word);
    Ok(words)
}
