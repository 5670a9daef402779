//! The platform's own certificate authority.
//!
//! Invariant: the authority's key outlives its certificate, so certificates issued before a
//! renewal stay valid; its private key never leaves the directory or this type. Opened by the
//! binary; leaf certificates are cheap and are issued anew at each start.

use std::fmt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PublicKeyData,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use thiserror::Error;
use x509_parser::parse_x509_certificate;

use crate::files::{self, FileError};
use crate::identity::{NODES, node_user};
use crate::sec1;

pub(crate) const CERTIFICATE_FILE: &str = "ca.crt";
pub(crate) const KEY_FILE: &str = "ca.key";
/// The authority that takes the place of the one above.
pub(crate) const NEXT_CERTIFICATE_FILE: &str = "next-ca.crt";
pub(crate) const NEXT_KEY_FILE: &str = "next-ca.key";
const AUTHORITY_NAME: &str = "pumice";

const AUTHORITY_DAYS: i32 = 3650;
const LEAF_DAYS: i32 = 365;
/// Certificates of the platform's own servers, components and nodes are renewed while these run.
const RENEWED_DAYS: i32 = 30;
/// A certificate is renewed when it has less than this left.
const RENEW_DAYS: i32 = 30;
/// Clocks of clients may be behind ours.
const SKEW_DAYS: i32 = 1;

/// X.509 attribute type of an organization, spelled out: see [`subject_of`].
const ORGANIZATION_OID: [u64; 4] = [2, 5, 4, 10];
/// Groups that one certificate can carry.
const GROUPS_MAX: usize = 2;

/// A certificate authority in a directory.
pub struct Ca {
    issuer: Issuer<'static, KeyPair>,
    certificate_pem: String,
    certificate: CertificateDer<'static>,
}

/// A certificate and its private key.
#[derive(Clone)]
pub struct Issued {
    /// The certificate, PEM.
    pub certificate_pem: String,
    /// Its private key, PEM as of RFC 5915 ("EC PRIVATE KEY"). Secret.
    pub key_pem: String,
    pub certificate: CertificateDer<'static>,
    pub not_after: Timestamp,
}

/// Why the authority failed.
#[derive(Debug, Error)]
pub enum CaError {
    /// The directory cannot be made.
    #[error("cannot create {directory}", directory = directory.display())]
    CreateDirectory {
        directory: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// A file of the authority cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// A file of the authority is damaged.
    #[error("{path} is damaged ({detail}); restore it, or remove it and ca.crt for a new authority", path = path.display())]
    Damaged { path: PathBuf, detail: String },
    /// The certificate is there, its key is not.
    #[error("{path} is missing beside its certificate; restore it, or remove ca.crt for a new authority", path = path.display())]
    KeyMissing { path: PathBuf },
    /// A name that no certificate can carry.
    #[error("cannot issue a certificate for {name}")]
    Issue {
        name: String,
        #[source]
        source: rcgen::Error,
    },
    /// More groups than a certificate of ours carries.
    #[error("cannot issue a certificate with {groups} groups, at most {limit}")]
    TooManyGroups {
        /// How many were asked for.
        groups: usize,
        limit: usize,
    },
    /// The clock is out of the range of certificates.
    #[error("cannot issue a certificate at {now}; set the clock")]
    Clock { now: Timestamp },
}

impl Ca {
    /// The authority in `directory`, made on first use; its certificate is renewed, with the same
    /// key, when it is near its end.
    pub fn open_or_create(directory: &Path, now: Timestamp) -> Result<Self, CaError> {
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
        made.map_err(|source| CaError::CreateDirectory { directory: directory.to_path_buf(), source })?;
        Self::open(directory.join(CERTIFICATE_FILE), directory.join(KEY_FILE), now)
    }

    /// The same in these files, whose directory exists.
    pub(crate) fn open(certificate_path: PathBuf, key_path: PathBuf, now: Timestamp) -> Result<Self, CaError> {
        let certificate_pem = files::read_text(&certificate_path)?;
        let key = match files::read_text(&key_path)? {
            Some(text) => KeyPair::from_pem(&text).map_err(|error| damaged(&key_path, error.to_string()))?,
            None if certificate_pem.is_some() => return Err(CaError::KeyMissing { path: key_path }),
            None => {
                let key = KeyPair::generate().map_err(|source| issue_error(AUTHORITY_NAME, source))?;
                // The key goes first: a key without a certificate is completed at the next start.
                files::write_private(&key_path, key.serialize_pem().as_bytes())?;
                key
            }
        };
        if let Some(pem) = certificate_pem {
            let certificate = check_authority(&certificate_path, &pem, &key)?;
            if !is_near_end(not_after_of(&certificate_path, &certificate)?, now)? {
                return Self::assemble(&certificate_path, pem, certificate, key);
            }
        }
        let certificate = authority_params(now)?.self_signed(&key).map_err(|e| issue_error(AUTHORITY_NAME, e))?;
        files::write_private(&certificate_path, certificate.pem().as_bytes())?;
        Self::assemble(&certificate_path, certificate.pem(), certificate.der().clone(), key)
    }

