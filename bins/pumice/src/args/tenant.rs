//! Flags of `pumice tenant`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use pumice_vcctl::tenant::Wanted;

use super::vcctl::{ApiFlags, NameAndOutput, Output};

/// Flags of `pumice tenant`.
#[derive(Debug, Args)]
pub struct TenantArgs {
    #[command(flatten)]
    pub api: ApiFlags,
    #[command(subcommand)]
    pub verb: Verb,
}

/// What is done with tenants.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Make one: its namespace, and who its pods are. What this machine knows of the user need not be said
    Create(Box<CreateArgs>),
    /// List tenants
    List {
        #[command(flatten)]
        output: Output,
    },
    /// Show all of one
    Show(NameAndOutput),
    /// Take the rights of one's users away; nothing is deleted
    Suspend(SuspendArgs),
    /// Give the users of a suspended one their rights again
    Resume(NameAndOutput),
    /// Delete one that is suspended; its namespace and all data stay
    Delete(NameAndOutput),
    /// Make and change many, from a table (users.csv) or from Tenants in YAML or JSON; can be repeated
    Import {
        /// The file; - is standard input, as YAML
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}

/// A tenant to be made.
#[derive(Debug, Args)]
pub struct CreateArgs {
    /// Its name
    #[arg(value_name = "NAME")]
    pub name: String,
    /// The user, as certificates, tokens and the machine call him [default: NAME]
    #[arg(long, value_name = "USER")]
    user: Option<String>,
    /// User id of its pods' processes [default: the user's on this machine]
    #[arg(long, value_name = "UID")]
    uid: Option<i64>,
    /// Their first group [default: the user's on this machine]
    #[arg(long, value_name = "GID")]
    gid: Option<i64>,
    /// Their other groups, separated by commas; an empty text for none [default: the user's on this machine]
    #[arg(long, value_name = "GIDS")]
    groups: Option<String>,
    /// The namespace that is its own [default: NAME]
    #[arg(long, value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// A folder of the nodes that is its home, as FOLDER or FOLDER:WHERE; an empty text for none [default: the user's on
    /// this machine]
    #[arg(long, value_name = "FOLDER")]
    home: Option<String>,
    /// More users who work in the namespace
    #[arg(long = "member", value_name = "USERS", value_delimiter = ',')]
    members: Vec<String>,
    /// Groups whose users work in the namespace
    #[arg(long = "member-group", value_name = "GROUPS", value_delimiter = ',')]
    member_groups: Vec<String>,
    /// Queues that it may use [default: default]
    #[arg(long = "queue", value_name = "QUEUES", value_delimiter = ',')]
    queues: Vec<String>,
    /// Cluster roles of its users in the namespace [default: edit]
    #[arg(long = "role", value_name = "ROLES", value_delimiter = ',')]
    roles: Vec<String>,
    /// Resources of devices that its pods may ask for, such as nvidia.com/gpu
    #[arg(long = "device", value_name = "RESOURCES", value_delimiter = ',')]
    devices: Vec<String>,
    /// What all of its pods may use together, such as requests.cpu=64
    #[arg(long = "limit", value_name = "RESOURCE=AMOUNT", value_delimiter = ',')]
    limits: Vec<String>,
    #[command(flatten)]
    pub output: Output,
}

impl CreateArgs {
    /// What is asked for; `Err` is what of it can't be read.
    pub fn wanted(&self) -> Result<Wanted, String> {
        let number = |text: &str| text.trim().parse().map_err(|_| format!("--groups: {text:?} is no group id"));
        let read = |text: &String| text.split(',').filter(|text| !text.trim().is_empty()).map(number).collect();
        Ok(Wanted {
            name: self.name.clone(),
            user: self.user.clone(),
            uid: self.uid,
            gid: self.gid,
            groups: self.groups.as_ref().map(read).transpose()?,
            namespace: self.namespace.clone(),
            home: self.home.clone(),
            members: self.members.clone(),
            member_groups: self.member_groups.clone(),
            queues: self.queues.clone(),
            roles: self.roles.clone(),
            devices: self.devices.clone(),
            limits: self.limits.clone(),
        })
    }

    /// The user whom the machine may know.
    pub fn user(&self) -> &str {
        self.user.as_deref().unwrap_or(&self.name)
    }
}

/// A tenant to be suspended.
#[derive(Debug, Args)]
pub struct SuspendArgs {
    /// Its name
    #[arg(value_name = "NAME")]
    pub name: String,
    /// End its running pods, too; its jobs begin again when it is resumed
    #[arg(long)]
    pub stop: bool,
    #[command(flatten)]
    pub output: Output,
}
