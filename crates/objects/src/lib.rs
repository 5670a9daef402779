//! Kubernetes' rules over JSON objects.