    /// An authority that is kept nowhere: what it has issued outlives it, and nobody can issue more once it is dropped.
    pub fn passing(now: Timestamp) -> Result<Self, CaError> {
        let key = KeyPair::generate().map_err(|source| issue_error(AUTHORITY_NAME, source))?;
        let certificate = authority_params(now)?.self_signed(&key).map_err(|e| issue_error(AUTHORITY_NAME, e))?;
        Self::assemble(Path::new(CERTIFICATE_FILE), certificate.pem(), certificate.der().clone(), key)
    }

    fn assemble(
        path: &Path,
        certificate_pem: String,
        certificate: CertificateDer<'static>,
        key: KeyPair,
    ) -> Result<Self, CaError> {
        let issuer = Issuer::from_ca_cert_der(&certificate, key).map_err(|error| damaged(path, error.to_string()))?;
        Ok(Self { issuer, certificate_pem, certificate })
    }

    /// The authority's certificate, PEM: what clients trust.
    pub fn pem(&self) -> &str {
        &self.certificate_pem
    }

    /// When the authority's certificate ends.
    pub fn not_after(&self) -> Timestamp {
        not_after_of(Path::new(CERTIFICATE_FILE), &self.certificate).unwrap_or(Timestamp::MAX)
    }

    /// The authority's certificate, DER.
    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// A certificate for a server that is reached under `names`, DNS names and IP addresses, and that replaces it before its end.
    pub fn issue_renewed_server(&self, names: &[String], now: Timestamp) -> Result<Issued, CaError> {
        self.server(names, RENEWED_DAYS, now)
    }

    /// A certificate for a server that is reached under `names`: DNS names and IP addresses.
    pub fn issue_server(&self, names: &[String], now: Timestamp) -> Result<Issued, CaError> {
        self.server(names, LEAF_DAYS, now)
    }

    fn server(&self, names: &[String], days: i32, now: Timestamp) -> Result<Issued, CaError> {
        let name = names.first().map_or("server", String::as_str);
        let mut params = CertificateParams::new(names).map_err(|source| issue_error(&names.join(","), source))?;
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        self.issue(name, params, vec![ExtendedKeyUsagePurpose::ServerAuth], days, now)
    }

    /// A certificate that makes its holder `user`, a member of `groups` (at most two).
    pub fn issue_client(&self, user: &str, groups: &[&str], now: Timestamp) -> Result<Issued, CaError> {
        let mut params = CertificateParams::default();
        params.distinguished_name = subject_of(user, groups)?;
        self.issue(user, params, vec![ExtendedKeyUsagePurpose::ClientAuth], LEAF_DAYS, now)
    }

    /// The same for a component that has it renewed.
    pub fn issue_component(&self, user: &str, now: Timestamp) -> Result<Issued, CaError> {
        let mut params = CertificateParams::default();
        params.distinguished_name = subject_of(user, &[])?;
        self.issue(user, params, vec![ExtendedKeyUsagePurpose::ClientAuth], RENEWED_DAYS, now)
    }

    /// A certificate for the agent of the node `name`: it is that node where it asks, and the host of that name where it is asked.
    pub fn issue_node(&self, name: &str, now: Timestamp) -> Result<Issued, CaError> {
        let mut params = CertificateParams::new([name.to_owned()]).map_err(|source| issue_error(name, source))?;
        params.distinguished_name = subject_of(&node_user(name), &[NODES])?;
        let usages = vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
        self.issue(name, params, usages, RENEWED_DAYS, now)
    }

    fn issue(
        &self,
        name: &str,
        mut params: CertificateParams,
        usages: Vec<ExtendedKeyUsagePurpose>,
        days: i32,
        now: Timestamp,
    ) -> Result<Issued, CaError> {
        set_validity(&mut params, now, days)?;
        params.is_ca = IsCa::ExplicitNoCa;
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = usages;
        let key = KeyPair::generate().map_err(|source| issue_error(name, source))?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(|source| issue_error(name, source))?;
        let not_after =
            Timestamp::from_second(params.not_after.unix_timestamp()).map_err(|_| CaError::Clock { now })?;
        Ok(Issued {
            certificate_pem: certificate.pem(),
            key_pem: sec1::pem(&key),
            certificate: certificate.der().clone(),
            not_after,
        })
    }
}

impl fmt::Debug for Ca {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ca").field("certificate_pem", &self.certificate_pem).finish_non_exhaustive()
    }
}

impl Issued {
    /// Whether it should be replaced by a new one.
    pub fn is_near_end(&self, now: Timestamp) -> bool {
        is_near_end(self.not_after, now).unwrap_or(true)
    }

