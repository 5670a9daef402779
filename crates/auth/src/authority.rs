//! The authority of a platform that runs, and how another takes its place while it does.
//!
//! A rotation has two steps. [`Authority::rotate`] makes an authority and a key of tokens: from then on both authorities are trusted,
//! new certificates of clients are of the new one, and tokens are signed by the new key. The servers go on to show certificates of the
//! old one, since clients come to know the new one by and by. [`Authority::finish`] drops the old one. Tokens of the old key count for as
//! long as any of them can last.
//!
//! Invariant: every step is a file that is written or removed as a whole. Whoever opens the directory after a crash between any two of
//! them goes on from there: what was trusted before the crash, and was not dropped, is trusted after it.

#[cfg(test)]
use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::ca::{self, Ca, CaError};
use crate::files::{self, FileError};
use crate::token_cache::TokenKeys;
use crate::tokens::{self, TokenKey, TokenKeyError};

/// How far a rotation has come.
pub(crate) const ROTATION_FILE: &str = "rotation.json";
/// The format of that file.
const FORMAT: u32 = 1;
/// How long tokens of the key before count: the longest that one lasts, and a little more.
const OLD_TOKENS: SignedDuration = SignedDuration::from_hours(25);
/// After so many days a rotation is finished by itself.
pub const TRUST_DAYS: i64 = 30;

/// How far a rotation has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Phase {
    /// Both authorities are trusted.
    Trusting,
    /// The old one is being dropped.
    Finishing,
    /// The old one is gone; tokens of the old key still count.
    Finished,
}

/// How and since when another authority takes the place of the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rotation {
    format: u32,
    pub phase: Phase,
    pub started: Timestamp,
    /// Whether tokens of the old key end with the old authority.
    #[serde(default)]
    drop_tokens: bool,
}

impl Rotation {
    /// Until when tokens of the old key count.
    pub fn tokens_until(&self) -> Timestamp {
        self.started.checked_add(OLD_TOKENS).unwrap_or(Timestamp::MAX)
    }
}

