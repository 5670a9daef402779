//! `jobctl login` and `logout`: from an address to a context that commands can use, and back.

use std::io::{BufRead as _, IsTerminal as _, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context as _;
use pumice_jobs::error::sentence;
use pumice_jobs::names;
use pumice_jobs::platform::call;
use pumice_jobs::platform::contexts::{self, Context, ContextError, Contexts};
use pumice_jobs::platform::login::{
    self, Authority, CodeFlow, DeviceFlow, Files, Issuer, LoginError, OidcMethod, Server, Tokens,
};
use pumice_jobs::platform::target::Target;
use pumice_jobs::{Connection, Exit};
use serde_json::json;

use super::Session;
use crate::args::{LoginArgs, LogoutArgs, runtime};
use crate::environment::variable;
use crate::failure::Failure;
use crate::output;
use crate::terminal::{self, now};

/// What opens an address on a desktop, where `$BROWSER` names nothing else.
const OPENER: &str = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
/// Longest password that is read, in bytes.
const PASSWORD_BYTES_MAX: u64 = 4_096;
/// Longest file of a certificate, in bytes.
const CERTIFICATE_BYTES_MAX: u64 = 1 << 20;

/// Logs in, and makes the platform the one that commands go to.
pub fn login(session: &Session, args: &LoginArgs) -> Result<Exit, Failure> {
    let server = Server::new(&args.server)?;
    let path = contexts::file(&session.surroundings.target)?;
    let mut contexts = contexts::read(&path)?;
    let name = args.name.clone().unwrap_or_else(|| server.context_name());
    names::check("context", &name, 63)?;
    let files = Files::new(path.parent().unwrap_or(Path::new(".")), &name);
    let before = login::Session::read(&files)?;
    let is_other = match (&before, contexts.contexts.get(&name)) {
        (Some(before), _) => before.server != server.url,
        (None, other) => other.is_some(),
    };
    if is_other {
        let message = format!("the context {name} is another platform; give this one another name");
        return Err(Failure::Usage { message, next: format!("jobctl login {} --name NAME", args.server) });
    }
    let program = std::env::current_exe().context("cannot tell where jobctl is").map_err(Failure::Machine)?;
    let namespace = session.global.namespace.clone();
    let user = runtime()?.block_on(async {
        let authority = authority(&server, args, before.as_ref()).await?;
        let methods = server.methods(&authority).await?;
        let made = match &args.user {
            Some(_) if !methods.password => return Err(LoginError::NoPasswords(server.url.clone()).into()),
            Some(user) => {
                let password = password(&server, user)?;
                let tokens = server.tokens_for_password(&authority, user, &password, now).await?;
                login::Session::new(&server, &authority, None, tokens)
            }
            None => {
                let method = methods.oidc.ok_or_else(|| LoginError::NoIssuer(server.url.clone()))?;
                let tokens = tokens(&method, args).await?;
                login::Session::new(&server, &authority, Some(&method), tokens)
            }
        };
        made.write(&files, &program, namespace.as_deref())?;
        user(&files).await
    })?;
    let context = Context { kubeconfig: Some(files.kubeconfig()), namespace, ..Context::default() };
    contexts.contexts.insert(name.clone(), context);
    contexts.choose(&name)?;
    contexts::write(&path, &contexts)?;
    terminal::say(&format!("logged in to {} as {user}; commands go there (context {name})", server.url));
    Ok(Exit::Success)
}

/// The authority to trust: a file's, the one that was pinned before, or what the server says, once somebody confirmed it.
async fn authority(server: &Server, args: &LoginArgs, before: Option<&login::Session>) -> Result<Authority, Failure> {
    if let Some(path) = &args.ca {
        return Ok(Authority::from_pem(&read(path)?)?);
    }
    if let Some(before) = before.filter(|_| args.fingerprint.is_none()) {
        let pinned = before.authority()?;
        let Err(error) = server.methods(&pinned).await else { return Ok(pinned) };
        // Whoever answers with another authority is told apart from one that does not answer.
        let claimed = server.claimed_authority().await.map_err(|_| error)?;
        return Ok(server.confirmed(&claimed, &pinned.fingerprint())?);
    }
    let claimed = server.claimed_authority().await?;
    let found = claimed.fingerprint();
    match &args.fingerprint {
        Some(wanted) => Ok(server.confirmed(&claimed, wanted)?),
        None if is_confirmed(server, &found)? => Ok(server.confirmed(&claimed, &found)?),
        None => Err(LoginError::NotConfirmed { server: server.url.clone(), found }.into()),
    }
}

fn read(path: &PathBuf) -> Result<String, Failure> {
    let unreadable = || format!("cannot read {}", path.display());
    let size = std::fs::metadata(path).with_context(unreadable).map_err(Failure::Machine)?.len();
    if size > CERTIFICATE_BYTES_MAX {
        return Err(LoginError::NotOneCertificate.into());
    }
    std::fs::read_to_string(path).with_context(unreadable).map_err(Failure::Machine)
}

/// Whether somebody at the terminal says that the fingerprint is right.
fn is_confirmed(server: &Server, found: &str) -> Result<bool, Failure> {
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return Ok(false);
    }
    let mut stderr = std::io::stderr().lock();
    let url = &server.url;
    // Without an answer nothing is trusted, also when the question can't be written.
    let _ = write!(stderr, "{url} is known by the authority {found}.\nIs that what its administrator has? [y/N] ")
        .and_then(|()| stderr.flush());
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer).map_err(|error| Failure::Machine(error.into()))?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// The password, from the terminal without an echo, or the first line of standard input.
fn password(server: &Server, user: &str) -> Result<String, Failure> {
    let failed =
        |error: std::io::Error| Failure::Machine(anyhow::Error::from(error).context("cannot read the password"));
    if std::io::stdin().is_terminal() {
        let mut stderr = std::io::stderr().lock();
        // It is read whether the question could be written or not.
        let _ = write!(stderr, "password of {user} at {}: ", server.url).and_then(|()| stderr.flush());
        return console::Term::stderr().read_secure_line().map_err(failed);
    }
    let mut line = String::new();
    std::io::stdin().lock().take(PASSWORD_BYTES_MAX).read_line(&mut line).map_err(failed)?;
    Ok(line.trim_end_matches(['\n', '\r']).to_owned())
}

