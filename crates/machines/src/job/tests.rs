//! The Job machine against a model of a cluster.

mod active_deadline;
mod after;
mod ended;
mod exhaust;
mod exit_codes;
mod goldens;
mod laws;
mod learning;
mod life;
mod memory;
mod model;
mod parallel;
mod restarts;
mod retries;
mod scale_down;
mod suspend;
mod table;
