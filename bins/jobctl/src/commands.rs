//! From a parsed command line to its verb.

mod act;
mod attended;
mod careful;
mod context;
mod debug;
mod delete;
mod get;
mod history;
mod interactive;
mod list;
mod login;
mod logs;
mod node;
mod notebook;
mod progress;
mod queue;
mod results;
mod retry;
mod run;
mod session;
mod shard;
mod shell;
mod submit;
mod top;
mod version;
mod wait;
mod watch;
mod whoami;
mod why;
mod work;

use pumice_jobs::Exit;
use pumice_jobs::lifecycle::DesiredState;

use crate::args::{Cli, Command, Session, runtime};
use crate::environment;
use crate::failure::Failure;

/// Why a verb can't be used with a fleet, and what to type instead. Known before anything is sent: some would submit a job first.
fn not_of_a_fleet(command: &Command) -> Option<(&'static str, &'static str)> {
    match command {
        Command::Shell(_) => Some(("a fleet opens no terminals in pods", "jobctl run --help")),
        Command::Notebook(_) => Some(("a fleet opens no notebooks in pods", "jobctl context use")),
        Command::Debug(_) => {
            Some(("the pods of a fleet are in clusters that are not reached from here", "jobctl get JOB"))
        }
        Command::Watch(_) => Some(("a fleet tells of one job at a time", "jobctl progress --follow JOB")),
        Command::Top(_) | Command::Usage(_) => Some(("a fleet does not measure what pods use", "jobctl list")),
        Command::Node(_) => Some(("the nodes of a fleet are its clusters' own", "jobctl context use")),
        Command::History(_) => Some(("a fleet keeps no history apart from its jobs", "jobctl list")),
        Command::Logs(args) if args.stream.is_some() => {
            Some(("a fleet does not tell a pod's standard error from its output", "jobctl logs JOB"))
        }
        Command::Logs(args) if args.previous || args.attempt.is_some() => {
            Some(("a fleet has the log of a pod's last try alone", "jobctl logs JOB"))
        }
        Command::Delete(_) => Some(("a fleet forgets ended jobs by itself, and deletes none", "jobctl cancel JOB")),
        Command::Whoami(_) => {
            Some(("a fleet says who you are by the certificate that you show", "jobctl context show"))
        }
        Command::Suspend(_) | Command::Resume(_) => Some(("a fleet suspends no jobs", "jobctl cancel JOB")),
        _ => None,
    }
}

/// Does what the command line says.
pub fn run(cli: Cli) -> Result<Exit, Failure> {
    let session = Session { global: cli.global, surroundings: environment::read() };
    if let Some((message, next)) = not_of_a_fleet(&cli.command)
        && session.is_of_a_fleet()
    {
        return Err(Failure::Usage { message: message.to_owned(), next: next.to_owned() });
    }
    match cli.command {
        Command::Run(args) => run::run(&session, &args),
        Command::Submit(args) => submit::run(&session, &args),
        Command::List(args) => list::run(&session, &args),
        Command::Get(args) => get::run(&session, &args),
        Command::History(args) => history::run(&session, &args),
        Command::Why(args) => why::run(&session, &args),
        Command::Logs(args) => logs::run(&session, &args),
        Command::Results(args) => results::run(&session, &args),
        Command::Wait(args) => wait::run(&session, &args),
        Command::Shard(args) => shard::run(&session, &args.command),
        Command::Cancel(args) => act::run(&session, &args, DesiredState::Cancel),
        Command::Delete(args) => delete::run(&session, &args),
        Command::Progress(args) => progress::run(&session, &args),
        Command::Retry(args) => retry::run(&session, &args),
        Command::Debug(args) => debug::run(&session, &args),
        Command::Shell(args) => shell::run(&session, &args),
        Command::Notebook(args) => notebook::run(&session, &args),
        Command::Watch(args) => watch::run(&session, &args),
        Command::Top(args) => top::top(&session, &args),
        Command::Usage(args) => top::usage(&session, &args),
        Command::Queue(command) => queue::run(&session, &command),
        Command::Node(command) => node::run(&session, &command),
        Command::Context(command) => context::run(&session, &command),
        Command::Login(args) => login::login(&session, &args),
        Command::Logout(args) => login::logout(&session, &args),
        Command::Credential { session } => login::credential(&session),
        Command::Completion { shell } => version::completion(shell),
        Command::Whoami(args) => whoami::run(&session, &args),
        Command::Version(args) => version::version(&session, &args),
        Command::Suspend(args) => act::run(&session, &args, DesiredState::Suspend),
        Command::Resume(args) => act::run(&session, &args, DesiredState::Resume),
    }
}
