//! Passwords that a program of the administrator's knows: PAM, a directory, whatever there is on the machine.
//!
//! Invariant: name and password go to the program's standard input alone, each ended by a NUL byte, never into arguments or the
//! environment. It answers by its exit code: 0 right, 1 wrong; anything else means that it could not tell. What takes too long is
//! ended.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use futures::future::BoxFuture;
use pumice_apiserver::{PasswordCheck, PasswordCheckError};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

/// Longest time for an answer.
const TIMEOUT: Duration = Duration::from_secs(15);

/// Asks this program each time.
pub struct PasswordCommand(pub PathBuf);

impl PasswordCheck for PasswordCommand {
    fn check(&self, user: String, password: String) -> BoxFuture<'static, Result<bool, PasswordCheckError>> {
        let mut command = Command::new(&self.0);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::inherit()).env_clear().kill_on_drop(true);
        let program = self.0.display().to_string();
        Box::pin(async move {
            let failed =
                |what: &str, error: &dyn std::fmt::Display| PasswordCheckError(format!("{program} {what}: {error}"));
            let mut child = command.spawn().map_err(|error| failed("can't be started", &error))?;
            let asking = async {
                let mut input = child.stdin.take().ok_or_else(|| failed("takes no input", &"no pipe"))?;
                // One that ends before it has read all has answered.
                let _ = input.write_all(format!("{user}\0{password}\0").as_bytes()).await;
                drop(input);
                child.wait().await.map_err(|error| failed("can't be waited for", &error))
            };
            let ended = tokio::time::timeout(TIMEOUT, asking).await;
            let status = ended.map_err(|_| failed("does not answer", &"it was ended"))??;
            match status.code() {
                Some(0) => Ok(true),
                Some(1) => Ok(false),
                _ => Err(failed("could not tell", &status)),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[tokio::test]
    async fn the_exit_code_is_the_answer_and_nothing_is_in_the_arguments() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("check");
        let script = "#!/bin/sh\n[ $# = 0 ] && [ -z \"$HOME\" ] || exit 9\ninput=$(/usr/bin/tr '\\0' '|')\n\
            [ \"$input\" = 'slow|x|' ] && exec /bin/sleep 60\n[ \"$input\" = 'odd|x|' ] && exit 3\n[ \"$input\" = 'ann|a b|' ]\n";
        std::fs::write(&path, script).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let check =
            |user: &str, password: &str| PasswordCommand(path.clone()).check(user.to_owned(), password.to_owned());
        assert!(check("ann", "a b").await.unwrap());
        assert!(!check("ann", "wrong").await.unwrap());
        assert!(check("odd", "x").await.unwrap_err().to_string().contains("could not tell"));
        let missing = PasswordCommand("/nowhere/check".into()).check("ann".to_owned(), "secret".to_owned()).await;
        let error = missing.unwrap_err().to_string();
        assert!(error.contains("can't be started") && !error.contains("secret"), "{error}");
    }
}