async fn tokens(method: &OidcMethod, args: &LoginArgs) -> Result<Tokens, Failure> {
    let issuer = Issuer::discover(method).await?;
    if args.device {
        let flow = DeviceFlow::begin(&issuer).await?;
        let (address, code) = flow.instructions();
        terminal::say(&format!("on any machine, open  {address}\nand type the code  {code}"));
        if let Some(complete) = flow.complete_address() {
            terminal::say(&format!("or open  {complete}"));
        }
        return Ok(flow.finish(now).await?);
    }
    let flow = CodeFlow::begin(&issuer).await?;
    terminal::say(&format!("log in at  {}", flow.url()));
    if !args.no_browser && !open(flow.url()) {
        terminal::say("no browser could be opened: open the address in one on this machine, or use --device");
    }
    Ok(flow.finish(now).await?)
}

/// Opens an address in the user's browser, if there is one.
fn open(url: &str) -> bool {
    let named = variable("BROWSER");
    let on_desktop =
        cfg!(target_os = "macos") || variable("DISPLAY").is_some() || variable("WAYLAND_DISPLAY").is_some();
    if named.is_none() && !on_desktop {
        return false;
    }
    let mut command = Command::new(named.as_deref().unwrap_or(OPENER.as_ref()));
    command.arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().is_ok()
}

/// Who the platform says that we are.
async fn user(files: &Files) -> Result<String, Failure> {
    let target = Target::Kubeconfig { path: files.kubeconfig(), context: None };
    let connection = Connection::open(target, None).await?;
    let review = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" });
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let answer = call::try_create(&connection, path, &review, "ask who you are").await?;
    Ok(answer.pointer("/status/userInfo/username").and_then(|name| name.as_str()).unwrap_or_default().to_owned())
}

/// Ends the login of a context, and forgets the context.
pub fn logout(session: &Session, args: &LogoutArgs) -> Result<Exit, Failure> {
    let path = contexts::file(&session.surroundings.target)?;
    let mut contexts = contexts::read(&path)?;
    let name = name(&contexts, args)?;
    let files = Files::new(path.parent().unwrap_or(Path::new(".")), &name);
    let left = runtime()?.block_on(login::logout(&files))?;
    // It may have been taken away by hand.
    if contexts.contexts.contains_key(&name) {
        contexts.remove(&name)?;
        contexts::write(&path, &contexts)?;
    }
    for error in left {
        terminal::say(&format!("not everywhere: {}", sentence(&error)));
    }
    terminal::say(&format!("logged out of {name}"));
    Ok(Exit::Success)
}

fn name(contexts: &Contexts, args: &LogoutArgs) -> Result<String, ContextError> {
    let name = args.name.clone().or_else(|| contexts.current.clone());
    name.ok_or_else(|| ContextError::Unknown { name: "is in use".to_owned() })
}

/// Prints a token for kubectl, as its plugins do (client.authentication.k8s.io/v1).
pub fn credential(path: &Path) -> Result<Exit, Failure> {
    let credential = runtime()?.block_on(login::fresh(&Files::at(path), now))?;
    let status = json!({ "token": credential.token, "expirationTimestamp": credential.expires.to_string() });
    let printed =
        json!({ "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status });
    output::text(&format!("{printed}\n"))?;
    Ok(Exit::Success)
}