/// Why the authority can't be opened, or another can't take its place.
#[derive(Debug, Error)]
pub enum AuthorityError {
    #[error(transparent)]
    Ca(#[from] CaError),
    #[error(transparent)]
    Tokens(#[from] TokenKeyError),
    #[error(transparent)]
    File(#[from] FileError),
    #[error("{path} is damaged ({detail}); restore it with the other files of its folder", path = path.display())]
    Damaged { path: PathBuf, detail: String },
    #[error("{path} has format {found}, newer than {FORMAT}, the newest that this version reads", path = path.display())]
    Newer { path: PathBuf, found: u32 },
    #[error("another authority has been trusted since {started}: finish that with `pumice ca rotate --finish` first")]
    UnderWay { started: Timestamp },
    #[error("no rotation is under way: begin one with `pumice ca rotate`")]
    NotUnderWay,
    #[error("not everybody knows the new authority yet: try again after {from}, or cut them off with --force")]
    TooSoon { from: Timestamp },
    #[error("tokens of the key before the last rotation count until {until}: wait, or end them with --force")]
    OldTokens { until: Timestamp },
}

/// The authority in a directory.
pub struct Authority {
    files: Mutex<Files>,
    state: RwLock<State>,
    tokens: Arc<TokenKeys>,
}

#[derive(Clone)]
struct State {
    /// Its certificates are shown by servers.
    serving: Arc<Ca>,
    /// The one that takes its place.
    next: Option<Arc<Ca>>,
    rotation: Option<Rotation>,
}

impl Authority {
    /// Opens the authority in `directory`, made on first use, and goes on with a rotation that was interrupted.
    pub fn open(directory: &Path, now: Timestamp) -> Result<Self, AuthorityError> {
        let files = Files::of(directory);
        let before = files.rotation()?;
        if before.is_some_and(|rotation| rotation.phase == Phase::Finishing) {
            files.finish(before)?;
        }
        let serving = Ca::open_or_create(directory, now)?;
        let mut rotation = files.rotation()?;
        if rotation.is_none() && files.has(ca::NEXT_CERTIFICATE_FILE) {
            rotation = Some(files.begin(now)?);
        }
        if rotation.is_some_and(|one| one.phase == Phase::Finished && one.tokens_until() <= now) {
            files.end_old_tokens()?;
            rotation = None;
        }
        let is_trusting = rotation.is_some_and(|rotation| rotation.phase == Phase::Trusting);
        let next = if is_trusting { Some(Arc::new(files.next(now)?)) } else { None };
        let tokens = Arc::new(TokenKeys::from(TokenKey::open_or_create(directory)?));
        if rotation.is_some() {
            tokens
                .replace(TokenKey::open_or_create(directory)?, TokenKey::open_file(&files.path(tokens::OLD_KEY_FILE))?);
        }
        let state = State { serving: Arc::new(serving), next, rotation };
        Ok(Self { files: Mutex::new(files), state: RwLock::new(state), tokens })
    }

    /// The authority whose certificates servers show.
    pub fn serving(&self) -> Arc<Ca> {
        self.state().serving
    }

    /// The authority that new certificates of clients are of.
    pub fn issuing(&self) -> Arc<Ca> {
        let state = self.state();
        state.next.unwrap_or(state.serving)
    }

    /// All that are trusted, PEM.
    pub fn bundle(&self) -> String {
        let state = self.state();
        let next = state.next.as_ref().map_or("", |next| next.pem());
        format!("{}{next}", state.serving.pem())
    }

    /// What tokens of service accounts are signed by and opened with; changes with a rotation.
    pub fn tokens(&self) -> Arc<TokenKeys> {
        Arc::clone(&self.tokens)
    }

    /// The rotation that is under way, or whose old tokens still count.
    pub fn rotation(&self) -> Option<Rotation> {
        self.state().rotation
    }

    /// Makes the authority and the key that take the place of those of now. `force` ends tokens that still count from a rotation
    /// before.
    pub fn rotate(&self, now: Timestamp, force: bool) -> Result<Rotation, AuthorityError> {
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        match self.rotation() {
            None => {}
            Some(Rotation { phase: Phase::Trusting | Phase::Finishing, started, .. }) => {
                return Err(AuthorityError::UnderWay { started });
            }
            Some(before) if before.tokens_until() > now && !force => {
                return Err(AuthorityError::OldTokens { until: before.tokens_until() });
            }
            Some(_) => files.end_old_tokens()?,
        }
        let next = files.next(now)?;
        let rotation = files.begin(now)?;
        self.take_tokens(&files, true)?;
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        (state.next, state.rotation) = (Some(Arc::new(next)), Some(rotation));
        Ok(rotation)
    }

    /// Drops the old authority, not sooner than `known_within` after the new one was made. Tokens of its time count on for as long as
    /// any can last, unless `drop_tokens`.
    pub fn finish(
        &self,
        now: Timestamp,
        known_within: SignedDuration,
        drop_tokens: bool,
    ) -> Result<(), AuthorityError> {
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let rotation = self.rotation().filter(|rotation| rotation.phase == Phase::Trusting);
        let rotation = rotation.ok_or(AuthorityError::NotUnderWay)?;
        let from = rotation.started.checked_add(known_within).unwrap_or(Timestamp::MAX);
        if now < from {
            return Err(AuthorityError::TooSoon { from });
        }
        let finishing = Rotation { phase: Phase::Finishing, drop_tokens, ..rotation };
        files.write_rotation(&finishing)?;
        files.finish(Some(finishing))?;
        let rotation = files.rotation()?;
        self.take_tokens(&files, rotation.is_some())?;
        let serving = Arc::new(Ca::open_or_create(&files.directory, now)?);
        *self.state.write().unwrap_or_else(PoisonError::into_inner) = State { serving, next: None, rotation };
        Ok(())
    }

    /// Does what is due by itself: finishes a rotation after [`TRUST_DAYS`], and ends old tokens once none can be left. Whether
    /// something has changed.
    pub fn look(&self, now: Timestamp) -> Result<bool, AuthorityError> {
        let Some(rotation) = self.rotation() else { return Ok(false) };
        let days = now.duration_since(rotation.started).as_hours() / 24;
        match rotation.phase {
            Phase::Trusting if days >= TRUST_DAYS => self.finish(now, SignedDuration::ZERO, false).map(|()| true),
            Phase::Finished if rotation.tokens_until() <= now => {
                let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
                files.end_old_tokens()?;
                self.take_tokens(&files, false)?;
                self.state.write().unwrap_or_else(PoisonError::into_inner).rotation = None;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    fn take_tokens(&self, files: &Files, with_old: bool) -> Result<(), AuthorityError> {
        let old = if with_old { TokenKey::open_file(&files.path(tokens::OLD_KEY_FILE))? } else { None };
        self.tokens.replace(TokenKey::open_or_create(&files.directory)?, old);
        Ok(())
    }

    fn state(&self) -> State {
        self.state.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The files of a rotation, and its steps.
struct Files {
    directory: PathBuf,
    /// How many steps are taken before a crash.
    #[cfg(test)]
    left: Cell<usize>,
}

impl Files {
    fn of(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
            #[cfg(test)]
            left: Cell::new(usize::MAX),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn has(&self, name: &str) -> bool {
        self.path(name).exists()
    }

    fn read(&self, name: &str) -> Result<Option<String>, AuthorityError> {
        Ok(files::read_text(&self.path(name))?)
    }

    /// What each step begins with: tests end it there.
    #[cfg(not(test))]
    #[allow(clippy::unused_self, clippy::unnecessary_wraps, reason = "it fails in tests only")]
    fn step(&self, _name: &str) -> Result<(), AuthorityError> {
        Ok(())
    }

    #[cfg(test)]
    fn step(&self, name: &str) -> Result<(), AuthorityError> {
        let Some(left) = self.left.get().checked_sub(1) else {
            let source = std::io::Error::other("a crash of a test");
            return Err(FileError { operation: "write", path: self.path(name), source }.into());
        };
        self.left.set(left);
        Ok(())
    }

    fn write(&self, name: &str, text: &str) -> Result<(), AuthorityError> {
        self.step(name)?;
        Ok(files::write_private(&self.path(name), text.as_bytes())?)
    }

    fn remove(&self, name: &str) -> Result<(), AuthorityError> {
        self.step(name)?;
        match fs::remove_file(self.path(name)) {
            Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                Err(FileError { operation: "remove", path: self.path(name), source }.into())
            }
            _ => Ok(()),
        }
    }

    fn rotation(&self) -> Result<Option<Rotation>, AuthorityError> {
        let Some(text) = self.read(ROTATION_FILE)? else { return Ok(None) };
        let path = self.path(ROTATION_FILE);
        let rotation: Rotation = serde_json::from_str(&text)
            .map_err(|error| AuthorityError::Damaged { path: path.clone(), detail: error.to_string() })?;
        if rotation.format > FORMAT {
            return Err(AuthorityError::Newer { path, found: rotation.format });
        }
        Ok(Some(rotation))
    }

    fn write_rotation(&self, rotation: &Rotation) -> Result<(), AuthorityError> {
        let text = serde_json::to_string(rotation)
            .map_err(|error| AuthorityError::Damaged { path: self.path(ROTATION_FILE), detail: error.to_string() })?;
        self.write(ROTATION_FILE, &text)
    }

    /// The authority that takes the other's place; made if it is not there.
    fn next(&self, now: Timestamp) -> Result<Ca, AuthorityError> {
        self.step(ca::NEXT_CERTIFICATE_FILE)?;
        Ok(Ca::open(self.path(ca::NEXT_CERTIFICATE_FILE), self.path(ca::NEXT_KEY_FILE), now)?)
    }

    /// What follows once the next authority is there: the other key of tokens, and the note that all of it is.
    fn begin(&self, now: Timestamp) -> Result<Rotation, AuthorityError> {
        let (current, old) = (self.read(tokens::KEY_FILE)?, self.read(tokens::OLD_KEY_FILE)?);
        // A different one is from this rotation: that before has left none.
        if old.is_none() || old == current {
            if let Some(current) = current {
                self.write(tokens::OLD_KEY_FILE, &current)?;
            }
            self.write(tokens::KEY_FILE, &TokenKey::make()?.0)?;
        }
        let rotation = Rotation { format: FORMAT, phase: Phase::Trusting, started: now, drop_tokens: false };
        self.write_rotation(&rotation)?;
        Ok(rotation)
    }

    /// Puts the next authority in the place of the other. The files of the next go last, so that it can be done again.
    fn finish(&self, rotation: Option<Rotation>) -> Result<(), AuthorityError> {
        let Some(rotation) = rotation else { return Ok(()) };
        if let Some(certificate) = self.read(ca::NEXT_CERTIFICATE_FILE)? {
            let missing = || CaError::KeyMissing { path: self.path(ca::NEXT_KEY_FILE) };
            let key = self.read(ca::NEXT_KEY_FILE)?.ok_or_else(missing)?;
            self.write(ca::KEY_FILE, &key)?;
            self.write(ca::CERTIFICATE_FILE, &certificate)?;
            self.remove(ca::NEXT_CERTIFICATE_FILE)?;
        }
        self.remove(ca::NEXT_KEY_FILE)?;
        if rotation.drop_tokens {
            return self.end_old_tokens();
        }
        self.write_rotation(&Rotation { phase: Phase::Finished, ..rotation })
    }

    /// Ends the tokens of the old key, and with that the rotation.
    fn end_old_tokens(&self) -> Result<(), AuthorityError> {
        self.remove(tokens::OLD_KEY_FILE)?;
        self.remove(ROTATION_FILE)
    }
}

#[cfg(test)]
mod tests;
