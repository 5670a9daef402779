//! Short names for what every test here needs.

use std::future::Future;
use std::time::Duration;

use pumice_faulty_disk::FaultyDisk;
use pumice_store::{Change, Draft, Expect, Key, Object, Options, Store};

/// Runs a test's future, with a deadline so that a lost wake-up fails instead of hanging.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(Duration::from_secs(60), future).await.expect("deadline passed") })
}

pub fn key(resource: &str, namespace: &str, name: &str) -> Key {
    Key::new(resource, namespace, name)
}

pub fn pod(name: &str) -> Key {
    key("pods", "default", name)
}

/// A draft whose body is `{"revision":"N","value":VALUE}`, where N is the revision that it gets.
pub fn draft(value: &str) -> Draft {
    Draft::new("{\"revision\":\"", format!("\",\"value\":{value}}}"))
}

pub fn put(key: &Key, value: &str, expect: Expect) -> Change {
    Change::Put { key: key.clone(), draft: draft(value), expect }
}

pub fn create(key: &Key, value: &str) -> Change {
    put(key, value, Expect::Absent)
}

pub fn delete(key: &Key, expect: Expect) -> Change {
    Change::Delete { key: key.clone(), draft: draft("null"), expect }
}

/// The value of a body made by [`draft`], after a check that it carries its own revision.
pub fn value(object: &Object) -> String {
    let text = std::str::from_utf8(&object.body).unwrap();
    let rest = text.strip_prefix(&format!("{{\"revision\":\"{}\",\"value\":", object.revision));
    rest.and_then(|rest| rest.strip_suffix('}')).expect("the body carries its revision").to_owned()
}

/// A store over a disk that fails.
pub fn open_on(disk: &FaultyDisk, options: Options) -> Store {
    Store::with_log(Box::new(disk.log()), options).unwrap()
}
