//! A domain controller of Active Directory, by Samba, with entries that a test makes.
//!
//! Invariant: it listens on an address of the loopback that is its own, serves LDAP alone, and ends with its folder. Its ports are
//! those that every domain controller has, so that it takes root.

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use nix::unistd::Uid;
use tempfile::TempDir;

use crate::certificate::now;
use crate::slapd::{certificate, fed};
use crate::{Process, eventually};

/// The administrator and his password.
const ADMIN: &str = "Administrator@EXAMPLE.ORG";
const PASSWORD: &str = "Passw0rd!x";
/// Adds the entries of the second file to the domain of the first one. Over LDAP it takes ten times as long.
const ADD: &str = "
import sys
from samba.auth import system_session
from samba.param import LoadParm
from samba.samdb import SamDB
settings = LoadParm()
settings.load(sys.argv[1])
domain = SamDB(url=settings.private_path('sam.ldb'), session_info=system_session(), lp=settings)
domain.transaction_start()
domain.add_ldif(open(sys.argv[2]).read())
domain.transaction_commit()
";

/// A domain controller that runs.
pub struct DomainController {
    address: String,
    authority: String,
    // Ends before its folder goes.
    _server: Process,
    _directory: TempDir,
}

impl DomainController {
    /// Makes the domain `DC=example,DC=org` with these entries, as LDIF, and starts it. Nothing without root.
    pub fn start(entries: &str) -> Option<DomainController> {
        if !Uid::effective().is_root() {
            return None;
        }
        let directory = tempfile::Builder::new().prefix("pumice-samba-").tempdir().expect("a temporary directory");
        let at = directory.path();
        let address = free_address();
        let authority = certificate(at, &address, now());
        let domain = at.join("domain");
        run(Command::new("samba-tool")
            .args(["domain", "provision", "--realm=EXAMPLE.ORG", "--domain=EXAMPLE", "--server-role=dc"])
            .args(["--dns-backend=NONE", "--use-rfc2307", "--host-name=dc"])
            .arg(format!("--adminpass={PASSWORD}"))
            .arg(format!("--host-ip={address}"))
            .arg(format!("--targetdir={}", domain.display())));
        let settings = at.join("smb.conf");
        std::fs::write(&settings, configuration(at, &address)).expect("write its configuration");
        for folder in ["pid", "ncalrpc", "cache", "winbindd"] {
            std::fs::create_dir_all(domain.join(folder)).expect("a folder of its own");
        }
        std::fs::write(at.join("entries.ldif"), entries).expect("write its entries");
        run(Command::new("/usr/bin/python3").args(["-c", ADD]).arg(&settings).arg(at.join("entries.ldif")));
        let mut command = Command::new("/usr/sbin/samba");
        command.args(["--interactive", "--no-process-group", "--model=single", "-s"]).arg(&settings);
        let server = Process::start("samba", &mut command, at);
        eventually("samba answers", || {
            std::net::TcpStream::connect((address.as_str(), 636)).map(drop).map_err(|error| error.to_string())
        });
        Some(DomainController { address, authority, _server: server, _directory: directory })
    }

    /// Where it is found, over TLS.
    pub fn url(&self) -> String {
        format!("ldaps://{}", self.address)
    }

    /// The authority of its certificate, as PEM.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// The administrator and his password.
    pub fn admin(&self) -> (&'static str, &'static str) {
        (ADMIN, PASSWORD)
    }

    /// Changes entries, as LDIF says it.
    pub fn change(&self, ldif: &str) {
        let mut command = Command::new("ldapmodify");
        command.env("LDAPTLS_REQCERT", "never").args(["-x", "-D", ADMIN, "-w", PASSWORD, "-H", &self.url()]);
        let output = fed(command, ldif);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

fn configuration(at: &Path, address: &str) -> String {
    let domain = at.join("domain");
    let (at, domain) = (at.display(), domain.display());
    format!(
        "[global]\nnetbios name = DC\nrealm = EXAMPLE.ORG\nworkgroup = EXAMPLE\nserver services = ldap\n\
         server role = active directory domain controller\nidmap_ldb:use rfc2307 = yes\n\
         interfaces = {address}/8\nbind interfaces only = yes\n\
         private dir = {domain}/private\nlock directory = {domain}\nstate directory = {domain}/state\n\
         cache directory = {domain}/cache\npid directory = {domain}/pid\nncalrpc dir = {domain}/ncalrpc\n\
         winbindd socket directory = {domain}/winbindd\nbinddns dir = {domain}/bind-dns\n\
         tls enabled = yes\ntls certfile = {at}/tls.crt\ntls keyfile = {at}/tls.key\ntls cafile =\n\
         log file = {at}/log.samba\nlogging = file\n"
    )
}

/// An address of the loopback at which nobody speaks LDAP.
fn free_address() -> String {
    let first = std::process::id() % 60_000;
    let addresses = (first..first + 500).map(|number| format!("127.77.{}.{}", number / 250, 1 + number % 250));
    let mut addresses = addresses.filter(|address| TcpListener::bind((address.as_str(), 389)).is_ok());
    addresses.next().expect("a free address of the loopback")
}

fn run(command: &mut Command) {
    let output = command.output().expect("tests/prerequisites installs samba-ad-dc and python3-samba");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}
