//! A market pool, the whole way: a service tells bids, jobs say their bands, and a leader gives the room to who bids most.

use pumice_fleet_model::submission::annotations::PRICE_BAND;
use pumice_fleet_scheduling::MarketRules;
use pumice_wire::api::PriceBand;

use super::*;
use crate::bidding::Bidding;
use crate::bidding::tests::Service;

/// Submits a job of a whole node in a band.
async fn submit_in(api: &Api, who: &Arc<Who>, queue: &str, band: &str) -> JobId {
    let resources = json!({"cpu": "4", "memory": "1Gi"});
    let container = json!({"name": "c", "image": "i", "resources": {"requests": resources, "limits": resources}});
    let spec = PodSpec::from_json(&json!({"containers": [container]})).expect("a pod spec");
    let item = wire_api::JobSubmitRequestItem {
        namespace: "n".to_owned(),
        pod_specs: vec![spec],
        annotations: [(PRICE_BAND.to_owned(), band.to_owned())].into(),
        ..wire_api::JobSubmitRequestItem::default()
    };
    let (queue, job_set_id) = (queue.to_owned(), "s".to_owned());
    let request = wire_api::JobSubmitRequest { queue, job_set_id, job_request_items: vec![item] };
    let answer = api.submit_jobs(asked(who, request)).await.expect("submitted").into_inner();
    answer.job_response_items[0].job_id.parse().expect("an id")
}

/// The next thing that the cluster is to do.
async fn told(cluster: &mut Cluster) -> to_executor::Message {
    let (_, told) = cluster.session.as_mut().expect("a session");
    loop {
        let message = told.recv().await.expect("the session goes on").message;
        if let Some(to_do @ (to_executor::Message::Leases(_) | to_executor::Message::Stop(_))) = message {
            return to_do;
        }
    }
}

async fn say(cluster: &mut Cluster, server: &Server, run: RunId, phase: wire::RunPhase) {
    let reports = vec![report(run, phase)];
    cluster.say(server, Message::Runs(wire::Runs { complete: false, reports })).await;
}

/// The one run that is leased next, which then runs.
async fn leased(cluster: &mut Cluster, server: &Server) -> RunId {
    let to_executor::Message::Leases(leases) = told(cluster).await else { panic!("no lease") };
    assert_eq!(leases.leases.len(), 1);
    let run = leases.leases[0].run_id.parse().expect("a run");
    say(cluster, server, run, wire::RunPhase::Running).await;
    run
}

#[tokio::test]
async fn a_higher_bid_takes_the_room_of_a_lower_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = Arc::new(Database::open(&Location::File(folder.path().join("fleet.db"))).await.expect("a database"));
    let api = Api::new(Arc::clone(&log), Rules::default(), api::Sources::system(), CancellationToken::new());
    let permissions = Permission::ALL.iter().copied().collect();
    let who = Arc::new(Who { name: "ada".to_owned(), permissions, reads_all: true, ..Who::default() });
    let queue = wire_api::Queue { name: "q".to_owned(), priority_factor: 1.0, ..wire_api::Queue::default() };
    api.create_queue(asked(&who, queue)).await.expect("a queue");

    let service = Service::start().await;
    service.bid("default", "q", &[(PriceBand::A, 2.0), (PriceBand::B, 1.0)]);
    let bidding = Bidding::new(&service.settings()).expect("settings");
    let markets = [("default".to_owned(), MarketRules { spot_price_cutoff: 0.5 })].into();
    let constraints = Arc::new(Constraints { markets, ..Constraints::default() });
    let metrics = Arc::new(Metrics::new(Arc::clone(log.writes())));
    let (leader, inputs) = Leader::new(Arc::clone(&log), Options { constraints, ..options() });
    let leader = leader.counting(Arc::clone(&metrics)).bidding(bidding.follow());
    let mut running = JoinSet::new();
    let mut bids = bidding.follow();
    running.spawn(bidding.run(Arc::clone(&metrics), CancellationToken::new()));
    tokio::time::timeout(DEADLINE, bids.changed()).await.expect("in time").expect("bids");
    running.spawn(leader.run(CancellationToken::new()));
    let server = Server { inputs, _running: running };

    let course = async {
        let low = submit_in(&api, &who, "q", "b").await;
        let mut cluster = Cluster::new("one");
        cluster.connect(&server, 1).await;
        let first = leased(&mut cluster, &server).await;
        assert_eq!(first.job, low);
        let high = submit_in(&api, &who, "q", "A").await;
        let to_executor::Message::Stop(stop) = told(&mut cluster).await else { panic!("nothing stops") };
        assert_eq!(stop.runs.iter().map(|run| run.run_id.clone()).collect::<Vec<_>>(), [first.to_string()]);
        say(&mut cluster, &server, first, wire::RunPhase::Gone).await;
        let second = leased(&mut cluster, &server).await;
        assert_eq!(second.job, high);

        // The price is what the one that holds the node bids.
        let price = |metrics: &Metrics| {
            metrics
                .page(Seq(0), None)
                .lines()
                .find_map(|line| line.strip_prefix("armada_scheduler_spot_price{pool=\"default\"} ").map(str::to_owned))
        };
        while price(&metrics).as_deref() != Some("2") {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let reports = reports(&log, &server);
        let why = async || {
            let request = JobReportRequest { job_id: low.to_string() };
            reports.get_job_report(asked(&who, request)).await.map(|told| told.into_inner().report).unwrap_or_default()
        };
        let wanted = "it bids 1 (price band B of queue q); the price of the pool is 2";
        while !why().await.contains(wanted) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }

        // Bids change, and so does who has the room.
        service.bid("default", "q", &[(PriceBand::A, 2.0), (PriceBand::B, 3.5)]);
        let to_executor::Message::Stop(stop) = told(&mut cluster).await else { panic!("nothing stops") };
        assert_eq!(stop.runs[0].run_id, second.to_string());
        say(&mut cluster, &server, second, wire::RunPhase::Gone).await;
        let third = leased(&mut cluster, &server).await;
        assert_eq!(third, RunId { job: low, attempt: 2 });
        high
    };
    let high = tokio::time::timeout(DEADLINE, course).await.expect("in time");
    let entries = log.events("q", "s", Seq(0), 1_000).await.expect("events");
    let reasons: Vec<String> = entries
        .iter()
        .flat_map(|(_, entry)| &entry.events)
        .filter_map(|event| match event {
            Event::RunPreempted { preemption, .. } => Some(preemption.reason.clone()),
            _ => None,
        })
        .collect();
    let [first, second] = &reasons[..] else { panic!("{reasons:?}") };
    assert_eq!(*first, format!("job {high} bids more in market pool default: its bid is 2, the bid of this job 1"));
    assert!(second.ends_with("its bid is 3.5, the bid of this job 2"), "{second}");
    log.close().await;
}
