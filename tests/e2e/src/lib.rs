//! End-to-end tests live in `tests/`: `e2e`, and `frameworks`, whose tests want every core for themselves.
