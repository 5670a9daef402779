//! `pumice fleet`: the server of many clusters, their executors, and who they are.
//!
//! Invariant: the one line on standard output appears only when jobs can be submitted.

mod clusters;
mod doctor;
mod reload;
mod server;
mod simulate;
mod specifications;
mod testsuite;

use std::io::{IsTerminal as _, Read as _};
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use pumice_auth::{Ca, identity_of};
use pumice_clock::now;
use pumice_fleet_executor as executor;
use pumice_fleet_server::config::unknown_keys;
use pumice_fleet_server::gateway::{EXECUTORS, hash_password, hash_token};
use pumice_wire::client::Credentials;
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use crate::args::fleet::{
    FleetCommand, FleetDir, FleetExecutorArgs, FleetHashArgs, FleetIdentityArgs, FleetServerArgs, FleetUpArgs,
};
use crate::data_dir::DataDir;
use crate::process::{runtime, stop_on_signal};
use crate::{logging, output};
use server::Server;

/// Port of an executor's metrics, unless the flags say otherwise.
const METRICS_PORT: u16 = 9001;
/// Longest password or token.
const SECRET_BYTES_MAX: u64 = 64 << 10;

/// Does what the command says.
pub fn run(command: &FleetCommand) -> Result<()> {
    match command {
        FleetCommand::Server(args) => serve(args),
        FleetCommand::Up(args) => up(args),
        FleetCommand::Executor(args) => execute(args),
        FleetCommand::Identity(args) => identity(args),
        FleetCommand::Hash(args) => hash(args),
        FleetCommand::Doctor(args) => doctor::run(args),
        FleetCommand::Testsuite(args) => testsuite::run(args),
        FleetCommand::Simulate(args) => simulate::run(args),
    }
}

/// `pumice fleet server`: until a signal.
fn serve(args: &FleetServerArgs) -> Result<()> {
    logging::start(&args.serving.log, None)?;
    runtime()?.block_on(async {
        let stop = stop_on_signal()?;
        let server = Server::open(&args.serving).await?;
        server.announce();
        Box::pin(server.run(stop)).await
    })
}

/// `pumice fleet up`: the server, and clusters that reach it as any others do.
fn up(args: &FleetUpArgs) -> Result<()> {
    logging::start(&args.serving.log, None)?;
    runtime()?.block_on(async {
        let stop = stop_on_signal()?;
        let server = Server::open(&args.serving).await?;
        let clusters = clusters::start(&server, args).await?;
        server.announce();
        // Executors first: what they still have to say needs a server.
        let until = CancellationToken::new();
        let ending = async {
            let ended = clusters.run(stop).await;
            until.cancel();
            ended
        };
        let (served, ended) = tokio::join!(server.run(until.clone()), ending);
        served.and(ended)
    })
}

/// `pumice fleet executor`: until a signal. Pods go on without it.
fn execute(args: &FleetExecutorArgs) -> Result<()> {
    let path = &args.identity;
    let credentials = credentials(path)?;
    let identity =
        identity_of(&credentials.certificate).with_context(|| format!("{} is no identity", path.display()))?;
    ensure!(
        identity.is_in(EXECUTORS),
        "{} is the identity of {:?}, who is no executor: make one with `pumice fleet identity --executor NAME`",
        path.display(),
        identity.user
    );
    let settings = settings(args.config.as_deref())?;
    crate::standalone::run(&args.cluster, async |client, stop| {
        let executor = executor::build(executor::Options {
            name: identity.user,
            servers: args.server.clone(),
            tls: Some(credentials.tls),
            authorization: None,
            client,
            settings,
        })?;
        let watched = crate::standalone::watched(&args.serving, METRICS_PORT, executor.handle()).await?;
        tokio::select! {
            () = executor.run(stop) => {}
            () = watched => {}
        }
        Ok(())
    })
}

/// `pumice fleet identity`.
fn identity(args: &FleetIdentityArgs) -> Result<()> {
    let data = fleet_dir(&args.dir)?;
    let pki = data.pki();
    ensure!(
        pki.is_dir(),
        "no fleet is kept in {}: start its server first, or say where it is with --data-dir",
        data.path().display()
    );
    let ca = Ca::open_or_create(&pki, now()).context("open the fleet's certificate authority")?;
    let issued = match (&args.executor, &args.user) {
        (Some(executor), _) => ca.issue_client(executor, &[EXECUTORS], now()),
        (None, Some(user)) => {
            let groups: Vec<&str> = args.group.iter().map(String::as_str).collect();
            ca.issue_client(user, &groups, now())
        }
        (None, None) => bail!("say for whom: --executor NAME or --user NAME"),
    };
    output::print(&pumice_auth::credentials(&ca, &issued.context("issue the certificate")?))
}

/// `pumice fleet hash`.
fn hash(args: &FleetHashArgs) -> Result<()> {
    let mut input = std::io::stdin().lock();
    if input.is_terminal() {
        output::note("Type it, then Enter and Ctrl-D:");
    }
    let mut secret = String::new();
    input.by_ref().take(SECRET_BYTES_MAX).read_to_string(&mut secret).context("read the secret from standard input")?;
    let secret = secret.trim_end_matches(['\r', '\n']);
    ensure!(!secret.is_empty(), "nothing came on standard input");
    let hashed = if args.token { hash_token(secret) } else { hash_password(secret, rand::random()) };
    output::line(hashed)
}

/// The folder of a fleet.
fn fleet_dir(args: &FleetDir) -> Result<DataDir> {
    match &args.data_dir {
        Some(asked) => DataDir::choose(Some(asked)),
        None => DataDir::choose(Some(&DataDir::choose(None)?.path().join("fleet"))),
    }
}

/// Who an identity file says one is.
fn credentials(path: &Path) -> Result<Credentials> {
    let text = std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    Credentials::read(&text).with_context(|| format!("{} is no identity", path.display()))
}

fn settings(path: Option<&Path>) -> Result<executor::Settings> {
    path.map_or_else(|| Ok(executor::Settings::default()), read)
}

/// A file of settings in YAML.
fn read<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let text = std::fs::read_to_string(path).with_context(|| format!("read --config {}", path.display()))?;
    parse(&text).with_context(|| format!("--config {} can't be used", path.display()))
}

/// Settings in YAML. Of a file with more than one key that means nothing here, as Armada's have, all are named at once.
fn parse<T: DeserializeOwned>(text: &str) -> Result<T> {
    serde_saphyr::from_str(text).or_else(|error| {
        let file: Option<serde_json::Value> = serde_saphyr::from_str(text).ok();
        let unknown = file.map(|file| unknown_keys::<T>(&file)).unwrap_or_default();
        let unknown = Vec::from_iter(unknown);
        ensure!(unknown.len() < 2, "these keys mean nothing here, take them out: {}", unknown.join(", "));
        Err(error.into())
    })
}
