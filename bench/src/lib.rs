//! The measurements live in `benches/`; each writes lines to `bench/results/latest.jsonl`.
