//! What is asked of many jobs at once.

use super::*;

fn ledger(jobs: u128) -> Ledger {
    let mut ledger = with_queue().in_parts_of(2);
    ledger.fold(&request("s", (1..=jobs).map(|job| submitted(job, "spare")).collect()));
    ledger
}

fn cancel(filter: Filter) -> Entry {
    request("s", vec![Event::CancelAsked { jobs: vec![], filter, reason: "enough".to_owned() }])
}

fn place(jobs: Vec<JobId>, priority: u32) -> Entry {
    request("s", vec![Event::Reprioritised { jobs, priority }])
}

/// Decides until nothing is left to carry out: how many parts there were, and what was said besides.
fn carry_out(ledger: &mut Ledger) -> (usize, Vec<&'static str>) {
    let (mut parts, mut said) = (0, Vec::new());
    while ledger.has_parts() {
        let words = decide(ledger, Inbox::default());
        assert!(words.iter().filter(|word| **word != "part").count() <= 2, "{words:?}");
        parts += words.iter().filter(|word| **word == "part").count();
        said.extend(words.into_iter().filter(|word| *word != "part"));
    }
    (parts, said)
}

// INV-39
#[test]
fn many_jobs_are_cancelled_a_part_at_a_time() {
    let mut ledger = ledger(5);
    ledger.fold(&cancel(Filter::Active));
    assert_eq!(ledger.jobs().filter(|(_, job)| job.requests.is_some()).count(), 0);
    assert_eq!(decide(&mut ledger, Inbox::default()), ["part", "cancelled", "cancelled"]);
    ledger.fold(&request("s", vec![submitted(9, "spare")]));
    assert_eq!(carry_out(&mut ledger), (2, vec!["cancelled"; 3]));
    assert_eq!(ledger.jobs().map(|(id, _)| id).collect::<Vec<_>>(), [JobId(9)], "it came after the request");
    ledger.fold(&cancel(Filter::Active));
    assert_eq!(decide(&mut ledger, Inbox::default()), ["cancelled"], "few are cancelled at once");
}

#[test]
fn a_job_that_came_later_is_not_meant_whatever_its_id() {
    let mut ledger = with_queue().in_parts_of(2);
    ledger.fold(&request("s", (11..=15).map(|job| submitted(job, "spare")).collect()));
    ledger.fold(&cancel(Filter::Active));
    ledger.fold(&request("s", vec![submitted(3, "spare")]));
    let saved = ledger.take_bulk_operations().unwrap();
    assert_eq!(saved[0].late, [JobId(3)]);
    assert_eq!(carry_out(&mut ledger), (3, vec!["cancelled"; 5]));
    assert_eq!(ledger.jobs().map(|(id, _)| id).collect::<Vec<_>>(), [JobId(3)]);
}

#[test]
fn a_part_means_jobs_as_they_stand_then() {
    let mut ledger = ledger(5);
    ledger.fold(&cancel(Filter::Queued));
    // The lease comes after the first part and before the second.
    assert_eq!(decide(&mut ledger, lease(4, "one")), ["part", "cancelled", "cancelled", "leased"]);
    assert_eq!(carry_out(&mut ledger), (1, vec!["cancelled"; 2]));
    assert_eq!(ledger.jobs().map(|(id, _)| id).collect::<Vec<_>>(), [JobId(4)]);
    let scope = Scope { queues: vec!["q".to_owned()], ..Scope::default() };
    ledger.fold(&request("t", (11..=15).map(|job| submitted(job, "urgent")).collect()));
    ledger.fold(&request("", vec![Event::ScopeCancelAsked { scope, reason: String::new() }]));
    assert_eq!(carry_out(&mut ledger), (3, vec!["cancelled"; 6]));
}

#[test]
fn places_are_given_in_the_order_in_which_they_were_asked_for() {
    let mut ledger = ledger(5);
    ledger.fold(&place(vec![], 7));
    ledger.fold(&place(vec![JobId(1)], 3));
    assert_eq!(carry_out(&mut ledger), (4, vec!["moved"; 3]), "the request tells those that it names");
    let priority = |job| ledger.job(JobId(job)).map(|job| job.priority);
    assert_eq!([1, 2, 5].map(priority), [Some(3), Some(7), Some(7)]);
}

#[test]
fn a_part_that_is_not_the_next_one_changes_nothing() {
    let mut ledger = ledger(3);
    ledger.fold(&cancel(Filter::Active));
    let decided = ledger.decide(TimeMs(2), Inbox::default(), Retries::default());
    let before = ledger.digest();
    assert_eq!(decided.iter().map(|entry| ledger.fold(entry).len()).collect::<Vec<_>>(), [1, 2]);
    let early = Event::CarriedOut { requested: TimeMs(1), jobs: vec![], through: JobId(3) };
    assert_eq!(ledger.fold(&request("s", vec![early])).len(), 1);
    assert_eq!(ledger.digest(), before);
}
