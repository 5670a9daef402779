//! What a platform says about logins, asked in two steps: of anybody, by which authority it is known; then, of whom that
//! authority vouches for, everything else.

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;

use super::http::{Client, Reply, Trust};
use super::{Authority, LoginError, Tokens};

/// Where it says it.
const METHODS: &str = "/pumice/login";
const LOGOUT: &str = "/pumice/logout";
/// Where passwords become tokens.
const TOKEN: &str = "/pumice/token";
/// Longest life of a token that is believed, in seconds.
const LIFE_SECONDS_MAX: u32 = 86_400;

/// Tokens for a password, or for a refresh token.
#[derive(Deserialize)]
struct Given {
    access_token: String,
    refresh_token: String,
    expires_in: u32,
}

/// Why there are none, as Kubernetes says it.
#[derive(Default, Deserialize)]
struct Refusal {
    #[serde(default)]
    message: String,
}

/// How people log in.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Methods {
    /// Certificates of the server's authority, in PEM.
    #[serde(default)]
    certificate_authority: Option<String>,
    #[serde(default)]
    pub oidc: Option<OidcMethod>,
    /// Whether the platform takes passwords.
    #[serde(default)]
    pub password: bool,
}

/// The issuer to log in at.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OidcMethod {
    pub issuer: String,
    pub client_id: String,
    #[serde(default)]
    pub scopes: Vec<String>,
    /// Certificates of the issuer's authority, in PEM; those of the system otherwise.
    #[serde(default)]
    pub certificate_authority: Option<String>,
}

/// A platform that somebody logs in to, by its address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Its address, without a path.
    pub url: String,
}

impl Server {
    /// The server at this address; `https://` is added where no scheme is named.
    ///
    /// # Errors
    /// An address that is none.
    pub fn new(address: &str) -> Result<Self, LoginError> {
        let wrong = || LoginError::Address(super::quoted(address));
        let whole = if address.contains("://") { address.to_owned() } else { format!("https://{address}") };
        let uri: http::Uri = whole.parse().map_err(|_| wrong())?;
        let authority = uri.authority().filter(|authority| !authority.as_str().contains('@')).ok_or_else(wrong)?;
        if uri.scheme_str() != Some("https") || !matches!(uri.path(), "" | "/") || uri.query().is_some() {
            return Err(wrong());
        }
        Ok(Self { url: format!("https://{authority}") })
    }

    /// The name of its context, where nobody says another: host and port.
    pub fn context_name(&self) -> String {
        let authority = self.url.trim_start_matches("https://");
        let name: String = authority
            .chars()
            .map(
                |letter| {
                    if letter.is_ascii_alphanumeric() || letter == '.' { letter.to_ascii_lowercase() } else { '-' }
                },
            )
            .collect();
        name.trim_matches('-').to_owned()
    }

    /// The authority that whoever answers claims to be known by. It is to be confirmed before it is used.
    ///
    /// # Errors
    /// Where nobody says.
    pub async fn claimed_authority(&self) -> Result<Authority, LoginError> {
        let methods = self.read(&Client::new(&self.url, Trust::Anybody)?).await?;
        let pem = methods.certificate_authority.ok_or_else(|| LoginError::NoAuthority(self.url.clone()))?;
        Authority::from_pem(&pem).map_err(|_| LoginError::NoAuthority(self.url.clone()))
    }

    /// Those certificates of an authority that were confirmed by a fingerprint.
    ///
    /// # Errors
    /// Where none has it.
    pub fn confirmed(&self, claimed: &Authority, wanted: &str) -> Result<Authority, LoginError> {
        claimed.only(wanted)?.ok_or_else(|| LoginError::OtherAuthority {
            server: self.url.clone(),
            wanted: super::quoted(wanted),
            found: claimed.fingerprint(),
        })
    }

    /// How people log in, said by whom `authority` vouches for.
    ///
    /// # Errors
    /// Where it does not say, or is not who it is taken for.
    pub async fn methods(&self, authority: &Authority) -> Result<Methods, LoginError> {
        self.read(&Client::new(&self.url, Trust::Authority(authority))?).await
    }

