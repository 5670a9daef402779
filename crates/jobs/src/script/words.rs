//! The words of a line: as a shell splits it for `#PUMICE`, and as `sbatch` does for `#SBATCH`.
//!
//! *Invariant*: a quote that is never closed is an error and no word. Pure. *Called by*: `script`.

/// Splits a line into words as a shell does: quotes and backslashes, nothing else.
pub(super) fn shell_words(line: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote: Option<char> = None;
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        match (quote, character) {
            (Some(open), close) if open == close => quote = None,
            (None, '\'' | '"') => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            (None | Some('"'), '\\') => {
                let escaped = characters.next().ok_or("a backslash at the end of the line")?;
                word.get_or_insert_default().push(escaped);
            }
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

/// Splits a line into words as sbatch does: quotes, backslashes also within them, and a comment from any other `#`.
pub(super) fn sbatch_words(line: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote: Option<char> = None;
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        match (quote, character) {
            (_, '\\') => word.get_or_insert_default().extend(characters.next()),
            (Some(open), close) if open == close => quote = None,
            (None, '\'' | '"') => quote = Some(character),
            (None, '#') => break,
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
