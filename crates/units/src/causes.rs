//! Errors in one line, for people.

/// An error and its causes, as `what: why: why that`. A cause that is in the words of its error already is not said again.
pub fn with_causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |error| error.source());
    causes
        .map(ToString::to_string)
        .fold(error.to_string(), |text, cause| if text.ends_with(&cause) { text } else { format!("{text}: {cause}") })
}

#[cfg(test)]
mod tests {
    use std::error::Error;
    use std::fmt;

    use super::*;

    #[derive(Debug)]
    struct Said(&'static str, Option<Box<Said>>);

    impl fmt::Display for Said {
        fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
            out.write_str(self.0)
        }
    }

    impl Error for Said {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_deref().map(|cause| cause as _)
        }
    }

    #[test]
    fn causes_follow_what_they_caused_once() {
        for (words, expected) in [(&["a"][..], "a"), (&["a", "b", "c"], "a: b: c"), (&["a: b", "b", "c"], "a: b: c")] {
            let error = words.iter().rev().fold(None, |cause, word| Some(Box::new(Said(word, cause))));
            assert_eq!(error.map(|error| with_causes(&*error)).as_deref(), Some(expected));
        }
    }
}
