//! The rules of admission, one case for each row of the reference tables, and on manifests people have.

mod any_input;
mod cluster;
mod cron_job;
mod fixtures;
mod hyper_node;
mod job;
mod job_flow;
mod pod;
mod pod_group;
mod queue;
mod review;
mod server;
mod tenant;
mod user;
mod webhook;
