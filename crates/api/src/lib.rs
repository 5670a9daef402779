//! Types of Volcano's API groups and ours.
