//! Flags of `pumice fleet`.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use pumice_node::NodeShape;

/// What `pumice fleet` can do.
#[derive(Debug, Subcommand)]
pub enum FleetCommand {
    /// Run the server: queues and jobs behind Armada's API, and the clusters' executors on the other side
    Server(Box<FleetServerArgs>),
    /// Run the executor of one cluster: it takes jobs from the server and makes pods of them
    Executor(Box<FleetExecutorArgs>),
    /// Bring up a server, clusters of simulated nodes and their executors in one process, to try it out
    Up(Box<FleetUpArgs>),
    /// Print what somebody, or an executor, shows to the server: a private key and certificates, to be kept secret
    Identity(FleetIdentityArgs),
    /// Print what the configuration needs to know of a password or a token, which is read from standard input
    Hash(FleetHashArgs),
    /// Look whether all is well with a server, its database and its executors, or with one executor, and say what to do
    Doctor(FleetDoctorArgs),
    /// Run Armada's test specifications against a server, and print how each went
    Testsuite(Box<FleetTestsuiteArgs>),
    /// Run a workload on clusters in virtual time, as the server would schedule it, and say how it fared (see docs/fleet.md)
    Simulate(FleetSimulateArgs),
}

/// Where a fleet is kept.
#[derive(Debug, Args)]
pub struct FleetDir {
    /// Where everything is kept [default: the folder fleet in that of `pumice up`]
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
}

/// What a server is told.
#[derive(Debug, Args)]
pub struct ServingFleetArgs {
    #[command(flatten)]
    pub dir: FleetDir,
    /// Address to listen on; 0.0.0.0 for executors and people on other machines
    #[arg(long, value_name = "IP", default_value = "127.0.0.1")]
    pub bind_address: IpAddr,
    /// Port of everything; 0 takes a free one
    #[arg(long, default_value_t = 50051)]
    pub port: u16,
    /// Answer on this address of loopback, too, without TLS: for clients on this machine that can't have it, such as Armada's
    /// with localhost in their address. Who calls has to say who they are all the same
    #[arg(long, value_name = "IP:PORT", value_parser = loopback)]
    pub plaintext: Option<SocketAddr>,
    /// Another name or address of the server, for its certificate; repeatable
    #[arg(long, value_name = "NAME")]
    pub name: Vec<String>,
    /// Limits, priority classes, people and their permissions (see docs/fleet.md)
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Keep everything in Postgres, as in postgres://USER@HOST/NAME [default: a file of SQLite]
    #[arg(long, value_name = "URL")]
    pub database_url: Option<String>,
    /// What is logged to standard error, such as info or pumice_fleet=debug
    #[arg(long, value_name = "FILTER", default_value = "warn,pumice_fleet=info,pumice::fleet=info")]
    pub log: String,
}

/// `pumice fleet server`.
#[derive(Debug, Args)]
pub struct FleetServerArgs {
    #[command(flatten)]
    pub serving: ServingFleetArgs,
}

/// `pumice fleet executor`.
#[derive(Debug, Args)]
pub struct FleetExecutorArgs {
    #[command(flatten)]
    pub cluster: super::cluster::ClusterArgs,
    /// The server; repeatable where several share one database: whichever leads is found among them
    #[arg(long, value_name = "URL", default_value = "https://127.0.0.1:50051")]
    pub server: Vec<String>,
    /// Who the executor is: what `pumice fleet identity --executor NAME` printed
    #[arg(long, value_name = "FILE")]
    pub identity: PathBuf,
    /// Times and bounds (see docs/fleet.md)
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    pub serving: super::serving::ServingArgs,
}

/// `pumice fleet up`.
#[derive(Debug, Args)]
pub struct FleetUpArgs {
    #[command(flatten)]
    pub serving: ServingFleetArgs,
    /// Clusters
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=50))]
    pub clusters: u32,
    /// Simulated nodes of each cluster
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub nodes: u32,
    /// What each of them offers
    #[arg(long, value_name = "SHAPE", default_value = "cpu=32,memory=256Gi,ephemeral-storage=1Ti,pods=110")]
    pub node_shape: NodeShape,
}

/// `pumice fleet identity`.
#[derive(Debug, Args)]
pub struct FleetIdentityArgs {
    #[command(flatten)]
    pub dir: FleetDir,
    /// The executor that it is for, which is the name of its cluster
    #[arg(long, value_name = "NAME", required_unless_present = "user", conflicts_with = "user")]
    pub executor: Option<String>,
    /// The person that it is for
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// A group of theirs; at most two
    #[arg(long, value_name = "NAME", requires = "user")]
    pub group: Vec<String>,
}

