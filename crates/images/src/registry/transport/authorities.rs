//! The authorities that this machine trusts, for the whole process.
//!
//! Invariant: they are read once, and again when a file or folder of them was changed: that takes a fifth of a second.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustls::RootCertStore;

/// Where machines have them; variables of the environment name others.
const PLACES: [&str; 8] = [
    "/etc/ssl/certs",
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/ssl/cert.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/tls/certs",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/tls/cacert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
];
const VARIABLES: [&str; 2] = ["SSL_CERT_FILE", "SSL_CERT_DIR"];

static AUTHORITIES: Authorities = Authorities(Mutex::new(None));

/// What they were read from: seconds, parts of them, size and number of each file. None for what is not there.
type Stamp = Vec<Option<(i64, i64, u64, u64)>>;

/// Those of the machine, or of a test.
struct Authorities(Mutex<Option<(Stamp, Arc<RootCertStore>)>>);

/// This machine's. Who gets the same `Arc` as before trusts the same as before.
pub(super) fn of_machine() -> Arc<RootCertStore> {
    let named = VARIABLES.iter().filter_map(std::env::var_os);
    let named = named.flat_map(|paths| std::env::split_paths(&paths).collect::<Vec<_>>());
    let places: Vec<PathBuf> = PLACES.iter().map(PathBuf::from).chain(named).collect();
    AUTHORITIES.get(&places, || {
        let mut roots = RootCertStore::empty();
        // A machine without authorities reaches those that the settings name.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        roots
    })
}

impl Authorities {
    fn get(&self, places: &[PathBuf], read: impl FnOnce() -> RootCertStore) -> Arc<RootCertStore> {
        // Before they are read: what changes meanwhile is read again.
        let stamp: Stamp = places.iter().map(|path| stamp(path)).collect();
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match known.as_ref() {
            Some((of, roots)) if *of == stamp => Arc::clone(roots),
            _ => {
                let roots = Arc::new(read());
                *known = Some((stamp, Arc::clone(&roots)));
                roots
            }
        }
    }
}

fn stamp(path: &Path) -> Option<(i64, i64, u64, u64)> {
    let found = fs::metadata(path).ok()?;
    Some((found.mtime(), found.mtime_nsec(), found.size(), found.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_read_once_and_again_when_they_were_changed() {
        let dir = tempfile::tempdir().unwrap();
        let places = [dir.path().to_owned(), dir.path().join("ca.crt"), dir.path().join("missing")];
        let authorities = Authorities(Mutex::new(None));
        let mut reads = 0;
        let mut get = || {
            authorities.get(&places, || {
                reads += 1;
                RootCertStore::empty()
            })
        };
        let first = get();
        assert!(Arc::ptr_eq(&first, &get()));
        fs::write(&places[1], "one").unwrap();
        let second = get();
        assert!(!Arc::ptr_eq(&first, &second) && Arc::ptr_eq(&second, &get()));
        fs::write(&places[1], "more").unwrap();
        assert!(!Arc::ptr_eq(&second, &get()));
        assert_eq!(reads, 3);
    }

    #[test]
    fn the_machines_are_the_same_each_time() {
        assert!(Arc::ptr_eq(&of_machine(), &of_machine()));
    }
}
