//! Flags of the API server, in `pumice up` and by itself.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

use anyhow::Context as _;
use clap::{ArgAction, Args, ValueEnum};
use pumice_api::retention::TimeBound;
use pumice_apiserver::{AuditOptions, AuditPolicy, EVENT_LIFE_HOURS, EventLimits};
use pumice_objects::pod_security::Profile;
use pumice_units::Quantity;

use super::DataDir;
use super::oidc::OidcArgs;

/// What both take.
#[derive(Debug, Args)]
pub struct ApiArgs {
    /// Port; 0 takes a free one
    #[arg(long, default_value_t = 6440)]
    pub port: u16,
    /// Resource groups: what pods of some namespaces or annotations are given, in the format of Volcano's --admission-conf;
    /// read again when it changes
    #[arg(long, value_name = "FILE")]
    pub admission_conf: Option<PathBuf>,
    /// Judge Volcano's objects in the API server; false where `pumice admission run` does
    #[arg(long, value_name = "true|false", default_value_t = true, action = ArgAction::Set)]
    pub admission: bool,
    /// Warn when less than this is free on the disk of the store; of a small disk it is a tenth
    #[arg(long, value_name = "BYTES", default_value = "1Gi", value_parser = bytes)]
    pub warn_room: u64,
    /// What pods may ask for in namespaces whose labels don't say it (see docs/confinement.md) [default: open; restricted with
    /// --tenants]
    #[arg(long, value_enum)]
    pub profile: Option<ProfileArg>,
    #[command(flatten)]
    pub oidc: OidcArgs,
    /// Let users of Tenants log in with passwords that this program finds good: it reads a name and a password, each ended by a
    /// NUL byte, and exits with 0 or 1 (see docs/login.md)
    #[arg(long, value_name = "FILE")]
    pub password_command: Option<PathBuf>,
    #[command(flatten)]
    pub events: EventArgs,
    #[command(flatten)]
    pub audit: AuditArgs,
}

impl ApiArgs {
    /// What is asked for, or goes without saying.
    pub fn profile(&self) -> ProfileArg {
        self.profile.unwrap_or_default()
    }
}

/// A profile of pods that holds for a whole platform.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum ProfileArg {
    /// anything: one person's machine
    #[default]
    Open,
    /// nothing that lets a pod out of its container: no folders, networks, processes or ports of the host, no rights beyond the usual
    Baseline,
    /// the same, and no root, no new rights, no files of the host's people; pods have users of their own. The platform refuses to start
    /// where it could not enforce this
    Restricted,
}

impl ProfileArg {
    /// What the server is told.
    pub fn enforced(self) -> Profile {
        match self {
            Self::Open => Profile::Privileged,
            Self::Baseline => Profile::Baseline,
            Self::Restricted => Profile::Restricted,
        }
    }
}

fn bytes(text: &str) -> Result<u64, String> {
    let amount: Option<Quantity> = text.parse().ok();
    let bytes = amount.and_then(|amount| u64::try_from(amount.value()).ok());
    bytes.ok_or_else(|| format!("{text:?} is no amount of bytes; try 1Gi"))
}

/// [`EVENT_LIFE_HOURS`] as people write it.
static EVENT_TTL: LazyLock<String> = LazyLock::new(|| format!("{EVENT_LIFE_HOURS}h"));

/// How long Events stay.
#[derive(Debug, Args)]
pub struct EventArgs {
    /// How long Events stay after they were last seen
    #[arg(long, value_name = "TIME", default_value = EVENT_TTL.as_str(), value_parser = life)]
    pub event_ttl: Duration,
    /// Most Events that stay; the namespaces that have the most lose their oldest
    #[arg(long, value_name = "N", default_value_t = EventLimits::default().count_max)]
    pub events_max: usize,
}

impl EventArgs {
    /// What the server is told.
    pub fn limits(&self) -> EventLimits {
        EventLimits { life: self.event_ttl, count_max: self.events_max }
    }
}

/// A time as for finished work, which Events can't do without.
fn life(text: &str) -> Result<Duration, String> {
    let bound: TimeBound = text.parse().map_err(|_| format!("{text:?} is no time; try 1h or 2d"))?;
    bound.0.ok_or_else(|| "Events can't stay for ever; try 1h or 2d".to_owned())
}

/// Who did what.
#[derive(Debug, Args)]
pub struct AuditArgs {
    /// Write a line for each request that changes something (see docs/operations.md) [default where there are Tenants:
    /// DATA_DIR/audit.log]
    #[arg(long, value_name = "FILE")]
    pub audit_log: Option<PathBuf>,
    /// Which requests are told: a policy of audit.k8s.io/v1 with levels None and Metadata
    #[arg(long, value_name = "FILE", requires = "audit_log")]
    pub audit_policy_file: Option<PathBuf>,
    /// Size at which the audit log is begun anew, in megabytes
    #[arg(long, value_name = "MB", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub audit_log_maxsize: u64,
    /// How many files of before are kept, as FILE.1, FILE.2 ...
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub audit_log_maxbackup: u32,
}

impl AuditArgs {
    /// The log, if one is wanted: where the flag says, else where there has to be one. Reads the policy.
    pub fn log(&self, always: Option<&Path>) -> anyhow::Result<Option<(AuditOptions, AuditPolicy)>> {
        let Some(path) = self.audit_log.as_deref().or(always) else { return Ok(None) };
        let policy = match &self.audit_policy_file {
            None => AuditPolicy::default(),
            Some(file) => {
                let unusable = || format!("--audit-policy-file {} can't be used", file.display());
                let text = std::fs::read_to_string(file).with_context(unusable)?;
                AuditPolicy::parse(&text).with_context(unusable)?
            }
        };
        let path = std::path::absolute(path).with_context(|| format!("make {} absolute", path.display()))?;
        let bytes_max = self.audit_log_maxsize.saturating_mul(1 << 20);
        Ok(Some((AuditOptions { path, bytes_max, backups: self.audit_log_maxbackup }, policy)))
    }
}

/// `pumice apiserver`.
#[derive(Debug, Args)]
pub struct ApiServerArgs {
    #[command(flatten)]
    pub data_dir: DataDir,
    /// Address to listen on; 0.0.0.0 for components and clients on other machines
    #[arg(long, value_name = "IP", default_value = "127.0.0.1")]
    pub bind_address: IpAddr,
    #[command(flatten)]
    pub api: ApiArgs,
    /// Names of the schedulers whose pods are looked at; repeatable [default: volcano, pumice, default-scheduler]
    #[arg(long, value_name = "NAME")]
    pub scheduler_name: Vec<String>,
    /// Write a kubeconfig for the node of this name, too; repeatable [default: this machine]
    #[arg(long, value_name = "NAME")]
    pub node: Vec<String>,
    /// What is logged to standard error, such as info or pumice_apiserver=debug
    #[arg(long, value_name = "FILTER", default_value = "info")]
    pub log: String,
}