/// `pumice fleet hash`.
#[derive(Debug, Args)]
pub struct FleetHashArgs {
    /// It is a token, which is long and random, and not a password
    #[arg(long)]
    pub token: bool,
}

/// `pumice fleet doctor`.
#[derive(Debug, Args)]
pub struct FleetDoctorArgs {
    /// The server
    #[arg(long, value_name = "URL", default_value = "https://127.0.0.1:50051")]
    pub server: String,
    /// Who asks: administrator.pem of the server's folder; with that of an executor its cluster is looked at, too
    #[arg(long, value_name = "FILE")]
    pub identity: PathBuf,
    /// How to reach the executor's cluster [default: $KUBECONFIG, ~/.kube/config, or the pod's service account]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Address of that cluster's API server, instead of the kubeconfig's
    #[arg(long, value_name = "URL")]
    pub master: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `pumice fleet testsuite`.
#[derive(Debug, Args)]
pub struct FleetTestsuiteArgs {
    /// The server
    #[arg(long, value_name = "URL", default_value = "https://127.0.0.1:50051")]
    pub server: String,
    /// Who runs them: administrator.pem of the server's folder, or what `pumice fleet identity --user NAME` printed
    #[arg(long, value_name = "FILE")]
    pub identity: PathBuf,
    /// Write the results to a file as JUnit does
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
    /// Only cases with this in their name
    #[arg(long, value_name = "SUBSTRING")]
    pub only: Option<String>,
    /// Cases at a time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=100))]
    pub parallel: u16,
    /// An annotation for every submitted job, such as pumice.sh/simulated-duration=1s; repeatable
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    pub annotate: Vec<(String, String)>,
    /// Run jobs of one namespace in another, as in personal-anonymous=default; repeatable
    #[arg(long, value_name = "FROM=TO", value_parser = pair)]
    pub namespace: Vec<(String, String)>,
    /// Specifications, or folders of them
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
}

/// How the answer of `pumice fleet simulate` is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SimulateForm {
    /// For people
    Table,
    /// For programs
    Json,
}

/// `pumice fleet simulate`.
#[derive(Debug, Args)]
pub struct FleetSimulateArgs {
    /// The clusters: specifications of Armada's simulator, folders of them, or patterns such as 'clusters/*.yaml'
    #[arg(long, value_name = "FILE", required = true, num_args = 1..)]
    pub clusters: Vec<String>,
    /// The workloads, likewise; each is run on each of the clusters
    #[arg(long, value_name = "FILE", required = true, num_args = 1..)]
    pub workloads: Vec<String>,
    /// The server's configuration, or one of Armada's scheduler [default: a server's without one]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// What run times are drawn by [default: what the workload says]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Seconds from a preemption until the pod is gone
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    pub grace: u32,
    /// Seconds between two rounds of a pool
    #[arg(long, value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub round_every: u32,
    /// Write what happened to jobs to a file, as comma-separated values
    #[arg(long, value_name = "FILE")]
    pub events: Option<PathBuf>,
    /// How the answer is printed
    #[arg(short, long, value_enum, default_value_t = SimulateForm::Table)]
    pub output: SimulateForm,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').filter(|(key, _)| !key.is_empty()).ok_or("there has to be a = in it")?;
    Ok((key.to_owned(), value.to_owned()))
}

/// An address that no other machine reaches.
fn loopback(text: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr =
        text.parse().map_err(|_| "write an address with a port, such as 127.0.0.1:50052".to_owned())?;
    if address.ip().is_loopback() {
        return Ok(address);
    }
    Err(format!("{} is no address of loopback: without TLS everybody on the way could read passwords", address.ip()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_goes_without_tls() {
        for (text, wanted) in [
            ("127.0.0.1:50052", Ok(())),
            ("127.8.0.1:0", Ok(())),
            ("[::1]:1", Ok(())),
            ("0.0.0.0:50052", Err("0.0.0.0 is no address of loopback")),
            ("[::]:1", Err(":: is no address of loopback")),
            ("10.0.0.1:1", Err("10.0.0.1 is no address of loopback")),
            ("localhost:1", Err("write an address with a port")),
            ("127.0.0.1", Err("write an address with a port")),
        ] {
            match (loopback(text), wanted) {
                (Ok(_), Ok(())) => {}
                (Err(problem), Err(wanted)) => assert!(problem.starts_with(wanted), "{text}: {problem}"),
                (found, wanted) => panic!("{text}: {found:?} is not {wanted:?}"),
            }
        }
    }
}
