//! Parts of one process that run beside each other and end together.

use std::future::Future;

use anyhow::{Result, bail};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// What runs, by name. Dropping it ends all without their leave; see [`Parts::end`].
#[derive(Default)]
pub struct Parts {
    tasks: JoinSet<(String, Result<()>)>,
    shutdown: CancellationToken,
}

impl Parts {
    /// Starts one, until the token that it is given is cancelled.
    pub fn spawn<F, E>(&mut self, name: impl Into<String>, run: impl FnOnce(CancellationToken) -> F)
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: std::error::Error + Send + Sync + 'static,
    {
        let (name, task) = (name.into(), run(self.shutdown.clone()));
        self.tasks.spawn(async move { (name, task.await.map_err(anyhow::Error::new)) });
    }

    /// Waits for the first that ends by itself, which none of them should.
    pub async fn failure(&mut self) -> anyhow::Error {
        match self.tasks.join_next().await {
            Some(Ok((name, Err(error)))) => error.context(format!("the {name} failed")),
            Some(Ok((name, Ok(())))) => anyhow::anyhow!("the {name} ended before its time"),
            Some(Err(panic)) => anyhow::Error::new(panic).context("a component panicked"),
            None => anyhow::anyhow!("no component runs"),
        }
    }

    /// Asks all to end and waits for them.
    pub async fn end(mut self) -> Result<()> {
        self.shutdown.cancel();
        let mut failed = Vec::new();
        while let Some(ended) = self.tasks.join_next().await {
            match ended {
                Ok((_, Ok(()))) => {}
                Ok((name, Err(error))) => failed.push(format!("{name}: {error:#}")),
                Err(panic) => failed.push(panic.to_string()),
            }
        }
        if failed.is_empty() { Ok(()) } else { bail!("not everything ended well: {}", failed.join("; ")) }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::io;

    use super::*;

    #[tokio::test]
    async fn the_first_that_ends_is_named_and_the_others_end_with_it() {
        let mut parts = Parts::default();
        parts.spawn("clock", |stop| async move {
            stop.cancelled().await;
            Err(io::Error::other("wound down"))
        });
        parts.spawn("lamp", |_| async { Ok::<(), Infallible>(()) });
        assert_eq!(parts.failure().await.to_string(), "the lamp ended before its time");
        assert_eq!(parts.end().await.unwrap_err().to_string(), "not everything ended well: clock: wound down");
    }
}
