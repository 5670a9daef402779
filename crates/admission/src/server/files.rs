//! A certificate that somebody else makes and replaces, in files: cert-manager's, or that of Volcano's own installation.
//!
//! Invariant: what is shown has been read whole, and its key belongs to it; files that can't be used change nothing. Read at the
//! start, and by the reconciler again and again: files of Secrets are swapped by links, which a watch of a file itself misses.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use pumice_auth::{ServingCertificate, TlsError};

/// Longest file; certificates and keys are some KB.
const BYTES_MAX: u64 = 1024 * 1024;

/// Where a certificate is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate and, after it, those between it and its authority; PEM.
    pub certificate: PathBuf,
    /// Its key, PEM.
    pub key: PathBuf,
    /// Authorities that API servers shall trust, PEM. Without it they trust the certificate itself.
    pub authority: Option<PathBuf>,
}

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum CertificateFilesError {
    /// A file is not there, or not for us.
    #[error("{path} can't be read", path = path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// A file is no certificate.
    #[error("{path} is longer than a certificate may be, {BYTES_MAX} bytes", path = path.display())]
    TooLong { path: PathBuf },
    /// Certificate and key can't be shown.
    #[error("{certificate} and {key} can't be shown", certificate = certificate.display(), key = key.display())]
    Refused {
        /// File of the certificate.
        certificate: PathBuf,
        /// File of the key.
        key: PathBuf,
        #[source]
        source: TlsError,
    },
}

/// What the files say.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Texts {
    certificate: String,
    key: String,
    /// Whom API servers have to trust.
    pub trusted: String,
}

impl CertificateFiles {
    /// Reads the files. Blocks.
    pub(crate) fn read(&self) -> Result<Texts, CertificateFilesError> {
        let certificate = text(&self.certificate)?;
        let trusted = self.authority.as_deref().map_or_else(|| Ok(certificate.clone()), text)?;
        Ok(Texts { key: text(&self.key)?, certificate, trusted })
    }

    /// Shows what was read from now on.
    pub(crate) fn show(&self, texts: &Texts, shown: &ServingCertificate) -> Result<(), CertificateFilesError> {
        shown.show(&texts.certificate, &texts.key).map_err(|source| CertificateFilesError::Refused {
            certificate: self.certificate.clone(),
            key: self.key.clone(),
            source,
        })
    }
}

fn text(path: &Path) -> Result<String, CertificateFilesError> {
    let failed = |source| CertificateFilesError::Read { path: path.to_owned(), source };
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(failed)?;
    file.take(BYTES_MAX + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > BYTES_MAX {
        return Err(CertificateFilesError::TooLong { path: path.to_owned() });
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::certificate::Pair;
    use super::*;

    #[test]
    fn files_that_cannot_be_used_change_nothing() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = |name: &str| directory.path().join(name);
        let files = CertificateFiles { certificate: file("tls.crt"), key: file("tls.key"), authority: None };
        let missing = files.read().err().expect("no file").to_string();
        assert!(missing.ends_with("tls.crt can't be read"), "{missing}");
        let now = "2026-11-21T00:00:00Z".parse().expect("a time");
        let make = || Pair::make(&BTreeSet::from(["h".to_owned()]), now).expect("a certificate");
        let (first, second) = (make(), make());
        std::fs::write(file("tls.crt"), &first.certificate).expect("write");
        std::fs::write(file("tls.key"), &first.key).expect("write");
        let shown = ServingCertificate::default();
        let texts = files.read().expect("files");
        assert_eq!(texts.trusted, first.certificate, "without an authority the certificate itself is trusted");
        files.show(&texts, &shown).expect("shown");

        std::fs::write(file("tls.crt"), &second.certificate).expect("write");
        let half = files.read().expect("files");
        let refused = files.show(&half, &shown).expect_err("the key is that of the first one").to_string();
        assert!(refused.contains("tls.crt") && refused.contains("tls.key"), "{refused}");
        std::fs::write(file("ca.crt"), &second.authority).expect("write");
        let files = CertificateFiles { authority: Some(file("ca.crt")), ..files };
        assert_eq!(files.read().expect("files").trusted, second.authority);
        std::fs::write(file("tls.key"), vec![b'x'; 1024 * 1024 + 1]).expect("write");
        assert!(matches!(files.read(), Err(CertificateFilesError::TooLong { .. })));
    }
}
