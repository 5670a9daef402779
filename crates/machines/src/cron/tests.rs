//! CronJobs through their times.

use std::collections::BTreeMap;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use pumice_api::batch::{CronJob, Job, JobPhase};
use pumice_api::names;
use serde_json::{Value, json};

use super::{CronEffect, CronView, Schedule, ScheduleError, step, zone_name};

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// What exists, and an API server that does what is asked.
struct World {
    cron: CronJob,
    jobs: BTreeMap<String, Job>,
    now: Timestamp,
    wake_at: Option<Timestamp>,
    reasons: Vec<&'static str>,
    deleted: Vec<String>,
    made: usize,
}

impl World {
    fn new(spec: Value) -> Self {
        let mut cron = json!({
            "metadata": { "name": "c", "namespace": "team", "uid": "u", "creationTimestamp": "2026-03-01T00:00:00Z",
                "annotations": { names::USER: "ann" } },
            "spec": { "schedule": "*/10 * * * *", "jobTemplate": {
                "metadata": { "labels": { "a": "b" } }, "spec": { "queue": "q", "minAvailable": 1 },
            } },
        });
        cron["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        Self {
            cron: serde_json::from_value(cron).unwrap(),
            jobs: BTreeMap::new(),
            now: at("2026-03-01T00:00:00Z"),
            wake_at: None,
            reasons: Vec::new(),
            deleted: Vec::new(),
            made: 0,
        }
    }

    /// Lets the clock reach `now` and steps until nothing is left to do.
    fn until(&mut self, now: &str) {
        self.now = at(now);
        self.settle();
    }

    fn settle(&mut self) {
        self.reasons.clear();
        self.deleted.clear();
        for _ in 0..20 {
            let schedule = Schedule::read(&self.cron.spec.schedule, TimeZone::UTC);
            let view = CronView { cron: &self.cron, schedule: schedule.as_ref(), jobs: self.jobs.values().collect() };
            let plan = step(&view, self.now);
            self.wake_at = plan.wake_at;
            let mut quiet = true;
            for effect in plan.effects {
                quiet &= matches!(effect, CronEffect::Record { .. });
                self.apply(effect);
            }
            if quiet {
                return;
            }
        }
        panic!("no end: {:?}", self.cron.status);
    }

    fn apply(&mut self, effect: CronEffect) {
        match effect {
            CronEffect::CreateJob(mut job) => {
                self.made += 1;
                job.metadata.uid = Some(format!("uid-{}", self.made));
                job.metadata.creation_timestamp = serde_json::from_value(json!(self.now.to_string())).unwrap();
                let name = job.metadata.name.clone().unwrap();
                assert!(self.jobs.insert(name.clone(), *job).is_none(), "{name} was there");
            }
            CronEffect::DeleteJob { name, uid } => {
                assert_eq!(self.jobs.remove(&name).unwrap().metadata.uid, Some(uid));
                self.deleted.push(name);
            }
            CronEffect::WriteStatus(status) => self.cron.status = *status,
            CronEffect::Record { reason, .. } => self.reasons.push(reason),
        }
    }

    fn end(&mut self, name: &str, phase: JobPhase) {
        let state = &mut self.jobs.get_mut(name).unwrap().status.state;
        state.phase = Some(phase);
        state.last_transition_time = serde_json::from_value(json!(self.now.to_string())).unwrap();
        self.settle();
    }

    fn names(&self) -> Vec<&str> {
        self.jobs.keys().map(String::as_str).collect()
    }
}

/// Minutes since 1970 of 2026-03-01T00:00:00Z.
const MIDNIGHT: i64 = 29_538_720;

fn job(minutes: i64) -> String {
    format!("c-{}", MIDNIGHT + minutes)
}

