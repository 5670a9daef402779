//! A connection to a server: TLS, login, searches page by page.

use std::sync::Arc;
use std::time::Duration;

use ldap3::asn1::{PL, StructureTag, parse_tag};
use ldap3::controls::{Control, PagedResults};
use ldap3::{Ldap, LdapConnAsync, LdapConnSettings, LdapError, Scope, SearchOptions};
use pumice_api::directory::LdapDirectory;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};

use super::error::{LdapReadError, meaning};
use super::record::Record;

/// Wait for a connection with TLS.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// Wait for each answer, and for each entry of one.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// Entries of a page: half of what most servers give at once.
const PAGE: i32 = 500;
/// Most entries of a search.
const ENTRIES_MAX: usize = 200_000;
/// Code of a search that went well.
const SUCCESS: u32 = 0;
/// OID of the control of pages.
const PAGED_RESULTS: &str = "1.2.840.113556.1.4.319";

/// A connection over which somebody has logged in.
pub(super) struct Session {
    ldap: Ldap,
}

/// Connects, logs in and does `work`; the connection is driven meanwhile, in this task.
pub(super) async fn connected<T>(
    directory: &LdapDirectory,
    password: Option<&str>,
    work: impl AsyncFnOnce(Session) -> Result<T, LdapReadError>,
) -> Result<T, LdapReadError> {
    let url = &directory.url;
    let host = url.strip_prefix("ldaps://").or_else(|| url.strip_prefix("ldap://"));
    if host.is_none_or(|host| host.is_empty() || host.starts_with(['/', ':', '?', '#'])) {
        return Err(LdapReadError::Url { url: url.clone() });
    }
    let password = match password.filter(|password| !password.is_empty()) {
        None if !directory.bind_dn.is_empty() => {
            return Err(LdapReadError::NoPassword { bind_dn: directory.bind_dn.clone() });
        }
        password => password.unwrap_or_default(),
    };
    // With `ldap://` nothing goes over the line before StartTLS has worked; with `ldaps://` this says nothing.
    let settings = LdapConnSettings::new()
        .set_conn_timeout(CONNECT_WITHIN)
        .set_config(Arc::new(trust(&directory.ca)?))
        .set_starttls(true);
    let connect = LdapConnAsync::with_settings(settings, url).await;
    let (connection, mut ldap) =
        connect.map_err(|source| LdapReadError::Connect { url: url.clone(), source: Box::new(source) })?;
    let working = async {
        if !directory.bind_dn.is_empty() {
            let bound = ldap.with_timeout(ANSWER_WITHIN).simple_bind(&directory.bind_dn, password).await?;
            if bound.rc != SUCCESS {
                let bind_dn = directory.bind_dn.clone();
                let (code, text) = (bound.rc, bound.text);
                return Err(LdapReadError::Bind { bind_dn, code, meaning: meaning(code), text });
            }
        }
        work(Session { ldap }).await
    };
    let mut working = std::pin::pin!(working);
    let ended = tokio::select! {
        biased;
        done = &mut working => return done,
        ended = connection.drive() => ended,
    };
    // What was answered before it ended counts; what was not fails at once.
    match working.await {
        Err(LdapReadError::Call(_)) => Err(ended.err().map_or(LdapReadError::Closed, LdapReadError::from)),
        done => done,
    }
}

