//! `pumice node list --set-aside` and `pumice node remove-set-aside`: what can't be removed, and another attempt at it.
//!
//! Invariant: both work on the data directory, whether a platform runs there or not.

use anyhow::{Context, Result};

use crate::args::StatusForm;
use crate::args::node::{ListArgs, RemoveSetAsideArgs};
use crate::data_dir::DataDir;
use crate::output;

/// Lists what was set aside.
pub fn list(args: &ListArgs) -> Result<()> {
    let data = DataDir::choose(args.data_dir.data_dir.as_deref())?;
    let all = pumice_node::set_aside(data.path())?;
    let text = match args.output {
        StatusForm::Json => format!("{}\n", serde_json::to_string_pretty(&all).context("write JSON")?),
        StatusForm::Yaml => serde_saphyr::to_string(&all).context("write YAML")?,
        StatusForm::Text if all.is_empty() => "nothing was set aside\n".to_owned(),
        StatusForm::Text => {
            let told = all.iter().map(|one| {
                let (name, owner, path) = (&one.name, one.owner(), one.path.display());
                format!(
                    "{name}\n  of      {owner}\n  since   {}\n  path    {path}\n  reason  {}\n",
                    one.since, one.reason
                )
            });
            told.chain(["next: pumice node remove-set-aside NAME\n".to_owned()]).collect()
        }
    };
    output::print(&text)
}

/// Removes what was set aside.
pub fn remove(args: &RemoveSetAsideArgs) -> Result<()> {
    let data = DataDir::choose(args.data_dir.data_dir.as_deref())?;
    for name in &args.names {
        pumice_node::remove_set_aside(data.path(), name, &crate::up::shim_program()?)
            .with_context(|| format!("remove {name}"))?;
        output::line(format_args!("{name} is removed"))?;
    }
    Ok(())
}
