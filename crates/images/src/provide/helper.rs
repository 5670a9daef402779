//! Docker's credential helpers: programs that keep passwords for this machine's user.

use std::process::Stdio;
use std::time::Duration;

use serde::Deserialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;
use tokio::time::timeout;

use crate::registry::RegistryError;
use crate::registry::credentials::Credential;

/// Wait for a helper.
const WITHIN: Duration = Duration::from_secs(10);
/// Largest answer of one, in bytes.
const ANSWER_BYTES_MAX: u64 = 64 << 10;
/// What they call a token that others are given for.
const TOKEN: &str = "<token>";

#[derive(Deserialize)]
struct Answer {
    #[serde(rename = "Username")]
    user: String,
    #[serde(rename = "Secret")]
    secret: String,
}

/// Asks `docker-credential-NAME` for a host's credential. None where it has none.
pub(super) async fn credential(name: &str, host: &str) -> Result<Option<Credential>, RegistryError> {
    let failed = |problem: String| RegistryError::Helper { helper: name.into(), host: host.into(), problem };
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if !name.bytes().all(is_name) {
        return Err(failed("it is not a program's name".to_owned()));
    }
    let ask = async {
        let mut helper = Command::new(format!("docker-credential-{name}"))
            .arg("get")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        if let Some(mut input) = helper.stdin.take() {
            input.write_all(host.as_bytes()).await?;
        }
        let mut answer = Vec::new();
        if let Some(output) = helper.stdout.take() {
            output.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).await?;
        }
        Ok::<_, std::io::Error>((helper.wait().await?.success(), answer))
    };
    let ended = timeout(WITHIN, ask).await.map_err(|_| failed(format!("no answer within {} s", WITHIN.as_secs())))?;
    let (success, answer) = ended.map_err(|error| failed(error.to_string()))?;
    if !success {
        // This is how they say that there is none.
        let none = String::from_utf8_lossy(&answer).contains("credentials not found");
        return if none { Ok(None) } else { Err(failed("it failed".to_owned())) };
    }
    // What it said has a password.
    let answer: Answer = serde_json::from_slice(&answer).map_err(|_| failed("no JSON of a credential".to_owned()))?;
    Ok(Some(match answer.user.as_str() {
        TOKEN => Credential::Identity(answer.secret),
        _ => Credential::Password { user: answer.user, password: answer.secret },
    }))
}
