//! A Jupyter server in a pod: the program that starts it, and where it listens.
//!
//! Invariant: its token is made in the pod and stands only in the environment of the server and in a file that nobody else can
//! read; who may run programs in the pod can have it. [`Address`] shows it to nobody but in its URL.

use std::time::Duration;

use serde::Deserialize;

use super::container_choice::RunningContainer;
use super::{InteractiveError, exec};
use crate::error::Error;
use crate::platform::call::{self, CallError, FailureClass};
use crate::platform::connection::Connection;

/// The pause between two looks.
const PAUSE: Duration = Duration::from_millis(500);

/// Starts Jupyter on the pod's own loopback. Jupyter takes the next port if one is taken, and writes into its folder which it
/// was, with the token.
///
/// Pods of one machine may share `/tmp`, so the folder has the pod's name, which runtimes give its programs as their host's. A token
/// in this variable is one that Jupyter does not print.
const START: &str = r#"if jupyter lab --version >/dev/null 2>&1; then kind=lab
elif jupyter notebook --version >/dev/null 2>&1; then kind=notebook
else
  echo 'there is no Jupyter here: pip install jupyterlab, or --image with one that has it, such as quay.io/jupyter/base-notebook' >&2
  exit 127
fi
[ -n "$HOSTNAME" ] || read -r HOSTNAME </proc/sys/kernel/hostname
folder="/tmp/pumice-notebook-$HOSTNAME"
rm -rf "$folder"
mkdir -m 700 "$folder" || exit 1
JUPYTER_TOKEN="$(od -An -N24 -tx1 /dev/urandom | tr -d ' \n')"
[ ${#JUPYTER_TOKEN} -eq 48 ] || exit 1
JUPYTER_RUNTIME_DIR="$folder"
export JUPYTER_TOKEN JUPYTER_RUNTIME_DIR
trap '[ -z "$server" ] || kill -TERM "$server" 2>/dev/null' TERM INT HUP
jupyter "$kind" --no-browser --allow-root --ip=127.0.0.1 &
server=$!
wait "$server"
code=$?
# A signal ends the wait and not yet the server.
while kill -0 "$server" 2>/dev/null; do
  wait "$server"
  code=$?
done
rm -rf "$folder"
exit "$code"
"#;

/// Prints what the server wrote down.
const READ: &str = r#"[ -n "$HOSTNAME" ] || read -r HOSTNAME </proc/sys/kernel/hostname
cd "/tmp/pumice-notebook-$HOSTNAME" 2>/dev/null && cat jpserver-*.json nbserver-*.json 2>/dev/null
"#;

/// The program of a notebook's job.
pub fn start() -> Vec<String> {
    ["sh", "-c", START].map(str::to_owned).into()
}

/// Where a server listens in its pod, and what it asks for.
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    pub port: u16,
    secure: bool,
    base: String,
    token: String,
}

/// What Jupyter writes down.
#[derive(Deserialize)]
struct ServerFile {
    port: u16,
    #[serde(default)]
    secure: bool,
    #[serde(default)]
    base_url: String,
    #[serde(default)]
    token: String,
}

impl Address {
    /// Reads what Jupyter wrote; nothing if it is not there yet, or not whole.
    fn read(text: &str) -> Option<Address> {
        let mut values = serde_json::Deserializer::from_str(text).into_iter::<ServerFile>();
        let ServerFile { port, secure, base_url, token } = values.next()?.ok()?;
        let plain = base_url.bytes().all(|byte| byte.is_ascii_graphic()) && base_url.starts_with('/');
        let base = if plain { base_url } else { "/".to_owned() };
        Some(Address { port, secure, base, token })
    }

    /// What a browser of this machine opens, where `port` leads to it. It lets in whoever has it.
    pub fn url(&self, port: u16) -> String {
        let scheme = if self.secure { "https" } else { "http" };
        let token = match self.token.as_str() {
            "" => String::new(),
            token => format!("?token={}", call::query_value(token)),
        };
        format!("{scheme}://127.0.0.1:{port}{}{token}", self.base)
    }
}

/// Where the server in a pod listens. One that is still starting is waited for, at most `limit`.
pub async fn find(connection: &Connection, running: &RunningContainer, limit: Duration) -> Result<Address, Error> {
    let command = ["sh", "-c", READ].map(str::to_owned);
    let back = format!("jobctl notebook {}{}", running.job.name, running.job.namespace_flag());
    let looks = async {
        loop {
            match exec::answer(connection, running, &command, &back).await {
                Ok((told, _)) => {
                    if let Some(address) = Address::read(&told) {
                        return Ok(address);
                    }
                }
                Err(error) if passes(&error) => {}
                Err(error) => return Err(error),
            }
            tokio::time::sleep(PAUSE).await;
        }
    };
    tokio::time::timeout(limit, looks).await.unwrap_or_else(|_| {
        let problem = format!("no server was found in {} s; jobctl notebook starts one", limit.as_secs());
        Err(InteractiveError::NoNotebook { job: running.job.clone(), pod: running.pod.clone(), problem }.into())
    })
}

/// Whether the next look may have more luck.
fn passes(error: &Error) -> bool {
    let unreachable = error.downcast_ref::<CallError>().is_some_and(|call| call.class() == FailureClass::Unreachable);
    unreachable || matches!(error.downcast_ref(), Some(InteractiveError::Lost { .. }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_what_jupyter_wrote() {
        let server = r#"{"base_url": "/", "hostname": "127.0.0.1", "password": false, "pid": 7, "port": 8889,
            "root_dir": "/w", "secure": false, "sock": "", "token": "ab12", "url": "http://127.0.0.1:8889/", "version": "2.14"}"#;
        for (text, wanted) in [
            (server, Some((8889, "http://127.0.0.1:8890/?token=ab12"))),
            (&server.repeat(2), Some((8889, "http://127.0.0.1:8890/?token=ab12"))),
            (
                r#"{"port": 1, "secure": true, "base_url": "/ann/", "token": "a b"}"#,
                Some((1, "https://127.0.0.1:8890/ann/?token=a%20b")),
            ),
            (r#"{"port": 1, "base_url": "//evil\n", "token": ""}"#, Some((1, "http://127.0.0.1:8890/"))),
            ("", None),
            (&server[..40], None),
            (r#"{"port": 70000}"#, None),
            ("no json", None),
        ] {
            let address = Address::read(text).map(|address| (address.port, address.url(8890)));
            assert_eq!(address, wanted.map(|(port, url)| (port, url.to_owned())), "{text}");
        }
    }

    #[test]
    fn nothing_of_the_token_is_in_the_jobs_words() {
        insta::assert_snapshot!(start().join("\n"));
    }
}
