//! Quantities and durations as Kubernetes writes them.