#[test]
fn a_job_is_made_at_each_time_and_named_after_it() {
    let mut world = World::new(json!({}));
    world.settle();
    assert_eq!((world.made, world.wake_at), (0, Some(at("2026-03-01T00:10:00Z"))));
    world.until("2026-03-01T00:10:00Z");
    assert_eq!(world.names(), [job(10)]);
    let made = &world.jobs[&job(10)];
    assert_eq!(made.spec, world.cron.spec.job_template.spec);
    let annotations = made.metadata.annotations.as_ref().unwrap();
    assert_eq!(annotations[names::CRON_JOB_TIME], "2026-03-01T00:10:00+00:00");
    assert_eq!(annotations[names::USER], "ann");
    assert_eq!(made.metadata.labels.as_ref().unwrap()["a"], "b");
    assert_eq!(world.cron.status.last_schedule_time.as_ref().unwrap().0, at("2026-03-01T00:10:00Z"));
    assert_eq!(world.cron.status.active.len(), 1);
    world.until("2026-03-01T00:10:30Z");
    assert_eq!((world.made, world.wake_at), (1, Some(at("2026-03-01T00:20:00Z"))));
    world.end(&job(10), JobPhase::Completed);
    assert_eq!(world.reasons, ["SawCompletedJob"]);
    assert_eq!(world.cron.status.active.len(), 0);
    assert_eq!(world.cron.status.last_successful_time.as_ref().unwrap().0, at("2026-03-01T00:10:30Z"));
}

#[test]
fn of_many_missed_times_the_newest_is_served() {
    let mut world = World::new(json!({}));
    world.until("2026-03-01T01:05:00Z");
    assert_eq!((world.names(), world.reasons.len()), (vec![job(60).as_str()], 0));
    world.until("2026-03-02T01:05:00Z");
    assert_eq!((world.made, world.reasons.contains(&"TooManyMissedTimes")), (2, true));
}

#[test]
fn what_is_later_than_its_deadline_is_left_out() {
    let mut world = World::new(json!({ "startingDeadlineSeconds": 60 }));
    world.until("2026-03-01T00:12:00Z");
    assert_eq!(world.made, 0);
    world.until("2026-03-01T00:20:50Z");
    assert_eq!(world.names(), [job(20)]);
}

#[test]
fn a_time_is_served_once_whatever_the_status_says() {
    let mut world = World::new(json!({}));
    world.until("2026-03-01T00:10:00Z");
    // The controller ended between the Job and the status.
    world.cron.status = Default::default();
    world.settle();
    assert_eq!((world.made, world.cron.status.active.len()), (1, 1));
}

#[test]
fn policies_for_a_job_that_goes_on() {
    for (policy, names, reason) in [
        ("Allow", vec![job(10), job(20)], None),
        ("Forbid", vec![job(10)], Some("ForbidConcurrent")),
        ("Replace", vec![job(20)], Some("StaleReference")),
    ] {
        let mut world = World::new(json!({ "concurrencyPolicy": policy }));
        world.until("2026-03-01T00:10:00Z");
        world.until("2026-03-01T00:20:00Z");
        assert_eq!(world.names(), names, "{policy}");
        assert_eq!(world.reasons.first().copied(), reason, "{policy}");
    }
    let mut world = World::new(json!({ "concurrencyPolicy": "Forbid" }));
    world.until("2026-03-01T00:10:00Z");
    world.until("2026-03-01T00:25:00Z");
    world.end(&job(10), JobPhase::Completed);
    assert_eq!(world.names(), [job(10), job(20)], "what was forbidden is made up for");
}

#[test]
fn ended_jobs_are_kept_up_to_their_limits() {
    for (phase, kept) in [(JobPhase::Completed, 3), (JobPhase::Failed, 1), (JobPhase::Terminated, 1)] {
        let mut world = World::new(json!({}));
        for minute in ["10", "20", "30", "40", "50"] {
            world.until(&format!("2026-03-01T00:{minute}:00Z"));
            let name = job(minute.parse().unwrap());
            world.end(&name, phase.clone());
        }
        assert_eq!(world.jobs.len(), kept, "{phase}");
        assert!(world.jobs.contains_key(&job(50)), "{phase}");
    }
    let mut none = World::new(json!({ "successfulJobsHistoryLimit": 0 }));
    none.until("2026-03-01T00:10:00Z");
    none.end(&job(10), JobPhase::Completed);
    assert_eq!((none.jobs.len(), none.made), (0, 1), "and not made again");
}

#[test]
fn a_suspended_one_waits_and_serves_the_newest_afterwards() {
    let mut world = World::new(json!({ "suspend": true }));
    world.until("2026-03-01T00:35:00Z");
    assert_eq!((world.made, world.wake_at), (0, None));
    world.cron.spec.suspend = Some(false);
    world.settle();
    assert_eq!(world.names(), [job(30)]);
}

