//! Pumice's scheduler with one more plugin. Its one argument is a scheduler configuration that names it.

use pumice_scheduler::Options;
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut options = Options::new(pumice_cluster::connect::client_from(None, None).await?);
    pumice_example_plugin::register(&mut options.plugins);
    options.config = std::env::args_os().nth(1).map(Into::into);
    Ok(Box::pin(options.build()?.run(CancellationToken::new())).await?)
}
