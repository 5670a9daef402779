//! Where bids come from: a service of Armada's form outside of the fleet, which is asked again and again.
//!
//! Invariant: what it said last counts until it says something else. An answer that can't be read, is too large or too late
//! changes nothing, is logged and counted; when bids were told last stands on the page of metrics.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use pumice_auth::{TrustError, authorities};
use pumice_clock as clock;
use pumice_fleet_scheduling::{Bid, Bids, PoolBids, Price};
use pumice_ledger::{PriceBand, TimeMs};
use pumice_units::{GoDuration, with_causes};
use pumice_wire::api::bid_retriever_service_client::BidRetrieverServiceClient;
use pumice_wire::api::{self as wire, PricingPhase};
use pumice_wire::client::{connect, endpoint};
use rustls::ClientConfig;
use serde::Deserialize;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tonic::transport::Endpoint;

use crate::metrics::Metrics;

/// Longest time for an answer, with all that comes before it.
const ASK_MAX: Duration = Duration::from_secs(30);
/// Bytes of one answer; a larger one counts as a failure.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Between two questions, unless the configuration says otherwise.
const EVERY: GoDuration = GoDuration::from_secs(60);
/// Shortest time between two questions, in milliseconds.
const EVERY_MIN_MS: i64 = 100;

/// The section `pricingApi` of the configuration file, as Armada has it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct PricingApi {
    /// Whether it is asked.
    pub enabled: bool,
    /// Its address, as `HOST:PORT` or with `https://` or `http://` before it.
    pub service_url: String,
    /// How often it is asked.
    pub update_frequency: GoDuration,
    /// It speaks without TLS.
    pub force_no_tls: bool,
    /// Certificates of the authority that it is known by; those of the system otherwise.
    pub ca_file: Option<PathBuf>,
}

impl Default for PricingApi {
    fn default() -> Self {
        Self { enabled: false, service_url: String::new(), update_frequency: EVERY, force_no_tls: false, ca_file: None }
    }
}

/// Why nobody can be asked for bids.
#[derive(Debug, thiserror::Error)]
pub enum PricingError {
    /// Its address is none.
    #[error(
        "serviceUrl: {0:?} is no address; HOST:PORT is wanted, or https://HOST:PORT, or http:// with forceNoTls: true"
    )]
    Address(String),
    /// It would be asked all the time.
    #[error("updateFrequency: {0} is too short; at least 100ms are wanted")]
    Frequency(GoDuration),
    /// Whom to trust is not known.
    #[error(transparent)]
    Trust(#[from] TrustError),
}