#[test]
fn a_schedule_that_can_not_be_read_is_told() {
    for bad in ["", "* * * *", "* * * * * *", "61 * * * *", "a b c d e", "@every 0s", "@every soon", "@sometimes"] {
        let mut world = World::new(json!({ "schedule": bad }));
        world.until("2026-03-01T00:35:00Z");
        assert_eq!((world.made, world.reasons.as_slice()), (0, &["UnParseableCronJobSchedule"][..]), "{bad:?}");
    }
    let long = "*".repeat(300);
    assert!(matches!(Schedule::read(&long, TimeZone::UTC), Err(ScheduleError::Unparseable { .. })));
}

#[test]
fn schedules_in_all_their_forms() {
    let zone = |name: &str| TimeZone::posix(name).unwrap();
    let berlin = || zone("CET-1CEST,M3.5.0,M10.5.0/3");
    let cases = [
        ("*/15 * * * *", TimeZone::UTC, "2026-03-01T00:00:00Z", "2026-03-01T00:15:00Z"),
        ("0/20 * * * *", TimeZone::UTC, "2026-03-01T00:00:00Z", "2026-03-01T00:20:00Z"),
        ("@hourly", TimeZone::UTC, "2026-03-01T00:00:00Z", "2026-03-01T01:00:00Z"),
        ("@daily", berlin(), "2026-03-01T12:00:00Z", "2026-03-01T23:00:00Z"),
        ("TZ=Asia/Tokyo 0 6 * * *", zone("JST-9"), "2026-03-01T00:00:00Z", "2026-03-01T21:00:00Z"),
        ("0 9 * * MON-FRI", TimeZone::UTC, "2026-03-06T10:00:00Z", "2026-03-09T09:00:00Z"),
        ("0 0 1,15 * 3", TimeZone::UTC, "2026-03-02T00:00:00Z", "2026-03-04T00:00:00Z"),
        ("@every 90s", TimeZone::UTC, "2026-03-01T00:00:00Z", "2026-03-01T00:01:30Z"),
        ("0 0 29 2 *", TimeZone::UTC, "2026-03-01T00:00:00Z", "2028-02-29T00:00:00Z"),
        // Twice a year an hour is missing or there twice.
        ("30 3 * * *", berlin(), "2026-10-25T00:00:00Z", "2026-10-25T02:30:00Z"),
        ("30 2 * * *", berlin(), "2026-10-24T12:00:00Z", "2026-10-25T00:30:00Z"),
        ("30 2 * * *", berlin(), "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"),
        ("30 2 * * *", berlin(), "2026-03-28T12:00:00Z", "2026-03-29T01:00:00Z"),
    ];
    for (text, zone, now, next) in cases {
        let schedule = Schedule::read(text, zone).unwrap();
        assert_eq!(schedule.next(at(now), at(now)), Some(at(next)), "{text}");
        assert_eq!(schedule.newest(at(now), at(next)), Some(at(next)), "{text}");
        assert_eq!(schedule.count(at(now), at(next), 10), 1, "{text}");
    }
    assert_eq!(zone_name("TZ=Asia/Tokyo 0 6 * * *", None), Some("Asia/Tokyo"));
    assert_eq!(zone_name("0 6 * * *", Some("Europe/Berlin")), Some("Europe/Berlin"));
}

#[test]
fn a_distance_counts_from_the_last_time_and_does_not_drift() {
    let mut world = World::new(json!({ "schedule": "@every 7m", "startingDeadlineSeconds": 120 }));
    world.until("2026-03-01T00:07:04Z");
    assert_eq!((world.names(), world.wake_at), (vec![job(7).as_str()], Some(at("2026-03-01T00:14:00Z"))));
    world.until("2026-03-01T00:29:30Z");
    assert_eq!(world.names(), [job(7), job(28)]);
}

#[test]
fn several_jobs_of_a_minute_have_names_of_their_own() {
    let mut world = World::new(json!({ "schedule": "@every 20s" }));
    world.until("2026-03-01T00:00:20Z");
    world.until("2026-03-01T00:00:40Z");
    assert_eq!(world.names(), [20, 40].map(|second| format!("c-{}", MIDNIGHT * 60 + second)));
}
