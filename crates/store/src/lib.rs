//! Revisioned object store.