/// Why there are no new bids.
#[derive(Debug, thiserror::Error)]
enum AskError {
    #[error("it can't be reached")]
    Away(#[source] tonic::transport::Error),
    #[error("it refuses")]
    Refused(#[source] Box<tonic::Status>),
    #[error("there is no answer within {seconds} s", seconds = ASK_MAX.as_secs())]
    Late,
    #[error(transparent)]
    Answer(#[from] AnswerError),
}

/// A bid is no amount.
#[derive(Debug, PartialEq, thiserror::Error)]
#[error("queue {queue} bids {amount} in pool {pool}; a number is wanted")]
pub struct AnswerError {
    queue: String,
    pool: String,
    amount: f64,
}

/// Asks a pricing service for the bids of all queues, and keeps those that it told last.
#[derive(Debug)]
pub struct Bidding {
    endpoint: Endpoint,
    tls: Option<ClientConfig>,
    every: Duration,
    bids: watch::Sender<Arc<Bids>>,
}

impl Bidding {
    /// As the configuration says; nothing was asked yet.
    ///
    /// # Errors
    /// Settings that can't be used.
    pub fn new(settings: &PricingApi) -> Result<Self, PricingError> {
        let PricingApi { service_url, update_frequency, force_no_tls, ca_file, .. } = settings;
        let scheme = if *force_no_tls { "http" } else { "https" };
        let address =
            if service_url.contains("://") { service_url.clone() } else { format!("{scheme}://{service_url}") };
        let endpoint = match endpoint(&address, !force_no_tls) {
            Some(endpoint) if !service_url.is_empty() => endpoint,
            _ => return Err(PricingError::Address(service_url.clone())),
        };
        let every = u64::try_from(update_frequency.as_millis()).unwrap_or_default();
        if update_frequency.as_millis() < EVERY_MIN_MS {
            return Err(PricingError::Frequency(*update_frequency));
        }
        let tls = if *force_no_tls { None } else { Some(authorities(ca_file.as_deref(), true)?) };
        Ok(Self { endpoint, tls, every: Duration::from_millis(every), bids: watch::Sender::default() })
    }

    /// What was told last, from now on.
    pub fn follow(&self) -> watch::Receiver<Arc<Bids>> {
        self.bids.subscribe()
    }

    /// Asks at once and then again and again, until `shutdown`. Where an answer is missing or wrong the bids of before hold
    /// on.
    pub fn run(self, metrics: Arc<Metrics>, shutdown: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let mut due = tokio::time::interval(self.every);
            due.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            let mut told = None;
            loop {
                tokio::select! {
                    () = shutdown.cancelled() => return,
                    _ = due.tick() => {}
                }
                let asked = tokio::select! {
                    () = shutdown.cancelled() => return,
                    asked = tokio::time::timeout(ASK_MAX, self.ask()) => asked.unwrap_or(Err(AskError::Late)),
                };
                match asked {
                    Ok(bids) => {
                        if told.is_none() {
                            tracing::info!(queues = bids.queues(), "bids are known");
                        }
                        told = Some(clock::monotonic());
                        metrics.bids_told(Some(TimeMs(clock::now_ms())));
                        self.bids.send_if_modified(|known| {
                            let is_new = **known != bids;
                            if is_new {
                                *known = Arc::new(bids);
                            }
                            is_new
                        });
                    }
                    Err(error) => {
                        metrics.bids_told(None);
                        let age = told.map(|told| told.elapsed().as_secs());
                        let error = with_causes(&error);
                        let address = self.endpoint.uri();
                        match age {
                            Some(age) => {
                                tracing::warn!(error, %address, age, "no new bids: the last ones go on counting")
                            }
                            None => tracing::warn!(error, %address, "no bids yet: all are 0 until there are some"),
                        }
                    }
                }
            }
        })
    }

    async fn ask(&self) -> Result<Bids, AskError> {
        let channel = connect(self.endpoint.clone(), self.tls.as_ref()).await.map_err(AskError::Away)?;
        let mut client = BidRetrieverServiceClient::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX);
        let answer = client.retrieve_bids(wire::RetrieveBidsRequest::default()).await;
        Ok(read(answer.map_err(|status| AskError::Refused(Box::new(status)))?.into_inner())?)
    }
}

/// What the service says. A band, or a phase of it, without a bid has the fallback; without that nothing is bid.
fn read(answer: wire::RetrieveBidsResponse) -> Result<Bids, AnswerError> {
    let mut bids = Bids::default();
    for (queue, pools) in answer.queue_bids {
        for (pool, told) in pools.pool_bids {
            let amount = |bids: Option<&wire::PriceBandBids>, phase: PricingPhase| {
                let all = bids.map(|bids| bids.pricing_phase_bids.as_slice()).unwrap_or_default();
                let of_phase = all.iter().find(|bid| bid.pricing_phase == i32::from(phase))?;
                Some(of_phase.bid.as_ref().map_or(0.0, |bid| bid.amount))
            };
            let mut by_band: BTreeMap<Option<PriceBand>, Bid> = BTreeMap::new();
            for band in std::iter::once(None).chain(PriceBand::ALL.map(Some)) {
                let of_band = told.price_band_bids.iter().find(|bids| bids.price_band == i32::from(number(band)));
                let of_band = of_band.and_then(|bids| bids.price_band_bids.as_ref());
                let price = |phase| {
                    let amount = amount(of_band, phase).or_else(|| amount(told.fallback_bids.as_ref(), phase));
                    let amount = amount.unwrap_or_default();
                    let wrong = || AnswerError { queue: queue.clone(), pool: pool.clone(), amount };
                    amount.is_finite().then_some(Price(amount)).ok_or_else(wrong)
                };
                let bid = Bid { queued: price(PricingPhase::Queueing)?, running: price(PricingPhase::Running)? };
                if bid != Bid::default() {
                    by_band.insert(band, bid);
                }
            }
            bids.set(&queue, &pool, PoolBids::new(by_band));
        }
    }
    Ok(bids)
}

fn number(band: Option<PriceBand>) -> wire::PriceBand {
    match band {
        None => wire::PriceBand::Unspecified,
        Some(PriceBand::A) => wire::PriceBand::A,
        Some(PriceBand::B) => wire::PriceBand::B,
        Some(PriceBand::C) => wire::PriceBand::C,
        Some(PriceBand::D) => wire::PriceBand::D,
        Some(PriceBand::E) => wire::PriceBand::E,
        Some(PriceBand::F) => wire::PriceBand::F,
        Some(PriceBand::G) => wire::PriceBand::G,
        Some(PriceBand::H) => wire::PriceBand::H,
    }
}

#[cfg(test)]
pub(crate) mod tests;
