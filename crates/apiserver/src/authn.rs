//! Who sends a request: the holder of the certificate or token, or whom he may act for.
//!
//! Invariant: a token that does not hold is 401, never nobody; whoever acts for another has the verb `impersonate` on each
//! part of him. A certificate, or the identity of an in-process client, goes before a token. Nobody is let in whose tenant is
//! suspended or whose login has ended, with whatever he shows. Called by the pipeline.

pub(crate) mod attempts;
pub(crate) mod ended_logins;
pub(crate) mod live_streams;
pub(crate) mod local_users;
pub(crate) mod logins;
pub(crate) mod password_logins;
pub(crate) mod service_accounts;
pub(crate) mod suspensions;

use std::borrow::Cow;

use http::{HeaderMap, HeaderName, header};
use jiff::Timestamp;
use pumice_api::names::GROUP_TENANTS;
use pumice_auth::{
    ANONYMOUS, Attributes, BoundTo, Decision, ISSUER, Identity, Issuer, OidcToken, Target, UNAUTHENTICATED, Unknown,
    Verified, service_account_of,
};
use pumice_clock::Clock;
use pumice_objects::status::{GroupResource, Status};
use pumice_store::Store;

use self::logins::Logins;
use self::service_accounts::Accounts;
use crate::authz::RightsCell;
use crate::http::websocket;

const IMPERSONATE_USER: HeaderName = HeaderName::from_static("impersonate-user");
const IMPERSONATE_GROUP: HeaderName = HeaderName::from_static("impersonate-group");
/// What all such headers begin with.
const IMPERSONATE: &str = "impersonate-";
/// Most groups that one request may act for.
const GROUPS_MAX: usize = 128;

/// Who a request is of.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    /// Whose rights count.
    pub(crate) identity: Identity,
    /// Who acts for him, if somebody does.
    pub(crate) by: Option<Identity>,
    pub(crate) credential: Credential,
}

/// What a caller showed of who he is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Credential {
    /// A certificate, or he is in this process.
    Certificate,
    /// The token of a service account; one that a pod was given ends with the pod.
    Account { of_pod: bool },
    /// A token of a login, and when it was issued.
    Login { session: String, issued: Timestamp },
    /// A token of our own, of a login by password.
    Password { login: String },
}

/// Why a request is nobody's.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) status: Status,
    /// Who may not act for another, if that is why.
    pub(crate) who: Option<Identity>,
}

/// What shows who a caller is, and for whom he may act.
pub(crate) struct Authenticator<'a> {
    pub(crate) store: &'a Store,
    pub(crate) accounts: &'a Accounts,
    pub(crate) rights: &'a RightsCell,
    pub(crate) logins: &'a Logins,
    pub(crate) clock: &'a dyn Clock,
}

