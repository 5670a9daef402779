//! Tests of our components on a real Kubernetes control plane; all of them are under `tests/`.
//!
//! They lean on nothing that only our own API server has. Run by `make test-realkube`.
