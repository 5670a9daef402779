//! `jobctl context`: names for platforms.

use pumice_jobs::Exit;
use pumice_jobs::context::{self, Context, ContextError, Contexts};
use pumice_jobs::table::Table;
use serde_json::json;

use super::Session;
use crate::args::{ContextCommand, Form, Shown};
use crate::failure::Failure;
use crate::{output, terminal};

/// Does what the command says. Nothing is sent.
pub fn run(session: &Session, command: &ContextCommand) -> Result<Exit, Failure> {
    let path = context::file(&session.surroundings.target)?;
    let mut contexts = context::read(&path)?;
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
            output::text(&format!("{front}: {}, namespace {namespace}\n", found.place()))?;
            return Ok(Exit::Success);
        }
        ContextCommand::Use { name: Some(name) } => {
            contexts.choose(name)?;
            context::write(&path, &contexts)?;
            terminal::say(&format!("commands go to {name}: {}", contexts.contexts[name].place()));
        }
        ContextCommand::Use { name: None } => {
            contexts.current = None;
            context::write(&path, &contexts)?;
            terminal::say("commands go to the pumice up of this machine");
        }
        ContextCommand::Add { name, kube_context } => {
            let absolute = |path: &std::path::PathBuf| match &session.surroundings.directory {
                Some(directory) => directory.join(path),
                None => path.clone(),
            };
            let added = Context {
                kubeconfig: session.global.kubeconfig.as_ref().map(absolute),
                context: kube_context.clone(),
                data_dir: session.global.data_dir.as_ref().map(absolute),
                namespace: session.global.namespace.clone(),
            };
            if added == Context::default() {
                return Err(Failure::Usage {
                    message: "a context needs a place: --kubeconfig FILE or --data-dir DIR".to_owned(),
                    next: format!("jobctl context add {name} --kubeconfig FILE"),
                });
            }
            contexts.contexts.insert(name.clone(), added);
            context::write(&path, &contexts)?;
            terminal::say(&format!("{name} is {}", contexts.contexts[name].place()));
            terminal::say(&format!("next:  jobctl context use {name}"));
        }
        ContextCommand::Remove { name } => {
            contexts.remove(name)?;
            context::write(&path, &contexts)?;
            terminal::say(&format!("{name} is forgotten"));
        }
    }
    Ok(Exit::Success)
}

fn list(contexts: &Contexts, shown: &Shown) -> Result<Exit, Failure> {
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
                table.push([current.to_owned(), name.clone(), context.place(), namespace]);
            }
            output::text(&table.render(false))?;
        }
    }
    Ok(Exit::Success)
}
