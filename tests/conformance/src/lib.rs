//! What stock clients meet when they talk to the embedded API server; the tests live in `tests/`.
