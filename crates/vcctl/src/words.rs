//! A command line in one text, cut into its words as a shell does.
//!
//! Invariant: quotes and backslashes mean what they mean to `sh`; nothing is expanded. Called by `job::new`.

/// The words of a command, `None` where a quote is open or a backslash is the last character.
pub fn split(command: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut characters = command.chars();
    while let Some(character) = characters.next() {
        match character {
            ' ' | '\t' | '\n' | '\r' => words.extend(word.take()),
            '\\' => match characters.next()? {
                // A line that goes on in the next one.
                '\n' => {}
                escaped => word.get_or_insert_default().push(escaped),
            },
            '\'' => quoted(&mut characters, word.get_or_insert_default())?,
            '"' => double_quoted(&mut characters, word.get_or_insert_default())?,
            '#' if word.is_none() => {
                // A comment goes to the end of the line.
                characters.by_ref().find(|character| *character == '\n');
            }
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    Some(words)
}

fn quoted(characters: &mut std::str::Chars<'_>, word: &mut String) -> Option<()> {
    loop {
        match characters.next()? {
            '\'' => return Some(()),
            other => word.push(other),
        }
    }
}

fn double_quoted(characters: &mut std::str::Chars<'_>, word: &mut String) -> Option<()> {
    loop {
        match characters.next()? {
            '"' => return Some(()),
            '\\' => match characters.next()? {
                '\n' => {}
                escaped @ ('"' | '\\' | '$' | '`') => word.push(escaped),
                other => word.extend(['\\', other]),
            },
            other => word.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn words_are_cut_as_a_shell_cuts_them() {
        for (command, wanted) in [
            ("", Some(vec![])),
            ("  sleep  10\t", Some(vec!["sleep", "10"])),
            ("sh -c 'echo $A; sleep 1'", Some(vec!["sh", "-c", "echo $A; sleep 1"])),
            (r#"echo "a \"b\" \n $X" 'c\d'"#, Some(vec!["echo", r#"a "b" \n $X"#, r"c\d"])),
            ("a''b \"\"", Some(vec!["ab", ""])),
            (r"a\ b \'", Some(vec!["a b", "'"])),
            ("a \\\n b # c\nd#e", Some(vec!["a", "b", "d#e"])),
            ("echo 'open", None),
            ("echo \"open", None),
            ("echo \\", None),
        ] {
            let wanted = wanted.map(|words: Vec<&str>| words.into_iter().map(str::to_owned).collect::<Vec<_>>());
            assert_eq!(split(command), wanted, "{command:?}");
        }
    }
}
