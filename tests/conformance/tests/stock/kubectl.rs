//! Stock kubectl.
