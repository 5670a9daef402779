//! The certificate that all replicas show, its successor, and the Secret that holds them.
//!
//! Invariant: at every moment the certificate shown was signed by an authority that has been in the configurations for a while
//! already. A change takes three steps, each one write of the Secret: the next certificate is announced (its authority is
//! trusted, nobody shows it), then shown, then the former authority is trusted no more. An authority signs one certificate;
//! its key is kept nowhere. Pure but for the making of keys; the reconciler reads and writes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use pumice_auth::{Ca, CaError};

/// When the certificate shown was made; annotation of the Secret.
const MADE: &str = "pumice.sh/certificate-made";
/// When the last step was taken; annotation of the Secret.
const CHANGED: &str = "pumice.sh/certificate-changed";
/// The names it is for, between commas; annotation of the Secret.
const NAMES: &str = "pumice.sh/certificate-names";
/// A certificate lasts a year; one that is older than this is no use any more, and its successor is shown at once.
const LASTS: SignedDuration = SignedDuration::from_hours(360 * 24);
/// The former authority is trusted for so many times the time that a change takes to get about: a replica that has not
/// heard of the change yet goes on being trusted.
const OUTLIVED: u32 = 10;

/// How often there is a new certificate, and how long a change takes to get about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rotation {
    /// Age at which a certificate is replaced.
    pub every: Duration,
    /// Time within which every API server has seen a change of the configurations.
    pub settle: Duration,
}

impl Default for Rotation {
    /// 90 days, one minute.
    fn default() -> Self {
        Self { every: Duration::from_secs(90 * 24 * 3600), settle: Duration::from_secs(60) }
    }
}

/// A certificate, its key and who signed it, all in PEM.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Pair {
    pub certificate: String,
    pub key: String,
    pub authority: String,
}

impl std::fmt::Debug for Pair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pair").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}

impl Pair {
    /// A certificate for these DNS names and addresses, of an authority of its own.
    pub fn make(names: &BTreeSet<String>, now: Timestamp) -> Result<Self, CaError> {
        let authority = Ca::passing(now)?;
        let names: Vec<String> = names.iter().cloned().collect();
        let issued = authority.issue_server(&names, now)?;
        Ok(Self { certificate: issued.certificate_pem, key: issued.key_pem, authority: authority.pem().to_owned() })
    }
}

/// Everything that the Secret holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Certificates {
    pub serving: Pair,
    pub next: Option<Pair>,
    pub former: Option<String>,
    pub names: BTreeSet<String>,
    pub made: Timestamp,
    pub changed: Timestamp,
}

/// What is to be done about them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing before that.
    Wait(Timestamp),
    /// Nothing before the API servers have heard of the authorities; then ask again.
    Announce,
    /// Make a successor; show it at once if there is nothing to lose.
    Make {
        at_once: bool,
    },
    Show,
    /// Trust the former authority no more.
    Forget,
}

impl Certificates {
    /// The first of them.
    pub fn new(pair: Pair, names: BTreeSet<String>, now: Timestamp) -> Self {
        Self { serving: pair, next: None, former: None, names, made: now, changed: now }
    }

    /// The authorities to be trusted, PEM.
    pub fn trusted(&self) -> String {
        let next = self.next.as_ref().map(|pair| pair.authority.as_str());
        self.former.as_deref().into_iter().chain([self.serving.authority.as_str()]).chain(next).collect()
    }

    /// What to do at `now`. `announced` is since when the configurations say [`Self::trusted`]; `names` what the certificate
    /// has to be good for.
    pub fn step(
        &self,
        names: &BTreeSet<String>,
        rotation: Rotation,
        announced: Option<Timestamp>,
        now: Timestamp,
    ) -> Step {
        if !names.is_subset(&self.names) || after(self.made, LASTS) <= now {
            return Step::Make { at_once: true };
        }
        let Some(announced) = announced else { return Step::Announce };
        if self.next.is_some() {
            let settled = after(announced.max(self.changed), signed(rotation.settle));
            return if settled <= now { Step::Show } else { Step::Wait(settled) };
        }
        let old = after(self.made, signed(rotation.every).min(LASTS));
        if self.former.is_some() {
            let outlived = after(self.changed, signed(rotation.settle.saturating_mul(OUTLIVED)));
            return if outlived <= now || old <= now { Step::Forget } else { Step::Wait(outlived.min(old)) };
        }
        if old <= now { Step::Make { at_once: false } } else { Step::Wait(old) }
    }

