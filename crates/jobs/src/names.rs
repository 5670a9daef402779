//! Which names may go into a request's path and into an object.
//!
//! Invariant: a name that passes here needs no escaping in a URL. Called before any request is
//! built from what a user typed.

pub mod glob;

use ring::rand::{SecureRandom, SystemRandom};

use crate::error::{Failure, Remedy};
use crate::exit_code::Exit;

/// The most characters of a DNS-1123 label.
const LABEL_CHARACTERS_MAX: usize = 63;
/// The most characters of a queue's name.
pub const QUEUE_CHARACTERS_MAX: usize = 253;
/// The most characters of a name of a job that somebody else made.
pub const JOB_CHARACTERS_MAX: usize = 63;

/// The label of nodes that says which zone they are in.
pub const ZONE: &str = "pumice.sh/zone";

/// A name that Kubernetes would refuse.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{what} {name:?} is not valid: use lower case letters, digits, '-' and '.', starting and ending with a letter or digit, at most {max} characters"
)]
pub struct NameError {
    /// What was named, for example `job name`.
    pub what: &'static str,
    /// The name as given, cut to 80 characters.
    pub name: String,
    /// The most characters it may have.
    pub max: usize,
}

impl Failure for NameError {
    fn exit(&self) -> Exit {
        Exit::Usage
    }

    fn remedy(&self) -> Remedy {
        Remedy::from_text("jobctl list")
    }
}

/// Checks a DNS-1123 subdomain of at most `max` characters.
pub fn check(what: &'static str, name: &str, max: usize) -> Result<(), NameError> {
    let fits = !name.is_empty() && name.len() <= max;
    let well_formed = name.split('.').all(|label| {
        let edge = |byte: Option<&u8>| byte.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        let bytes = label.as_bytes();
        edge(bytes.first())
            && edge(bytes.last())
            && bytes.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-')
    });
    if fits && well_formed {
        return Ok(());
    }
    Err(NameError { what, name: name.chars().take(80).collect(), max })
}

/// A name that is no DNS-1123 label.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{what} {name:?} is not valid: use lower case letters, digits and '-', starting and ending with a letter or digit, at most {LABEL_CHARACTERS_MAX} characters"
)]
pub struct LabelError {
    /// What was named, for example `run`.
    pub what: &'static str,
    /// The name as given, cut to 80 characters.
    pub name: String,
}

/// Checks a DNS-1123 label.
pub fn check_label(what: &'static str, name: &str) -> Result<(), LabelError> {
    match check(what, name, LABEL_CHARACTERS_MAX) {
        Ok(()) if !name.contains('.') => Ok(()),
        _ => Err(LabelError { what, name: name.chars().take(80).collect() }),
    }
}

/// A name made of any text, for example of a program's name: `My_Script.sh` becomes `my-script-sh`.
/// Falls back to `job` if nothing usable is left. At most `max` characters.
pub fn from_text(text: &str, max: usize) -> String {
    let mut name = String::new();
    for character in text.chars().map(|c| c.to_ascii_lowercase()) {
        if name.len() >= max {
            break;
        }
        match character {
            'a'..='z' | '0'..='9' => name.push(character),
            _ if !name.is_empty() && !name.ends_with('-') => name.push('-'),
            _ => {}
        }
    }
    let name = name.trim_end_matches('-');
    if name.is_empty() { "job".to_owned() } else { name.to_owned() }
}

/// The word for the newest job, wherever a job is named.
pub const NEWEST: &str = "last";

/// A name that no job can have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} can't be the name of a job: {problem}; try {suggestion}")]
pub struct JobNameError {
    /// The name as given, cut to 80 characters.
    pub name: String,
    /// Why not.
    pub problem: String,
    /// A name like it that a job can have.
    pub suggestion: String,
}

/// Checks the name of a job that is to be made, by all rules: its pods find each other by a Service of that name, and append to it.
///
/// # Errors
/// All rules in one sentence, and a name that keeps them.
pub fn check_job_name(name: &str, max: usize) -> Result<(), JobNameError> {
    let problem = if name == NEWEST {
        format!("{NEWEST} means the newest job")
    } else if name.len() <= max && is_service_name(name) && check("", name, max).is_ok() {
        return Ok(());
    } else {
        format!(
            "a name has lower case letters, digits and '-', begins with a letter, ends with a letter or digit, and has at most {max} characters"
        )
    };
    Err(JobNameError { name: name.chars().take(80).collect(), problem, suggestion: job_name(name, max) })
}

/// A name for a job made of any text. At most `max` characters.
pub fn job_name(text: &str, max: usize) -> String {
    let name = from_text(text, max.saturating_sub(4));
    match name.as_str() {
        NEWEST => format!("{name}-job"),
        _ if is_service_name(&name) => name,
        _ => format!("job-{name}"),
    }
}

/// Of names that are valid for an object: whether a Service can have it, which is one label that begins with a letter.
fn is_service_name(name: &str) -> bool {
    !name.contains('.') && !name.starts_with(|c: char| c.is_ascii_digit())
}

/// Where random numbers come from, for messages.
pub const RANDOM_SOURCE: &str = "/dev/urandom";

/// A name that nobody else has, on no machine: 32 hexadecimal digits.
pub fn random() -> Result<String, std::io::Error> {
    let mut random = [0_u8; 16];
    let none = |_| std::io::Error::other("the system gives no random numbers");
    SystemRandom::new().fill(&mut random).map_err(none)?;
    Ok(random.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::{check, check_job_name, check_label, from_text, job_name};

    #[test]
    fn a_job_s_name_is_refused_once_with_one_that_is_valid() {
        let mut table = String::new();
        let long = "a".repeat(46);
        for name in [
            "train", "a", "My_Job", "123", "a.b", "a-", "-a", "", "last", "last-1", "a b", "日本", "Größe", "job/x",
            &long,
        ] {
            let told = check_job_name(name, 45).map_or_else(|error| error.to_string(), |()| "ok".to_owned());
            table.push_str(&format!("{name:?} -> {told}\n"));
            assert_eq!(check_job_name(&job_name(name, 45), 45), Ok(()), "{name}: what is suggested is valid");
        }
        insta::assert_snapshot!(table);
    }

    #[test]
    fn names_are_dns_subdomains() {
        for good in ["a", "a-b", "a.b-c", "0", &"x".repeat(63)] {
            assert!(check("job name", good, 63).is_ok(), "{good}");
        }
        for bad in ["", "-a", "a-", "A", "a_b", "a..b", "../x", "a/b", "é", "a b", &"x".repeat(64)] {
            assert!(check("job name", bad, 63).is_err(), "{bad}");
            assert!(check_label("run", bad).is_err(), "{bad}");
        }
        assert!(check_label("run", "a-b").is_ok() && check_label("run", "a.b").is_err());
    }

    #[test]
    fn any_text_gives_a_valid_name() {
        for (text, name) in [
            ("true", "true"),
            ("My_Script.sh", "my-script-sh"),
            ("___", "job"),
            ("", "job"),
            ("日本", "job"),
            ("a-", "a"),
        ] {
            assert_eq!(from_text(text, 40), name);
            assert!(check("job name", &from_text(text, 40), 40).is_ok());
        }
        assert_eq!(from_text(&"ab-".repeat(30), 5), "ab-ab");
    }
}
