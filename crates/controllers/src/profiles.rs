//! Writing down what runs have taught: ResourceProfiles.
//!
//! Invariant: one write at a time for a profile, and a minute or more between two; what is taught meanwhile goes into the next.
//! A lesson that was not written when the controllers stopped is lost: the next run that needs it learns it anew. Owned by the
//! loop.

use std::collections::HashMap;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PostParams;
use kube::{Api, Client};
use pumice_api::profile::{ResourceProfile, ResourceProfileStatus};
use pumice_clock as clock;
use pumice_cluster::{Failure, failure, write};
use pumice_machines::job::Lesson;
use serde_json::json;
use tokio::time::Instant;

use crate::backoff;
use crate::index::{DirtyKey, Index, Key};

/// Least time between two writes of a profile.
const WRITES_APART: Duration = Duration::from_secs(60);
/// Most times that a write is tried; a server without the definition has no place for it.
const TRIES_MAX: u32 = 8;

/// What is to be written into a profile.
#[derive(Default)]
struct Entry {
    /// What so many runs have taught together.
    lesson: Option<(Lesson, i64)>,
    writing: Option<(Lesson, i64)>,
    failures: u32,
    not_before: Option<Instant>,
}

/// Profiles that have something to learn, or were written a moment ago.
#[derive(Default)]
pub(crate) struct ProfileWork {
    entries: HashMap<Key, Entry>,
}

/// What to do about a profile now.
pub(crate) enum Begin {
    Nothing,
    Wait(Instant),
    Write(Box<Write>),
}

/// A write of a profile.
pub(crate) struct Write {
    key: Key,
    uid: Option<String>,
    profile: ResourceProfile,
}

/// What came of it.
pub(crate) struct Answer {
    key: Key,
    failure: Option<Failure>,
}

impl ProfileWork {
    /// Notes what runs in a namespace have taught.
    pub fn learn(&mut self, lessons: Vec<(String, Lesson)>, touched: &mut Vec<DirtyKey>) {
        for (namespace, lesson) in lessons {
            let key = (namespace, lesson.name.clone());
            add(&mut self.entries.entry(key.clone()).or_default().lesson, lesson, 1);
            touched.push(DirtyKey::Profile(key));
        }
    }

    /// Decides what to do about a profile.
    pub fn begin(&mut self, key: &Key, index: &Index, now: Instant) -> Begin {
        let Some(entry) = self.entries.get_mut(key) else { return Begin::Nothing };
        if entry.writing.is_some() {
            return Begin::Nothing;
        }
        if let Some(at) = entry.not_before.filter(|at| *at > now) {
            return Begin::Wait(at);
        }
        let Some((lesson, runs)) = entry.lesson.take() else {
            self.entries.remove(key);
            return Begin::Nothing;
        };
        let known = index.profiles_of(&key.0).get(&key.1);
        let of_these = known.filter(|known| known.spec == lesson.runs);
        let status: ResourceProfileStatus = lesson.written(of_these.map(|known| &known.status), runs, clock::now());
        let metadata =
            ObjectMeta { name: Some(key.1.clone()), namespace: Some(key.0.clone()), ..ObjectMeta::default() };
        let profile = ResourceProfile { metadata, spec: lesson.runs.clone(), status };
        entry.writing = Some((lesson, runs));
        let uid = known.and_then(|known| known.metadata.uid.clone());
        Begin::Write(Box::new(Write { key: key.clone(), uid, profile }))
    }

    /// Takes in what came of a write.
    pub fn answered(&mut self, answer: Answer, now: Instant, touched: &mut Vec<DirtyKey>) {
        let Some(entry) = self.entries.get_mut(&answer.key) else { return };
        let written = entry.writing.take();
        match answer.failure {
            None => {
                entry.failures = 0;
                entry.not_before = Some(now + WRITES_APART);
            }
            Some(kind) => {
                entry.failures += 1;
                entry.not_before = Some(now + backoff::wait(kind, entry.failures));
                if entry.failures >= TRIES_MAX {
                    tracing::warn!(
                        namespace = answer.key.0,
                        profile = answer.key.1,
                        ?kind,
                        "can't be written; what a run taught is lost"
                    );
                    entry.failures = 0;
                } else if let Some((lesson, runs)) = written {
                    add(&mut entry.lesson, lesson, runs);
                }
            }
        }
        touched.push(DirtyKey::Profile(answer.key));
    }

