//! Flags that say where a component tells how it does.
//!
//! Invariant: names and defaults are those of Volcano's programs.

use std::net::{Ipv4Addr, SocketAddr};
use std::str::FromStr;

use clap::{ArgAction, Args};

/// Volcano's port of `/healthz`, for every component.
const HEALTH_PORT: u16 = 11251;

/// The address of a listener in Go's way: `:8080` is every address of this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address(pub SocketAddr);

impl Address {
    fn any(port: u16) -> Self {
        Self(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)))
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let whole = match text.strip_prefix(':') {
            Some(port) => port.parse().map(Self::any).ok(),
            None => text.parse().map(Self).ok(),
        };
        whole.ok_or_else(|| format!("{text:?} is no address to listen on; try :8080 or 127.0.0.1:8080"))
    }
}

/// Health of a component.
#[derive(Debug, Args)]
pub struct HealthArgs {
    /// Serve /healthz
    #[arg(long, value_name = "true|false", default_value_t = false, action = ArgAction::Set, num_args = 0..=1,
        default_missing_value = "true", require_equals = true)]
    enable_healthz: bool,
    /// Where /healthz is served [default: :11251]
    #[arg(long, value_name = "ADDRESS")]
    healthz_address: Option<Address>,
}

impl HealthArgs {
    /// Where, if it is wanted.
    pub fn address(&self) -> Option<SocketAddr> {
        self.enable_healthz.then(|| self.healthz_address.unwrap_or(Address::any(HEALTH_PORT)).0)
    }
}

/// Metrics and health of a component.
#[derive(Debug, Args)]
pub struct ServingArgs {
    /// Serve /metrics
    #[arg(long, value_name = "true|false", default_value_t = false, action = ArgAction::Set, num_args = 0..=1,
        default_missing_value = "true", require_equals = true)]
    enable_metrics: bool,
    /// Where /metrics is served [default: :8080, for controllers :8081, for a fleet's executor :9001]
    #[arg(long, value_name = "ADDRESS")]
    listen_address: Option<Address>,
    #[command(flatten)]
    health: HealthArgs,
}

impl ServingArgs {
    /// Where `/metrics` is served, if it is wanted; on `port` unless the flags say otherwise.
    pub fn metrics(&self, port: u16) -> Option<SocketAddr> {
        self.enable_metrics.then(|| self.listen_address.unwrap_or(Address::any(port)).0)
    }

    /// Where `/healthz` is served, if it is wanted.
    pub fn health(&self) -> Option<SocketAddr> {
        self.health.address()
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        serving: ServingArgs,
    }

    #[test]
    fn nothing_is_served_that_was_not_asked_for() {
        let served = |line: &str| {
            let words = std::iter::once("run").chain(line.split_whitespace());
            let serving = Line::try_parse_from(words).unwrap().serving;
            (serving.metrics(8081).map(|at| at.to_string()), serving.health().map(|at| at.to_string()))
        };
        let said = |metrics: &str, health: &str| {
            let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
            (some(metrics), some(health))
        };
        assert_eq!(served(""), said("", ""));
        assert_eq!(served("--listen-address=:1 --healthz-address=:2"), said("", ""));
        assert_eq!(served("--enable-metrics --enable-healthz=true"), said("0.0.0.0:8081", "0.0.0.0:11251"));
        assert_eq!(
            served("--enable-metrics --listen-address=127.0.0.1:0 --enable-healthz --healthz-address=:2"),
            said("127.0.0.1:0", "0.0.0.0:2")
        );
    }

    #[test]
    fn addresses_are_refused_with_what_to_try() {
        assert!("8080".parse::<Address>().unwrap_err().contains("try :8080"));
        assert!(":x".parse::<Address>().unwrap_err().contains("try :8080"));
        assert_eq!("127.0.0.1:0".parse::<Address>().map(|address| address.0.port()), Ok(0));
    }
}
