//! `GET /metrics`: what the server has counted, in Prometheus's text format.
//!
//! Invariant: looking costs what there is to show and holds nobody up. Names are upstream's where upstream has the number;
//! ours begin with `pumice_`. Asked by whoever may get the path: group `system:monitoring` and administrators.

use http::{HeaderValue, Response, header};
use pumice_metrics::Page;

use crate::context::State;
use crate::http::body::Body;
use crate::kinds::GIT_VERSION;

const FORMAT: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");

pub(crate) fn answer(state: &State) -> Response<Body> {
    let mut page = Page::default();
    page.head("kubernetes_build_info", "gauge", "The version that is served; always 1");
    page.line("kubernetes_build_info", &[("major", "1"), ("minor", "36"), ("git_version", GIT_VERSION)], 1);
    state.requests.show(&mut page);
    state.flow.show(&mut page);
    state.connections.show(&mut page);
    store(state, &mut page);
    page.log_lines_lost();
    if let Some(audit) = &state.audit {
        audit.show(&mut page);
    }
    if let Some(show) = &state.more_metrics {
        show(&mut page);
    }
    let mut response = Response::new(Body::from(page.into_text()));
    response.headers_mut().insert(header::CONTENT_TYPE, FORMAT);
    response
}

fn store(state: &State, page: &mut Page) {
    let name = "apiserver_storage_objects";
    page.head(name, "gauge", "Objects that are stored, by kind");
    let mut counts = state.storage.store.counts();
    counts.sort();
    for (resource, count) in counts {
        // Ours is group/resource.
        let shown = match resource.split_once('/') {
            Some((group, resource)) => format!("{resource}.{group}"),
            None => resource.to_string(),
        };
        page.line(name, &[("resource", &shown)], count);
    }
    if let Some(bytes) = state.storage.store.file_bytes() {
        let name = "apiserver_storage_size_bytes";
        page.head(name, "gauge", "Size of the store's file");
        page.line(name, &[("storage_cluster_id", state.storage.store.uid())], bytes);
    }
    if let Some(space) = state.storage.store.disk_space() {
        page.gauge("pumice_store_disk_free_bytes", "Room on the disk of the store", space.free_bytes);
        page.gauge("pumice_store_disk_bytes", "Size of the disk of the store", space.total_bytes);
    }
    let stats = state.storage.store.stats();
    page.gauge("pumice_store_revision", "The revision of the last change", state.storage.store.revision());
    page.counter("pumice_store_commits_total", "Commits that were synced to disk", stats.commits);
    page.counter("pumice_store_commits_failed_total", "Commits that failed", stats.commits_failed);
    page.counter("pumice_store_objects_written_total", "Objects that commits wrote or removed", stats.objects_written);
    page.head("pumice_store_commit_seconds_total", "counter", "Time that commits took together");
    page.line("pumice_store_commit_seconds_total", &[], stats.commit_time.as_secs_f64());
}