impl Authenticator<'_> {
    /// The token of a request for which the issuer has to vouch, and the issuer.
    pub(crate) fn of_issuer(&self, shown: Option<&Identity>, headers: &HeaderMap) -> Option<(Issuer, String)> {
        let issuer = self.logins.issuer.as_ref().filter(|_| shown.is_none())?;
        let token = token(headers)?;
        let is_one = OidcToken::is_one(&token) && !self.accounts.keys.has_signed(&token);
        is_one.then(|| (issuer.clone(), token.into_owned()))
    }

    /// The caller, if he shows who he is. `shown` is what the listener knows of him, `verified` what the issuer of
    /// [`Self::of_issuer`] says.
    pub(crate) fn identify(
        &self,
        shown: Option<&Identity>,
        headers: &HeaderMap,
        verified: Option<Result<Verified, Unknown>>,
    ) -> Result<Option<Caller>, Refused> {
        let (identity, credential) = match (shown, verified, token(headers)) {
            (Some(identity), ..) => (identity.clone(), Credential::Certificate),
            (None, Some(verified), _) => {
                let Verified { identity, session, issued, .. } = verified.map_err(|error| {
                    tracing::debug!(%error, "a token was refused");
                    let status = match error {
                        Unknown::Away => Status::service_unavailable(error.to_string()),
                        Unknown::Token(_) => Status::unauthorized(),
                    };
                    Refused { status, who: None }
                })?;
                (identity, Credential::Login { session, issued })
            }
            (None, None, None) => return Ok(None),
            (None, None, Some(token)) if password_logins::is_one(&token) => {
                let verified = password_logins::verify(self.store, &token, self.clock.now());
                let (user, login) = verified.ok_or(Refused { status: Status::unauthorized(), who: None })?;
                (Identity::new(user, [GROUP_TENANTS]), Credential::Password { login })
            }
            (None, None, Some(token)) => {
                let verified = self.accounts.verify(self.store, &token, &[ISSUER], self.clock.now());
                let claims = verified.map_err(|error| {
                    tracing::debug!(%error, "a token was refused");
                    Refused { status: Status::unauthorized(), who: None }
                })?;
                let of_pod = matches!(claims.bound_to, Some(BoundTo::Pod(_)));
                (claims.identity(), Credential::Account { of_pod })
            }
        };
        let caller = match self.act_for(&identity, headers) {
            Ok(None) => Caller { identity, by: None, credential },
            Ok(Some(other)) => Caller { identity: other, by: Some(identity), credential },
            Err(status) => return Err(Refused { status, who: Some(identity) }),
        };
        match self.logins.ended(self.store, &caller) {
            None => Ok(Some(caller)),
            Some(ended) => Err(Refused { status: ended.status(), who: Some(caller.by.unwrap_or(caller.identity)) }),
        }
    }

    /// Whom the headers name in place of `identity`, if they do.
    fn act_for(&self, identity: &Identity, headers: &HeaderMap) -> Result<Option<Identity>, Status> {
        if !headers.keys().any(|name| name.as_str().starts_with(IMPERSONATE)) {
            return Ok(None);
        }
        let mut named = headers.keys().filter(|name| name.as_str().starts_with(IMPERSONATE));
        if let Some(other) = named.find(|name| **name != IMPERSONATE_USER && **name != IMPERSONATE_GROUP) {
            return Err(Status::bad_request(format!("{other} is not served: act for a user and his groups")));
        }
        let text = |value: &http::HeaderValue| {
            let text = value.to_str().map_err(|_| Status::bad_request("an impersonation header is not plain text"));
            text.map(str::to_owned)
        };
        let user = headers.get(IMPERSONATE_USER).map(text).transpose()?.unwrap_or_default();
        let groups =
            headers.get_all(IMPERSONATE_GROUP).iter().take(GROUPS_MAX + 1).map(text).collect::<Result<Vec<_>, _>>()?;
        if user.is_empty() || groups.len() > GROUPS_MAX {
            let cause =
                if user.is_empty() { "requested groups without impersonating a user" } else { "too many groups" };
            return Err(Status::bad_request(cause));
        }
        match service_account_of(&user) {
            Some((namespace, name)) => self.may(identity, "serviceaccounts", Some(namespace), name)?,
            None => self.may(identity, "users", None, &user)?,
        }
        for group in &groups {
            self.may(identity, "groups", None, group)?;
        }
        Ok(Some(in_place(user, groups)))
    }

    fn may(&self, identity: &Identity, resource: &str, namespace: Option<&str>, name: &str) -> Result<(), Status> {
        let target = Target::Resource { group: "", resource, subresource: None, namespace, name: Some(name) };
        let attributes = Attributes { verb: "impersonate", target };
        match self.rights.load(self.store).decide(identity, &attributes) {
            Decision::Allow { .. } => Ok(()),
            Decision::Deny { reason } => Err(Status::forbidden(GroupResource { group: "", resource }, name, reason)),
        }
    }
}

/// The token of a request, from its header or, as browsers send it, from its WebSocket's protocols.
fn token(headers: &HeaderMap) -> Option<Cow<'_, str>> {
    bearer(headers).map(Cow::Borrowed).or_else(|| websocket::bearer(headers).map(Cow::Owned))
}

/// The token of a login by password, of either kind.
pub(crate) fn own_token(headers: &HeaderMap) -> Option<String> {
    bearer(headers).filter(|token| token.starts_with("pumice-")).map(str::to_owned)
}

/// The token of the header that is for it; empty for one that is no text.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let text = headers.get(header::AUTHORIZATION)?.as_bytes();
    let (scheme, token) = text.split_at_checked("Bearer ".len())?;
    if !scheme.eq_ignore_ascii_case(b"Bearer ") {
        return None;
    }
    Some(std::str::from_utf8(token).unwrap_or_default().trim())
}

/// The identity of a user who is acted for.
fn in_place(user: String, groups: Vec<String>) -> Identity {
    if user == ANONYMOUS || groups.iter().any(|group| group == UNAUTHENTICATED) {
        return Identity::anonymous();
    }
    match service_account_of(&user) {
        Some((namespace, name)) if groups.is_empty() => Identity::service_account(namespace, name),
        _ => Identity::new(user, groups),
    }
}

#[cfg(test)]
mod tests {
    use pumice_auth::SERVICE_ACCOUNTS;

    use super::*;

    #[test]
    fn a_bearer_is_read_whatever_its_case() {
        for (value, wanted) in [
            ("Bearer abc", Some("abc")),
            ("bearer  abc ", Some("abc")),
            ("Bearer ", Some("")),
            ("Basic abc", None),
            ("Bear", None),
        ] {
            let headers = HeaderMap::from_iter([(header::AUTHORIZATION, value.parse().expect("header"))]);
            assert_eq!(bearer(&headers), wanted, "{value}");
        }
        assert_eq!(bearer(&HeaderMap::new()), None);
    }

    #[test]
    fn a_service_account_comes_with_its_groups() {
        let robot = in_place("system:serviceaccount:team:robot".to_owned(), Vec::new());
        assert!(robot.is_in(SERVICE_ACCOUNTS) && robot.is_in("system:serviceaccounts:team"));
        assert!(!in_place("ann".to_owned(), vec![UNAUTHENTICATED.to_owned()]).is_in("system:authenticated"));
    }
}
