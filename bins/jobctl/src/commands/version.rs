//! `jobctl version` and `completion`: what this program says of itself.

use clap_complete::Shell;
use pumice_jobs::Exit;
use pumice_jobs::json::text_at;
use pumice_jobs::platform::call;
use serde_json::json;

use super::Session;
use crate::args::completion;
use crate::args::{Form, VersionArgs};
use crate::failure::Failure;
use crate::output;
use crate::terminal;

/// Prints the versions of this program and of the platform, if it answers.
pub fn version(session: &Session, args: &VersionArgs) -> Result<Exit, Failure> {
    let mut server = None;
    if !args.client {
        let asked = session.talk(|connection| {
            let server = &mut server;
            async move {
                let answer = call::get(&connection, "/version", "ask for the server's version").await?;
                *server = Some(text_at(&answer, "/gitVersion").to_owned());
                Ok(Exit::Success)
            }
        });
        if let Err(failure) = asked {
            // This program's own version is known all the same.
            failure.print("version");
        }
    }
    let client = env!("CARGO_PKG_VERSION");
    match args.output {
        Form::Json | Form::Yaml => output::object(&json!({"client": client, "server": server}), args.output)?,
        Form::Name => output::text(&format!("{client}\n"))?,
        Form::Table | Form::Wide => {
            let server = server.map(|version| format!("server {version}\n")).unwrap_or_default();
            output::text(&format!("jobctl {client}\n{server}"))?;
        }
    }
    Ok(Exit::Success)
}

/// Prints the script that lets a shell complete command lines.
pub fn completion(shell: Shell) -> Result<Exit, Failure> {
    output::text(&completion::script(shell)?)?;
    if std::io::IsTerminal::is_terminal(&std::io::stdout()) {
        terminal::say(&format!("next:  source <(jobctl completion {shell})"));
    }
    Ok(Exit::Success)
}
