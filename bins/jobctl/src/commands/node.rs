//! `jobctl node`: nodes, and which take pods.

use pumice_jobs::cluster::nodes::{self, NodeSummary};
use pumice_jobs::{Connection, Exit};
use serde::Deserialize;
use serde_json::Value;

use super::Session;
use crate::args::{Form, NodeCommand};
use crate::failure::Failure;
use crate::output;
use crate::terminal;

/// Does what the command says.
pub fn run(session: &Session, command: &NodeCommand) -> Result<Exit, Failure> {
    let colours = terminal::colours(&session.surroundings);
    session.talk(|connection| async move {
        match command {
            NodeCommand::List(shown) if matches!(shown.output, Form::Json | Form::Yaml) => {
                let (nodes, _) =
                    pumice_jobs::platform::call::list(&connection, "/api/v1/nodes", "", "list nodes").await?;
                output::object(&output::list_of(nodes), shown.output)?;
            }
            NodeCommand::List(shown) => {
                let nodes = nodes::list(&connection).await?;
                match shown.output {
                    Form::Name => {
                        output::text(&nodes.iter().map(|node| format!("node/{}\n", node.name())).collect::<String>())?;
                    }
                    _ => output::text(&nodes::table(&nodes, terminal::now()).render(colours))?,
                }
            }
            NodeCommand::Get(one) => {
                let object = nodes::get(&connection, &one.name).await?;
                match one.output {
                    Form::Json | Form::Yaml => output::object(&object, one.output)?,
                    Form::Name => output::text(&format!("node/{}\n", one.name))?,
                    Form::Table | Form::Wide => {
                        let row = [summary(&connection, &object)?];
                        output::text(&nodes::table(&row, terminal::now()).render(colours))?;
                    }
                }
            }
            NodeCommand::Cordon { name } => {
                nodes::cordon(&connection, name, true).await?;
                terminal::say(&format!("node {name} takes no more pods; those on it stay"));
            }
            NodeCommand::Uncordon { name } => {
                nodes::cordon(&connection, name, false).await?;
                terminal::say(&format!("node {name} takes pods"));
            }
        }
        Ok(Exit::Success)
    })
}

fn summary(connection: &Connection, object: &Value) -> Result<NodeSummary, Failure> {
    Ok(NodeSummary::deserialize(object)
        .map_err(|error| pumice_jobs::platform::call::CallError::unreadable("read a node", connection.url(), error))?)
}
