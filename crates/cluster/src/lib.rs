//! Reflectors, writers and leases over kube::Client.
