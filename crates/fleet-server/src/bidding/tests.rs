//! Bids as they are read, and a small service that tells them.

use std::net::SocketAddr;
use std::sync::Mutex;

use pumice_wire::api::bid_retriever_service_server::{BidRetrieverService, BidRetrieverServiceServer};
use tokio::task::JoinSet;

use super::*;
use pumice_testkit::grpc::serve;

/// What it answers: bids, or nothing for a refusal.
type Told = Arc<Mutex<Option<wire::RetrieveBidsResponse>>>;

/// A service on this machine, until it is dropped.
pub(crate) struct Service {
    pub(crate) address: SocketAddr,
    told: Told,
    _tasks: JoinSet<()>,
}

struct Answers(Told);

#[tonic::async_trait]
impl BidRetrieverService for Answers {
    async fn retrieve_bids(
        &self,
        _: tonic::Request<wire::RetrieveBidsRequest>,
    ) -> Result<tonic::Response<wire::RetrieveBidsResponse>, tonic::Status> {
        let told = self.0.lock().expect("whole").clone();
        told.map(tonic::Response::new).ok_or_else(|| tonic::Status::unavailable("not now"))
    }
}

impl Service {
    pub(crate) async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let told = Told::default();
        let tasks = serve(listener, BidRetrieverServiceServer::new(Answers(Arc::clone(&told))));
        Self { address, told, _tasks: tasks }
    }

    /// From now on it says that a queue bids so much for bands in a pool.
    pub(crate) fn bid(&self, pool: &str, queue: &str, bands: &[(wire::PriceBand, f64)]) {
        *self.told.lock().expect("whole") = Some(answer(&[(queue, pool, pool_bids(bands, &[]))]));
    }

    pub(crate) fn refuse(&self) {
        *self.told.lock().expect("whole") = None;
    }

    pub(crate) fn settings(&self) -> PricingApi {
        PricingApi {
            enabled: true,
            service_url: self.address.to_string(),
            update_frequency: GoDuration::from_millis(EVERY_MIN_MS),
            force_no_tls: true,
            ca_file: None,
        }
    }
}

fn phases(phases: &[(PricingPhase, f64)]) -> wire::PriceBandBids {
    let bid = |(phase, amount): &(PricingPhase, f64)| wire::PricingPhaseBid {
        pricing_phase: (*phase).into(),
        bid: Some(wire::Bid { amount: *amount, last_updated: None }),
    };
    wire::PriceBandBids { pricing_phase_bids: phases.iter().map(bid).collect() }
}

/// The same for both phases of each band, and a fallback.
fn pool_bids(bands: &[(wire::PriceBand, f64)], fallback: &[(PricingPhase, f64)]) -> wire::PoolBids {
    let band = |(band, amount): &(wire::PriceBand, f64)| wire::PriceBandBid {
        price_band: (*band).into(),
        price_band_bids: Some(phases(&[(PricingPhase::Queueing, *amount), (PricingPhase::Running, *amount)])),
    };
    let fallback_bids = (!fallback.is_empty()).then(|| phases(fallback));
    wire::PoolBids { price_band_bids: bands.iter().map(band).collect(), fallback_bids }
}

fn answer(all: &[(&str, &str, wire::PoolBids)]) -> wire::RetrieveBidsResponse {
    let mut queue_bids: BTreeMap<String, wire::QueueBids> = BTreeMap::new();
    for (queue, pool, bids) in all {
        queue_bids.entry((*queue).to_owned()).or_default().pool_bids.insert((*pool).to_owned(), bids.clone());
    }
    wire::RetrieveBidsResponse { queue_bids, ..wire::RetrieveBidsResponse::default() }
}