    /// Whether one that is renewed while its holder runs is due: when a third of its time is over.
    pub fn is_due(&self, now: Timestamp) -> bool {
        is_due(self.not_after, now)
    }

    pub(crate) fn key(&self) -> Result<PrivateKeyDer<'static>, rustls::pki_types::pem::Error> {
        PrivateKeyDer::from_pem_slice(self.key_pem.as_bytes())
    }
}

impl fmt::Debug for Issued {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Issued").field("not_after", &self.not_after).finish_non_exhaustive()
    }
}

/// The library keeps one value per attribute type, and an attribute type given by number counts as
/// another one: that makes room for two organizations.
fn subject_of(user: &str, groups: &[&str]) -> Result<DistinguishedName, CaError> {
    if groups.len() > GROUPS_MAX {
        return Err(CaError::TooManyGroups { groups: groups.len(), limit: GROUPS_MAX });
    }
    let mut subject = DistinguishedName::new();
    let kinds = [DnType::OrganizationName, DnType::CustomDnType(ORGANIZATION_OID.to_vec())];
    for (kind, group) in kinds.into_iter().zip(groups) {
        subject.push(kind, *group);
    }
    subject.push(DnType::CommonName, user);
    Ok(subject)
}

fn authority_params(now: Timestamp) -> Result<CertificateParams, CaError> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, AUTHORITY_NAME);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    set_validity(&mut params, now, AUTHORITY_DAYS)?;
    Ok(params)
}

/// The certificate in `pem`, provided that it belongs to `key`.
fn check_authority(path: &Path, pem: &str, key: &KeyPair) -> Result<CertificateDer<'static>, CaError> {
    let certificate =
        CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|error| damaged(path, error.to_string()))?;
    let (_, parsed) = parse_x509_certificate(&certificate).map_err(|error| damaged(path, error.to_string()))?;
    if parsed.public_key().raw != key.subject_public_key_info() {
        return Err(damaged(path, "it does not belong to ca.key"));
    }
    Ok(certificate)
}

fn not_after_of(path: &Path, certificate: &CertificateDer<'_>) -> Result<Timestamp, CaError> {
    let (_, parsed) = parse_x509_certificate(certificate).map_err(|error| damaged(path, error.to_string()))?;
    Timestamp::from_second(parsed.validity().not_after.timestamp()).map_err(|error| damaged(path, error.to_string()))
}

fn is_near_end(not_after: Timestamp, now: Timestamp) -> Result<bool, CaError> {
    let soon = now.checked_add((i64::from(RENEW_DAYS) * 24).hours()).map_err(|_| CaError::Clock { now })?;
    Ok(not_after < soon)
}

/// Whether a certificate of [`RENEWED_DAYS`] that ends then has had a third of them.
pub fn is_due(not_after: Timestamp, now: Timestamp) -> bool {
    let left = i64::from(RENEWED_DAYS) * 2 / 3 * 24;
    now.checked_add(left.hours()).is_ok_and(|then| not_after < then)
}

fn set_validity(params: &mut CertificateParams, now: Timestamp, days: i32) -> Result<(), CaError> {
    let today = now.to_zoned(TimeZone::UTC).date();
    let clock = |_| CaError::Clock { now };
    let from = today.checked_sub(SKEW_DAYS.days()).map_err(clock)?;
    let to = today.checked_add(days.days()).map_err(clock)?;
    let year_fits = (1970..=9000).contains(&from.year()) && to.year() <= 9000;
    let (Ok(from_month), Ok(from_day), Ok(to_month), Ok(to_day), true) = (
        u8::try_from(from.month()),
        u8::try_from(from.day()),
        u8::try_from(to.month()),
        u8::try_from(to.day()),
        year_fits,
    ) else {
        return Err(CaError::Clock { now });
    };
    params.not_before = rcgen::date_time_ymd(i32::from(from.year()), from_month, from_day);
    params.not_after = rcgen::date_time_ymd(i32::from(to.year()), to_month, to_day);
    Ok(())
}

/// What people compare of an authority's certificate (PEM): `SHA256:` and its hash, as ssh shows keys. None where it is none.
pub fn fingerprint(certificate_pem: &str) -> Option<String> {
    let certificate = CertificateDer::from_pem_slice(certificate_pem.as_bytes()).ok()?;
    let hash = ring::digest::digest(&ring::digest::SHA256, &certificate);
    Some(format!("SHA256:{}", STANDARD_NO_PAD.encode(hash)))
}

fn damaged(path: &Path, detail: impl Into<String>) -> CaError {
    CaError::Damaged { path: path.to_path_buf(), detail: detail.into() }
}

fn issue_error(name: &str, source: rcgen::Error) -> CaError {
    CaError::Issue { name: name.to_owned(), source }
}
