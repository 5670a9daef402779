//! What `cargo xtask codegen` writes, in the modules that it expects: one within another for each part of a package's name.

pub mod api;
pub mod binoculars;
pub mod schedulerobjects;
pub mod pumice {
    pub mod fleet {
        pub mod v1;
    }
    pub mod job_sets {
        pub mod v1;
    }
}
