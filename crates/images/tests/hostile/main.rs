//! Images that mean harm: each is refused with a reason or does none, nothing outside of the store changes, no room is lost, and the
//! good twin of what was refused is taken.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

#[path = "../shared/archives.rs"]
mod archives;
mod documents;
mod layers;
mod memory;
mod random;
mod table;

use archives::on_its_own_disk;

#[test]
fn layers_do_no_harm_by_names_and_links() {
    on_its_own_disk(64, |host| table::run(host, layers::ways_out(host)));
}

#[test]
fn layers_do_no_harm_by_special_files() {
    on_its_own_disk(64, |host| table::run(host, layers::special_files()));
}

#[test]
fn layers_do_no_harm_by_the_shape_of_their_trees() {
    on_its_own_disk(256, |host| table::run(host, layers::names_and_trees()));
}

#[test]
fn archives_that_are_none_do_no_harm() {
    on_its_own_disk(64, |host| table::run(host, layers::formats()));
}

#[test]
fn layers_do_no_harm_by_compression() {
    on_its_own_disk(128, |host| table::run(host, layers::compressions()));
}