/// Trusts the authorities of `ca`, or those of the machine.
fn trust(ca: &str) -> Result<ClientConfig, LdapReadError> {
    let mut trusted = RootCertStore::empty();
    if ca.trim().is_empty() {
        trusted.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    } else {
        for certificate in CertificateDer::pem_slice_iter(ca.as_bytes()) {
            let certificate = certificate.map_err(|error| LdapReadError::Ca(Box::new(error)))?;
            trusted.add(certificate).map_err(|error| LdapReadError::Ca(Box::new(error)))?;
        }
    }
    if trusted.is_empty() {
        return Err(LdapReadError::NoAuthority);
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(config.with_root_certificates(trusted).with_no_client_auth())
}

impl Session {
    /// All entries below `base` that the filter names, page by page.
    pub async fn search(
        &mut self,
        base: &str,
        filter: &str,
        attributes: &[&str],
    ) -> Result<Vec<Record>, LdapReadError> {
        self.search_in(base, Scope::Subtree, filter, attributes).await
    }

    /// One entry; nothing where it is not there, or not for us.
    pub async fn entry(&mut self, dn: &str, attributes: &[&str]) -> Result<Option<Record>, LdapReadError> {
        match self.search_in(dn, Scope::Base, "(objectClass=*)", attributes).await {
            Ok(records) => Ok(records.into_iter().next()),
            Err(LdapReadError::Search { code: 32 | 50, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn search_in(
        &mut self,
        base: &str,
        scope: Scope,
        filter: &str,
        attributes: &[&str],
    ) -> Result<Vec<Record>, LdapReadError> {
        let mut records = Vec::new();
        let mut cookie = Vec::new();
        loop {
            let before = records.len();
            cookie = self.page((base, scope), filter, attributes, cookie, &mut records).await?;
            if cookie.is_empty() {
                return Ok(records);
            }
            if records.len() == before {
                return Err(LdapReadError::Answer { what: "a page has no entries and is not the last one" });
            }
        }
    }

    /// Adds a page to the records; gives the cookie of the next one, empty after the last.
    async fn page(
        &mut self,
        (base, scope): (&str, Scope),
        filter: &str,
        attributes: &[&str],
        cookie: Vec<u8>,
        records: &mut Vec<Record>,
    ) -> Result<Vec<u8>, LdapReadError> {
        let seconds = i32::try_from(ANSWER_WITHIN.as_secs()).unwrap_or(i32::MAX);
        self.ldap.with_timeout(ANSWER_WITHIN).with_search_options(SearchOptions::new().timelimit(seconds));
        if scope != Scope::Base {
            self.ldap.with_controls(PagedResults { size: PAGE, cookie });
        }
        let started = self.ldap.streaming_search(base, scope, filter, attributes.to_vec()).await;
        let mut stream = started.map_err(|error| match error {
            LdapError::FilterParsing => LdapReadError::Filter { filter: filter.to_owned() },
            other => LdapReadError::from(other),
        })?;
        while let Some(entry) = stream.next().await? {
            // What other servers have is not ours to read.
            if entry.is_ref() || entry.is_intermediate() {
                continue;
            }
            records.push(Record::of(entry.0).ok_or(LdapReadError::Answer { what: "an entry is none" })?);
            if records.len() > ENTRIES_MAX {
                return Err(LdapReadError::TooMany { base: base.to_owned(), max: ENTRIES_MAX });
            }
        }
        let result = stream.finish().await;
        if result.rc != SUCCESS {
            let (code, text) = (result.rc, result.text);
            return Err(LdapReadError::Search { base: base.to_owned(), code, meaning: meaning(code), text });
        }
        let control = result.ctrls.iter().find(|Control(_, raw)| raw.ctype == PAGED_RESULTS);
        match control {
            None => Ok(Vec::new()),
            Some(Control(_, raw)) => raw
                .val
                .as_deref()
                .and_then(cookie_of)
                .ok_or(LdapReadError::Answer { what: "it is not said whether there is another page" }),
        }
    }

    pub async fn end(mut self) {
        // A server that has hung up is no failure any more.
        let _ = self.ldap.with_timeout(ANSWER_WITHIN).unbind().await;
    }
}

/// The cookie within a control of pages. The library's own reading of it panics where it is none.
fn cookie_of(value: &[u8]) -> Option<Vec<u8>> {
    let (_, tag) = parse_tag(value).ok()?;
    let PL::C(parts) = tag.payload else { return None };
    match parts.into_iter().nth(1)? {
        StructureTag { payload: PL::P(cookie), .. } => Some(cookie),
        StructureTag { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_read_or_refused() {
        assert_eq!(cookie_of(&[0x30, 0x07, 0x02, 0x01, 0x00, 0x04, 0x02, 0xAA, 0xBB]), Some(vec![0xAA, 0xBB]));
        assert_eq!(cookie_of(&[0x30, 0x05, 0x02, 0x01, 0x00, 0x04, 0x00]), Some(Vec::new()));
        for broken in
            [&[][..], &[0x30, 0x03, 0x02, 0x01, 0x00], &[0x04, 0x00], &[0x30, 0x05, 0x02, 0x01, 0x00, 0x30, 0x00]]
        {
            assert_eq!(cookie_of(broken), None, "{broken:?}");
        }
    }

    #[test]
    fn certificates_that_are_none_are_refused() {
        let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert!(matches!(trust(broken), Err(LdapReadError::Ca(_))));
        assert!(matches!(trust("nothing at all"), Err(LdapReadError::NoAuthority)));
    }
}
