//! `pumice ca`: the certificate authority of the platform of this machine.
//!
//! Invariant: the platform that runs does it, so that nothing is changed behind its back. Nothing is dropped that was not told.

use anyhow::{Context as _, Result};
use pumice_cluster::connect::client_from;
use serde_json::{Value, json};

use crate::args::ca::{CaCommand, RotateArgs};
use crate::certificates::service::{AUTHORITIES, ROTATIONS};
use crate::data_dir::DataDir;
use crate::output;

/// Does what the command says.
pub fn run(command: &CaCommand) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("start the runtime")?;
    match command {
        CaCommand::Rotate(args) => runtime.block_on(rotate(args)),
        CaCommand::Show(args) => {
            let data = DataDir::choose(args.data_dir.as_deref())?;
            let told = runtime.block_on(ask(&data, http::Request::get(AUTHORITIES), None))?;
            tell(&told)
        }
    }
}

async fn rotate(args: &RotateArgs) -> Result<()> {
    let data = DataDir::choose(args.data_dir.data_dir.as_deref())?;
    let body = json!({"finish": args.finish, "force": args.force});
    let told = ask(&data, http::Request::post(ROTATIONS), Some(body)).await?;
    tell(&told)?;
    let file = data.kubeconfig();
    output::line(format_args!("{} has a new certificate; give it to whoever has a copy", file.display()))?;
    if args.finish {
        return Ok(());
    }
    let by_itself = text(&told["rotation"]["finishedByItselfAt"]);
    output::line(format_args!(
        "next: `pumice ca rotate --finish` once everybody has new credentials; that happens by itself at {by_itself}"
    ))
}

async fn ask(data: &DataDir, request: http::request::Builder, body: Option<Value>) -> Result<Value> {
    let kubeconfig = data.kubeconfig();
    let client = client_from(Some(&kubeconfig), None).await?;
    let request = request.header(http::header::CONTENT_TYPE, "application/json");
    let request = request.body(body.map(|body| body.to_string().into_bytes()).unwrap_or_default())?;
    let text = match client.request_text(request).await {
        Err(kube::Error::Api(status)) => anyhow::bail!("{}", status.message),
        answer => answer.with_context(|| {
            format!(
                "no platform answers in {}: start it first, its certificates are its own to change",
                data.path().display()
            )
        })?,
    };
    serde_json::from_str(&text).context("read the answer")
}

fn tell(told: &Value) -> Result<()> {
    output::line(format_args!("authority      until {}", text(&told["authority"]["until"])))?;
    if told["nextAuthority"].is_object() {
        let started = text(&told["rotation"]["started"]);
        let until = text(&told["nextAuthority"]["until"]);
        output::line(format_args!("next authority until {until}; both are trusted since {started}"))?;
    } else if told["rotation"].is_object() {
        let until = text(&told["rotation"]["oldTokensUntil"]);
        output::line(format_args!("tokens of pods from before the rotation count until {until}"))?;
    }
    output::line(format_args!("server         until {}", text(&told["server"]["until"])))?;
    output::line(format_args!("administrator  until {}", text(&told["administrator"]["until"])))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("unknown")
}
