//! Cases of the predicates.
