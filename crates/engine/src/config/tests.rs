//! Cases of the configuration file.
