//! Whom the server knows by a name and a password, or by a token, from a file that an administrator writes.
//!
//! Invariant: a secret is neither kept nor shown, and a refusal does not tell which names there are, by its words or by
//! its time. Called by the listener for each request that brings an `Authorization` header. Pure but for the key that is
//! drawn when the file is taken in. Whoever reads the file anew makes new [`Users`], which have forgotten every login.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;
use std::num::NonZeroU32;
use std::sync::{Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::{hmac, rand::SystemRandom};
use serde::{Deserialize, Serialize};

mod hash;
#[cfg(test)]
mod tests;

use hash::PasswordHash;
pub use hash::{HashError, Hashed, hash_password, hash_token};

/// Longest header that is read at all, in bytes.
const HEADER_BYTES_MAX: usize = 8 * 1024;

/// The people whom the server knows by a secret.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct UsersFile {
    /// In any order.
    pub users: Vec<User>,
}

/// Somebody, with a password, a token or both.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct User {
    /// The name, which no other user has. One with a password has no colon, as HTTP wants it.
    pub name: String,
    pub groups: BTreeSet<String>,
    /// Of the password, as [`hash_password`] makes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password: Option<Hashed>,
    /// Of the token, as [`hash_token`] makes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<Hashed>,
}

/// Why a file of users is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UsersError {
    /// One has no name.
    #[error("user number {0} in the file has no name; give one")]
    Nameless(usize),
    /// It can't be sent.
    #[error("{0:?} is no name for a user; leave out control characters, and colons where there is a password")]
    Name(String),
    /// A group has no name.
    #[error("user {0:?} is in a group without a name; name it, or remove it")]
    Group(String),
    /// Two have one name.
    #[error("user {0:?} is in the file twice; make one of the two")]
    Twice(String),
    /// Nobody could log in as this one.
    #[error("user {0:?} has neither a password nor a token; give one, or remove the user")]
    Secretless(String),
    /// It can't be read.
    #[error("the {field} of user {user:?} can't be used")]
    Hash {
        /// Whose.
        user: String,
        field: &'static str,
        /// What is wrong with it.
        #[source]
        source: HashError,
    },
    /// Two have one token.
    #[error("users {0:?} and {1:?} have the same token; give one of them another")]
    SameToken(String, String),
    /// No key could be drawn.
    #[error("the system has no random bits for a key")]
    Random,
}

/// Why a request is nobody's. Tells nothing that the caller did not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// No such user, another password, or nothing that can be read.
    #[error("name or password is wrong")]
    Password,
    #[error("the token is not known")]
    Token,
    /// Another scheme, which is not repeated: a secret without a scheme looks like one.
    #[error("this is no authorization that is known here: use Basic or Bearer")]
    Scheme,
}

/// Somebody who has shown a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    pub name: String,
    pub groups: BTreeSet<String>,
}

/// A HMAC under a key that nobody else has, so that comparing two in plain tells nothing of what they were made of.
type Mark = [u8; hash::BYTES];

/// Somebody who has a password.
struct Login {
    known: Known,
    hash: PasswordHash,
    /// Of name and password once they were found to be right. One for each user, so memory is bounded by the file.
    right: Mutex<Option<Mark>>,
}

/// All of them. Shared by all requests.
pub struct Users {
    logins: HashMap<String, Login>,
    tokens: HashMap<Mark, Known>,
    /// What every refused password costs, whoever's it was.
    iterations_max: u32,
    key: hmac::Key,
}

impl fmt::Debug for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (logins, tokens) = (self.logins.len(), self.tokens.len());
        f.debug_struct("Users").field("logins", &logins).field("tokens", &tokens).finish_non_exhaustive()
    }
}

