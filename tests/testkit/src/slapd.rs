//! OpenLDAP's server with entries that a test makes.
//!
//! Invariant: it listens on the loopback alone, keeps nothing, and ends with the [`Slapd`]. Everybody may read; to change
//! something takes the administrator.

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use jiff::{Timestamp, ToSpan as _};
use pumice_auth::{Ca, write_private};
use tempfile::TempDir;

use crate::certificate::now;
use crate::{Process, eventually};

/// The top of the tree.
const SUFFIX: &str = "dc=example,dc=org";
/// The administrator and his password.
const ADMIN: &str = "cn=admin,dc=example,dc=org";
const PASSWORD: &str = "secret";
/// The classes of RFC 2307bis, which Debian does not ship.
const SCHEMA: &str = "\
attributetype ( 1.3.6.1.1.1.1.3 NAME 'homeDirectory' EQUALITY caseExactIA5Match SYNTAX 1.3.6.1.4.1.1466.115.121.1.26 SINGLE-VALUE )
attributetype ( 1.3.6.1.1.1.1.12 NAME 'memberUid' EQUALITY caseExactIA5Match SYNTAX 1.3.6.1.4.1.1466.115.121.1.26 )
objectclass ( 1.3.6.1.1.1.2.0 NAME 'posixAccount' SUP top AUXILIARY MUST ( cn $ uid $ uidNumber $ gidNumber $ homeDirectory ) )
objectclass ( 1.3.6.1.1.1.2.2 NAME 'posixGroup' SUP top AUXILIARY MUST gidNumber MAY memberUid )
";

/// How to start one.
#[derive(Debug, Clone, Default)]
pub struct SlapdSetup {
    /// Lines of its configuration, such as `sizelimit 10`.
    pub settings: String,
    /// Whether it has no certificate.
    pub no_tls: bool,
    /// Whether its certificate has expired.
    pub expired: bool,
    /// Whether it does not say when something was last written.
    pub no_stamp: bool,
}

/// A server that runs.
pub struct Slapd {
    directory: TempDir,
    ports: [u16; 2],
    authority: String,
    server: Option<Process>,
}

impl Slapd {
    /// Starts one with these entries, as LDIF, below the top and `ou=people`.
    pub fn start(entries: &str) -> Slapd {
        Slapd::start_with(&SlapdSetup::default(), entries)
    }

    pub fn start_with(setup: &SlapdSetup, entries: &str) -> Slapd {
        let directory = tempfile::Builder::new().prefix("pumice-slapd-").tempdir().expect("a temporary directory");
        let at = directory.path();
        std::fs::create_dir(at.join("data")).expect("a folder for its data");
        let authority = certificate(at, "127.0.0.1", if setup.expired { long_ago() } else { now() });
        std::fs::write(at.join("slapd.conf"), configuration(at, setup)).expect("write its configuration");
        let mut ldif = format!(
            "dn: {SUFFIX}\nobjectClass: dcObject\nobjectClass: organization\no: example\ndc: example\n\n\
             dn: ou=people,{SUFFIX}\nobjectClass: organizationalUnit\nou: people\n\n"
        );
        ldif.push_str(entries);
        std::fs::write(at.join("entries.ldif"), ldif).expect("write its entries");
        let mut add = Command::new("/usr/sbin/slapadd");
        add.arg("-q").arg("-f").arg(at.join("slapd.conf")).arg("-l").arg(at.join("entries.ldif"));
        let added = add.output().expect("slapadd runs: tests/prerequisites installs slapd");
        assert!(added.status.success(), "{}", String::from_utf8_lossy(&added.stderr));
        let ports = [free_port(), free_port()];
        let mut slapd = Slapd { directory, ports, authority, server: None };
        slapd.up();
        slapd
    }

    /// Starts it again where it was.
    pub fn up(&mut self) {
        let [port, tls_port] = self.ports;
        let mut command = Command::new("/usr/sbin/slapd");
        command.arg("-f").arg(self.directory.path().join("slapd.conf")).args(["-d", "0", "-h"]);
        command.arg(format!("ldap://127.0.0.1:{port} ldaps://127.0.0.1:{tls_port}"));
        self.server = Some(Process::start("slapd", &mut command, self.directory.path()));
        eventually("slapd answers", || {
            std::net::TcpStream::connect(("127.0.0.1", port)).map(drop).map_err(|error| error.to_string())
        });
    }

    pub fn down(&mut self) {
        drop(self.server.take());
    }

    /// Where it is found with TLS from the start.
    pub fn url(&self) -> String {
        format!("ldaps://127.0.0.1:{}", self.ports[1])
    }