    /// A write crashed: what it had is lost.
    pub fn crashed(&mut self, key: &Key) {
        self.entries.remove(key);
    }
}

fn add(lesson: &mut Option<(Lesson, i64)>, more: Lesson, runs: i64) {
    match lesson {
        Some((lesson, so_far)) => {
            lesson.join(&more);
            *so_far = so_far.saturating_add(runs);
        }
        None => *lesson = Some((more, runs)),
    }
}

/// Writes a profile: anew, or in place of the one that is known.
pub(crate) async fn carry_out(client: Client, write: Box<Write>) -> Answer {
    let Write { key, uid, profile } = *write;
    let profiles: Api<ResourceProfile> = Api::namespaced(client, &key.0);
    let result = match uid {
        None => profiles.create(&PostParams::default(), &profile).await,
        Some(uid) => {
            let patch = json!({"metadata": {"uid": uid}, "spec": profile.spec, "status": profile.status});
            write::merge(&profiles, &key.1, &patch).await
        }
    };
    Answer { failure: result.err().map(|error| failure(&error)), key }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pumice_cluster::Change;
    use pumice_machines::job::Learned;

    fn lesson(memory: i64) -> (String, Lesson) {
        let containers = [("c".to_owned(), Learned { enough: memory << 20, killed: 1 << 20 })].into();
        ("ns".to_owned(), Lesson { name: "p".into(), runs: Default::default(), containers })
    }

    fn key() -> Key {
        ("ns".to_owned(), "p".to_owned())
    }

    fn written(begin: Begin) -> (Option<String>, i64, String) {
        let Begin::Write(write) = begin else { panic!("there is something to write") };
        let status = write.profile.status;
        (write.uid, status.runs, status.containers[0].memory.clone().unwrap().0)
    }

    #[test]
    fn lessons_within_a_minute_are_one_write() {
        let (mut work, mut index, mut touched) = (ProfileWork::default(), Index::default(), Vec::new());
        let start = Instant::now();
        work.learn(vec![lesson(100), lesson(300), lesson(200)], &mut touched);
        assert_eq!(touched.first(), Some(&DirtyKey::Profile(key())));
        assert_eq!(written(work.begin(&key(), &index, start)), (None, 3, "300Mi".into()));
        work.learn(vec![lesson(400)], &mut touched);
        assert!(matches!(work.begin(&key(), &index, start), Begin::Nothing), "one at a time");
        work.answered(Answer { key: key(), failure: None }, start, &mut touched);
        let Begin::Wait(at) = work.begin(&key(), &index, start) else { panic!("too soon") };
        assert_eq!(at, start + WRITES_APART);
        let mut profile = ResourceProfile::default();
        (profile.metadata.namespace, profile.metadata.name) = (Some("ns".into()), Some("p".into()));
        (profile.metadata.uid, profile.status.runs) = (Some("u".into()), 3);
        index.profile_changed(Change::Applied(profile));
        assert_eq!(written(work.begin(&key(), &index, at)), (Some("u".into()), 4, "400Mi".into()));
        work.answered(Answer { key: key(), failure: None }, at, &mut touched);
        assert!(matches!(work.begin(&key(), &index, at + WRITES_APART), Begin::Nothing));
        assert!(work.entries.is_empty(), "nothing is kept of what is written");
    }

    #[test]
    fn a_write_that_fails_is_made_again_but_not_for_ever() {
        let (mut work, index, mut touched) = (ProfileWork::default(), Index::default(), Vec::new());
        let mut now = Instant::now();
        work.learn(vec![lesson(100)], &mut touched);
        for _ in 0..TRIES_MAX {
            assert_eq!(written(work.begin(&key(), &index, now)), (None, 1, "100Mi".into()));
            work.answered(Answer { key: key(), failure: Some(Failure::Unavailable) }, now, &mut touched);
            let Begin::Wait(at) = work.begin(&key(), &index, now) else { panic!("not at once") };
            now = at;
        }
        assert!(matches!(work.begin(&key(), &index, now), Begin::Nothing));
    }
}