    /// With a successor of the certificate shown.
    pub fn with_next(&self, pair: Pair, now: Timestamp) -> Self {
        Self { next: Some(pair), changed: now, ..self.clone() }
    }

    /// With this certificate in place of the one shown.
    pub fn replaced(&self, pair: Pair, names: &BTreeSet<String>, now: Timestamp) -> Self {
        let names = self.names.union(names).cloned().collect();
        Self { former: Some(self.serving.authority.clone()), ..Self::new(pair, names, now) }
    }

    /// With the successor shown.
    pub fn with_next_shown(&self, now: Timestamp) -> Self {
        match &self.next {
            None => self.clone(),
            Some(next) => self.replaced(next.clone(), &self.names, now),
        }
    }

    /// Without the former authority.
    pub fn without_former(&self, now: Timestamp) -> Self {
        Self { former: None, changed: now, ..self.clone() }
    }

    /// What a Secret holds; nothing if it is not ours, or damaged.
    pub fn from_secret(secret: &Secret) -> Option<Self> {
        let data = secret.data.as_ref()?;
        let text = |key: &str| data.get(key).and_then(|bytes| String::from_utf8(bytes.0.clone()).ok());
        let pair = |prefix: &str| {
            let of = |key: &str| text(&format!("{prefix}{key}"));
            Some(Pair { certificate: of("tls.crt")?, key: of("tls.key")?, authority: of("ca.crt")? })
        };
        let annotations = secret.metadata.annotations.as_ref()?;
        let time = |key: &str| annotations.get(key)?.parse::<Timestamp>().ok();
        let names = annotations.get(NAMES)?.split(',').map(str::to_owned).collect();
        let (made, changed) = (time(MADE)?, time(CHANGED)?);
        Some(Self { serving: pair("")?, next: pair("next."), former: text("former.ca.crt"), names, made, changed })
    }

    /// As the contents of a Secret, whose metadata stays.
    pub fn write(&self, secret: &mut Secret) {
        let mut data = BTreeMap::new();
        let mut put = |key: String, text: &str| data.insert(key, ByteString(text.as_bytes().to_vec()));
        for (prefix, pair) in [("", Some(&self.serving)), ("next.", self.next.as_ref())] {
            if let Some(Pair { certificate, key, authority }) = pair {
                put(format!("{prefix}tls.crt"), certificate);
                put(format!("{prefix}tls.key"), key);
                put(format!("{prefix}ca.crt"), authority);
            }
        }
        if let Some(former) = &self.former {
            put("former.ca.crt".to_owned(), former);
        }
        secret.data = Some(data);
        let annotations = secret.metadata.annotations.get_or_insert_default();
        annotations.insert(MADE.to_owned(), self.made.to_string());
        annotations.insert(CHANGED.to_owned(), self.changed.to_string());
        annotations.insert(NAMES.to_owned(), self.names.iter().cloned().collect::<Vec<_>>().join(","));
    }
}

fn signed(duration: Duration) -> SignedDuration {
    SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX)
}

