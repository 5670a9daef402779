//! Flags of the API server about logins by OpenID Connect, in kube-apiserver's words.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use pumice_apiserver::{LoginOptions, OidcClient};
use pumice_auth::{Issuer, IssuerSettings};

/// What switches a prefix off that would be there by default.
const NO_PREFIX: &str = "-";
/// The claim whose values are names of users wherever they come from.
const EMAIL: &str = "email";

/// Whose tokens are taken.
#[derive(Debug, Args)]
pub struct OidcArgs {
    /// Take tokens of this OpenID Connect issuer, and have people log in there (see docs/login.md)
    #[arg(long, value_name = "URL", requires = "oidc_client_id")]
    pub oidc_issuer_url: Option<String>,
    /// The client that tokens have to be for; a public one, without a secret
    #[arg(long, value_name = "ID", requires = "oidc_issuer_url")]
    pub oidc_client_id: Option<String>,
    /// The claim that is the user's name
    #[arg(long, value_name = "CLAIM", default_value = "sub")]
    pub oidc_username_claim: String,
    /// What stands before each user's name; - for nothing [default: the issuer's URL and #, nothing for the claim email]
    #[arg(long, value_name = "TEXT")]
    pub oidc_username_prefix: Option<String>,
    /// The claim that lists the user's groups; without it there are none
    #[arg(long, value_name = "CLAIM")]
    pub oidc_groups_claim: Option<String>,
    /// What stands before each group's name
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub oidc_groups_prefix: String,
    /// Certificates of the authority that the issuer is known by [default: those of the system]
    #[arg(long, value_name = "FILE")]
    pub oidc_ca_file: Option<PathBuf>,
    /// What jobctl login asks the issuer for; repeatable
    #[arg(long = "oidc-scope", value_name = "SCOPE", default_values = ["openid", "offline_access"])]
    pub oidc_scopes: Vec<String>,
}

impl OidcArgs {
    /// What the server is told, if an issuer is named. Reads the file of its authority; asks nobody.
    pub fn options(&self) -> anyhow::Result<Option<LoginOptions>> {
        let (Some(issuer), Some(client_id)) = (&self.oidc_issuer_url, &self.oidc_client_id) else { return Ok(None) };
        let username_prefix = match &self.oidc_username_prefix {
            Some(prefix) if prefix == NO_PREFIX => String::new(),
            Some(prefix) => prefix.clone(),
            None if self.oidc_username_claim == EMAIL => String::new(),
            None => format!("{issuer}#"),
        };
        let settings = IssuerSettings {
            issuer: issuer.clone(),
            client_id: client_id.clone(),
            username_claim: self.oidc_username_claim.clone(),
            groups_claim: self.oidc_groups_claim.clone().unwrap_or_default(),
            ca_file: self.oidc_ca_file.clone(),
            username_prefix,
            groups_prefix: self.oidc_groups_prefix.clone(),
            id_tokens_only: true,
        };
        let certificate_authority = self.oidc_ca_file.as_ref().map(|path| {
            std::fs::read_to_string(path).with_context(|| format!("--oidc-ca-file {} can't be read", path.display()))
        });
        let client = OidcClient {
            issuer: issuer.clone(),
            client_id: client_id.clone(),
            scopes: self.oidc_scopes.clone(),
            certificate_authority: certificate_authority.transpose()?,
        };
        let issuer = Issuer::new(&settings).with_context(|| format!("--oidc-issuer-url {issuer} can't be used"))?;
        Ok(Some(LoginOptions { issuer, client }))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        oidc: OidcArgs,
    }

    fn parse(args: &[&str]) -> Result<OidcArgs, clap::Error> {
        Line::try_parse_from([&["x"], args].concat()).map(|line| line.oidc)
    }

    #[test]
    fn an_issuer_needs_a_client_and_the_other_way_round() {
        assert!(parse(&[]).unwrap().options().unwrap().is_none());
        assert!(parse(&["--oidc-issuer-url", "https://h"]).is_err());
        assert!(parse(&["--oidc-client-id", "pumice"]).is_err());
    }

    #[test]
    fn what_can_not_be_used_names_the_flag() {
        let options = |more: &[&str]| {
            let args = parse(&[&["--oidc-client-id", "pumice", "--oidc-issuer-url"], more].concat()).unwrap();
            args.options().map(|_| ()).map_err(|error| format!("{error:#}"))
        };
        assert_eq!(options(&["http://127.0.0.1:1"]), Ok(()));
        for (more, word) in [
            (&["http://login.example.com"][..], "--oidc-issuer-url http://login.example.com"),
            (&["http://127.0.0.1:1", "--oidc-groups-prefix", "system:"], "is reserved"),
            (&["http://127.0.0.1:1", "--oidc-username-prefix", "pumice:"], "is reserved"),
            (&["http://127.0.0.1:1", "--oidc-ca-file", "/nowhere/ca.pem"], "/nowhere/ca.pem"),
        ] {
            assert!(options(more).unwrap_err().contains(word), "{more:?}");
        }
    }
}
