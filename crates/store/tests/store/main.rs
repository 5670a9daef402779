//! The store seen from outside, over real files, memory, and disks that fail.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod backup;
mod crash;
mod damage;
mod full;
mod lifecycle;
mod pages;
mod resume;
mod stream;
mod support;
