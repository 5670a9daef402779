//! Flags of a platform that users share: who they are, and where they reach it.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Result, bail, ensure};
use clap::{Args, ValueEnum};
use pumice_jobs::platform::local_socket::DEFAULT_SOCKET;

use super::api::{ApiArgs, ProfileArg};

/// Where tenants come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TenantsArg {
    /// the members of groups of this machine, by --group: each gets a namespace of his own
    System,
    /// the Tenants that people make, or a Directory such as LDAP
    Objects,
}

/// A platform for the users of a machine.
#[derive(Debug, Args)]
#[command(next_help_heading = "Shared machine")]
pub struct TenantsArgs {
    /// Share the platform: each user is a tenant, whose pods run as his own user id. Needs root, and makes --profile restricted (see
    /// docs/shared-machine.md)
    #[arg(long, value_enum, value_name = "system|objects")]
    pub tenants: Option<TenantsArg>,
    /// Group of this machine whose members are tenants; repeatable
    #[arg(long, value_name = "NAME", requires = "tenants")]
    pub group: Vec<String>,
    /// The socket over which users of this machine reach the platform [default: /run/pumice/api.sock]
    #[arg(long, value_name = "PATH", requires = "tenants")]
    pub socket: Option<PathBuf>,
    /// Serve other machines on this address, too, for people who can log in: IP or IP:PORT; repeatable
    #[arg(long, value_name = "ADDRESS", requires = "tenants")]
    pub listen: Vec<ListenAddress>,
    /// Name by which other machines reach this one, for the certificate; repeatable
    #[arg(long, value_name = "NAME", requires = "listen")]
    pub name: Vec<String>,
}

/// An address to listen on; without a port it is that of `--port`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListenAddress {
    pub ip: IpAddr,
    pub port: Option<u16>,
}

impl FromStr for ListenAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(ip) = text.parse() {
            return Ok(Self { ip, port: None });
        }
        let whole: Result<SocketAddr, _> = text.parse();
        let whole =
            whole.map_err(|_| format!("{text:?} is no address of this machine; try 192.0.2.7 or 192.0.2.7:6440"))?;
        Ok(Self { ip: whole.ip(), port: Some(whole.port()) })
    }
}

impl TenantsArgs {
    /// Refuses what makes no sense, and gives the platform the profile that tenants need. Touches nothing.
    pub fn settle(&self, api: &mut ApiArgs) -> Result<()> {
        let Some(tenants) = self.tenants else { return Ok(()) };
        ensure!(
            nix::unistd::Uid::effective().is_root(),
            "--tenants needs root, since each pod runs as its tenant's own user: start the platform by sudo, or without --tenants for \
             yourself alone"
        );
        match (tenants, self.group.is_empty()) {
            (TenantsArg::System, true) => {
                bail!("--tenants system needs --group: name the group of this machine whose members are tenants")
            }
            (TenantsArg::Objects, false) => {
                bail!("--group is for --tenants system: with --tenants objects no group of this machine counts")
            }
            _ => {}
        }
        let reserved = self.group.iter().find(|group| group.starts_with("system:") || group.starts_with("pumice:"));
        if let Some(group) = reserved {
            bail!("--group {group}: names that begin with system: and pumice: are the platform's own");
        }
        match api.profile {
            None => api.profile = Some(ProfileArg::Restricted),
            Some(ProfileArg::Restricted) => {}
            Some(_) => {
                bail!("--tenants needs --profile restricted, or users could become root by a pod: leave --profile out")
            }
        }
        Ok(())
    }

    /// Where the socket is, if there is one.
    pub fn socket(&self) -> Option<&Path> {
        self.tenants.map(|_| self.socket.as_deref().unwrap_or(Path::new(DEFAULT_SOCKET)))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        tenants: TenantsArgs,
        #[command(flatten)]
        api: ApiArgs,
    }

    fn line(line: &str) -> Result<Line, clap::Error> {
        Line::try_parse_from(std::iter::once("up").chain(line.split_whitespace()))
    }

    #[test]
    fn flags_of_a_shared_platform_go_together() {
        let settled = |text: &str| {
            let Line { tenants, mut api } = line(text).unwrap();
            tenants.settle(&mut api).map(|()| api.profile())
        };
        assert_eq!(settled("").unwrap(), ProfileArg::Open);
        for alone in ["--group research", "--socket /s", "--listen 192.0.2.1", "--name n --tenants objects"] {
            assert!(line(alone).is_err(), "{alone}");
        }
        if !nix::unistd::Uid::effective().is_root() {
            assert!(settled("--tenants objects").unwrap_err().to_string().contains("needs root"));
            return;
        }
        assert_eq!(settled("--tenants system --group research").unwrap(), ProfileArg::Restricted);
        assert_eq!(settled("--tenants objects --profile restricted").unwrap(), ProfileArg::Restricted);
        for (wrong, says) in [
            ("--tenants system", "needs --group"),
            ("--tenants objects --group g", "is for --tenants system"),
            ("--tenants system --group system:masters", "the platform's own"),
            ("--tenants objects --profile open", "leave --profile out"),
            ("--tenants objects --profile baseline", "leave --profile out"),
        ] {
            let error = settled(wrong).unwrap_err().to_string();
            assert!(error.contains(says), "{wrong}: {error}");
        }
    }

    #[test]
    fn an_address_may_leave_its_port_out() {
        let read = |text: &str| text.parse::<ListenAddress>().map(|address| (address.ip.to_string(), address.port));
        assert_eq!(read("192.0.2.7"), Ok(("192.0.2.7".to_owned(), None)));
        assert_eq!(read("0.0.0.0:0"), Ok(("0.0.0.0".to_owned(), Some(0))));
        assert_eq!(read("[2001:db8::1]:7"), Ok(("2001:db8::1".to_owned(), Some(7))));
        assert!(read("example.com").unwrap_err().contains("try 192.0.2.7"));
    }
}