/// The end of time if there is no such time.
fn after(time: Timestamp, duration: SignedDuration) -> Timestamp {
    time.checked_add(duration).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROTATION: Rotation = Rotation { every: Duration::from_secs(1000), settle: Duration::from_secs(10) };

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    fn pair(name: &str) -> Pair {
        let of = |what: &str| format!("{name}-{what}\n");
        Pair { certificate: of("certificate"), key: of("key"), authority: of("authority") }
    }

    fn names(all: &[&str]) -> BTreeSet<String> {
        all.iter().map(|name| (*name).to_owned()).collect()
    }

    fn first() -> Certificates {
        Certificates::new(pair("a"), names(&["h"]), at(0))
    }

    fn step(held: &Certificates, announced: Option<i64>, now: i64) -> Step {
        held.step(&names(&["h"]), ROTATION, announced.map(at), at(now))
    }

    #[test]
    fn a_change_is_announced_then_shown_then_the_former_is_forgotten() {
        let a = first();
        assert_eq!(step(&a, Some(0), 999), Step::Wait(at(1000)));
        assert_eq!(step(&a, Some(0), 1000), Step::Make { at_once: false });
        let both = a.with_next(pair("b"), at(1000));
        assert_eq!((both.serving.clone(), both.trusted()), (pair("a"), "a-authority\nb-authority\n".to_owned()));
        // However long ago: as long as nobody was told, nobody trusts it.
        assert_eq!(step(&both, None, 5000), Step::Announce);
        assert_eq!(step(&both, Some(1003), 1012), Step::Wait(at(1013)));
        assert_eq!(step(&both, Some(1003), 1013), Step::Show);
        let b = both.with_next_shown(at(1013));
        assert_eq!((b.serving.clone(), b.trusted()), (pair("b"), "a-authority\nb-authority\n".to_owned()));
        assert_eq!((b.made, b.next.clone()), (at(1013), None));
        assert_eq!(step(&b, Some(1003), 1112), Step::Wait(at(1113)));
        assert_eq!(step(&b, Some(1003), 1113), Step::Forget);
        let alone = b.without_former(at(1113));
        assert_eq!(alone.trusted(), "b-authority\n");
        assert_eq!(step(&alone, Some(1113), 1114), Step::Wait(at(2013)));
    }

    #[test]
    fn never_more_than_two_are_under_way() {
        let b = first().replaced(pair("b"), &names(&["h"]), at(0));
        let quick = Rotation { every: Duration::from_secs(5), ..ROTATION };
        assert_eq!(b.step(&names(&["h"]), quick, Some(at(0)), at(5)), Step::Forget);
        assert_eq!(b.step(&names(&["h"]), quick, Some(at(0)), at(4)), Step::Wait(at(5)));
    }

    #[test]
    fn what_no_client_would_take_is_replaced_at_once() {
        let a = first();
        let year = 366 * 24 * 3600;
        assert_eq!(step(&a, Some(0), year), Step::Make { at_once: true });
        assert_eq!(a.step(&names(&["h", "i"]), ROTATION, None, at(1)), Step::Make { at_once: true });
        let both = a.replaced(pair("b"), &names(&["i"]), at(1));
        // What is for another replica's names is good for ours, too.
        assert_eq!(both.names, names(&["h", "i"]));
        assert_eq!(both.step(&names(&["h"]), ROTATION, Some(at(1)), at(2)), Step::Wait(at(101)));
    }

    #[test]
    fn a_secret_holds_it_all_and_others_are_no_certificates() {
        let all = first().replaced(pair("b"), &names(&["::1"]), at(7)).with_next(pair("c"), at(8));
        let mut secret = Secret::default();
        all.write(&mut secret);
        assert_eq!(Certificates::from_secret(&secret), Some(all));
        first().write(&mut secret);
        assert_eq!(Certificates::from_secret(&secret), Some(first()), "nothing is left of what was there");

        assert_eq!(Certificates::from_secret(&Secret::default()), None);
        let mut damaged = secret.clone();
        damaged.data.as_mut().and_then(|data| data.remove("tls.key")).expect("a key");
        assert_eq!(Certificates::from_secret(&damaged), None);
        secret.metadata.annotations.as_mut().and_then(|all| all.insert(MADE.into(), "noon".into())).expect("a time");
        assert_eq!(Certificates::from_secret(&secret), None);
    }

    #[test]
    fn times_that_do_not_fit_are_the_end_of_time() {
        let never = Rotation { every: Duration::MAX, settle: Duration::MAX };
        let a = first();
        assert_eq!(a.step(&names(&["h"]), never, Some(at(0)), at(1)), Step::Wait(after(at(0), LASTS)));
        let both = a.with_next(pair("b"), at(1));
        assert_eq!(both.step(&names(&["h"]), never, Some(at(0)), at(1)), Step::Wait(Timestamp::MAX));
    }
}