    /// Where it is found without, so that TLS is asked for.
    pub fn start_tls_url(&self) -> String {
        format!("ldap://127.0.0.1:{}", self.ports[0])
    }

    /// The port with TLS.
    pub fn tls_port(&self) -> u16 {
        self.ports[1]
    }

    /// The authority of its certificate, as PEM.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// Below which entry users are.
    pub fn base(&self) -> &'static str {
        SUFFIX
    }

    /// The administrator and his password.
    pub fn admin(&self) -> (&'static str, &'static str) {
        (ADMIN, PASSWORD)
    }

    /// Changes entries, or adds them where LDIF says nothing else.
    pub fn change(&self, ldif: &str) {
        let mut command = Command::new("ldapmodify");
        command.args(["-a", "-x", "-D", ADMIN, "-w", PASSWORD, "-H", &self.start_tls_url()]);
        let output = fed(command, ldif);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

/// An account as LDIF. Its uid is its gid.
pub fn posix_account(user: &str, uid: u32) -> String {
    format!(
        "dn: uid={user},ou=people,{SUFFIX}\nobjectClass: account\nobjectClass: posixAccount\nuid: {user}\ncn: {user}\n\
         uidNumber: {uid}\ngidNumber: {uid}\nhomeDirectory: /home/{user}\n\n"
    )
}

/// A group whose members are names of users.
pub fn posix_group(name: &str, gid: u32, members: &[&str]) -> String {
    let mut ldif = format!(
        "dn: cn={name},{SUFFIX}\nobjectClass: organizationalRole\nobjectClass: posixGroup\ncn: {name}\ngidNumber: {gid}\n"
    );
    members.iter().for_each(|member| writeln!(ldif, "memberUid: {member}").expect("write a line"));
    ldif + "\n"
}

/// A group whose members are entries: `uid=alice,ou=people`, `cn=desk`.
pub fn group_of_names(name: &str, gid: u32, members: &[&str]) -> String {
    let mut ldif = format!(
        "dn: cn={name},{SUFFIX}\nobjectClass: groupOfNames\nobjectClass: posixGroup\ncn: {name}\ngidNumber: {gid}\n"
    );
    members.iter().for_each(|member| writeln!(ldif, "member: {member},{SUFFIX}").expect("write a line"));
    ldif + "\n"
}

/// Runs a command with this input.
pub(crate) fn fed(mut command: Command, input: &str) -> std::process::Output {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("tests/prerequisites installs ldap-utils");
    let mut pipe = child.stdin.take().expect("a pipe was asked for");
    pipe.write_all(input.as_bytes()).expect("write to a program");
    drop(pipe);
    child.wait_with_output().expect("wait for a program")
}

fn configuration(at: &Path, setup: &SlapdSetup) -> String {
    let mut text = String::new();
    for schema in ["core", "cosine"] {
        writeln!(text, "include /etc/ldap/schema/{schema}.schema").expect("write a line");
    }
    text.push_str(SCHEMA);
    text.push_str("modulepath /usr/lib/ldap\nmoduleload back_mdb\nmoduleload syncprov\nsizelimit unlimited\n");
    if !setup.no_tls {
        let [certificate, key] = ["tls.crt", "tls.key"].map(|name| at.join(name));
        let (certificate, key) = (certificate.display(), key.display());
        write!(text, "TLSCertificateFile {certificate}\nTLSCertificateKeyFile {key}\n").expect("write a line");
    }
    let data = at.join("data");
    write!(
        text,
        "database mdb\nsuffix \"{SUFFIX}\"\nrootdn \"{ADMIN}\"\nrootpw {PASSWORD}\ndirectory {}\nmaxsize 1073741824\n\
         dbnosync\nindex objectClass eq\n{}\n",
        data.display(),
        setup.settings
    )
    .expect("write a line");
    if !setup.no_stamp {
        text.push_str("overlay syncprov\n");
    }
    text
}

/// Writes a certificate for an address and its key; gives the authority.
pub(crate) fn certificate(at: &Path, address: &str, since: Timestamp) -> String {
    let ca = Ca::open_or_create(&at.join("authority"), now()).expect("an authority");
    let issued = ca.issue_server(&[address.to_owned()], since).expect("a certificate");
    let files: [(&str, &str); 2] = [("tls.crt", &issued.certificate_pem), ("tls.key", &issued.key_pem)];
    for (name, pem) in files {
        let path: PathBuf = at.join(name);
        write_private(&path, pem.as_bytes()).expect("write a certificate");
    }
    ca.pem().to_owned()
}

/// When a certificate was made that has expired.
fn long_ago() -> Timestamp {
    now().checked_sub((24 * 500).hours()).expect("a time")
}

/// A port that is free now.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("the port").port()
}