#[test]
fn what_a_band_lacks_the_fallback_has() {
    let half = wire::PriceBandBid {
        price_band: wire::PriceBand::B.into(),
        price_band_bids: Some(phases(&[(PricingPhase::Queueing, 7.0)])),
    };
    let mut bids =
        pool_bids(&[(wire::PriceBand::A, 5.0)], &[(PricingPhase::Queueing, 1.0), (PricingPhase::Running, 2.0)]);
    bids.price_band_bids.push(half);
    let read = read(answer(&[("q", "p", bids), ("r", "p", pool_bids(&[(wire::PriceBand::C, 3.0)], &[]))])).unwrap();
    for (queue, band, queued, running) in [
        ("q", Some(PriceBand::A), 5.0, 5.0),
        ("q", Some(PriceBand::B), 7.0, 2.0),
        ("q", Some(PriceBand::C), 1.0, 2.0),
        ("q", None, 1.0, 2.0),
        ("r", Some(PriceBand::C), 3.0, 3.0),
        ("r", Some(PriceBand::A), 0.0, 0.0),
        ("r", None, 0.0, 0.0),
        ("s", None, 0.0, 0.0),
    ] {
        let wanted = Bid { queued: Price(queued), running: Price(running) };
        assert_eq!(read.of(queue, "p", band), wanted, "{queue} {band:?}");
    }
}

#[test]
fn what_is_no_amount_is_refused_with_whose_it_is() {
    for amount in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let error = read(answer(&[("q", "p", pool_bids(&[(wire::PriceBand::A, amount)], &[]))])).unwrap_err();
        assert_eq!(error.to_string(), format!("queue q bids {amount} in pool p; a number is wanted"));
    }
}

#[test]
fn settings_that_cant_be_meant_are_refused() {
    let settings = |text: &str| -> PricingApi { serde_json::from_str(text).unwrap() };
    for (text, wanted) in [
        (r#"{"forceNoTls": true}"#, Some("serviceUrl: \"\" is no address")),
        (r#"{"serviceUrl": "http://a:1"}"#, Some("serviceUrl: \"http://a:1\" is no address")),
        (r#"{"serviceUrl": "a b", "forceNoTls": true}"#, Some("is no address")),
        (
            r#"{"serviceUrl": "a:1", "forceNoTls": true, "updateFrequency": "99ms"}"#,
            Some("updateFrequency: 99ms is too short"),
        ),
        (r#"{"serviceUrl": "a:1", "caFile": "/nowhere"}"#, Some("the authorities of the CA file can't be read")),
        (r#"{"serviceUrl": "a:1", "forceNoTls": true}"#, None),
        (r#"{"serviceUrl": "http://a:1", "forceNoTls": true}"#, None),
    ] {
        match (Bidding::new(&settings(text)), wanted) {
            (Ok(_), None) => {}
            (Err(error), Some(wanted)) => assert!(error.to_string().contains(wanted), "{text}: {error}"),
            (built, wanted) => panic!("{text}: {:?}, {wanted:?}", built.map(drop)),
        }
    }
}

#[tokio::test]
async fn what_was_told_last_counts_while_nobody_answers() {
    const LIMIT: Duration = Duration::from_secs(60);
    let service = Service::start().await;
    let bidding = Bidding::new(&service.settings()).expect("settings");
    let (mut bids, metrics, shutdown) = (bidding.follow(), Arc::new(Metrics::default()), CancellationToken::new());
    let mut running = JoinSet::new();
    running.spawn(bidding.run(Arc::clone(&metrics), shutdown.clone()));
    let failures = || {
        let page = metrics.page(crate::database::Seq(0), None);
        let line = page.lines().find_map(|line| line.strip_prefix("pumice_fleet_bid_failures_total "));
        line.and_then(|count| count.parse::<u64>().ok()).unwrap_or_default()
    };
    let fails = async |more: u64| {
        let before = failures();
        let more = async {
            while failures() < before + more {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(LIMIT, more).await.expect("it asks in time");
    };
    fails(1).await;
    let mut of = async |wanted: f64| {
        let is = |bids: &Arc<Bids>| bids.of("q", "p", Some(PriceBand::A)).queued == Price(wanted);
        tokio::time::timeout(LIMIT, bids.wait_for(is)).await.expect("in time").expect("it goes on").clone()
    };
    service.bid("p", "q", &[(wire::PriceBand::A, 2.0)]);
    let known = of(2.0).await;
    service.refuse();
    fails(2).await;
    assert_eq!(of(2.0).await, known, "they go on counting");
    service.bid("p", "q", &[(wire::PriceBand::A, 3.0)]);
    of(3.0).await;
    let page = metrics.page(crate::database::Seq(0), None);
    assert!(page.contains("armada_scheduler_bid_price_cache_last_refresh_timestamp_seconds "), "{page}");
    shutdown.cancel();
    tokio::time::timeout(LIMIT, running.join_next()).await.expect("it ends").expect("a task").expect("well");
}
