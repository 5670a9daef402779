//! `jobctl context`: names for platforms.

use std::path::{Path, PathBuf};

use pumice_jobs::output::table::Table;
use pumice_jobs::platform::connection::ConnectError;
use pumice_jobs::platform::contexts::{self, Context, ContextError, Contexts};
use pumice_jobs::{Exit, fleet};
use serde_json::json;

use super::Session;
use crate::args::{ContextAddArgs, ContextCommand, Form, ListOutput};
use crate::failure::Failure;
use crate::output;
use crate::terminal;

/// Does what the command says. Nothing is sent.
pub fn run(session: &Session, command: &ContextCommand) -> Result<Exit, Failure> {
    let path = contexts::file(&session.surroundings.target)?;
    let mut contexts = contexts::read(&path)?;
    match command {
        ContextCommand::List(shown) => return list(&contexts, shown),
        ContextCommand::Show { name } => {
            let name = name.as_ref().or(contexts.current.as_ref());
            let (name, found) = match name {
                None => (String::new(), Context::default()),
                Some(name) => {
                    let unknown = || ContextError::Unknown { name: name.clone() };
                    (name.clone(), contexts.contexts.get(name).cloned().ok_or_else(unknown)?)
                }
            };
            let namespace = found.namespace.as_deref().unwrap_or("default");
            let front = if name.is_empty() { "no context in use".to_owned() } else { name };
            output::text(&format!("{front}: {}, namespace {namespace}\n", found.address()))?;
            return Ok(Exit::Success);
        }
        ContextCommand::Use { name: Some(name) } => {
            contexts.choose(name)?;
            contexts::write(&path, &contexts)?;
            terminal::say(&format!("commands go to {name}: {}", contexts.contexts[name].address()));
        }
        ContextCommand::Use { name: None } => {
            contexts.current = None;
            contexts::write(&path, &contexts)?;
            terminal::say("commands go to the pumice up of this machine");
        }
        ContextCommand::Add(args) => {
            let name = &args.name;
            contexts.contexts.insert(name.clone(), added(session, args)?);
            contexts::write(&path, &contexts)?;
            terminal::say(&format!("{name} is {}", contexts.contexts[name].address()));
            terminal::say(&format!("next:  jobctl context use {name}"));
        }
        ContextCommand::Remove { name } => {
            contexts.remove(name)?;
            contexts::write(&path, &contexts)?;
            terminal::say(&format!("{name} is forgotten"));
        }
    }
    Ok(Exit::Success)
}

/// The context that flags describe. A fleet's identity is looked at, so that a wrong file is not found out by the first job.
fn added(session: &Session, args: &ContextAddArgs) -> Result<Context, Failure> {
    let absolute = |path: &PathBuf| match &session.surroundings.directory {
        Some(directory) => directory.join(path),
        None => path.clone(),
    };
    let added = Context {
        kubeconfig: session.global.kubeconfig.as_ref().map(absolute),
        context: args.kube_context.clone(),
        data_dir: session.global.data_dir.as_ref().map(absolute),
        namespace: session.global.namespace.clone(),
        fleet: args.fleet.clone(),
        identity: args.identity.as_ref().map(absolute),
        queue: args.queue.clone(),
    };
    if added == Context::default() {
        return Err(Failure::Usage {
            message: "a context needs a place: --kubeconfig FILE, --data-dir DIR or --fleet URL".to_owned(),
            next: format!("jobctl context add {} --kubeconfig FILE", args.name),
        });
    }
    if let (Some(url), Some(identity)) = (&added.fleet, &added.identity) {
        fleet::check(url, identity).map_err(ConnectError::from)?;
        if is_open_to_others(identity) {
            terminal::say(&format!("others can read the private key in {0}; next:  chmod 600 {0}", identity.display()));
        }
    }
    Ok(added)
}

#[cfg(unix)]
fn is_open_to_others(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;

    std::fs::metadata(path).is_ok_and(|metadata| metadata.permissions().mode() & 0o077 != 0)
}

#[cfg(not(unix))]
fn is_open_to_others(_: &Path) -> bool {
    false
}

fn list(contexts: &Contexts, shown: &ListOutput) -> Result<Exit, Failure> {
    match shown.output {
        Form::Json | Form::Yaml => output::object(&json!(contexts), shown.output)?,
        Form::Name => output::text(&contexts.contexts.keys().map(|name| format!("{name}\n")).collect::<String>())?,
        Form::Table | Form::Wide if contexts.contexts.is_empty() => {
            terminal::say("no contexts; commands go to the pumice up of this machine");
            terminal::say("next:  jobctl context add NAME --kubeconfig FILE");
        }
        Form::Table | Form::Wide => {
            let mut table = Table::new(["CURRENT", "NAME", "WHERE", "NAMESPACE"]);
            for (name, context) in &contexts.contexts {
                let current = if contexts.current.as_ref() == Some(name) { "*" } else { "" };
                let namespace = context.namespace.clone().unwrap_or_default();
                table.push([current.to_owned(), name.clone(), context.address(), namespace]);
            }
            output::text(&table.render(false))?;
        }
    }
    Ok(Exit::Success)
}