    /// Ends the login that a token comes from.
    ///
    /// # Errors
    /// Where the server does not answer. One that knows the token no more has ended it.
    pub async fn logout(&self, authority: &Authority, token: &str) -> Result<(), LoginError> {
        let client = Client::new(&self.url, Trust::Authority(authority))?;
        let Reply { status, .. } = client.post_with_token(LOGOUT, token).await?;
        match status {
            200 | 401 => Ok(()),
            status => Err(LoginError::Status { url: format!("{}{LOGOUT}", self.url), status }),
        }
    }

    /// Tokens for a password.
    ///
    /// # Errors
    /// Where it is wrong, or there are too many tries.
    pub async fn tokens_for_password(
        &self,
        authority: &Authority,
        user: &str,
        password: &str,
        now: fn() -> Timestamp,
    ) -> Result<Tokens, LoginError> {
        let fields = [("grant_type", "password"), ("username", user), ("password", password)];
        Ok(Tokens { subject: user.to_owned(), ..self.tokens(authority, &fields, now).await? })
    }

    /// The next tokens of a login by password.
    ///
    /// # Errors
    /// Where there are none; [`LoginError::Refused`] where there never will be.
    pub(super) async fn refresh(
        &self,
        authority: &Authority,
        refresh_token: &str,
        now: fn() -> Timestamp,
    ) -> Result<Tokens, LoginError> {
        let fields = [("grant_type", "refresh_token"), ("refresh_token", refresh_token)];
        self.tokens(authority, &fields, now).await
    }

    async fn tokens(
        &self,
        authority: &Authority,
        fields: &[(&str, &str)],
        now: fn() -> Timestamp,
    ) -> Result<Tokens, LoginError> {
        let client = Client::new(&self.url, Trust::Authority(authority))?;
        let Reply { status, body } = client.post(TOKEN, fields).await?;
        let url = format!("{}{TOKEN}", self.url);
        match status {
            200 => {}
            400 | 401 | 429 => {
                let refusal: Refusal = serde_json::from_slice(&body).unwrap_or_default();
                return Err(LoginError::Refused(super::quoted(&refusal.message)));
            }
            status => return Err(LoginError::Status { url, status }),
        }
        let given: Given =
            serde_json::from_slice(&body).map_err(|error| LoginError::Answer { url, detail: error.to_string() })?;
        let issued = now();
        let life = SignedDuration::from_secs(given.expires_in.min(LIFE_SECONDS_MAX).into());
        let expires = issued.checked_add(life).unwrap_or(Timestamp::MAX);
        let Given { access_token: id_token, refresh_token, .. } = given;
        Ok(Tokens { id_token, refresh_token: Some(refresh_token), issued, expires, subject: String::new() })
    }

    async fn read(&self, client: &Client) -> Result<Methods, LoginError> {
        let Reply { status, body } = client.get(METHODS).await?;
        let url = format!("{}{METHODS}", self.url);
        if status != 200 {
            return Err(LoginError::Status { url, status });
        }
        serde_json::from_slice(&body).map_err(|error| LoginError::Answer { url, detail: error.to_string() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_host_with_encryption() {
        for (address, url, name) in [
            ("https://farm:6440", "https://farm:6440", "farm-6440"),
            ("farm.example.com", "https://farm.example.com", "farm.example.com"),
            ("https://[::1]:6440/", "https://[::1]:6440", "1--6440"),
            ("HTTPS://Farm:6440", "https://Farm:6440", "farm-6440"),
        ] {
            let server = Server::new(address).unwrap();
            assert_eq!((server.url.as_str(), server.context_name().as_str()), (url, name));
        }
        for address in
            ["", "http://farm:6440", "https://", "https://ann@farm", "https://farm/path", "https://farm?x=1", "a b"]
        {
            assert!(matches!(Server::new(address), Err(LoginError::Address(_))), "{address}");
        }
    }
}