impl Users {
    /// The users of a file.
    ///
    /// # Errors
    /// The first thing in the file that can't be as it is.
    pub fn new(file: UsersFile) -> Result<Users, UsersError> {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new()).map_err(|_| UsersError::Random)?;
        let mut users = Users { logins: HashMap::new(), tokens: HashMap::new(), iterations_max: 0, key };
        let mut names = HashSet::new();
        for (index, user) in file.users.into_iter().enumerate() {
            check_names(index, &user)?;
            if !names.insert(user.name.clone()) {
                return Err(UsersError::Twice(user.name));
            }
            users.add(user)?;
        }
        Ok(users)
    }

    /// Whose the header's value is, as far as that takes no more than a hash: tokens, and passwords that were found to be
    /// right before. None where [`Self::check`] has to be asked.
    ///
    /// # Errors
    /// Where that would refuse it without more work.
    pub fn known(&self, authorization: &str) -> Result<Option<Known>, Denied> {
        match Offered::parse(authorization)? {
            Offered::Token(token) => self.by_token(token).map(Some),
            Offered::Password { name, secret } => Ok(self.recall(&name, self.mark(&[name.as_bytes(), b":", &secret]))),
        }
    }

    /// Whose the header's value is. A password that is not remembered takes a tenth of a second of a processor or more, so
    /// this is for a thread that may block, and the caller bounds how many do. What is right is remembered.
    ///
    /// # Errors
    /// Where it is nobody's.
    pub fn check(&self, authorization: &str) -> Result<Known, Denied> {
        let (name, secret) = match Offered::parse(authorization)? {
            Offered::Token(token) => return self.by_token(token),
            Offered::Password { name, secret } => (name, secret),
        };
        let mark = self.mark(&[name.as_bytes(), b":", &secret]);
        if let Some(known) = self.recall(&name, mark) {
            return Ok(known);
        }
        let login = self.logins.get(&name);
        if let Some(login) = login.filter(|login| login.hash.is_of(&secret)) {
            *login.right.lock().unwrap_or_else(PoisonError::into_inner) = Some(mark);
            return Ok(login.known.clone());
        }
        // Whether there is such a user, and how their password is hashed, must not be told by the time.
        let spent = login.map_or(0, |login| login.hash.iterations());
        if let Some(rest) = NonZeroU32::new(self.iterations_max.saturating_sub(spent)) {
            hash::toil(&secret, rest);
        }
        Err(Denied::Password)
    }

    fn add(&mut self, user: User) -> Result<(), UsersError> {
        let User { name, groups, password, token } = user;
        if password.is_none() && token.is_none() {
            return Err(UsersError::Secretless(name));
        }
        let bad = |field| {
            let user = name.clone();
            move |source| UsersError::Hash { user, field, source }
        };
        let known = Known { name: name.clone(), groups };
        if let Some(token) = token {
            let digest = hash::parse_token(&token).map_err(bad("token"))?;
            match self.tokens.entry(self.mark(&[&digest])) {
                Entry::Occupied(other) => return Err(UsersError::SameToken(other.get().name.clone(), name)),
                Entry::Vacant(free) => free.insert(known.clone()),
            };
        }
        if let Some(password) = password {
            let hash = PasswordHash::parse(&password).map_err(bad("password"))?;
            self.iterations_max = self.iterations_max.max(hash.iterations());
            self.logins.insert(name, Login { known, hash, right: Mutex::new(None) });
        }
        Ok(())
    }

    fn by_token(&self, token: &str) -> Result<Known, Denied> {
        self.tokens.get(&self.mark(&[&hash::digest_token(token)])).cloned().ok_or(Denied::Token)
    }

    fn recall(&self, name: &str, mark: Mark) -> Option<Known> {
        let login = self.logins.get(name)?;
        let right = *login.right.lock().unwrap_or_else(PoisonError::into_inner);
        (right == Some(mark)).then(|| login.known.clone())
    }

    fn mark(&self, parts: &[&[u8]]) -> Mark {
        let mut context = hmac::Context::with_key(&self.key);
        parts.iter().for_each(|part| context.update(part));
        hash::array(context.sign().as_ref())
    }
}

/// What a header's value holds.
enum Offered<'a> {
    Token(&'a str),
    /// The secret may be any bytes: to refuse those that are no text sooner would tell nothing, and save nothing.
    Password {
        name: String,
        secret: Vec<u8>,
    },
}

impl<'a> Offered<'a> {
    /// Without a look at who there is, so its refusals may be quick.
    fn parse(authorization: &'a str) -> Result<Self, Denied> {
        if authorization.len() > HEADER_BYTES_MAX {
            return Err(Denied::Scheme);
        }
        let authorization = authorization.trim();
        let (scheme, rest) = authorization.split_once(' ').unwrap_or((authorization, ""));
        let rest = rest.trim_start();
        if scheme.eq_ignore_ascii_case("bearer") {
            return if rest.is_empty() { Err(Denied::Token) } else { Ok(Self::Token(rest)) };
        }
        if !scheme.eq_ignore_ascii_case("basic") {
            return Err(Denied::Scheme);
        }
        Self::parse_basic(rest).ok_or(Denied::Password)
    }

    fn parse_basic(rest: &str) -> Option<Self> {
        let mut name = STANDARD.decode(rest).ok()?;
        let colon = name.iter().position(|byte| *byte == b':')?;
        let secret = name.split_off(colon + 1);
        name.truncate(colon);
        // Nobody means to have an empty password, even where its hash is in the file.
        if secret.is_empty() {
            return None;
        }
        Some(Self::Password { name: String::from_utf8(name).ok()?, secret })
    }
}

fn check_names(index: usize, user: &User) -> Result<(), UsersError> {
    if user.name.is_empty() {
        return Err(UsersError::Nameless(index + 1));
    }
    if user.name.contains(char::is_control) || (user.password.is_some() && user.name.contains(':')) {
        return Err(UsersError::Name(user.name.clone()));
    }
    if user.groups.contains("") {
        return Err(UsersError::Group(user.name.clone()));
    }
    Ok(())
}
