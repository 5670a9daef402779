//! Which runs are of one kind by their names. Read by what learns of runs: sizes, and how long they take.

/// A name without the numbers and dates at its end: `train-2024-01-02` and `train7` are `train`. What is all number stays.
pub fn base_name(name: &str) -> &str {
    let base = name.trim_end_matches(|letter: char| letter.is_ascii_digit() || letter == '-' || letter == '.');
    if base.is_empty() { name } else { base }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_that_differ_in_numbers_are_of_one_kind() {
        let cases = [("train-2024-01-02", "train"), ("train7", "train"), ("2024-01-02", "2024-01-02"), ("", "")];
        for (name, base) in cases {
            assert_eq!(base_name(name), base, "{name}");
        }
    }
}
